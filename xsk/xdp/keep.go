package xdp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Keep looks whether the kernel still has everything Attach made, and mends
// what somebody took away: a pin that was removed or exchanged, the pin
// directory, the program inside the link. It returns what it mended; nothing is
// written where nothing is wrong. Call it from time to time: without the pin of
// its link a port opens when the process dies.
//
// [ErrLost] says that the link was taken off the device by force, or that the
// device is gone: no frame meets the program any more; [ErrUnsure], that another
// program is in the link and cannot be exchanged back, or that nobody can tell.
// Set a workload device down then, close this Program, and attach again. Other
// errors are of pins: the program is at work.
func (p *Program) Keep() (mended []string, err error) {
	if p.link == nil {
		return nil, fmt.Errorf("keep %s: %w", p.name, errClosed)
	}
	info, err := p.link.Info()
	if err != nil {
		return nil, fmt.Errorf("keep %s: %w: %w", p.name, ErrUnsure, err)
	}
	if x := info.XDP(); x == nil || x.Ifindex == 0 {
		return nil, fmt.Errorf("keep %s: link %d: %w", p.name, info.ID, ErrLost)
	}
	own, err := programID(p.objs.program)
	if err != nil {
		return nil, fmt.Errorf("keep %s: %w: %w", p.name, ErrUnsure, err)
	}
	if info.Program != own {
		if err := p.link.Update(p.objs.program); err != nil {
			return nil, fmt.Errorf("keep %s: exchange program %d for ours: %w: %w", p.name, info.Program, ErrUnsure, err)
		}
		mended = append(mended, "program of the link")
	}
	pins, err := keepPins(p.dir, p.objs, p.link)
	for _, file := range pins {
		mended = append(mended, "pin "+file)
	}
	if err != nil {
		return mended, fmt.Errorf("keep %s: %w", p.name, err)
	}
	return mended, nil
}

// KeepSocket makes sure that the slot of queue holds the socket fd, and says
// whether it was empty. User space cannot read an XSKMAP. But it can ask for an
// exchange, which the kernel refuses for an empty slot and which changes
// nothing where the same socket is there (xsk_map_update_elem, net/xdp/xskmap.c).
func (p *Program) KeepSocket(queue int, fd int) (mended bool, err error) {
	if err := p.checkQueue(queue); err != nil {
		return false, err
	}
	if fd < 0 {
		return false, fmt.Errorf("keep socket of %s queue %d: bad descriptor %d", p.name, queue, fd)
	}
	err = p.objs.xsks.Update(uint32(queue), uint32(fd), ebpf.UpdateExist)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return true, p.SetSocket(queue, fd)
	}
	if err != nil {
		return false, fmt.Errorf("keep socket of %s queue %d: %w", p.name, queue, err)
	}
	p.slots[queue] = fd
	return false, nil
}

// pinnable is what a pin can hold: a link, a program, a map.
type pinnable interface {
	Pin(path string) error
	Unpin() error // removes the file, and forgets where it was
}

// pinFile is one file of a pin directory.
type pinFile struct {
	name   string
	object pinnable
	// holds says whether the file at path is a pin of the object. A missing
	// file is fs.ErrNotExist.
	holds func(path string) (bool, error)
}

// keepPins makes every file of a pin directory a pin of its object, program and
// maps before the link, and says which it made. One that cannot be made stops no
// other. Another link in our link's place is left alone.
func keepPins(dir string, objs *objects, l link.Link) (made []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make pin directory: %w", err)
	}
	var errs []error
	for _, f := range []pinFile{
		{pinProgram, objs.program, func(path string) (bool, error) { return holdsProgram(path, objs.program) }},
		{pinXSKs, objs.xsks, func(path string) (bool, error) { return holdsMap(path, objs.xsks) }},
		{pinCounters, objs.counters, func(path string) (bool, error) { return holdsMap(path, objs.counters) }},
		{pinLink, l, func(path string) (bool, error) { return holdsLink(path, l) }},
	} {
		path := filepath.Join(dir, f.name)
		ok, err := f.holds(path)
		if ok {
			continue
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = f.make(path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("pin %s: %w", path, err))
			continue
		}
		made = append(made, f.name)
	}
	return made, errors.Join(errs...)
}

// make pins the object at path, whatever was there but somebody's link.
func (f *pinFile) make(path string) error {
	if is, alive := whatIs(path); is == foreign && alive {
		return fmt.Errorf("%s: %w", path, ErrForeignPin)
	}
	if err := f.object.Unpin(); err != nil {
		return err
	}
	if err := removeFile(path); err != nil {
		return err
	}
	return f.object.Pin(path)
}

func holdsProgram(path string, own *ebpf.Program) (bool, error) {
	pinned, err := ebpf.LoadPinnedProgram(path, nil)
	if err != nil {
		return false, notOurs(path, err)
	}
	defer pinned.Close()
	is, err := programID(pinned)
	want, err2 := programID(own)
	return is == want, errors.Join(err, err2)
}

func holdsMap(path string, own *ebpf.Map) (bool, error) {
	pinned, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return false, notOurs(path, err)
	}
	defer pinned.Close()
	is, err := mapID(pinned)
	want, err2 := mapID(own)
	return is == want, errors.Join(err, err2)
}

// notOurs turns the error of a file that is there, but is no pin of the wanted
// kind, into none: it is in our directory under our name, and makes way.
func notOurs(path string, err error) error {
	if _, there := os.Lstat(path); there == nil {
		return nil
	}
	return err
}

func holdsLink(path string, own link.Link) (bool, error) {
	pinned, err := openPinned(path)
	if err != nil || pinned == nil {
		return false, err
	}
	defer pinned.link.Close()
	info, err := own.Info()
	if err != nil {
		return false, err
	}
	if pinned.linkID != info.ID {
		return false, fmt.Errorf("link %d is pinned there, ours is %d: %w", pinned.linkID, info.ID, ErrPinBusy)
	}
	return true, nil
}

func programID(p *ebpf.Program) (ebpf.ProgramID, error) {
	info, err := p.Info()
	if err != nil {
		return 0, err
	}
	id, _ := info.ID()
	return id, nil
}

func mapID(m *ebpf.Map) (ebpf.MapID, error) {
	info, err := m.Info()
	if err != nil {
		return 0, err
	}
	id, _ := info.ID()
	return id, nil
}

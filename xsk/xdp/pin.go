package xdp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Files of a pin directory. The link is the truth: it is pinned last, and
// program and maps are found from it. The others are there for bpftool.
const (
	pinLink     = "link"
	pinProgram  = "program"
	pinXSKs     = "xsks"
	pinCounters = "counters"
)

var pinFiles = []string{pinLink, pinProgram, pinXSKs, pinCounters}

// Pin is what [List] found in one directory of PinDir.
type Pin struct {
	Name      string
	Kind      Kind
	IfIndex   int  // in the device's own network namespace; 0: the device is gone
	Alive     bool // attached to a device that exists
	LinkID    uint32
	ProgramID uint32

	dir string
}

// pinned is an open pinned link.
type pinned struct {
	link    link.Link
	linkID  link.ID
	program ebpf.ProgramID
	ifindex int // 0: the device is gone, or the link was detached by force
}

// openPinned opens the link pinned in dir. It returns nil and no error if
// there is none; a directory without a link is a leftover.
func openPinned(dir string) (*pinned, error) {
	path := filepath.Join(dir, pinLink)
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open pinned link %s: %w", path, err)
	}
	info, err := l.Info()
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("pinned link %s: %w", path, err)
	}
	x := info.XDP()
	if x == nil {
		l.Close()
		return nil, fmt.Errorf("pinned link %s is no XDP link: %w", path, ErrForeignProgram)
	}
	return &pinned{link: l, linkID: info.ID, program: info.Program, ifindex: int(x.Ifindex)}, nil
}

// objects opens the program the link runs, and its maps.
func (p *pinned) objects() (*objects, Kind, error) {
	program, err := ebpf.NewProgramFromID(p.program)
	if err != nil {
		return nil, 0, fmt.Errorf("open program %d of link %d: %w", p.program, p.linkID, err)
	}
	objs := &objects{program: program}
	kind, err := objs.findMaps()
	if err != nil {
		objs.close()
		return nil, 0, fmt.Errorf("program %d of link %d: %w", p.program, p.linkID, err)
	}
	return objs, kind, nil
}

func (o *objects) findMaps() (Kind, error) {
	info, err := o.program.Info()
	if err != nil {
		return 0, err
	}
	kind, ours := kindOf(info.Name)
	if !ours {
		return 0, fmt.Errorf("%s: %w", info.Name, ErrForeignProgram)
	}
	o.tags = info.Name == programName(kind, true)
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return 0, fmt.Errorf("open map %d: %w", id, err)
		}
		switch m.Type() {
		case ebpf.XSKMap:
			o.xsks = m
		case ebpf.PerCPUArray:
			o.counters = m
		default:
			m.Close()
		}
	}
	if o.xsks == nil || o.counters == nil {
		return 0, errors.New("its maps are missing")
	}
	return kind, nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pin: %w", err)
	}
	return nil
}

// removePins removes the files a pin directory has from us, and the directory
// if nothing else is in it. The link goes first: a directory without one is
// recognised as a leftover.
func removePins(dir string) error {
	for _, file := range pinFiles {
		if err := removeFile(filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	return removeFile(dir)
}

// List reports the pins below pinDir, those of devices that are gone and
// half-made ones included. A pinDir that does not exist has none. What is not
// picot's is left out.
func List(pinDir string) ([]Pin, error) {
	entries, err := os.ReadDir(pinDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	var pins []Pin
	var errs []error
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		pin, err := readPin(filepath.Join(pinDir, e.Name()))
		if errors.Is(err, ErrForeignProgram) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		pin.Name = PinName(e.Name())
		pins = append(pins, pin)
	}
	return pins, errors.Join(errs...)
}

func readPin(dir string) (Pin, error) {
	pin := Pin{dir: dir}
	p, err := openPinned(dir)
	if err != nil || p == nil {
		return pin, err
	}
	defer p.link.Close()
	objs, kind, err := p.objects()
	if err != nil {
		return pin, err
	}
	pin.Kind, pin.IfIndex, pin.Alive = kind, p.ifindex, p.ifindex != 0
	pin.LinkID, pin.ProgramID = uint32(p.linkID), uint32(p.program)
	return pin, objs.close()
}

// Remove removes the pin and takes the program off the device, if it is alive:
// the caller sets a workload device down first.
func (p Pin) Remove() error {
	if p.dir == "" {
		return errors.New("remove pin: not a pin of List")
	}
	open, err := openPinned(p.dir)
	if err != nil {
		return fmt.Errorf("remove pin %s: %w", p.Name, err)
	}
	if open != nil {
		// By itself the kernel detaches a little after the last reference.
		err = detach(open.link)
		open.link.Close()
	}
	if err = errors.Join(err, removePins(p.dir)); err != nil {
		return fmt.Errorf("remove pin %s: %w", p.Name, err)
	}
	return nil
}

// detach takes the link off its device, whoever else holds it. A device that is
// gone has done so already.
func detach(l link.Link) error {
	if err := l.Detach(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}

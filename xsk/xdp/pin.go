package xdp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/pin"
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
	Stray     bool // not where this build pins: an older one's

	dir  string
	file string // Stray: the only file, somewhere in dir
}

// pinned is an open pinned link.
type pinned struct {
	link    link.Link
	linkID  link.ID
	program ebpf.ProgramID
	ifindex int // 0: the device is gone, or the link was detached by force
}

// openPinned opens the link pinned at path. It returns nil and no error if there
// is none: nothing at all, or what makes way for a pin of ours, which is no pin or
// that of a program or map. A link of another kind is somebody's ([ErrForeignPin]).
func openPinned(path string) (*pinned, error) {
	file, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || err == nil && !file.Mode().IsRegular() {
		return nil, nil
	}
	var object pin.Pinner
	if err == nil {
		object, err = pin.Load(path, nil)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open pinned link %s: %w", path, err)
	}
	l, is := object.(link.Link)
	if !is {
		return nil, object.Close()
	}
	info, err := l.Info()
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("pinned link %s: %w", path, err)
	}
	x := info.XDP()
	if x == nil {
		l.Close()
		return nil, fmt.Errorf("pinned link %s is no XDP link; remove it, or pin it elsewhere: %w", path, ErrForeignPin)
	}
	return &pinned{link: l, linkID: info.ID, program: info.Program, ifindex: int(x.Ifindex)}, nil
}

// kind is that of the program the link runs.
func (p *pinned) kind() (Kind, error) {
	program, err := ebpf.NewProgramFromID(p.program)
	if err != nil {
		return 0, fmt.Errorf("open program %d of link %d: %w", p.program, p.linkID, err)
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return 0, fmt.Errorf("program %d of link %d: %w", p.program, p.linkID, err)
	}
	kind, is := kindOf(info.Name)
	if !is {
		return 0, fmt.Errorf("program %d of link %d: %s: %w", p.program, p.linkID, info.Name, ErrForeignProgram)
	}
	return kind, nil
}

// objects opens the program the link runs, and its maps; those of another build
// may be missing.
func (p *pinned) objects() (*objects, error) {
	program, err := ebpf.NewProgramFromID(p.program)
	if err != nil {
		return nil, fmt.Errorf("open program %d of link %d: %w", p.program, p.linkID, err)
	}
	objs := &objects{program: program}
	if err := objs.findMaps(); err != nil {
		objs.close()
		return nil, fmt.Errorf("program %d of link %d: %w", p.program, p.linkID, err)
	}
	return objs, nil
}

func (o *objects) findMaps() error {
	info, err := o.program.Info()
	if err != nil {
		return err
	}
	kind, ours := kindOf(info.Name)
	if !ours {
		return fmt.Errorf("%s: %w", info.Name, ErrForeignProgram)
	}
	o.tags = info.Name == programName(kind, true)
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return fmt.Errorf("open map %d: %w", id, err)
		}
		var name string
		if info, err := m.Info(); err == nil {
			name = info.Name
		}
		switch {
		case m.Type() == ebpf.XSKMap && name == mapXSKs && o.xsks == nil:
			o.xsks = m
		case m.Type() == ebpf.PerCPUArray && name == mapCounters && o.counters == nil:
			o.counters = m
		default:
			m.Close()
		}
	}
	return nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pin: %w", err)
	}
	return nil
}

// List reports the pins below pinDir, those of devices that are gone and
// half-made ones included, and what older builds pinned elsewhere in it. A pinDir
// that does not exist has none. What is not picot's is left out.
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
		found := Pin{Name: PinName(e.Name()), dir: filepath.Join(pinDir, e.Name())}
		err := found.read(filepath.Join(found.dir, pinLink))
		switch {
		case errors.Is(err, ErrForeignProgram), errors.Is(err, ErrForeignPin):
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		case found.LinkID == 0 && !holdsOurs(found.dir):
			continue
		}
		pins = append(pins, found)
	}
	return append(pins, listStrays(pinDir)...), errors.Join(errs...)
}

// read reads the link pinned at path, if there is one.
func (p *Pin) read(path string) error {
	open, err := openPinned(path)
	if err != nil || open == nil {
		return err
	}
	defer open.link.Close()
	if p.Kind, err = open.kind(); err != nil {
		return err
	}
	p.IfIndex, p.Alive = open.ifindex, open.ifindex != 0
	p.LinkID, p.ProgramID = uint32(open.linkID), uint32(open.program)
	return nil
}

// Remove removes the pin and takes the program off the device, if it is alive:
// the caller sets a workload device down first.
func (p Pin) Remove() error {
	if p.dir == "" {
		return errors.New("remove pin: not a pin of List")
	}
	path := p.file
	if path == "" {
		path = filepath.Join(p.dir, pinLink)
	}
	open, err := openPinned(path)
	if err != nil {
		return fmt.Errorf("remove pin %s: %w", p.Name, err)
	}
	if open != nil {
		// By itself the kernel detaches a little after the last reference.
		err = detach(open.link)
		open.link.Close()
	}
	if p.file == "" {
		err = errors.Join(err, clearDir(p.dir))
	} else {
		err = errors.Join(err, removeFile(p.file))
		removeEmptyUpTo(p.dir, p.file)
	}
	if err != nil {
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

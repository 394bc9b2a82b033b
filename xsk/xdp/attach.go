package xdp

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Attach puts the program on the device and pins it, or takes over what an
// earlier process pinned under the same name: as it is when program, constants
// and device match, else by exchanging the program of the link. Either way the
// device has a program at every moment. The XSKMAP with its sockets stays, too,
// unless more Queues are wanted than it has slots: then a new one starts empty.
//
// Pins of a device that is gone are removed; what an older build pinned for the
// device elsewhere in PinDir is moved here, and other files it left go. Maps whose
// layout is another one are made anew. Errors: [ErrNoDevice],
// [ErrForeignProgram], [ErrForeignPin], [ErrPinBusy], [ErrMode], [ErrExchange],
// [ErrNotBPFFS], and what the kernel refuses.
func Attach(o AttachOptions) (*Program, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	dev, err := queryDevice(o.IfIndex)
	if err != nil {
		return nil, fmt.Errorf("attach %q: %w", o.Name, err)
	}
	escaped, err := pinDirName(o.Name)
	if err != nil {
		return nil, err
	}
	if err := requireBPFFS(o.PinDir); err != nil {
		return nil, fmt.Errorf("attach %q: %w", o.Name, err)
	}
	dir := filepath.Join(o.PinDir, escaped)

	old, err := o.earlier(dev, dir)
	if err != nil {
		return nil, fmt.Errorf("attach %q: %w", o.Name, err)
	}
	if old == nil {
		if err := clearDir(dir); err != nil {
			return nil, fmt.Errorf("attach %q: stale pin: %w", o.Name, err)
		}
		return attachFresh(&o, dev, dir)
	}
	p, err := takeOver(&o, dev, dir, old)
	if err != nil {
		old.link.Close()
		return nil, err
	}
	return p, nil
}

// earlier opens the link that an earlier process, or an older build, pinned for
// this device or name; nil: none that lives.
func (o *AttachOptions) earlier(dev *device, dir string) (*pinned, error) {
	old, err := openPinned(filepath.Join(dir, pinLink))
	if err != nil {
		return nil, err
	}
	if old != nil && old.ifindex != 0 {
		return old, nil
	}
	if old != nil { // the device is gone, the pin is stale, whoever's it is
		old.link.Close()
		if err := removeFile(filepath.Join(dir, pinLink)); err != nil {
			return nil, err
		}
	}
	if len(dev.programs) > 0 {
		if old, err := o.adopt(dev, dir); old != nil || err != nil {
			return old, err
		}
	}
	return nil, makeWay(dir)
}

func attachFresh(o *AttachOptions, dev *device, dir string) (*Program, error) {
	if len(dev.programs) > 0 {
		return nil, foreignError(dev)
	}
	objs, l, mode, err := attachAnyMode(o, dev)
	if err != nil {
		return nil, err
	}
	if _, err := keepPins(dir, objs, l); err != nil {
		return nil, errors.Join(fmt.Errorf("attach %s: %w", dev.name, err),
			detach(l), l.Close(), objs.close(), clearDir(dir))
	}
	return newProgram(o, dir, objs, l, mode, false), nil
}

func attachAnyMode(o *AttachOptions, dev *device) (*objects, link.Link, Mode, error) {
	objs, l, err := attachMode(o, o.Mode)
	if err == nil {
		return objs, l, o.Mode, nil
	}
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		// Another program came between the query and now.
		if now, qerr := queryDevice(o.IfIndex); qerr == nil && len(now.programs) > 0 {
			return nil, nil, 0, foreignError(now)
		}
	}
	err = fmt.Errorf("attach %s XDP to %s: %w", o.Mode, dev.name, err)
	if o.Mode == Generic {
		return nil, nil, 0, err
	}
	if !o.AllowGeneric {
		return nil, nil, 0, fmt.Errorf("%w (allow generic mode if the driver has no XDP)", err)
	}
	objs, l, gerr := attachMode(o, Generic)
	if gerr != nil {
		return nil, nil, 0, errors.Join(err, fmt.Errorf("attach %s XDP to %s: %w", Generic, dev.name, gerr))
	}
	return objs, l, Generic, nil
}

func attachMode(o *AttachOptions, mode Mode) (*objects, link.Link, error) {
	objs, err := load(o, mode, nil)
	if err != nil {
		return nil, nil, err
	}
	flags := link.XDPDriverMode
	if mode == Generic {
		flags = link.XDPGenericMode
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: objs.program, Interface: o.IfIndex, Flags: flags})
	if err != nil {
		objs.close()
		return nil, nil, err
	}
	return objs, l, nil
}

// takeOver makes old, which is alive, the program of o.
func takeOver(o *AttachOptions, dev *device, dir string, old *pinned) (*Program, error) {
	// The index alone does not name a device: another namespace has it too.
	if old.ifindex != o.IfIndex || !dev.runs(old.program) {
		return nil, fmt.Errorf("attach %s: pin %s belongs to interface index %d, which lives on; detach that first, or use another name: %w",
			dev.name, dir, old.ifindex, ErrPinBusy)
	}
	mode := dev.mode()
	if mode != o.Mode && !(mode == Generic && o.AllowGeneric) {
		return nil, fmt.Errorf("attach %s: pin %s is in %s mode, wanted %s; set the device down, detach, and attach again: %w",
			dev.name, dir, mode, o.Mode, ErrMode)
	}
	running, err := old.objects()
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", dev.name, err)
	}
	keep, err := o.bring(dev, mode, old, running)
	if err != nil {
		return nil, err
	}
	_, err = keepPins(dir, keep, old.link) // writes nothing where the same are pinned
	if err == nil {
		err = clearDir(dir, pinFiles...) // what an older build pinned beside them
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach %s: %w", dev.name, err), keep.close())
	}
	return newProgram(o, dir, keep, old.link, mode, true), nil
}

// bring has the link run what o wants, and returns that: what runs, if it is
// just that. The other one is closed, on an error both are.
func (o *AttachOptions) bring(dev *device, mode Mode, old *pinned, running *objects) (*objects, error) {
	current, err := o.Cache.current(o, mode, running)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach %s: look at the program: %w", dev.name, err), running.close())
	}
	if current {
		return running, nil
	}
	wanted, err := load(o, mode, running)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach %s: %w", dev.name, err), running.close())
	}
	same, err := sameProgram(running.program, wanted.program)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach %s: compare programs: %w", dev.name, err), running.close(), wanted.close())
	}
	keep, drop := running, wanted
	if !same || wanted.newMap {
		if err := old.link.Update(wanted.program); err != nil {
			if errors.Is(err, unix.EINVAL) { // of another attach type, or bound to another device
				err = fmt.Errorf("%w: %w", ErrExchange, err)
			}
			return nil, errors.Join(fmt.Errorf("exchange the XDP program of %s: %w", dev.name, err), running.close(), wanted.close())
		}
		keep, drop = wanted, running
	}
	if err := drop.close(); err != nil {
		return nil, errors.Join(fmt.Errorf("attach %s: %w", dev.name, err), keep.close())
	}
	return keep, nil
}

// foreignError names the programs on the device and the mend.
func foreignError(dev *device) error {
	id := dev.programs[0]
	name, hint := "", ""
	if p, err := ebpf.NewProgramFromID(id); err == nil {
		if info, err := p.Info(); err == nil {
			name = " (" + info.Name + ")"
			if _, ours := kindOf(info.Name); ours {
				hint = " or stop the other picot that holds it,"
			}
		}
		p.Close()
	}
	return fmt.Errorf("%w: %s runs XDP program %d%s, which is not pinned here and is left alone; remove it with its owner's tool,%s or with `ip link set dev %s xdp off` (xdpgeneric off if it is generic; neither helps against a bpf_link)",
		ErrForeignProgram, dev.name, id, name, hint, dev.name)
}

package devicetest

import (
	"errors"
	"fmt"
	"maps"

	"picot.dev/picot/internal/device"
	"picot.dev/picot/xsk/xdp"
)

// currentVersion is that of the programs Attach makes; Plant can make older ones.
const currentVersion = 2

var errClosed = errors.New("closed")

// program is a handle of a link.
type program struct {
	k      *Kernel
	l      *link
	reused bool
	closed bool
}

// Attach implements device.Kernel as xdp.Attach does.
func (k *Kernel) Attach(o xdp.AttachOptions) (device.Program, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d, err := k.find(o.IfIndex)
	if err != nil {
		return nil, err
	}
	old := k.pins[o.Name]
	switch {
	case old != nil && (old.foreign || old.exchanged && old.ifindex == o.IfIndex):
		return nil, fmt.Errorf("attach %s: %w", o.Name, xdp.ErrForeignProgram)
	case old != nil && old.ifindex != 0 && old.ifindex != o.IfIndex:
		return nil, fmt.Errorf("attach %s: %w", o.Name, xdp.ErrPinBusy)
	case old != nil && old.ifindex != 0:
		return k.takeOver(o, old)
	case d.link != nil:
		return nil, fmt.Errorf("attach %s: %w", o.Name, xdp.ErrForeignProgram)
	}
	delete(k.pins, o.Name)
	l := k.newLink(o, currentVersion)
	err = k.mutate("attach "+o.Name, func() {
		d.link, k.pins[o.Name] = l, l
	})
	if err != nil {
		return nil, err
	}
	l.held++
	return &program{k: k, l: l}, nil
}

func (k *Kernel) newLink(o xdp.AttachOptions, version int) *link {
	k.lastID += 2
	return &link{
		name: o.Name, version: version, o: o, mode: o.Mode, id: k.lastID, prog: k.lastID + 1, ifindex: o.IfIndex,
		slots: map[int]int{}, pinned: true,
	}
}

func (k *Kernel) takeOver(o xdp.AttachOptions, l *link) (device.Program, error) {
	if l.mode != o.Mode && !(l.mode == xdp.Generic && o.AllowGeneric) {
		return nil, fmt.Errorf("attach %s: %w", o.Name, xdp.ErrMode)
	}
	if l.o.Kind != o.Kind || l.o.Locator != o.Locator || l.version != currentVersion || l.o.Queues < o.Queues {
		err := k.mutate("exchange "+o.Name, func() {
			k.lastID++
			l.prog, l.o, l.version = k.lastID, o, currentVersion
		})
		if err != nil {
			return nil, err
		}
	}
	l.held++
	return &program{k: k, l: l, reused: true}, nil
}

func (p *program) lock() (unlock func(), err error) {
	p.k.mu.Lock()
	if p.closed {
		p.k.mu.Unlock()
		return func() {}, fmt.Errorf("program of %s: %w", p.l.name, errClosed)
	}
	return p.k.mu.Unlock, nil
}

// SetSocket implements device.Program.
func (p *program) SetSocket(queue, fd int) error {
	unlock, err := p.lock()
	defer unlock()
	if err != nil {
		return err
	}
	return p.fill(queue, fd)
}

func (p *program) fill(queue, fd int) error {
	if !p.k.isSocket(fd) {
		return fmt.Errorf("slot %s/%d: descriptor %d is no socket", p.l.name, queue, fd)
	}
	return p.k.mutate(fmt.Sprintf("slot %s/%d", p.l.name, queue), func() { p.l.slots[queue] = fd })
}

// KeepSocket implements device.Program.
func (p *program) KeepSocket(queue, fd int) (bool, error) {
	unlock, err := p.lock()
	defer unlock()
	if err != nil {
		return false, err
	}
	if p.l.slots[queue] == fd {
		return false, nil
	}
	return true, p.fill(queue, fd)
}

// Keep implements device.Program.
func (p *program) Keep() (mended []string, err error) {
	unlock, err := p.lock()
	defer unlock()
	if err != nil {
		return nil, err
	}
	if err := p.k.try("keep " + p.l.name); err != nil {
		return nil, fmt.Errorf("%w: %w", xdp.ErrUnsure, err)
	}
	if p.l.ifindex == 0 {
		return nil, fmt.Errorf("keep %s: %w", p.l.name, xdp.ErrLost)
	}
	if p.l.exchanged {
		if err := p.k.mutate("exchange "+p.l.name, func() { p.l.exchanged = false }); err != nil {
			return nil, fmt.Errorf("%w: %w", xdp.ErrUnsure, err)
		}
		mended = append(mended, "program of the link")
	}
	if p.l.pinned {
		return mended, nil
	}
	err = p.k.mutate("pin "+p.l.name, func() {
		p.l.pinned = true
		p.k.pins[p.l.name] = p.l
	})
	if err != nil {
		return mended, err
	}
	return append(mended, "pin link"), nil
}

// Counters implements device.Program.
func (p *program) Counters() (xdp.Counters, error) { return xdp.Counters{}, nil }

// Mode implements device.Program.
func (p *program) Mode() xdp.Mode { return p.l.mode }

// Reused implements device.Program.
func (p *program) Reused() bool { return p.reused }

// Detach implements device.Program.
func (p *program) Detach() error {
	unlock, err := p.lock()
	defer unlock()
	if err != nil {
		return err
	}
	return p.k.mutate("detach "+p.l.name, func() {
		if d := p.k.devices[p.l.ifindex]; d != nil && d.link == p.l {
			d.link = nil
		}
		if p.k.pins[p.l.name] == p.l {
			delete(p.k.pins, p.l.name)
		}
		p.l.ifindex, p.l.pinned = 0, false
		p.drop()
	})
}

// Close implements device.Program.
func (p *program) Close() error {
	unlock, err := p.lock()
	defer unlock()
	if err == nil {
		p.drop()
	}
	return nil
}

// drop gives the handle up: a link nobody holds or pins is gone, and its device
// without a program.
func (p *program) drop() {
	p.closed = true
	p.l.held--
	p.k.reap(p.l)
}

func (k *Kernel) reap(l *link) {
	if l.held > 0 || l.pinned {
		return
	}
	if d := k.devices[l.ifindex]; d != nil && d.link == l {
		d.link = nil
	}
	l.ifindex = 0
}

// links are all that run or are pinned.
func (k *Kernel) links() map[*link]bool {
	all := map[*link]bool{}
	for _, d := range k.devices {
		if d.link != nil {
			all[d.link] = true
		}
	}
	for l := range maps.Values(k.pins) {
		all[l] = true
	}
	return all
}

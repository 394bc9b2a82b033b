package xdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Program is an attached program with its maps.
type Program struct {
	name   string
	dir    string
	mode   Mode
	kind   Kind
	reused bool

	objs *objects
	link link.Link

	// The kernel applies the fallback of bpf_redirect_map only to an empty
	// slot and tells nobody which slots are filled by whom, so the slots this
	// process filled are kept here.
	slots []int
}

func newProgram(o *AttachOptions, dir string, objs *objects, l link.Link, mode Mode, reused bool) *Program {
	slots := make([]int, objs.xsks.MaxEntries())
	for i := range slots {
		slots[i] = -1
	}
	return &Program{name: o.Name, dir: dir, mode: mode, kind: o.Kind, reused: reused, objs: objs, link: l, slots: slots}
}

// SetSocket puts the AF_XDP socket fd, bound to the device's queue, into the
// slot of queue. A socket already there is replaced. The kernel empties the
// slot when the socket is closed everywhere.
func (p *Program) SetSocket(queue int, fd int) error {
	if err := p.checkQueue(queue); err != nil {
		return err
	}
	if fd < 0 {
		return fmt.Errorf("set socket of %s queue %d: bad descriptor %d", p.name, queue, fd)
	}
	if err := p.objs.xsks.Put(uint32(queue), uint32(fd)); err != nil {
		return fmt.Errorf("set socket of %s queue %d: %w", p.name, queue, err)
	}
	p.slots[queue] = fd
	return nil
}

// ClearSocket empties the slot of queue, whoever filled it; frames of that
// queue are dropped from now on. An empty slot is no error.
func (p *Program) ClearSocket(queue int) error {
	if err := p.checkQueue(queue); err != nil {
		return err
	}
	if err := p.objs.xsks.Delete(uint32(queue)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("clear socket of %s queue %d: %w", p.name, queue, err)
	}
	p.slots[queue] = -1
	return nil
}

func (p *Program) checkQueue(queue int) error {
	if p.link == nil {
		return fmt.Errorf("program of %s: %w", p.name, errClosed)
	}
	if queue < 0 || queue >= len(p.slots) {
		return fmt.Errorf("queue %d of %s is not below its %d slots", queue, p.name, len(p.slots))
	}
	return nil
}

// Slots returns the socket descriptor this process put into each slot, -1 for
// none. A slot filled by an earlier process that lives on reads -1.
func (p *Program) Slots() []int { return slices.Clone(p.slots) }

// Counters reads the counters.
func (p *Program) Counters() (Counters, error) {
	c, err := readCounters(p.objs.counters)
	if err != nil {
		return c, fmt.Errorf("%s: %w", p.name, err)
	}
	return c, nil
}

// Mode returns the mode the program runs in.
func (p *Program) Mode() Mode { return p.mode }

// Kind returns the kind of port it was attached for.
func (p *Program) Kind() Kind { return p.kind }

// Reused says whether the link of an earlier process was taken over.
func (p *Program) Reused() bool { return p.reused }

// ReadsTags says whether the program sees offloaded VLAN tags. If not, the
// sending end (a veth's peer: tx-vlan-offload) or the device (a NIC:
// rx-vlan-offload) must keep the tags in the frames.
func (p *Program) ReadsTags() bool { return p.objs.tags }

// IDs returns the kernel's IDs of link and program, as bpftool shows them.
func (p *Program) IDs() (linkID, programID uint32, err error) {
	if p.link == nil {
		return 0, 0, fmt.Errorf("program of %s: %w", p.name, errClosed)
	}
	info, err := p.link.Info()
	if err != nil {
		return 0, 0, fmt.Errorf("program of %s: %w", p.name, err)
	}
	return uint32(info.ID), uint32(info.Program), nil
}

// Detach removes the pins, takes the program off the device and closes. The
// caller sets a workload device down first: without the program its frames
// reach the kernel's stack.
func (p *Program) Detach() error {
	if p.link == nil {
		return fmt.Errorf("detach %s: %w", p.name, errClosed)
	}
	err := errors.Join(detach(p.link), clearDir(p.dir))
	if err = errors.Join(err, p.Close()); err != nil {
		return fmt.Errorf("detach %s: %w", p.name, err)
	}
	return nil
}

// Close releases the descriptors and leaves pins and program in place.
func (p *Program) Close() error {
	if p.link == nil {
		return nil
	}
	err := errors.Join(p.link.Close(), p.objs.close())
	p.link = nil
	if err != nil {
		return fmt.Errorf("close program of %s: %w", p.name, err)
	}
	return nil
}

// Package devicetest is a kernel and a data path for tests of who uses package
// device: devices, programs, pins, slots and sockets in memory. It counts every
// mutation, fails on demand, and can lose things or die like the real one.
//
// An operation is named by its verb and its object, and so counted and failed:
//
//	query DEV, check DEV, keep DEV, pins, place       reads
//	silence, up, down, attach, exchange, pin, detach, remove-pin DEV
//	open DEV/QUEUE, slot DEV/QUEUE, close DEV
package devicetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"picot.dev/picot/internal/device"
	"picot.dev/picot/xsk/xdp"
)

// ErrInjected is the failure on demand.
var ErrInjected = errors.New("injected failure")

// Kernel implements device.Kernel and device.Sockets. Safe for concurrent use.
type Kernel struct {
	mu       sync.Mutex
	devices  map[int]*dev
	pins     map[string]*link // by name
	ports    map[int]*sockets // by port index
	uplinks  map[int]*sockets // by number
	lastID   uint32
	log      []string
	tries    map[string]int
	fail     map[string]int
	everyone int // calls so far
}

// dev is a device.
type dev struct {
	name   string
	queues int
	up     bool
	silent bool
	link   *link // what runs on it
}

// link is an attached program. It lives as long as it is pinned or held.
type link struct {
	name     string // of its pin
	foreign  bool
	version  int
	o        xdp.AttachOptions
	mode     xdp.Mode
	id, prog uint32
	ifindex  int // 0: lost
	slots    map[int]int
	pinned   bool
	held     int // handles

	exchanged bool // somebody's program is in it
}

// New makes an empty kernel.
func New() *Kernel {
	return &Kernel{
		devices: map[int]*dev{}, pins: map[string]*link{}, ports: map[int]*sockets{}, uplinks: map[int]*sockets{},
		tries: map[string]int{}, fail: map[string]int{},
	}
}

// AddDevice plugs a device in, down.
func (k *Kernel) AddDevice(ifindex int, name string, queues int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.devices[ifindex] = &dev{name: name, queues: queues}
}

// DeleteDevice takes one out, and its program off it.
func (k *Kernel) DeleteDevice(ifindex int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.devices[ifindex]; d != nil && d.link != nil {
		d.link.ifindex = 0
	}
	delete(k.devices, ifindex)
}

// Fail makes the next n tries of an operation fail; n < 0: all from now on; 0:
// none.
func (k *Kernel) Fail(op string, n int) { k.mu.Lock(); k.fail[op] = n; k.mu.Unlock() }

// Tries is how often an operation was tried.
func (k *Kernel) Tries(op string) int { k.mu.Lock(); defer k.mu.Unlock(); return k.tries[op] }

// Calls is how often anything was tried.
func (k *Kernel) Calls() int { k.mu.Lock(); defer k.mu.Unlock(); return k.everyone }

// Ops are the names of all operations tried so far, sorted.
func (k *Kernel) Ops() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.tries))
}

// Mutations returns the successful mutations since the last call, in order.
func (k *Kernel) Mutations() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	log := k.log
	k.log = nil
	return log
}

// try counts an operation and says whether it is to fail; the caller holds mu.
func (k *Kernel) try(op string) error {
	k.tries[op]++
	k.everyone++
	n := k.fail[op]
	if n == 0 {
		return nil
	}
	if n > 0 {
		k.fail[op] = n - 1
	}
	return fmt.Errorf("%s: %w", op, ErrInjected)
}

// mutate tries an operation, and does and logs it.
func (k *Kernel) mutate(op string, do func()) error {
	if err := k.try(op); err != nil {
		return err
	}
	do()
	k.log = append(k.log, op)
	return nil
}

func (k *Kernel) find(ifindex int) (*dev, error) {
	d := k.devices[ifindex]
	if d == nil {
		return nil, fmt.Errorf("interface index %d: %w", ifindex, xdp.ErrNoDevice)
	}
	return d, nil
}

// Query implements device.Kernel.
func (k *Kernel) Query(ifindex int) (device.Device, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d, err := k.find(ifindex)
	if err == nil {
		err = k.try("query " + d.name)
	}
	if err != nil {
		return device.Device{}, err
	}
	return device.Device{Name: d.name, Queues: d.queues, Up: d.up}, nil
}

// Silence implements device.Kernel.
func (k *Kernel) Silence(ifindex int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	d, err := k.find(ifindex)
	if err != nil || d.silent {
		return err
	}
	return k.mutate("silence "+d.name, func() { d.silent = true })
}

// Up implements device.Kernel.
func (k *Kernel) Up(ifindex int) error { return k.set(ifindex, "up ", true) }

// Down implements device.Kernel.
func (k *Kernel) Down(ifindex int) error { return k.set(ifindex, "down ", false) }

func (k *Kernel) set(ifindex int, verb string, up bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	d, err := k.find(ifindex)
	if err != nil {
		return err
	}
	return k.mutate(verb+d.name, func() { d.up = up })
}

// CheckUplink implements device.Kernel.
func (k *Kernel) CheckUplink(ifindex int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	d, err := k.find(ifindex)
	if err != nil {
		return err
	}
	return k.try("check " + d.name)
}

// Pins implements device.Kernel.
func (k *Kernel) Pins(string) ([]xdp.Pin, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.try("pins"); err != nil {
		return nil, err
	}
	var pins []xdp.Pin
	for _, name := range slices.Sorted(maps.Keys(k.pins)) {
		if l := k.pins[name]; !l.foreign {
			pins = append(pins, xdp.Pin{
				Name: name, Kind: l.o.Kind, IfIndex: l.ifindex, Alive: l.ifindex != 0, LinkID: l.id, ProgramID: l.prog,
			})
		}
	}
	return pins, nil
}

// RemovePin implements device.Kernel.
func (k *Kernel) RemovePin(pin xdp.Pin) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.pins[pin.Name]
	if l == nil {
		return fmt.Errorf("remove pin %s: there is none", pin.Name)
	}
	return k.mutate("remove-pin "+pin.Name, func() {
		if d := k.devices[l.ifindex]; d != nil {
			if l.o.Kind == xdp.Workload {
				d.up, d.silent = false, false
			}
			d.link = nil
		}
		l.ifindex, l.pinned = 0, false
		delete(k.pins, pin.Name)
	})
}

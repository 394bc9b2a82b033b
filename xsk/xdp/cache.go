package xdp

import (
	"errors"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Cache keeps from one [Attach] to the next what is the same for all devices:
// the built-in object, the kernel's types, and what a program that the kernel
// loaded is known by. With it a restart with many ports loads one program to
// compare, not one a port. Safe for concurrent use.
type Cache struct {
	types *btf.Cache

	mu    sync.Mutex
	spec  *ebpf.CollectionSpec
	known map[string]identity // by name of the program
}

// NewCache makes an empty cache.
func NewCache() *Cache {
	return &Cache{types: btf.NewCache(), known: map[string]identity{}}
}

// Warm reads the kernel's types, which takes longer than all the rest of the
// first Attach, so that they are there when it comes.
func (c *Cache) Warm() error {
	_, err := c.types.Kernel()
	return err
}

// types are the kernel's types as they are kept, nil if they are not.
func (o *AttachOptions) types() *btf.Cache {
	if o.Cache == nil {
		return nil
	}
	return o.Cache.types
}

// object is a copy of the built-in object, for the caller to change.
func (c *Cache) object() (*ebpf.CollectionSpec, error) {
	if c == nil {
		return loadPicot()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spec == nil {
		spec, err := loadPicot()
		if err != nil {
			return nil, err
		}
		c.spec = spec
	}
	return c.spec.Copy(), nil
}

// identity tells loaded programs of one name apart: equal ones do the same. The
// tag covers the instructions, but not the constants.
type identity struct{ tag, constants string }

func identify(p *ebpf.Program) (name string, id identity, err error) {
	info, err := p.Info()
	if err != nil {
		return "", id, err
	}
	c, err := constants(info)
	return info.Name, identity{tag: info.Tag, constants: string(c)}, err
}

// learn notes a program the kernel loaded from the built-in object.
func (c *Cache) learn(kind Kind, p *ebpf.Program) {
	if c == nil || kind != Workload { // an uplink's constants are its own
		return
	}
	name, id, err := identify(p)
	if err != nil {
		return // the next one will do
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[name] = id
}

// current says whether what runs is, as far as known here, just what o would
// load: program, constants and maps. If in doubt it is not.
func (c *Cache) current(o *AttachOptions, mode Mode, running *objects) (bool, error) {
	if c == nil || o.Kind != Workload || running.tags != (mode == Native) || running.xsks == nil || running.counters == nil {
		return false, nil
	}
	name, id, err := identify(running.program)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	known, ok := c.known[name]
	c.mu.Unlock()
	if !ok || known != id || running.xsks.MaxEntries() < uint32(o.Queues) {
		return false, nil
	}
	spec, err := c.object()
	if err != nil {
		return false, err
	}
	spec.Maps[mapXSKs].MaxEntries = running.xsks.MaxEntries()
	fits := errors.Join(spec.Maps[mapXSKs].Compatible(running.xsks), spec.Maps[mapCounters].Compatible(running.counters))
	return fits == nil, nil
}

package xdp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// devBoundOnly is BPF_F_XDP_DEV_BOUND_ONLY (linux/bpf.h since 6.3): the program
// runs on the host, but may call the metadata functions of one device's driver.
const devBoundOnly = 1 << 6

// Names of the programs and maps in bpf/picot.c, by which the kernel's objects
// are recognised as ours: all have the prefix, whatever build made them.
const (
	prefix      = "picot_"
	mapXSKs     = "picot_xsks"
	mapCounters = "picot_counters"
)

// objects are a loaded program and the maps it uses.
type objects struct {
	program  *ebpf.Program
	xsks     *ebpf.Map
	counters *ebpf.Map
	tags     bool // reads offloaded VLAN tags
	newMap   bool // not all of its maps are those it was to keep
}

func (o *objects) close() error {
	var errs []error
	if o.program != nil {
		errs = append(errs, o.program.Close())
	}
	for _, m := range []*ebpf.Map{o.xsks, o.counters} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

func programName(k Kind, tags bool) string {
	name := prefix + "work"
	if k == Uplink {
		name = uplinkPrefix
	}
	if tags {
		return name + "_tag"
	}
	return name + "_plain"
}

// uplinkPrefix is that of uplinks' programs, of older builds as well.
const uplinkPrefix = prefix + "up"

// kindOf tells the kind by a program's name, which may be an older build's, and
// which the kernel cuts off after 15 bytes. One that says nothing of its kind is
// a workload's: that is closed before it goes.
func kindOf(program string) (k Kind, ours bool) {
	if strings.HasPrefix(program, uplinkPrefix) {
		return Uplink, true
	}
	return Workload, strings.HasPrefix(program, prefix)
}

// load loads the program for o. In native mode it is the one that reads VLAN
// tags, if the driver offers them. The maps of an earlier program are used
// where keep has them and they fit.
func load(o *AttachOptions, mode Mode, keep *objects) (*objects, error) {
	if mode == Generic { // the kernel refuses a device-bound program there
		return loadVariant(o, false, keep)
	}
	objs, err := loadVariant(o, true, keep)
	if errors.Is(err, unix.EOPNOTSUPP) { // no xdp_metadata_ops in the driver
		return loadVariant(o, false, keep)
	}
	return objs, err
}

func loadVariant(o *AttachOptions, tags bool, keep *objects) (*objects, error) {
	spec, err := o.Cache.object()
	if err != nil {
		return nil, fmt.Errorf("read the built-in XDP program: %w", err)
	}
	name := programName(o.Kind, tags)
	program := spec.Programs[name]
	if program == nil {
		return nil, fmt.Errorf("no XDP program %s is built in", name)
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{name: program}
	if tags {
		program.Flags |= devBoundOnly
		program.Ifindex = uint32(o.IfIndex)
	}
	if o.Kind == Uplink {
		prefix, mask := locatorWords(o.Locator)
		if err := errors.Join(spec.Variables["locator_prefix"].Set(prefix), spec.Variables["locator_mask"].Set(mask)); err != nil {
			return nil, fmt.Errorf("set the locator of the XDP program: %w", err)
		}
	}
	spec.Maps[mapXSKs].MaxEntries = uint32(o.Queues)

	options := ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{}, Cache: o.types()}
	newMap := false
	if keep != nil {
		if keep.xsks != nil && keep.xsks.MaxEntries() >= uint32(o.Queues) {
			spec.Maps[mapXSKs].MaxEntries = keep.xsks.MaxEntries()
		}
		for key, m := range map[string]*ebpf.Map{mapXSKs: keep.xsks, mapCounters: keep.counters} {
			if m == nil || spec.Maps[key].Compatible(m) != nil {
				newMap = true
				continue
			}
			options.MapReplacements[key] = m
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, options)
	if err != nil {
		return nil, fmt.Errorf("load XDP program %s: %w", name, err)
	}
	defer coll.Close() // closes what is not detached from it
	o.Cache.learn(o.Kind, coll.Programs[name])
	return &objects{
		program:  coll.DetachProgram(name),
		xsks:     coll.DetachMap(mapXSKs),
		counters: coll.DetachMap(mapCounters),
		tags:     tags,
		newMap:   newMap,
	}, nil
}

// sameProgram says whether two loaded programs do the same.
func sameProgram(a, b *ebpf.Program) (bool, error) {
	aname, aid, err := identify(a)
	if err != nil {
		return false, err
	}
	bname, bid, err := identify(b)
	return aname == bname && aid == bid, err
}

// rodata is how the name of the map with a program's constants ends.
const rodata = "rodata"

// constants returns the content of the program's .rodata, nil if it uses none.
// The tag of a program does not cover it.
func constants(info *ebpf.ProgramInfo) ([]byte, error) {
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, fmt.Errorf("open map %d of program %s: %w", id, info.Name, err)
		}
		name := ""
		if info, err := m.Info(); err == nil {
			name = info.Name
		}
		// An older build's program may have an array of its own beside it.
		if m.Type() != ebpf.Array || m.KeySize() != 4 || !strings.HasSuffix(name, rodata) {
			m.Close()
			continue
		}
		value, err := m.LookupBytes(uint32(0))
		m.Close()
		return value, err
	}
	return nil, nil
}

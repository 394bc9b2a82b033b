package devicetest

import (
	"fmt"
	"maps"
	"slices"

	"picot.dev/picot/xsk/xdp"
)

// LosePin removes a device's pin behind everybody's back.
func (k *Kernel) LosePin(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.pins[name]; l != nil {
		l.pinned = false
		delete(k.pins, name)
		k.reap(l)
	}
}

// LoseSlot empties a slot.
func (k *Kernel) LoseSlot(name string, queue int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for l := range k.links() {
		if l.name == name {
			delete(l.slots, queue)
		}
	}
}

// ExchangeProgram puts somebody's program, which passes every frame, into the link
// of ours.
func (k *Kernel) ExchangeProgram(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for l := range k.links() {
		if l.name == name {
			l.exchanged = true
		}
	}
}

// LoseSilence has the host speak over a device again.
func (k *Kernel) LoseSilence(ifindex int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.devices[ifindex].silent = false
}

// LoseLink takes a program off its device by force; the pin stays.
func (k *Kernel) LoseLink(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices {
		if d.link != nil && d.link.name == name {
			d.link.ifindex = 0
			d.link = nil
		}
	}
}

// Plant puts a pinned program of ours on a device, as an earlier process left it:
// of this build's version or an older one.
func (k *Kernel) Plant(o xdp.AttachOptions, older bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	version := currentVersion
	if older {
		version--
	}
	l := k.newLink(o, version)
	d := k.devices[o.IfIndex]
	d.link, d.up, d.silent, k.pins[o.Name] = l, true, o.Kind == xdp.Workload, l
}

// PlantForeign puts somebody else's program on a device.
func (k *Kernel) PlantForeign(ifindex int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastID++
	k.devices[ifindex].link = &link{foreign: true, ifindex: ifindex, pinned: true, prog: k.lastID}
}

// Die does what the kernel does when the process dies: its sockets are closed,
// its handles gone.
func (k *Kernel) Die() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, all := range []map[int]*sockets{k.ports, k.uplinks} {
		for number, s := range all {
			k.empty(s)
			delete(all, number)
		}
	}
	for l := range k.links() {
		if !l.foreign {
			l.held = 0
			k.reap(l)
		}
	}
}

// Open are the devices that carry frames to the host's stack: up, and without a
// program, or with one that somebody put in the place of ours. Only for names that begin with prefix.
func (k *Kernel) Open(prefix string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var open []string
	for _, d := range k.devices {
		if d.up && (d.link == nil || d.link.exchanged) && len(d.name) >= len(prefix) && d.name[:len(prefix)] == prefix {
			open = append(open, d.name)
		}
	}
	slices.Sort(open)
	return open
}

// IDs are link and program of each pin, by name.
func (k *Kernel) IDs() map[string][2]uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := map[string][2]uint32{}
	for name, l := range k.pins {
		ids[name] = [2]uint32{l.id, l.prog}
	}
	return ids
}

// State describes everything but IDs, a line each: two kernels in the same state
// say the same.
func (k *Kernel) State() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var lines []string
	for _, index := range slices.Sorted(maps.Keys(k.devices)) {
		d := k.devices[index]
		line := fmt.Sprintf("%s up %v silent %v", d.name, d.up, d.silent)
		if l := d.link; l != nil {
			line += fmt.Sprintf(" program foreign %v %s %s version %d pinned %v slots %v", l.foreign, l.o.Kind, l.mode, l.version,
				l.pinned, slices.Sorted(maps.Keys(l.slots)))
		}
		lines = append(lines, line)
	}
	for _, name := range slices.Sorted(maps.Keys(k.pins)) {
		lines = append(lines, fmt.Sprintf("pin %s alive %v", name, k.pins[name].ifindex != 0))
	}
	return lines
}

package xdp

import (
	"testing"

	"github.com/cilium/ebpf/asm"
)

// A restart loads one program to compare, whatever the number of ports; where
// something differs it loads again and exchanges.
func TestCacheSparesLoads(t *testing.T) {
	w := newWire(t, 1500, 1)
	o := w.options(Workload)
	first := w.attach(t, o)
	l1, p1 := ids(t, first)

	o.Cache = NewCache()
	if err := o.Cache.Warm(); err != nil {
		t.Fatal(err)
	}
	second := w.attach(t, o) // knows nothing: loads one
	if len(o.Cache.known) != 1 {
		t.Fatalf("known: %v", o.Cache.known)
	}
	// From here on the kernel would refuse whatever is loaded.
	for _, p := range o.Cache.spec.Programs {
		p.Instructions = asm.Instructions{asm.LoadMem(asm.R0, asm.R1, 4096, asm.DWord), asm.Return()}
	}
	third := w.attach(t, o)
	for _, p := range []*Program{second, third} {
		if l, id := ids(t, p); l != l1 || id != p1 || !p.Reused() {
			t.Errorf("link %d -> %d, program %d -> %d", l1, l, p1, id)
		}
	}
	o.Queues += 4
	if _, err := w.try(o); err == nil {
		t.Error("more queues than the map has slots: nothing was loaded")
	}
	o.Queues -= 4
	for name := range o.Cache.known {
		o.Cache.known[name] = identity{tag: "another"}
	}
	if _, err := w.try(o); err == nil {
		t.Error("the program is not the one known: nothing was loaded")
	}
	o.Cache = NewCache()
	o.Queues += 4
	if _, id := ids(t, w.attach(t, o)); id == p1 {
		t.Error("more queues: the program was not exchanged")
	}
}

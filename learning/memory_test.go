package learning

import (
	"fmt"
	"runtime"
	"testing"

	"picot.dev/picot/internal/packet"
)

// TestForeignBindingsAreCheap holds what a Core keeps of other nodes' bindings:
// the binding and its place in the map, and no part of its own.
func TestForeignBindingsAreCheap(t *testing.T) {
	const entries, most = 20_000, 400 // bytes each, texts not counted
	c, err := NewCore("n1", Options{})
	if err != nil {
		t.Fatal(err)
	}
	now := Now{Mono: second, Wall: simWall}
	c.SetNetwork(Network{Name: "red", Prefixes: modelPrefixes, Learning: true}, now)
	c.Gate(true, now)
	keys := make([]Key, entries)
	versions := make([]Version, entries)
	for i := range keys {
		keys[i] = FDB("red", packet.MACFromUint64(0x020000000000+uint64(i)))
		if i%2 == 1 {
			keys[i] = Neighbor("red", packet.IPFrom4(0x0a000000+uint32(i)))
		}
		versions[i] = Version{UID: fmt.Sprint("uid-", i), ResourceVersion: fmt.Sprint(1 + i)}
	}
	before := heap()
	for i, k := range keys {
		b := Binding{Node: "n2", Static: i%4 < 2, Version: versions[i]}
		if k.IsNeighbor() {
			b.MAC = packet.MAC{2, 1}
		}
		c.Set(k, b, now)
	}
	each := int(heap()-before) / entries
	t.Logf("%d bytes for a binding", each)
	if each > most {
		t.Errorf("%d bytes for a binding of another node, more than %d", each, most)
	}
	for k, e := range c.entries {
		if e.part != c.idle {
			t.Fatalf("%s, another node's, has a part of its own", k)
		}
	}
	// One that was this node's for a while is as cheap again.
	k := keys[0]
	theirs := Binding{Node: "n2", Version: Version{UID: "x", ResourceVersion: "100001"}}
	c.Set(k, Binding{Node: "n1", Version: Version{UID: "x", ResourceVersion: "100000"}}, now)
	c.Set(k, theirs, now)
	for _, w := range c.Take().Writes { // n1 has no such endpoint: a delete, too late
		c.Done(k, w.Seq, Result{Outcome: Conflict, Known: true, Current: &theirs}, now)
	}
	c.Set(k, theirs, now)
	if e := c.entries[k]; e.part != c.idle {
		t.Errorf("%s went back to the other node and keeps a part: %+v", k, *e.part)
	}
	if *c.idle != (part{}) {
		t.Errorf("the common part was written: %+v", *c.idle)
	}
	runtime.KeepAlive(versions)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

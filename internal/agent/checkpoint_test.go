package agent

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
)

func testCheckpoint(dir string) *checkpoint {
	return newCheckpoint(&Config{RunDir: dir, NodeName: "node1", Log: slog.New(slog.DiscardHandler)})
}

// manyEntries are stations of another node, each with an address of either family.
func manyEntries(from, to int) desired.Delta {
	d := desired.Delta{FDB: map[desired.FDBKey]*desired.FDBEntry{}, Neighbors: map[desired.NeighborKey]*desired.Neighbor{}}
	for i := from; i < to; i++ {
		k := desired.FDBKey{Network: "red", MAC: packet.MACFromUint64(0x020000000000 + uint64(i))}
		d.FDB[k] = &desired.FDBEntry{FDBKey: k, Owner: desired.Owner{Node: "node2", Static: i%2 == 0}, Segment: uint32(i)}
		v4 := [4]byte{10, 0, byte(i >> 8), byte(i)}
		for _, ip := range []netip.Addr{netip.AddrFrom4(v4), netip.AddrFrom16([16]byte{0: 0xfd, 12: v4[0], 14: v4[2], 15: v4[3]})} {
			nb := desired.NeighborKey{Network: "red", IP: ip}
			d.Neighbors[nb] = &desired.Neighbor{NeighborKey: nb, Owner: desired.Owner{Node: "node2"}, MAC: k.MAC}
		}
	}
	return d
}

// say applies a change and has it written.
func (c *checkpoint) say(t *testing.T, s *desired.State, d desired.Delta) {
	t.Helper()
	c.note(d, s)
	s.Apply(d)
	c.next = time.Time{}
	c.sync(time.Now(), *s)
	if c.writing != nil {
		c.wrote(<-c.writing)
	}
}

func mustLoad(t *testing.T, dir string) desired.State {
	t.Helper()
	s, ok, err := testCheckpoint(dir).load()
	if err != nil || !ok {
		t.Fatalf("no checkpoint: %v, %v", ok, err)
	}
	return s
}

// TestCheckpointFollows: what is loaded is what was last written, whole or
// appended, things that went included.
func TestCheckpointFollows(t *testing.T) {
	dir := t.TempDir()
	c, s := testCheckpoint(dir), desired.NewState()
	if _, ok, err := c.load(); ok || err != nil {
		t.Fatalf("a checkpoint of nothing: %v, %v", ok, err)
	}
	steps := []desired.Delta{manyEntries(0, 3000), manyEntries(10, 20), desired.Diff(desired.NewState(), good()), manyEntries(2990, 3010)}
	gone := manyEntries(100, 200)
	for k := range gone.FDB {
		gone.FDB[k] = nil
	}
	for k := range gone.Neighbors {
		gone.Neighbors[k] = nil
	}
	steps = append(steps, gone, desired.Delta{Networks: map[string]*desired.Network{"red": nil}, Nodes: map[string]*desired.Node{"node2": nil}})
	var whole os.FileInfo
	for i, d := range steps {
		c.say(t, &s, d)
		if got := mustLoad(t, dir); !reflect.DeepEqual(got, s) {
			t.Fatalf("after step %d: %d entries, %d neighbors, networks %v; want %d, %d, %v", i,
				len(got.FDB), len(got.Neighbors), got.Networks, len(s.FDB), len(s.Neighbors), s.Networks)
		}
		now, statErr := os.Stat(c.path)
		if statErr != nil {
			t.Fatal(statErr)
		}
		if i > 0 && !os.SameFile(whole, now) {
			t.Errorf("step %d, of %d values, wrote the whole state anew", i, d.Len())
		}
		whole = now
	}
	// As much again: the file is written anew, and does not grow for ever.
	for i := range 20 {
		c.say(t, &s, manyEntries(i, i+500))
	}
	if now, statErr := os.Stat(c.path); statErr != nil || os.SameFile(whole, now) {
		t.Errorf("20,000 values later the file is still the same, %v", statErr)
	}
	if got := mustLoad(t, dir); !reflect.DeepEqual(got, s) {
		t.Error("it is not the state")
	}
	c.note(manyEntries(7000, 7001), &s)
	s.Apply(manyEntries(7000, 7001))
	if err := c.flush(s); err != nil {
		t.Fatal(err)
	}
	if got := mustLoad(t, dir); !reflect.DeepEqual(got, s) {
		t.Error("what was last said is not there after the end")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".checkpoint-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestCheckpointCutOff: a process may die in the middle of appending. Whatever is
// there of the last part, the state before it is taken.
func TestCheckpointCutOff(t *testing.T) {
	dir := t.TempDir()
	c, s := testCheckpoint(dir), desired.NewState()
	c.say(t, &s, manyEntries(0, 50))
	before, err := os.ReadFile(c.path)
	if err != nil {
		t.Fatal(err)
	}
	want := mustLoad(t, dir)
	c.say(t, &s, manyEntries(50, 55))
	all, err := os.ReadFile(c.path)
	if err != nil || len(all) <= len(before) {
		t.Fatalf("%d bytes, then %d, %v", len(before), len(all), err)
	}
	for n := len(before); n < len(all); n++ {
		if err := os.WriteFile(c.path, all[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if got := mustLoad(t, dir); !reflect.DeepEqual(got, want) {
			t.Fatalf("cut off at %d of %d: %d entries", n, len(all), len(got.FDB))
		}
	}
	// What is no checkpoint of this node is none.
	for name, raw := range map[string]string{"nothing": "", "text": "no checkpoint"} {
		if err := os.WriteFile(c.path, []byte(raw), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok, _ := c.load(); ok {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestCheckpointAfterAnError: a write that failed is made up for by a whole one.
func TestCheckpointAfterAnError(t *testing.T) {
	dir := t.TempDir()
	c, s := testCheckpoint(dir), desired.NewState()
	c.say(t, &s, manyEntries(0, 5))
	if err := c.file.Close(); err != nil { // the disk is gone
		t.Fatal(err)
	}
	c.say(t, &s, manyEntries(5, 6))
	if got := len(mustLoad(t, dir).FDB); got != 5 {
		t.Fatalf("%d entries from a file that could not be written", got)
	}
	c.say(t, &s, manyEntries(6, 7))
	if got := mustLoad(t, dir); !reflect.DeepEqual(got, s) {
		t.Errorf("%d entries, want 7", len(got.FDB))
	}
}

// BenchmarkCheckpointOneChange is one change of a state of 200,000 bindings.
func BenchmarkCheckpointOneChange(b *testing.B) {
	c, s := testCheckpoint(b.TempDir()), desired.NewState()
	d := manyEntries(0, 65536)
	s.Apply(d)
	c.note(d, &s)
	for i := 0; b.Loop(); i++ {
		c.note(manyEntries(i%65536, i%65536+1), &s)
		c.next = time.Time{}
		c.sync(time.Now(), s)
		if err := <-c.writing; err != nil {
			b.Fatal(err)
		}
		c.wrote(nil)
	}
}

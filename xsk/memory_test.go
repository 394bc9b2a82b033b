package xsk_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

func TestMemoryGeometry(t *testing.T) {
	m := xsktest.Memory(t, 3, 16)
	const shard = 16 * xsk.ChunkSize
	if m.Len() != 3*shard || m.Shards() != 3 || m.ChunksPerShard() != 16 {
		t.Fatalf("%d bytes, %d shards of %d", m.Len(), m.Shards(), m.ChunksPerShard())
	}
	for i := range 3 {
		r := m.Shard(i)
		if r.Base() != xsk.Addr(i*shard) || m.ShardBase(i) != r.Base() || r.Len() != shard || r.Chunks() != 16 {
			t.Errorf("shard %d: %+v", i, r)
		}
		last := r.Base() + shard - 1
		if !r.Contains(r.Base()) || !r.Contains(last) || r.Contains(last+1) || r.Contains(r.Base()-1) {
			t.Errorf("shard %d: edges", i)
		}
		if m.ShardOf(r.Base()) != i || m.ShardOf(last) != i {
			t.Errorf("shard of the addresses of shard %d: %d, %d", i, m.ShardOf(r.Base()), m.ShardOf(last))
		}
	}
	if m.Whole().Len() != 3*shard || m.Whole().Base() != 0 {
		t.Errorf("whole: %+v", m.Whole())
	}
	for _, i := range []int{-1, 3} {
		if m.Shard(i) != (xsk.Region{}) || m.Shard(i).Contains(0) {
			t.Errorf("shard %d is there", i)
		}
	}
}

func TestFrameEndsWithItsChunk(t *testing.T) {
	m := xsktest.Memory(t, 1, 4)
	f := m.Frame(xsk.ChunkSize+256, 64)
	if len(f) != 64 || cap(f) != xsk.ChunkSize-256 {
		t.Errorf("len %d cap %d", len(f), cap(f))
	}
	c := m.Chunk(xsk.ChunkSize + 300)
	if len(c) != xsk.ChunkSize || cap(c) != xsk.ChunkSize || &c[256] != &f[0] {
		t.Errorf("chunk: len %d cap %d", len(c), cap(c))
	}
	if last := m.Frame(4*xsk.ChunkSize-1, 1); cap(last) != 1 {
		t.Errorf("last byte: cap %d", cap(last))
	}
	for name, f := range map[string]func(){
		"over the chunk's end": func() { m.Frame(xsk.ChunkSize-1, 2) },
		"beyond the mapping":   func() { m.Frame(4*xsk.ChunkSize, 1) },
		"far away":             func() { m.Frame(1<<63, 1) },
		"chunk beyond":         func() { m.Chunk(4 * xsk.ChunkSize) },
		"negative":             func() { m.Frame(0, -1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: a slice came back", name)
				}
			}()
			f()
		}()
	}
}

func TestMemoryRefusesGeometry(t *testing.T) {
	for _, o := range []xsk.MemoryOptions{{Shards: -1}, {ChunksPerShard: -2048}, {Shards: 1 << 40}, {Shards: 1 << 20, ChunksPerShard: 1 << 20}} {
		if m, err := xsk.NewMemory(o); !errors.Is(err, xsk.ErrMemoryGeometry) {
			t.Errorf("%+v: %v, %v", o, m, err)
		}
	}
	m, err := xsk.NewMemory(xsk.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if m.Shards() != 1 || m.ChunksPerShard() != xsk.DefaultChunksPerShard {
		t.Errorf("default: %d shards of %d", m.Shards(), m.ChunksPerShard())
	}
	if m.Close() != nil || !errors.Is(m.Close(), os.ErrClosed) {
		t.Error("closing twice")
	}
}

// Asked for, huge pages are given or their lack is explained; either way the
// memory works as a UMEM.
func TestHugePagesOrReason(t *testing.T) {
	inNetns(t)
	a, b := veth(t, "v", 1, 1500)
	m, err := xsk.NewMemory(xsk.MemoryOptions{Shards: 2, ChunksPerShard: 300, HugePages: true, NUMABind: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	t.Logf("huge pages: %v (%v), NUMA: %v", m.HugePages(), m.HugePagesError(), m.NUMAError())
	if m.HugePages() == (m.HugePagesError() != nil) {
		t.Errorf("huge pages %v with reason %v", m.HugePages(), m.HugePagesError())
	}
	if m.Len() != 600*xsk.ChunkSize {
		t.Errorf("%d bytes", m.Len())
	}
	s := open(t, m, m.Shard(1), a, xsk.Options{})
	app := openPacket(t, b)
	s.Transmit([]xsk.Desc{write(m, m.ShardBase(1)+599/2*xsk.ChunkSize, frame(1, 64))})
	drain(t, s, 1)
	app.receive(t)
}

// With huge pages reserved they are used. The reservation is the machine's, so
// it is put back.
func TestHugePagesWhenReserved(t *testing.T) {
	inNetns(t)
	const knob = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	before, err := os.ReadFile(knob)
	if err != nil {
		t.Fatalf("%v: use a kernel with CONFIG_HUGETLBFS and 2 MiB pages", err)
	}
	had, err := strconv.Atoi(strings.TrimSpace(string(before)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the memory is closed
		if err := os.WriteFile(knob, before, 0); err != nil {
			t.Error(err)
		}
	})
	// The kernel looks for room anew each time it is asked.
	want := strconv.Itoa(had + 4)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err := os.WriteFile(knob, []byte(want), 0); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(knob)
		if err == nil && strings.TrimSpace(string(got)) == want {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q huge pages of %s, %v: free memory, or compact it (echo 1 > /proc/sys/vm/compact_memory)", got, want, err)
		}
	}
	m, err := xsk.NewMemory(xsk.MemoryOptions{Shards: 3, ChunksPerShard: 512 + 100, HugePages: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if !m.HugePages() || m.Len() != 3*612*xsk.ChunkSize {
		t.Fatalf("huge %v (%v), %d bytes", m.HugePages(), m.HugePagesError(), m.Len())
	}
	a, b := veth(t, "v", 1, 1500)
	s := open(t, m, m.Shard(1), a, xsk.Options{}) // starts inside of a huge page
	app := openPacket(t, b)
	at := m.ShardBase(1) + 611*xsk.ChunkSize
	s.Transmit([]xsk.Desc{write(m, at, frame(1, 64))})
	if done := drain(t, s, 1); done[0] != at {
		t.Errorf("completion %d, want %d", done[0], at)
	}
	app.receive(t)
	adopted, err := xsk.MemoryFromFD(dup(t, m.FD()), xsk.MemoryOptions{Shards: 3, ChunksPerShard: 612})
	if err != nil {
		t.Fatal(err)
	}
	if !adopted.HugePages() || adopted.Frame(at, 64)[13] != etherType&0xff {
		t.Error("the adopted memory is not the same")
	}
	s.Close()
	adopted.Close()
}

func TestNUMANodeOutOfRangeIsReported(t *testing.T) {
	m, err := xsk.NewMemory(xsk.MemoryOptions{ChunksPerShard: 16, NUMABind: true, NUMANode: 1023})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.NUMAError() == nil {
		t.Error("bound to node 1023")
	}
}

func TestMemoryFromFD(t *testing.T) {
	m := xsktest.Memory(t, 2, 16)
	m.Frame(20*xsk.ChunkSize, 1)[0] = 42
	fd := dup(t, m.FD())
	for _, o := range []xsk.MemoryOptions{{Shards: 2, ChunksPerShard: 32}, {Shards: 1, ChunksPerShard: 16}, {Shards: -1}} {
		if _, err := xsk.MemoryFromFD(fd, o); !errors.Is(err, xsk.ErrMemoryGeometry) {
			t.Errorf("adopted as %+v: %v", o, err)
		}
	}
	// Nobody who has the descriptor can pull the pages away.
	if err := unix.Ftruncate(fd, 0); err == nil {
		t.Error("the memory can be truncated")
	}
	other, err := xsk.MemoryFromFD(fd, xsk.MemoryOptions{Shards: 2, ChunksPerShard: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if other.Frame(20*xsk.ChunkSize, 1)[0] != 42 {
		t.Error("not the same pages")
	}
}

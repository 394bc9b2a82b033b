package xsktest

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk"
)

// Memory is a Memory of the given geometry that is closed with the test.
func Memory(tb testing.TB, shards, chunksPerShard int) *xsk.Memory {
	tb.Helper()
	m, err := xsk.NewMemory(xsk.MemoryOptions{Shards: shards, ChunksPerShard: chunksPerShard})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { m.Close() })
	return m
}

// Kernel is the other side of one socket: a device in copy mode, like veth.
// Its methods may be called from any goroutine; Kick and WakeFill of the socket
// run it on the socket owner's.
type Kernel struct {
	peer   *xsk.Peer
	mem    *xsk.Memory
	region xsk.Region
	opts   xsk.Options

	mu       sync.Mutex
	stats    xsk.Stats
	budget   int
	down     bool
	gone     bool
	hold     bool         // keep completions back, as a receiver that holds packets does
	inflight []uint64     // sent, not completed
	busy     int          // frames the device drops with EBUSY
	failures []unix.Errno // what the next kicks return without doing anything
	kicks    int
	wakes    int
	poisoned int
	partial  []byte // of a multi-buffer frame
	sent     [][]byte
}

// New makes a socket on r of m and the kernel behind it.
func New(tb testing.TB, m *xsk.Memory, r xsk.Region, o xsk.Options) (*xsk.Socket, *Kernel) {
	tb.Helper()
	return NewAt(tb, m, r, o, 0)
}

// NewAt is New with every ring index starting at first, such as shortly before
// the wrap at 2^32.
func NewAt(tb testing.TB, m *xsk.Memory, r xsk.Region, o xsk.Options, first uint32) (*xsk.Socket, *Kernel) {
	tb.Helper()
	s, p, err := xsk.NewPeer(m, r, o, first)
	if err != nil {
		tb.Fatal(err)
	}
	k := &Kernel{peer: p, mem: m, region: r, opts: o, budget: s.Options().TXBudget}
	p.OnKick, p.OnWakeFill, p.OnStats = k.kick, k.wakeFill, k.statistics
	return s, k
}

// Peer is the raw rings, to misbehave with.
func (k *Kernel) Peer() *xsk.Peer { return k.peer }

// Stats counts as XDP_STATISTICS does.
func (k *Kernel) statistics() xsk.Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stats
}

// Kicks and WakeFills are how often the socket called.
func (k *Kernel) Kicks() int { return k.count(&k.kicks) }

// WakeFills is how often the socket called WakeFill.
func (k *Kernel) WakeFills() int { return k.count(&k.wakes) }

func (k *Kernel) count(n *int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return *n
}

// InFlight is the number of frames sent and not completed.
func (k *Kernel) InFlight() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.inflight)
}

// Sent returns what was transmitted since the last call, in order.
func (k *Kernel) Sent() [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	sent := k.sent
	k.sent = nil
	return sent
}

// bytes is n bytes of the region from a word of a ring.
func (k *Kernel) bytes(addr uint64, n int) []byte {
	return k.mem.Frame(k.region.Base()+xsk.Addr(addr), n)
}

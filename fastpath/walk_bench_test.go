package fastpath

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// BenchmarkDecideAndEncapsulate is the budget of the decision: FDB of the size
// named, 64-byte UDP frames to random MACs of another node.
func BenchmarkDecideAndEncapsulate(b *testing.B) {
	for _, size := range []int{1_000, 1_000_000} {
		for _, v6 := range []bool{false, true} {
			b.Run(fmt.Sprintf("fdb=%d/v6=%t", size, v6), func(b *testing.B) { benchmarkRemote(b, size, v6) })
		}
	}
}

func benchmarkRemote(b *testing.B, size int, v6 bool) {
	n := newNode(b)
	macs := make([]packet.MAC, size)
	for i := range macs {
		macs[i] = packet.MACFromUint64(0x02_00_00_00_00_00 | uint64(i+1000))
		n.must(n.SetFDB(red, table.FDBEntry{MAC: macs[i], Node: "node2", Static: true}))
	}
	s := n.Snapshot()
	port := &s.Ports[n.portA.Index()]
	w := NewWalk(16, Limits{})
	// As many frames as a batch of four ports; what the kernel's copy costs the
	// caches is not the decision's.
	const ring = 4 * batch
	r := rand.New(rand.NewPCG(1, 2))
	length := len(udpFrame(macs[0], macA, v6, 0, 22))
	frames := make([]Frame, ring)
	for i := range frames {
		buf := make([]byte, 512)
		copy(buf[room:], udpFrame(macs[r.IntN(size)], macA, v6, uint16(i), 22))
		frames[i].Buf = buf
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		next := frames[i%ring:][:batch]
		for j := range next {
			next[j].Off, next[j].Len = room, length
		}
		w.FromPort(s, port, next)
	}
	b.StopTimer()
	if frames[0].Verdict != Remote {
		b.Fatalf("verdict %v, reason %v", frames[0].Verdict, frames[0].Reason)
	}
}

var _ = srv6.DefaultFunction

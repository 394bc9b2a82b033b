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
	const ring = 256
	frames := make([][]byte, ring)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range frames {
		buf := make([]byte, 512)
		copy(buf[room:], udpFrame(macs[r.IntN(size)], macA, v6, uint16(i), 22))
		frames[i] = buf
	}
	length := len(udpFrame(macs[0], macA, v6, 0, 22))
	batchOf := make([]Frame, batch)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		for j := range batchOf {
			batchOf[j] = Frame{Buf: frames[(i+j)%ring], Off: room, Len: length}
		}
		w.FromPort(s, port, batchOf)
	}
	b.StopTimer()
	if batchOf[0].Verdict != Remote {
		b.Fatalf("verdict %v, reason %v", batchOf[0].Verdict, batchOf[0].Reason)
	}
}

var _ = srv6.DefaultFunction

package fastpath

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// BenchmarkDecideAndEncapsulate is the budget of the decision: FDB of the size
// named, 64-byte UDP frames to random MACs of another node, port security mac+ip.
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
	r := rand.New(rand.NewPCG(1, 2))
	benchmarkWalk(b, n, Remote, func(i int) []byte { return udpFrame(macs[r.IntN(size)], macA, v6, uint16(i), 22) })
}

// BenchmarkDeliverLocally is the decision about 64-byte UDP frames to another
// port, port security mac+ip.
func BenchmarkDeliverLocally(b *testing.B) {
	for _, v6 := range []bool{false, true} {
		b.Run(fmt.Sprintf("v6=%t", v6), func(b *testing.B) {
			benchmarkWalk(b, newNode(b), Local, func(i int) []byte { return udpFrame(macB, macA, v6, uint16(i), 22) })
		})
	}
}

// BenchmarkAnswer is an ARP or ND answer, the walk included. The question is
// written anew each time, as 8 words.
func BenchmarkAnswer(b *testing.B) {
	mc, sol := solicited(ip6D)
	for name, frame := range map[string][]byte{
		"arp": arpFrame(b, broadcast, macA, 1, ipA, ipD),
		"ns":  nsFrame(b, mc, macA, ip6A, sol, ip6D),
	} {
		b.Run(name, func(b *testing.B) { benchmarkWalk(b, newNode(b), Answered, func(int) []byte { return frame }) })
	}
}

// benchmarkWalk sends frames from port A of n. They are as many as a batch of four
// ports has; what the kernel's copy costs the caches is not the decision's.
func benchmarkWalk(b *testing.B, n *node, want Verdict, frame func(i int) []byte) {
	s := n.Snapshot()
	port := s.Ports[n.portA.Index()]
	port.Security = table.SecurityMACIP
	w := NewWalk(16, Limits{AnswerRate: 1 << 31, AnswerBurst: 1 << 31})
	const ring = 4 * batch
	frames, fresh := make([]Frame, ring), make([][]byte, ring)
	for i := range frames {
		fresh[i] = frame(i)
		frames[i].Buf = make([]byte, 512)
		copy(frames[i].Buf[room:], fresh[i])
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		next := frames[i%ring:][:batch]
		for j := range next {
			next[j].Off, next[j].Len = room, len(fresh[j])
			if want == Answered {
				copy(next[j].Buf[room:], fresh[j])
			}
		}
		w.FromPort(s, &port, next)
	}
	b.StopTimer()
	if frames[0].Verdict != want {
		b.Fatalf("verdict %v, reason %v", frames[0].Verdict, frames[0].Reason)
	}
}

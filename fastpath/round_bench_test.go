package fastpath

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/xsk"
)

// BenchmarkRound is what a worker adds to the walk: its whole round for a burst
// of frames from port to port or out of the uplink, system calls and the other
// side of the rings left out.
func BenchmarkRound(b *testing.B) {
	b.Run("local", func(b *testing.B) { benchmarkRound(b, udpFrame(macB, macA, false, 1, 22)) })
	b.Run("remote", func(b *testing.B) { benchmarkRound(b, udpFrame(macD, macA, false, 1, 22)) })
	b.Run("answer", func(b *testing.B) { benchmarkRound(b, arpFrame(b, broadcast, macA, 1, ipA, ipD)) })
}

func benchmarkRound(b *testing.B, frame []byte) {
	e, err := New(Config{Workers: 1, MaxPorts: 16, UplinkQueues: []int{1}, NUMANode: -1, Limits: Limits{AnswerRate: 1 << 31, AnswerBurst: 1 << 31}})
	if err != nil {
		b.Fatal(err)
	}
	n := newNode(b)
	var kicks time.Duration
	peers := map[table.PortID]*xsk.Peer{}
	open := func(region xsk.Region) (*xsk.Socket, *xsk.Peer) {
		xs, peer, err := xsk.NewPeer(e.Memory(), region, xsk.Options{TX: 512}, 0)
		if err != nil {
			b.Fatal(err)
		}
		peer.OnKick = func() unix.Errno {
			start := time.Now()
			for {
				addr, _, _, ok := peer.TakeTX()
				if !ok {
					break
				}
				peer.PutCompletion(addr)
			}
			kicks += time.Since(start)
			return 0
		}
		return xs, peer
	}
	xs, _ := open(e.Memory().Whole())
	n.must(e.AddUplink(0, 0, xs))
	for _, id := range []table.PortID{n.portA, n.portB} {
		at, err := e.Place()
		n.must(err)
		xs, peer := open(e.Memory().Shard(at.Shard))
		n.must(e.AddPort(id.Index(), 0, at, xs))
		peers[id] = peer
	}
	p := n.Snapshot().Ports[n.portA.Index()]
	p.Security = table.SecurityMACIP
	n.must(n.SetPort(p))
	e.Publish(n.Snapshot())
	w, source := e.workers[0], peers[n.portA]
	w.load()
	base := uint64(e.Memory().ShardBase(w.byPort[n.portA.Index()].shard.index))

	var spent time.Duration
	// burst has as many frames come as a full burst has, or as the ring has places.
	burst := func() (frames int) {
		for ; frames < stageMost; frames++ {
			addr, ok := source.TakeFill()
			if !ok {
				break
			}
			addr += room
			copy(e.Memory().Frame(xsk.Addr(base+addr), len(frame)), frame)
			source.PutRX(addr, uint32(len(frame)), 0)
		}
		kicks = 0
		start := time.Now()
		w.round()
		spent += time.Since(start) - kicks
		return frames
	}
	for deadline := time.Now().Add(10 * time.Second); burst() < stageMost; { // until the ring is as deep as a busy port's
		if time.Now().After(deadline) {
			b.Fatal("the fill ring stays short")
		}
	}
	spent = 0
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		n := burst()
		if n == 0 {
			b.Fatal("the fill ring is empty")
		}
		done += n
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "ns/frame")
	b.ReportMetric(0, "ns/op")
	n.must(e.Stop())
}

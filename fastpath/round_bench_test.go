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
	b.Run("captured", func(b *testing.B) {
		r := newRound(b, udpFrame(macB, macA, false, 1, 22))
		_, err := r.StartCapture(CaptureOptions{})
		r.must(err)
		r.bench(b)
	})
}

func benchmarkRound(b *testing.B, frame []byte) { newRound(b, frame).bench(b) }

// round is an engine of one worker that does not run: its rounds are called. Its
// ports' other side is played in between.
type round struct {
	*Engine
	*node
	w      *worker
	frame  []byte
	source *xsk.Peer
	base   uint64 // of the source's shard
	kicks  time.Duration
	spent  time.Duration // in rounds, without kicks
}

func newRound(b testing.TB, frame []byte) *round {
	e, err := New(Config{Workers: 1, MaxPorts: 16, UplinkQueues: []int{1}, NUMANode: -1, Limits: Limits{AnswerRate: 1 << 31, AnswerBurst: 1 << 31}})
	if err != nil {
		b.Fatal(err)
	}
	r := &round{Engine: e, node: newNode(b), w: e.workers[0], frame: frame}
	b.Cleanup(func() { r.must(e.Stop()) })
	peers := map[table.PortID]*xsk.Peer{}
	open := func(region xsk.Region) (*xsk.Socket, *xsk.Peer) {
		xs, peer, err := xsk.NewPeer(e.Memory(), region, xsk.Options{TX: 512}, 0)
		r.must(err)
		peer.OnKick = func() unix.Errno {
			start := time.Now()
			for {
				addr, _, _, ok := peer.TakeTX()
				if !ok {
					break
				}
				peer.PutCompletion(addr)
			}
			r.kicks += time.Since(start)
			return 0
		}
		return xs, peer
	}
	xs, _ := open(e.Memory().Whole())
	r.must(e.AddUplink(0, 0, xs))
	for _, id := range []table.PortID{r.portA, r.portB} {
		at, err := e.Place()
		r.must(err)
		xs, peer := open(e.Memory().Shard(at.Shard))
		r.must(e.AddPort(id.Index(), 0, at, xs))
		peers[id] = peer
	}
	p := r.Snapshot().Ports[r.portA.Index()]
	p.Security = table.SecurityMACIP
	r.must(r.SetPort(p))
	e.Publish(r.Snapshot())
	r.w.load()
	r.source = peers[r.portA]
	r.base = uint64(e.Memory().ShardBase(r.w.byPort[r.portA.Index()].shard.index))
	for deadline := time.Now().Add(10 * time.Second); r.burst() < stageMost; { // until the ring is as deep as a busy port's
		if time.Now().After(deadline) {
			b.Fatal("the fill ring stays short")
		}
	}
	return r
}

// burst has as many frames come as a full burst has, or as the ring has places.
func (r *round) burst() (frames int) {
	for ; frames < stageMost; frames++ {
		addr, ok := r.source.TakeFill()
		if !ok {
			break
		}
		addr += room
		copy(r.Memory().Frame(xsk.Addr(r.base+addr), len(r.frame)), r.frame)
		r.source.PutRX(addr, uint32(len(r.frame)), 0)
	}
	r.kicks = 0
	start := time.Now()
	r.w.round()
	r.spent += time.Since(start) - r.kicks
	if r.capture != nil {
		r.capture.Drain(func(*Captured) {})
	}
	return frames
}

func (r *round) bench(b *testing.B) {
	r.spent = 0
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		n := r.burst()
		if n == 0 {
			b.Fatal("the fill ring is empty")
		}
		done += n
	}
	b.ReportMetric(float64(r.spent.Nanoseconds())/float64(b.N), "ns/frame")
	b.ReportMetric(0, "ns/op")
}

package xsk_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

// BenchmarkRings is one batch through all four rings and the fake's side of
// them; frame is the time for one.
func BenchmarkRings(b *testing.B) {
	const batch = 64
	m := xsktest.Memory(b, 2, 1024)
	r := m.Shard(1)
	s, k := xsktest.New(b, m, r, xsk.Options{})
	p := k.Peer()
	free := chunks(r, 0, batch)
	var d [batch]xsk.Desc
	round := func() {
		s.Fill(free)
		for range batch {
			a, _ := p.TakeFill()
			p.PutRX(a+256, 64, 0)
		}
		n := s.Receive(d[:])
		s.Transmit(d[:n])
		for range batch {
			a, _, _, _ := p.TakeTX()
			p.PutCompletion(a)
		}
		s.Complete(free)
	}
	b.ReportAllocs()
	for b.Loop() {
		round()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/frame")
	if f := s.Faults(); f != (xsk.Faults{}) {
		b.Fatal(f)
	}
}

// Each ring call alone, the other side replaced by one index store.
func BenchmarkCall(b *testing.B) {
	const batch = 64
	m := xsktest.Memory(b, 2, 1024)
	r := m.Shard(1)
	addrs := chunks(r, 0, batch)
	descs := make([]xsk.Desc, batch)
	for i, a := range addrs {
		descs[i] = xsk.Desc{Addr: a + 256, Len: 64}
	}
	for _, c := range []struct {
		name string
		ring xsk.RingKind
		call func(*xsk.Socket) int
	}{
		{"Fill", xsk.FillRing, func(s *xsk.Socket) int { return s.Fill(addrs) }},
		{"Transmit", xsk.TXRing, func(s *xsk.Socket) int { return s.Transmit(descs) }},
		{"Receive", xsk.RXRing, func(s *xsk.Socket) int { return s.Receive(descs) }},
		{"Complete", xsk.CompletionRing, func(s *xsk.Socket) int { return s.Complete(addrs) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, k := xsktest.New(b, m, r, xsk.Options{})
			index := uint32(0)
			b.ReportAllocs()
			for b.Loop() {
				index += batch
				if c.ring == xsk.RXRing || c.ring == xsk.CompletionRing {
					k.SetIndex(c.ring, index)
				}
				if c.call(s) != batch {
					b.Fatal("short batch")
				}
				if c.ring == xsk.FillRing || c.ring == xsk.TXRing {
					k.SetIndex(c.ring, index)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/frame")
		})
	}
}

func BenchmarkFrame(b *testing.B) {
	m := xsktest.Memory(b, 1, 1024)
	sum := byte(0)
	for i := 0; b.Loop(); i++ {
		sum += m.Frame(xsk.Addr(i&1023)*xsk.ChunkSize+256, 64)[0]
	}
	_ = sum
}

// The hot path allocates nothing.
func TestHotCallsDoNotAllocate(t *testing.T) {
	m := xsktest.Memory(t, 1, 64)
	s, p, err := xsk.NewPeer(m, m.Whole(), small, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.OnKick = func() unix.Errno {
		a, _, _, _ := p.TakeTX()
		p.PutCompletion(a)
		return 0
	}
	addrs := chunks(m.Whole(), 0, 1)
	var d [1]xsk.Desc
	if n := testing.AllocsPerRun(1000, func() {
		s.Fill(addrs)
		a, _ := p.TakeFill()
		p.PutRX(a+256, 64, 0)
		s.Receive(d[:])
		m.Frame(d[0].Addr, int(d[0].Len))[0]++
		s.Transmit(d[:])
		s.Kick()
		s.Complete(addrs)
		s.WakeFill()
	}); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
	if f := s.Faults(); f != (xsk.Faults{}) {
		t.Error(f)
	}
}

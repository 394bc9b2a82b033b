package fastpath

import (
	"bytes"
	"context"
	"testing"
	"time"

	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/learning"
)

// TestTraceAgreesWithTheWorkers: what a trace says of a frame is what the counters
// and the wire say once a worker had it, for every reason a walk has.
func TestTraceAgreesWithTheWorkers(t *testing.T) {
	for _, workers := range []int{1, 2} {
		r := newRig(t, Config{Workers: workers, UplinkQueues: []int{1}})
		full := fullNode(t)
		set := func(p table.Port) {
			p.Worker = r.places[p.ID].Worker
			r.must(full.SetPort(p))
		}
		plain := full.Snapshot().Ports
		for _, id := range []table.PortID{r.portA, r.portB, r.portC} {
			set(plain[id.Index()])
		}
		// Versions only ever grow, and the rig has published some.
		for last := r.Snapshot().Version; full.Snapshot().Version <= last; {
		}
		for _, c := range allCases(t) {
			p := plain[r.portA.Index()]
			if c.change != nil {
				if c.change(&p); p.Net == 0 {
					p.Network = 4711 // the builder fills in Net
				}
			}
			set(p)
			s := full.Snapshot()
			r.Publish(s)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			r.must(r.Quiesce(ctx, s.Version))
			cancel()
			r.agree(c, s, full)
		}
	}
}

// agree sends the frame of a case after a trace of it.
func (r *rig) agree(c walkCase, s *table.Snapshot, full *node) {
	r.t.Helper()
	in, at := r.kernels[full.portA], full.portA.Index()
	read := func() Counters { return r.Counters(at) }
	trace := func() (Trace, error) { return TracePort(s, &s.Ports[at], Limits{}, c.frame) }
	if c.uplink {
		in = r.uplinks[0]
		read = func() Counters { return r.UplinkCounters(0) }
		trace = func() (Trace, error) { return TraceUplink(s, Limits{}, c.frame) }
	}
	counters := func() Counters {
		c := read()
		c.TX, c.TXBytes = 0, 0 // written after the frame was sent, maybe that of the case before
		return c
	}
	before := counters()
	got, err := trace()
	if err != nil {
		r.t.Fatalf("%s: %v", c.name, err)
	}
	if now := counters(); now != before {
		r.t.Errorf("%s: the trace was counted: %+v", c.name, now)
	}
	if sent := r.sent(); len(sent) != 0 {
		r.t.Errorf("%s: the trace sent %x", c.name, sent)
	}
	if again, err := trace(); err != nil || again.Verdict != got.Verdict || again.Reason != got.Reason || !bytes.Equal(again.Out, got.Out) {
		r.t.Errorf("%s: traced twice, %v %v and %v %v", c.name, got.Verdict, got.Reason, again.Verdict, again.Reason)
	}
	r.deliver(in, c.frame)
	want := before
	want.RX++
	want.RXBytes += uint64(len(c.frame))
	want.Verdicts[got.Verdict]++
	if got.Verdict == Dropped {
		want.Drops[got.Reason]++
		if got.Out != nil {
			want.Errors++
		}
	}
	// Each counter is read on its own, so they agree once all are written.
	now := counters()
	for end := time.Now().Add(10 * time.Second); now != want && time.Now().Before(end); time.Sleep(time.Millisecond) {
		now = counters()
	}
	if now != want {
		r.t.Errorf("%s: traced %v %v; counted %+v\nbefore %+v", c.name, got.Verdict, got.Reason, now, before)
	}
	var out [][]byte
	eventually(r.t, c.name+": the frame leaves", func() bool {
		out = append(out, r.sent()...)
		return (len(out) > 0) == (got.Out != nil)
	})
	if got.Out != nil && (len(out) != 1 || !bytes.Equal(out[0], got.Out)) {
		r.t.Errorf("%s: sent %x, the trace said %x", c.name, out, got.Out)
	}
}

// sent is what left by any socket since the last call.
func (r *rig) sent() (all [][]byte) {
	for _, k := range r.kernels {
		all = append(all, k.Sent()...)
	}
	for _, k := range r.uplinks {
		all = append(all, k.Sent()...)
	}
	return all
}

// TestTraceUsesNothingUp: a port that may answer once answers the first question that
// is really asked, and learning is told its claim, however often both were traced.
func TestTraceUsesNothingUp(t *testing.T) {
	l := Limits{AnswerRate: 1, AnswerBurst: 1, ErrorRate: 1, ErrorBurst: 1}
	for i, f := range families {
		r := newRig(t, Config{Workers: 1, UplinkQueues: []int{1}, Limits: l})
		network := r.Snapshot().Networks[r.Snapshot().Ports[r.portA.Index()].Net].Network
		network.Learning = true
		r.must(r.SetNetwork(network))
		s := r.Snapshot()
		r.Publish(s)
		r.must(r.Observe(r.portA, learning.SuppressorOptions{}))
		group, sol := solicited(ip6D)
		ask := nsFrame(t, group, macStranger, addr("fd00:10::99"), sol, ip6D)
		if i == 0 {
			ask = arpFrame(t, broadcast, macStranger, 1, addr("10.0.0.99"), ipD)
		}
		asked := func(what string) {
			t.Helper()
			for range 5 {
				got, err := TracePort(s, &s.Ports[r.portA.Index()], l, ask)
				if err != nil || got.Verdict != Answered || len(got.Claims) != 1 || got.Claims[0].MAC != macStranger {
					t.Errorf("%s: traced %s: %v %v, claims %+v, %v", f.name, what, got.Verdict, got.Reason, got.Claims, err)
				}
			}
		}
		asked("before")
		if told, _ := r.Observations().Counts(); told != 0 {
			t.Errorf("%s: learning was told %d claims by traces", f.name, told)
		}
		r.deliver(r.kernels[r.portA], ask)
		if c := r.accounted(r.portA, 1); c.Verdicts[Answered] != 1 {
			t.Errorf("%s: traces used the port's answer up: %+v", f.name, c.Verdicts)
		}
		if told, _ := r.Observations().Counts(); told != 1 {
			t.Errorf("%s: learning was told %d claims by a frame", f.name, told)
		}
		asked("after")
	}
}

// TestTraceTellsClaims: what learning would be told, of both families, and nothing
// where nothing is learned.
func TestTraceTellsClaims(t *testing.T) {
	n := newNode(t)
	network := n.Snapshot().Networks[n.Snapshot().Ports[n.portA.Index()].Net].Network
	for _, learns := range []bool{false, true} {
		network.Learning = learns
		n.must(n.SetNetwork(network))
		s := n.Snapshot()
		for _, v6 := range []bool{false, true} {
			frame := udpFrame(macD, macStranger, v6, 5, 20)
			got, err := TracePort(s, &s.Ports[n.portA.Index()], Limits{}, frame)
			if err != nil {
				t.Fatal(err)
			}
			if !learns {
				if len(got.Claims) != 0 {
					t.Errorf("learned %+v", got.Claims)
				}
				continue
			}
			if len(got.Claims) != 1 || got.Claims[0].MAC != macStranger || got.Claims[0].IP.Is4() == v6 {
				t.Errorf("v6 %t: %+v", v6, got.Claims)
			}
		}
	}
}

func TestTraceOfAFrameNobodyTakes(t *testing.T) {
	s := newNode(t).Snapshot()
	if _, err := TracePort(s, &s.Ports[1], Limits{}, make([]byte, TraceMax+1)); err == nil {
		t.Error("a frame longer than any worker takes was traced")
	}
	for _, n := range []int{0, 1, 13, 4000, TraceMax} {
		if got, err := TracePort(s, &s.Ports[1], Limits{}, make([]byte, n)); err != nil || got.Verdict != Dropped {
			t.Errorf("%d bytes of zero: %v, %v", n, got.Verdict, err)
		}
		if got, err := TraceUplink(s, Limits{}, make([]byte, n)); err != nil || got.Verdict != Dropped {
			t.Errorf("%d bytes of zero from an uplink: %v, %v", n, got.Verdict, err)
		}
	}
}

func BenchmarkTrace(b *testing.B) {
	s := newNode(b).Snapshot()
	frame := udpFrame(macD, macA, false, 5, 20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := TracePort(s, &s.Ports[1], Limits{}, frame); err != nil {
			b.Fatal(err)
		}
	}
}

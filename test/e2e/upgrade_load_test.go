package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"picot.dev/picot/bench/gen"
	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/status"
)

// numbered is UDP frames with a sequence number from one pod to another.
type numbered struct {
	name   string
	source *gen.Ring
	sink   *gen.Sink
}

func (s *site) numbered(by family, from, to *lab.Pod) *numbered {
	s.t.Helper()
	address := func(p *lab.Pod) (m packet.MAC, a netip.AddrPort) {
		copy(m[:], mac(s.t, p.MAC))
		return m, netip.AddrPortFrom(by.of(p), 9)
	}
	u := gen.UDP{Size: 100}
	u.SrcMAC, u.Src = address(from)
	u.DstMAC, u.Dst = address(to)
	o, err := u.Options()
	s.must(err)
	n := &numbered{name: by.name + " from " + from.Name + " to " + to.Name}
	index := func() int {
		l, err := net.InterfaceByName(lab.PodDevice)
		if err != nil {
			return 0 // refused
		}
		return l.Index
	}
	inNetns(s.t, from.Netns(), func() (err error) {
		n.source, err = gen.NewRing(index(), o)
		return err
	})
	s.t.Cleanup(func() { s.must(n.source.Close()) })
	inNetns(s.t, to.Netns(), func() (err error) {
		n.sink, err = gen.NewSink(index(), gen.SinkOptions{Stamp: o.Stamp, Flows: 1})
		return err
	})
	s.t.Cleanup(func() { s.must(n.sink.Close()) })
	return n
}

// upgradeRate is frames a second of each stream. A port's ring then holds what
// comes in a second: on a busy machine a worker may wait long for its turn, which is
// no matter of upgrades. PICOT_UPGRADE_RATE sets another one, all streams
// together, for a machine that does nothing else; then nothing is forgiven.
func upgradeRate(t *testing.T, streams int) (rate float64, attempts int) {
	text := os.Getenv("PICOT_UPGRADE_RATE")
	if text == "" {
		return 300, 3
	}
	all, err := strconv.ParseFloat(text, 64)
	must(t, err)
	return all / float64(streams), 1
}

// Ten upgrades in a row under numbered frames of both families, from pod to pod on
// one node with two workers, several shards, and to another node and back: none
// lost, none twice, none out of order; and the programs on the devices are the same ones all
// the while. Frames that a ring had no place for are told apart: if a worker had
// no turn for so long, which its rings' counters say, the ten are tried again.
func TestUpgradesUnderNumberedFrames(t *testing.T) {
	s := newSite(t, lab.NodeOptions{Workers: 2})
	p4, p5, p6, p7 := s.addPod(s.n1, 4), s.addPod(s.n1, 5), s.addPod(s.n2, 6), s.addPod(s.n1, 7)
	s.ready()
	s.reachAll()
	// Each pod sends one stream and has one sink.
	v4, v6 := families[0], families[1]
	streams := []*numbered{
		s.numbered(v4, s.a1, s.a2), s.numbered(v4, p4, p5), s.numbered(v4, p5, s.b1), s.numbered(v4, p6, s.a1),
		s.numbered(v6, s.a2, p4), s.numbered(v6, p7, p6), s.numbered(v6, s.b1, p7),
	}
	before := ids(s.pins(s.n1))
	if len(before) != 6 {
		t.Fatalf("pins: %v", before)
	}
	rate, attempts := upgradeRate(t, len(streams))
	for attempt := range attempts {
		full := s.socketLosses()
		missing := s.upgradeTenTimes(streams, rate)
		full = s.socketLosses() - full
		if after := ids(s.pins(s.n1)); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("link and program IDs after the upgrades: %v, were %v", after, before)
		}
		if missing != full {
			t.Errorf("%d frames lost, and the rings had no place for %d", missing, full)
		}
		if missing == 0 || t.Failed() {
			break
		}
		t.Logf("attempt %d: a worker had no turn: %d frames found no place in a ring", attempt, full)
		if attempt == attempts-1 {
			t.Errorf("frames lost in each of %d attempts", attempts)
		}
	}
	for _, n := range s.Nodes() {
		s.at(n, "no frame astray", func(st status.Status) error {
			if st.Frames.Batch != 0 || st.Frames.Handoff != 0 {
				return fmt.Errorf("%+v", st.Frames)
			}
			return nil
		})
	}
	s.logPauses()
}

// upgradeTenTimes says how many frames got lost meanwhile.
func (s *site) upgradeTenTimes(streams []*numbered, rate float64) (missing uint64) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	sent := make([]uint64, len(streams))
	errs := make([]error, len(streams))
	start := make([]gen.Flow, len(streams))
	var sending sync.WaitGroup
	for i, n := range streams {
		start[i] = s.arrived(n, 0)
		sending.Go(func() {
			var r gen.Result
			r, errs[i] = n.source.Run(ctx, gen.Load{Rate: rate})
			sent[i] = r.Frames
		})
	}
	for i := range 10 {
		n := s.n1
		if i == 4 {
			n = s.n2
		}
		s.must(n.TakeOver(s.ctx))
		s.ready()
	}
	stop()
	sending.Wait()
	for i, n := range streams {
		s.must(errs[i])
		f := s.arrived(n, start[i].Frames+sent[i])
		came := f.Frames - start[i].Frames
		if came > sent[i] || f.Duplicate+f.Late+f.Stale != 0 || sent[i] == 0 {
			s.t.Errorf("%s: %d frames sent, %d came, at the sink %+v", n.name, sent[i], came, f)
		}
		missing += sent[i] - min(sent[i], came)
		s.t.Logf("%s: %d frames, %d came", n.name, sent[i], came)
	}
	return missing
}

// arrived waits until so many frames have come, or two seconds none.
func (s *site) arrived(n *numbered, want uint64) (f gen.Flow) {
	s.t.Helper()
	for since := time.Now(); time.Since(since) < 2*time.Second; time.Sleep(10 * time.Millisecond) {
		flows, err := n.sink.Flows()
		s.must(err)
		if flows[0].Frames != f.Frames {
			since = time.Now()
		}
		if f = flows[0]; f.Frames >= want {
			break
		}
	}
	return f
}

// socketLosses are the frames the kernel had no place for, over both nodes. The
// count is the sockets': it goes on from one process to the next.
func (s *site) socketLosses() (n uint64) {
	s.t.Helper()
	for _, node := range s.Nodes() {
		st := s.status(node)
		for _, p := range st.Ports {
			n += p.Socket.RXDropped + p.Socket.RingFull
		}
		for _, u := range st.Uplinks {
			n += u.Socket.RXDropped + u.Socket.RingFull
		}
	}
	return n
}

// logPauses prints how long nobody forwarded, and holds that it was measured.
func (s *site) logPauses() {
	s.t.Helper()
	var all []time.Duration
	for _, n := range s.Nodes() {
		for _, m := range pausePattern.FindAllStringSubmatch(n.Log(), -1) {
			d, err := time.ParseDuration(m[1])
			s.must(err)
			all = append(all, d)
		}
	}
	if len(all) == 0 || len(all)%10 != 0 {
		s.t.Errorf("%d takeovers in the logs, want ten an attempt", len(all))
	}
	s.t.Logf("pauses: %v", all)
}

package bench

import (
	"context"
	"errors"
	"fmt"

	"picot.dev/picot/bench/gen"
)

// build makes a lane with the forwarder that make makes.
func (s *session) build(name string, frames gen.Options, stampAtSink int, make func(wires) (forwarder, error)) (*lane, error) {
	return s.buildAny(name, frames, stampAtSink, false, make)
}

// buildReflector does the same for a lane whose frames come back.
func (s *session) buildReflector(name string, frames gen.Options, make func(wires) (forwarder, error)) (*lane, error) {
	return s.buildAny(name, frames, 0, true, make)
}

func (s *session) buildAny(name string, frames gen.Options, stampAtSink int, reflects bool, make func(wires) (forwarder, error)) (*lane, error) {
	s.lanes++
	w, err := wire(s.lanes)
	if err != nil {
		return nil, err
	}
	f, err := make(w)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), w.close())
	}
	return newLane(name, w, f, frames, stampAtSink, reflects)
}

// benchVeth compares forwarders between two veths.
func benchVeth(ctx context.Context, s *session) (err error) {
	frames, err := load64()
	if err != nil {
		return err
	}
	load := gen.Load{Duration: s.Duration}
	lanes := map[string]*lane{}
	defer func() {
		for _, l := range lanes {
			err = errors.Join(err, l.close())
		}
	}()
	missing := map[string]string{}
	for _, c := range []struct {
		name     string
		make     func(wires) (forwarder, error)
		optional bool
	}{
		{"picot", picotLocal(s.pins), false},
		{"bare", bareForwarder(s.pins), false},
		{"bare256", bareBurst(s.pins, burstSize), false},
		{"bridge", kernelBridge, false},
		{"redirect", kernelRedirect, false},
		{"asavie", asavieForwarder, true},
		{"ovs", ovsForwarder, true},
	} {
		l, err := s.build(c.name, frames, frames.Stamp, c.make)
		switch {
		case err == nil:
			lanes[c.name] = l
		case c.optional:
			missing[c.name] = err.Error()
		default:
			return err
		}
	}
	s.setup("veth: %d-byte frames with FCS, UDP, %d destination MACs in turn, each a flow; source on CPU %d, forwarder on CPU %d", frameSize+4, targets, sourceCPU, forwardCPU)
	s.setup("picot: fastpath engine, 1 worker, port security mac+ip, %d FDB entries; picot and bare: rings fill %d, rx %d, tx %d, completion %d, tx budget %d, need-wakeup, copy mode, same XDP program; picot kicks for up to %d frames, bare for %d, the usual size, and in the second row for as many as picot", targets, ringFill, ringRX, ringTX, ringCompletion, txBudget, burstSize, batchSize)
	s.setup("bridge, redirect: receiving in a kernel thread (threaded NAPI) on CPU %d; the bridge has the same %d static FDB entries", forwardCPU, targets)

	for _, c := range []struct {
		name, ours, peer string
		goal             Goal
	}{
		{"picot / bare AF_XDP", "picot", "bare", atLeast(0.95)},
		{"picot / bare AF_XDP in bursts of 256", "picot", "bare256", Goal{}},
		{"bare AF_XDP / kernel bridge", "bare", "bridge", atLeast(0.9)},
		{"picot / kernel bridge", "picot", "bridge", atLeast(1)},
		{"picot / XDP redirect", "picot", "redirect", Goal{}},
		{"picot / asavie/xdp", "picot", "asavie", Goal{}},
		{"picot / OVS netdev-afxdp", "picot", "ovs", atLeast(1.3)},
	} {
		if why, ok := missing[c.peer]; ok {
			s.add(skipped("veth", c.name, why))
			continue
		}
		a, b, err := duel(ctx, s.Pairs, lanes[c.ours], lanes[c.peer], load)
		if err != nil {
			return err
		}
		r := compared("veth", c.name, "frames/s", rates(a), rates(b), c.goal)
		r.OursName, r.PeerName, r.Note = c.ours, c.peer, accounted(a, b)
		if c.peer != "ovs" { // whose thread is another process's and never rests
			r.Note = byCore(a, b) + r.Note
		}
		s.add(r)
	}
	s.qualify()
	return nil
}

// qualify takes back the judgement by the bare forwarder where that is not
// itself what a good forwarder does on this machine.
func (s *session) qualify() {
	weak := false
	for _, r := range s.report.Rows {
		weak = weak || r.Benchmark == "veth" && r.OursName == "bare" && r.Outcome == Fail
	}
	for i := range s.report.Rows {
		if r := &s.report.Rows[i]; weak && r.Benchmark == "veth" && r.PeerName == "bare" {
			r.Outcome, r.Note = NotMeaningful, "the bare forwarder is slow beside the bridge; "+r.Note
		}
	}
}

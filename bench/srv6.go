package bench

import (
	"context"
	"errors"
	"fmt"

	"picot.dev/picot/bench/gen"
	"picot.dev/picot/fastpath/srv6"
)

// srhLen is a segment routing header with one segment.
const srhLen = 8 + 16

// benchSRv6 compares encapsulation. The sink counts only frames that carry the
// source's stamp where it is behind the outer headers expected.
func benchSRv6(ctx context.Context, s *session) (err error) {
	frames, err := load64()
	if err != nil {
		return err
	}
	// A router takes what is sent to its own MAC.
	routed := frames
	routed.Frame = append([]byte{}, frames.Frame...)
	copy(routed.Frame, hardware(macIn))
	routed.Fields = frames.Fields[:1]
	// The kernel counts down the hop limit in place.
	routed.Refresh = true

	ours, err := s.build("picot", frames, frames.Stamp+srv6.BaseOverhead, picotRemote(s.pins))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.close()) }()
	s.setup("srv6: %d-byte frames with FCS, picot to %d MACs of one other node with H.Encaps.L2.Red; the kernel routes the same flows, to one MAC, into a seg6 route, receiving in a kernel thread on CPU %d", frameSize+4, targets, forwardCPU)
	for _, k := range []struct {
		mode  string
		extra int
		goal  Goal
	}{
		{"l2encap", srhLen, atLeast(2.5)},
		{"l2encap.red", 0, Goal{}},
	} {
		name := fmt.Sprintf("picot / kernel seg6 %s", k.mode)
		peer, err := s.build("seg6 "+k.mode, routed, frames.Stamp+srv6.BaseOverhead+k.extra, kernelSEG6(k.mode))
		if err != nil {
			if k.extra == 0 {
				s.add(skipped("srv6", name, err.Error()))
				continue
			}
			return err
		}
		a, b, err := duel(ctx, s.Pairs, ours, peer, gen.Load{Duration: s.Duration})
		if err = errors.Join(err, peer.close()); err != nil {
			return err
		}
		r := compared("srv6", name, "frames/s", rates(a), rates(b), k.goal)
		r.OursName, r.PeerName, r.Note = "picot", k.mode, byCore(a, b)+accounted(a, b)
		s.add(r)
	}
	return nil
}

package bench

import (
	"context"
	"errors"

	"picot.dev/picot/bench/gen"
)

// costRate is well below what any forwarder here carries, so that all frames
// are delivered and the cores have time to rest.
const costRate = 100_000

// benchCost compares the CPU time of all cores per delivered frame.
func benchCost(ctx context.Context, s *session) (err error) {
	frames, err := load64()
	if err != nil {
		return err
	}
	a, err := s.build("picot", frames, frames.Stamp, picotLocal(s.pins))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	b, err := s.build("bare", frames, frames.Stamp, bareForwarder(s.pins))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	s.setup("cost: veth to veth as in veth; %d frames a second in bursts of a millisecond, and as many as go; CPU time of the process (source included) and of the kernel's softirq threads; both forwarders look again for 30 us after their last frame, then sleep in the kernel", costRate)
	for _, c := range []struct {
		name string
		rate float64
		goal Goal
	}{
		{"CPU time per frame, picot / bare, 100,000 frames/s", costRate, atMost(1.1)},
		{"CPU time per frame, picot / bare, saturated", 0, atMost(1.1)},
	} {
		as, bs, err := duel(ctx, s.Pairs, a, b, gen.Load{Duration: s.Duration, Rate: c.rate})
		if err != nil {
			return err
		}
		r := compared("cost", c.name, "ns/frame", costs(as), costs(bs), c.goal)
		r.OursName, r.PeerName, r.Note = "picot", "bare", accounted(as, bs)
		s.add(r)
	}
	return nil
}

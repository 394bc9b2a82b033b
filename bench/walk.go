package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/xsk"
)

// sliceBatches is how many batches one slice of a benchmark in memory has:
// short, so that on a machine with other work most slices are undisturbed.
const sliceBatches = 16

// inMemory runs f, which handles one batch of table.Batch frames, in slices for
// the time given, on forwardCPU. prepare comes before every batch and is not
// counted. It returns ns per frame by slice, and allocations per frame.
func inMemory(ctx context.Context, d time.Duration, prepare, f func()) (slices []float64, allocs float64, err error) {
	type result struct {
		slices []float64
		allocs float64
	}
	r, err := onCPU(forwardCPU, func() (r result, err error) {
		r.slices = make([]float64, 0, 1<<20)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		frames := 0
		for end := time.Now().Add(d); time.Now().Before(end) && len(r.slices) < cap(r.slices) && ctx.Err() == nil; {
			var took time.Duration
			for range sliceBatches {
				prepare()
				start := time.Now()
				f()
				took += time.Since(start)
			}
			frames += sliceBatches * table.Batch
			r.slices = append(r.slices, float64(took.Nanoseconds())/(sliceBatches*table.Batch))
		}
		runtime.ReadMemStats(&after)
		r.allocs = float64(after.Mallocs-before.Mallocs) / float64(frames)
		return r, ctx.Err()
	})
	return r.slices, r.allocs, err
}

// clockCost is what a pair of time.Now costs a frame of a batch.
func clockCost() float64 {
	var cost []float64
	for range 1000 {
		start := time.Now()
		for range 16 {
			_ = time.Since(time.Now())
		}
		cost = append(cost, float64(time.Since(start).Nanoseconds())/16/table.Batch)
	}
	return quantile(cost, 0.1)
}

// slicesRow is the row of a benchmark in memory: the tenth percentile, the
// median and the slowest tenth of the slices. The goal is held against the
// tenth percentile, what the code costs while it really runs.
func slicesRow(name string, slices []float64, allocs, clock float64, g Goal) Row {
	for i := range slices {
		slices[i] = max(0, slices[i]-clock)
	}
	s := Spread{Median: quantile(slices, 0.1), Min: quantile(slices, 0), Max: quantile(slices, 0.9), N: len(slices)}
	r := single("walk", name, "ns/frame", s, g)
	r.Note = fmt.Sprintf("p10 [fastest..p90] of %d slices, median %.1f; %.4f allocations a frame", len(slices), quantile(slices, 0.5), allocs)
	if allocs >= 0.001 && r.Outcome == Pass {
		r.Outcome = Fail
	}
	return r
}

// bigTables are tables of so many FDB entries, all on the other node.
func bigTables(entries int) (*table.Builder, error) {
	b, err := newTables()
	if err != nil {
		return nil, err
	}
	id, err := b.NewPortID()
	if err != nil {
		return nil, err
	}
	p := sourcePort()
	p.ID, p.Name, p.Network, p.Segment, p.MTU = id, "source", benchNetwork, benchSegment, 1500
	if err := b.SetPort(p); err != nil {
		return nil, err
	}
	for i := range entries {
		err := b.SetFDB(benchNetwork, table.FDBEntry{MAC: bigMAC(i), Node: otherNode, Segment: benchSegment, Static: true})
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

func bigMAC(i int) packet.MAC { return packet.MACFromUint64(0x020000100000 + uint64(i)) }

// onlyPort is the one port of tables made by bigTables.
func onlyPort(s *table.Snapshot) *table.Port {
	for i := range s.Ports {
		if s.Ports[i].ID != 0 {
			return &s.Ports[i]
		}
	}
	return nil
}

// benchWalk measures the decision about a frame and its encapsulation.
func benchWalk(ctx context.Context, s *session) error {
	clock := clockCost()
	s.setup("walk: fastpath.Walk on batches of %d UDP frames of 64 bytes to random MACs of another node, port security mac+ip, frames in as many chunks as a shard has, frame bytes as the kernel leaves them; preparing a batch is not counted, nor reading the clock (%.2f ns a frame)", table.Batch, clock)
	for _, c := range []struct {
		entries int
		goal    float64
	}{{1000, 25}, {s.memory, 80}} {
		b, err := bigTables(c.entries)
		if err != nil {
			return err
		}
		slices, allocs, err := s.walkSlices(ctx, b.Snapshot(), c.entries)
		if err != nil {
			return err
		}
		s.add(slicesRow(fmt.Sprintf("decision + encapsulation, %d FDB entries", c.entries), slices, allocs, clock, atMost(c.goal)))
	}
	return nil
}

func (s *session) walkSlices(ctx context.Context, snap *table.Snapshot, entries int) (slices []float64, allocs float64, err error) {
	o, err := load64()
	if err != nil {
		return nil, 0, err
	}
	port := onlyPort(snap)
	w := fastpath.NewWalk(16, fastpath.Limits{})
	mem := make([]byte, chunks*xsk.ChunkSize)
	rng := rand.New(rand.NewPCG(1, 2))
	frames := make([]fastpath.Frame, table.Batch)
	next := 0
	prepare := func() {
		// The kernel has just written these bytes, in another chunk each time.
		for i := range frames {
			next = (next + 1) % chunks
			chunk := mem[next*xsk.ChunkSize : (next+1)*xsk.ChunkSize]
			frame := chunk[xsk.KernelHeadroom:]
			copy(frame, o.Frame)
			mac := bigMAC(rng.IntN(entries))
			copy(frame, mac[:])
			frames[i] = fastpath.Frame{Buf: chunk, Off: xsk.KernelHeadroom, Len: len(o.Frame)}
		}
	}
	slices, allocs, err = inMemory(ctx, max(s.Duration, 20*time.Millisecond), prepare, func() { w.FromPort(snap, port, frames) })
	for i := range frames {
		if err == nil && frames[i].Verdict != fastpath.Remote {
			err = fmt.Errorf("verdict %v, reason %v: the frame was not encapsulated", frames[i].Verdict, frames[i].Reason)
		}
	}
	return slices, allocs, err
}

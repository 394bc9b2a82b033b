package bench

import (
	"context"
	"fmt"
	"time"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
)

// changesMost bounds how many changes one benchmark makes.
const changesMost = 5000

// benchChange measures one change in a big network up to the published
// snapshot.
func benchChange(ctx context.Context, s *session) (err error) {
	b, err := bigTables(s.memory)
	if err != nil {
		return err
	}
	e, err := fastpath.New(fastpath.Config{Workers: 1, CPUs: []int{forwardCPU}, MaxPorts: 16, NUMANode: -1})
	if err != nil {
		return err
	}
	if err := e.Start(); err != nil {
		return err
	}
	defer func() {
		if serr := e.Stop(); err == nil {
			err = serr
		}
	}()
	e.Publish(b.Snapshot())
	var took []float64
	for end := time.Now().Add(2 * s.Duration); time.Now().Before(end) && len(took) < changesMost && ctx.Err() == nil; {
		i := len(took)
		entry := table.FDBEntry{MAC: bigMAC(i * 7919 % s.memory), Node: otherNode, Segment: table.Segment(1 + i%4093), Static: true}
		start := time.Now()
		if err := b.SetFDB(benchNetwork, entry); err != nil {
			return err
		}
		e.Publish(b.Snapshot())
		took = append(took, float64(time.Since(start).Nanoseconds())/1e6)
	}
	r := single("change", fmt.Sprintf("one change in a network of %d entries", s.memory), "ms",
		Spread{Median: quantile(took, 0.5), Min: quantile(took, 0), Max: quantile(took, 0.99), N: len(took)}, atMost(1))
	r.Note = fmt.Sprintf("median [fastest..p99] of %d changes, each published", len(took))
	s.add(r)
	return ctx.Err()
}

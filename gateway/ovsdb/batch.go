package ovsdb

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Outcome is what became of one item of a Batch.
type Outcome struct {
	// Result is the server's; valid if Done.
	Result ovsdb.OperationResult
	Done   bool
	// Err is set on an item the server refuses even alone.
	Err error
	// an item neither Done nor with Err was skipped by build, or not reached
}

// Batch runs n items in transactions of at most size operations. build makes the operation of
// item i from what is known now, or skips it. A refused transaction is retried by halves, and
// build is asked again for every item: the rows it depends on may have changed. So one bad item
// costs log2(size) transactions and none of the others.
//
// At most two transactions are under way at a time, so that one is being written while the server
// works on the other: transactions may be done in another order than that of the items, and build
// is called for different items at once.
//
// The error is not nil only when the Session ended or ctx was cancelled; the outcomes up to there
// are valid.
func (s *Session) Batch(ctx context.Context, n, size int, build func(i int) (ovsdb.Operation, bool)) ([]Outcome, error) {
	out := make([]Outcome, n)
	b := batch{s: s, out: out, build: build}
	if n <= size {
		return out, b.run(ctx, 0, n)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	var errs [2]error
	for w := range errs {
		wg.Go(func() {
			for errs[w] == nil {
				lo := int(next.Add(int64(size))) - size
				if lo >= n {
					return
				}
				errs[w] = b.run(ctx, lo, min(lo+size, n))
			}
		})
	}
	wg.Wait()
	return out, cmp.Or(errs[0], errs[1])
}

type batch struct {
	s     *Session
	out   []Outcome
	build func(int) (ovsdb.Operation, bool)
}

func (b *batch) run(ctx context.Context, lo, hi int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ops := make([]ovsdb.Operation, 0, hi-lo)
	items := make([]int, 0, hi-lo)
	for i := lo; i < hi; i++ {
		if op, ok := b.build(i); ok {
			ops = append(ops, op)
			items = append(items, i)
		}
	}
	if len(ops) == 0 {
		return nil
	}
	res, err := b.s.Transact(ctx, ops...)
	switch {
	case err == nil:
		for k, i := range items {
			b.out[i] = Outcome{Result: res[k], Done: true}
		}
		return nil
	case !errors.Is(err, ErrRejected):
		return err
	case len(ops) == 1:
		b.out[items[0]].Err = err
		return nil
	}
	mid := lo + (hi-lo)/2
	if err := b.run(ctx, lo, mid); err != nil {
		return err
	}
	return b.run(ctx, mid, hi)
}

package gateway

import (
	"context"
	"sync/atomic"
	"time"
)

// loop runs one reconciler: fn after a kick, after a failure with growing delay, and every period.
// Kicks during a pass make one more, after a rest of half the time that one took and 100 ms at most:
// a burst is served by few passes, and what comes after a quiet time at once.
type loop struct {
	period time.Duration
	fn     func(ctx context.Context, periodic bool) error

	kicked chan struct{}
	since  atomic.Int64 // UnixNano of the first kick not yet served, 0 if none
}

const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
	restMax    = 100 * time.Millisecond
)

func newLoop(period time.Duration, fn func(context.Context, bool) error) *loop {
	return &loop{period: period, fn: fn, kicked: make(chan struct{}, 1)}
}

// kick asks for a pass. It never blocks and costs little: it is called once for each changed row.
func (l *loop) kick() {
	if l.since.Load() == 0 {
		l.since.CompareAndSwap(0, time.Now().UnixNano())
	}
	select {
	case l.kicked <- struct{}{}:
	default:
	}
}

// began returns when the first event served by the current pass came, and clears it.
func (l *loop) began() time.Time {
	if ns := l.since.Swap(0); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

func (l *loop) run(ctx context.Context) {
	tick := time.NewTicker(l.period)
	defer tick.Stop()
	retry := time.NewTimer(0)
	wait := backoffMin
	for {
		periodic := false
		select {
		case <-ctx.Done():
			return
		case <-l.kicked:
		case <-tick.C:
			periodic = true
		case <-retry.C:
		}
		start := time.Now()
		err := l.fn(ctx, periodic)
		if err != nil {
			retry.Reset(wait)
			wait = min(2*wait, backoffMax)
		} else {
			retry.Stop()
			wait = backoffMin
		}
		rest := time.NewTimer(min(time.Since(start)/2, restMax))
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		}
	}
}

package gen

import (
	"context"
	"time"
)

// Source sends frames.
type Source interface {
	// Run sends until the load or the context ends; the latter is no error.
	// It works on the calling goroutine's thread, so a caller that wants one
	// CPU locks the thread and sets its affinity.
	Run(ctx context.Context, l Load) (Result, error)
	Close() error
}

// pace calls send with the number of frames that are due, until the load ends.
// send returns how many it sent. most bounds one call.
func pace(ctx context.Context, l Load, most int, send func(n int) (int, error)) (r Result, err error) {
	start := time.Now()
	defer func() { r.Elapsed = time.Since(start) }()
	for ctx.Err() == nil {
		elapsed := time.Since(start)
		if l.Duration > 0 && elapsed >= l.Duration {
			return r, nil
		}
		n := most
		if l.Count > 0 {
			if r.Frames >= l.Count {
				return r, nil
			}
			n = int(min(uint64(n), l.Count-r.Frames))
		}
		if l.Rate > 0 {
			due := int64(l.Rate*elapsed.Seconds()) - int64(r.Frames)
			if due < 1 {
				time.Sleep(time.Millisecond)
				continue
			}
			n = int(min(int64(n), due))
		}
		sent, err := send(n)
		r.Frames += uint64(sent)
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

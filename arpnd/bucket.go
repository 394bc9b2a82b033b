package arpnd

// Bucket is a token bucket on a monotonic clock the caller reads. It counts in
// whole numbers only: one token is a billion credits, a nanosecond earns rate
// credits, so no rate drifts. It has one owner at a time. The zero Bucket
// refuses everything.
type Bucket struct {
	last     int64  // ns, when credit was last brought up to date
	credit   uint64 // at most capacity
	capacity uint64 // burst * second
	rate     uint64 // credits per ns = tokens per second
	full     uint64 // ns from empty to full, rounded up
}

const second = 1_000_000_000

// NewBucket returns a full bucket that holds burst tokens and regains rate
// tokens a second; rate 0 never regains any. now is in nanoseconds, as for Take.
func NewBucket(rate, burst uint32, now int64) Bucket {
	c := uint64(burst) * second
	return Bucket{last: now, credit: c, capacity: c, rate: uint64(rate), full: c/max(1, uint64(rate)) + 1}
}

// Take takes one token and says whether there was one. A now slightly before
// the previous one earns nothing until the clock has caught up; one further
// back than a full refill restarts the clock there, again earning nothing, so
// that neither jitter mints tokens nor a step back starves the bucket.
func (b *Bucket) Take(now int64) bool {
	b.refill(now)
	if b.credit < second {
		return false
	}
	b.credit -= second
	return true
}

func (b *Bucket) refill(now int64) {
	if b.rate == 0 {
		return
	}
	if now < b.last {
		if uint64(b.last)-uint64(now) > b.full {
			b.last = now
		}
		return
	}
	// The subtraction is right even where a signed one would overflow.
	elapsed := uint64(now) - uint64(b.last)
	b.last = now
	if elapsed >= b.full {
		b.credit = b.capacity
		return
	}
	b.credit = min(b.credit+elapsed*b.rate, b.capacity)
}

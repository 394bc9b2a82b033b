package arpnd

import (
	"math"
	"math/rand/v2"
	"testing"
)

// N10: answers are limited per port.

func taken(b *Bucket, now int64, tries int) (n int) {
	for range tries {
		if b.Take(now) {
			n++
		}
	}
	return n
}

func TestN10_BucketBurstThenRate(t *testing.T) {
	b := NewBucket(10, 3, 1000)
	if got := taken(&b, 1000, 10); got != 3 {
		t.Errorf("burst: %d", got)
	}
	if b.Take(1000 + 99_999_999) {
		t.Error("a token before its time")
	}
	if !b.Take(1000 + 100_000_000) {
		t.Error("no token at its time")
	}
	if got := taken(&b, 1000+3600*second, 10); got != 3 {
		t.Errorf("after an hour: %d, not the burst", got)
	}
}

// TestBucketDoesNotDrift: a rate that divides nothing is kept to the token over
// an hour of odd steps.
func TestBucketDoesNotDrift(t *testing.T) {
	const rate = 7
	b := NewBucket(rate, 1, 0)
	r := rand.New(rand.NewPCG(1, 2))
	now, got := int64(0), 0
	for now < 3600*second {
		if b.Take(now) {
			got++
		}
		now += 1 + r.Int64N(second/rate/50) // far finer than a token, so none is lost to the cap
	}
	// Less than one step's worth of each token may be lost to the full bucket.
	want := 3600 * rate
	if got > want+1 || got < want-want/40 {
		t.Errorf("%d tokens, want %d", got, want)
	}
	exact := NewBucket(3, 5, 0)
	got = taken(&exact, 0, 5)
	for i := int64(1); i <= 3_000_000; i++ {
		exact.refill(i * 1000) // 3e-6 of a token each: a float would round
	}
	if got += taken(&exact, 3*second, 100); got != 10 {
		t.Errorf("%d tokens, want the burst of 5 twice", got)
	}
}

// TestBucketAgainstExactModel: never more tokens than burst + rate * time, and
// never fewer when asked for at leisure.
func TestBucketAgainstExactModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		rate, burst := 1+r.Uint32N(1_000_000), 1+r.Uint32N(1000)
		start := r.Int64N(1 << 60)
		b := NewBucket(rate, burst, start)
		now, got := start, uint64(0)
		for range 2000 {
			now += r.Int64N(2_000_000_000 / int64(rate) * 2)
			if b.Take(now) {
				got++
			}
			if most := uint64(burst) + uint64(now-start)*uint64(rate)/second; got > most {
				t.Fatalf("seed %d: %d tokens, at most %d", seed, got, most)
			}
		}
	}
}

func TestBucketClock(t *testing.T) {
	t.Run("jitter mints nothing", func(t *testing.T) {
		b := NewBucket(1000, 5, second)
		taken(&b, second, 5)
		for range 1000 {
			if b.Take(second-900_000) || b.Take(second) {
				t.Fatal("a token from a clock that stands still")
			}
		}
	})
	t.Run("a step back does not starve", func(t *testing.T) {
		b := NewBucket(1000, 5, 3600*second)
		taken(&b, 3600*second, 5)
		if b.Take(0) {
			t.Error("a step back earned a token")
		}
		if !b.Take(1_000_000) {
			t.Error("no token 1 ms after a step back at 1000/s")
		}
	})
	t.Run("extremes", func(t *testing.T) {
		b := NewBucket(math.MaxUint32, math.MaxUint32, math.MinInt64)
		if !b.Take(math.MaxInt64) || !b.Take(math.MinInt64) || !b.Take(math.MaxInt64) {
			t.Error("a full bucket refuses")
		}
	})
}

func TestBucketOff(t *testing.T) {
	var zero Bucket
	none := NewBucket(0, 0, 0)
	once := NewBucket(0, 2, 0)
	if zero.Take(second) || none.Take(second) {
		t.Error("an empty bucket gives")
	}
	if got := taken(&once, 3600*second, 10); got != 2 {
		t.Errorf("rate 0, burst 2: %d", got)
	}
}

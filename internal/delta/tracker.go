package delta

import (
	"iter"
	"slices"
	"time"
)

// Options of a Tracker.
type Options[K comparable, V any] struct {
	Compare func(a, b K) int  // the order of keys; required
	Equal   func(a, b V) bool // whether nothing need be written; required
	Backoff Backoff
}

// Backoff of a failing key: Min after the first failure, doubled by each further
// one up to Max. Zero: 100 ms and 30 s.
type Backoff struct{ Min, Max time.Duration }

func (b Backoff) after(failures int) time.Duration {
	wait := b.Min
	for range failures - 1 {
		if wait >= b.Max/2 {
			return b.Max
		}
		wait *= 2
	}
	return min(wait, b.Max)
}

// Tracker holds the three sets.
type Tracker[K comparable, V any] struct {
	o       Options[K, V]
	desired map[K]V
	actual  map[K]state[V]
	pending map[K]struct{}
	failed  map[K]*Failure[K] // only keys that are pending
}

// state is an actual value; after a write of uncertain outcome it is unknown,
// which equals nothing.
type state[V any] struct {
	value   V
	unknown bool
}

// Failure is a key that could not be written.
type Failure[K comparable] struct {
	Key      K
	Err      error     // the last one
	Failures int       // in a row
	Retry    time.Time // not tried before
}

// New makes an empty tracker.
func New[K comparable, V any](o Options[K, V]) *Tracker[K, V] {
	if o.Backoff.Min <= 0 {
		o.Backoff.Min = 100 * time.Millisecond
	}
	if o.Backoff.Max <= 0 {
		o.Backoff.Max = 30 * time.Second
	}
	o.Backoff.Max = max(o.Backoff.Max, o.Backoff.Min)
	return &Tracker[K, V]{
		o: o, desired: map[K]V{}, actual: map[K]state[V]{},
		pending: map[K]struct{}{}, failed: map[K]*Failure[K]{},
	}
}

// SetDesired says that k should have the value v. A new value for a failing key
// is tried at once.
func (t *Tracker[K, V]) SetDesired(k K, v V) {
	old, had := t.desired[k]
	t.desired[k] = v
	t.judge(k)
	if !had || !t.o.Equal(old, v) {
		t.hurry(k)
	}
}

// DeleteDesired says that k should not be.
func (t *Tracker[K, V]) DeleteDesired(k K) {
	if _, had := t.desired[k]; !had {
		return
	}
	delete(t.desired, k)
	t.judge(k)
	t.hurry(k)
}

// ReplaceDesired replaces the whole desired set.
func (t *Tracker[K, V]) ReplaceDesired(want iter.Seq2[K, V]) {
	kept := map[K]struct{}{}
	for k, v := range want {
		kept[k] = struct{}{}
		t.SetDesired(k, v)
	}
	for k := range t.desired {
		if _, ok := kept[k]; !ok {
			t.DeleteDesired(k)
		}
	}
}

// Desired returns the desired value of k.
func (t *Tracker[K, V]) Desired(k K) (V, bool) { v, ok := t.desired[k]; return v, ok }

// SetActual says that k was seen to have the value v.
func (t *Tracker[K, V]) SetActual(k K, v V) {
	t.actual[k] = state[V]{value: v}
	t.judge(k)
}

// DeleteActual says that k was seen not to be.
func (t *Tracker[K, V]) DeleteActual(k K) {
	delete(t.actual, k)
	t.judge(k)
}

// ForgetActual says that nobody knows what k is now: it will be written, or
// deleted if it is not desired.
func (t *Tracker[K, V]) ForgetActual(k K) {
	t.actual[k] = state[V]{unknown: true}
	t.judge(k)
}

// ReplaceActual takes a whole read-back.
func (t *Tracker[K, V]) ReplaceActual(seen iter.Seq2[K, V]) {
	old := t.actual
	t.actual = map[K]state[V]{}
	for k, v := range seen {
		t.actual[k] = state[V]{value: v}
	}
	for k := range t.actual {
		t.judge(k)
	}
	for k := range old {
		t.judge(k)
	}
}

// Actual returns the actual value of k; false also when it is unknown.
func (t *Tracker[K, V]) Actual(k K) (v V, ok bool) {
	s, ok := t.actual[k]
	if !ok || s.unknown {
		return v, false
	}
	return s.value, true
}

// judge puts k into the pending set or takes it out.
func (t *Tracker[K, V]) judge(k K) {
	want, wanted := t.desired[k]
	is, there := t.actual[k]
	same := wanted == there && (!wanted || !is.unknown && t.o.Equal(want, is.value))
	if same {
		delete(t.pending, k)
		delete(t.failed, k)
		return
	}
	t.pending[k] = struct{}{}
}

// hurry lets a failing key be tried at once; its count of failures stays, so that
// a restless caller does not defeat the backoff's growth.
func (t *Tracker[K, V]) hurry(k K) {
	if f := t.failed[k]; f != nil {
		f.Retry = time.Time{}
	}
}

// InSync says that desired and actual are the same.
func (t *Tracker[K, V]) InSync() bool { return len(t.pending) == 0 }

// Pending returns the keys that differ, failing ones too, in order.
func (t *Tracker[K, V]) Pending() []K { return t.sorted(func(K) bool { return true }) }

// Failures returns the failing keys in order.
func (t *Tracker[K, V]) Failures() []Failure[K] {
	var all []Failure[K]
	for _, k := range t.Pending() {
		if f := t.failed[k]; f != nil {
			all = append(all, *f)
		}
	}
	return all
}

// NextRetry is the earliest time at which a failing key is tried again; false
// when none is failing.
func (t *Tracker[K, V]) NextRetry() (at time.Time, ok bool) {
	for _, f := range t.failed {
		if !ok || f.Retry.Before(at) {
			at, ok = f.Retry, true
		}
	}
	return at, ok
}

func (t *Tracker[K, V]) sorted(pick func(K) bool) []K {
	keys := make([]K, 0, len(t.pending))
	for k := range t.pending {
		if pick(k) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, t.o.Compare)
	return keys
}

package delta

import (
	"errors"
	"time"
)

// Writer makes one key as wanted. An error leaves the key pending; what it is then
// is unknown unless the error wraps an [Unchanged].
type Writer[K comparable, V any] interface {
	Write(k K, v V) error // make k be v; it may or may not exist
	Delete(k K) error     // make k not be; not being there already is no error
}

// Unchanged wraps an error of a Writer that certainly changed nothing.
type Unchanged struct{ Err error }

func (u Unchanged) Error() string { return u.Err.Error() }
func (u Unchanged) Unwrap() error { return u.Err }

// Result of an Apply.
type Result struct {
	Written, Deleted, Failed, Waiting int
}

// Mutations is the number of changes made.
func (r Result) Mutations() int { return r.Written + r.Deleted }

// Apply writes, then deletes, every pending key that is due: first make, then
// break. It never stops at a failure.
func (t *Tracker[K, V]) Apply(now time.Time, w Writer[K, V]) Result {
	r := t.ApplyWrites(now, w)
	d := t.ApplyDeletes(now, w)
	return Result{r.Written, d.Deleted, r.Failed + d.Failed, r.Waiting + d.Waiting}
}

// ApplyWrites is the making half of Apply.
func (t *Tracker[K, V]) ApplyWrites(now time.Time, w Writer[K, V]) (r Result) {
	keys := t.sorted(func(k K) bool { _, wanted := t.desired[k]; return wanted })
	for _, k := range keys {
		if !t.due(now, k) {
			r.Waiting++
			continue
		}
		v := t.desired[k]
		if err := w.Write(k, v); err != nil {
			t.fail(now, k, err)
			r.Failed++
			continue
		}
		t.SetActual(k, v)
		r.Written++
	}
	return r
}

// ApplyDeletes is the breaking half of Apply.
func (t *Tracker[K, V]) ApplyDeletes(now time.Time, w Writer[K, V]) (r Result) {
	keys := t.sorted(func(k K) bool { _, wanted := t.desired[k]; return !wanted })
	for _, k := range keys {
		if !t.due(now, k) {
			r.Waiting++
			continue
		}
		if err := w.Delete(k); err != nil {
			t.fail(now, k, err)
			r.Failed++
			continue
		}
		t.DeleteActual(k)
		r.Deleted++
	}
	return r
}

func (t *Tracker[K, V]) due(now time.Time, k K) bool {
	f := t.failed[k]
	return f == nil || !now.Before(f.Retry)
}

func (t *Tracker[K, V]) fail(now time.Time, k K, err error) {
	if !errors.As(err, new(Unchanged)) {
		t.actual[k] = state[V]{unknown: true}
	}
	f := t.failed[k]
	if f == nil {
		f = &Failure[K]{Key: k}
		t.failed[k] = f
	}
	f.Err = err
	f.Failures++
	f.Retry = now.Add(t.o.Backoff.after(f.Failures))
}

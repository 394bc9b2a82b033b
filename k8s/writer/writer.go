package writer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Class is a key's place in the queue.
type Class uint8

// The classes; Static goes first.
const (
	Static Class = iota
	Learned
	classes
)

// Options of a Writer. Zero values mean the defaults named.
type Options struct {
	API        API
	Rate       float64       // writes a second; 100
	Burst      int           // writes at once after a rest; 200
	Workers    int           // writes in flight; 8
	MaxLearned int           // keys of the learned class; 16384
	BackoffMin time.Duration // after a first failure; 100 ms
	BackoffMax time.Duration // the cap; 30 s
	// Observe, if set, is told of every attempt: the resource, the verb, and
	// "ok", "conflict" or the API's reason. It must not block.
	Observe func(resource string, v Verb, reason string)
	Log     *slog.Logger // nil: none
}

// rest is how long a key waits for the cache to show a write before it is
// decided again regardless. It is long: only a watch that lost its way needs it.
const rest = 15 * time.Second

// Writer is the queue and its workers. Make one with New.
type Writer[K comparable] struct {
	opts    Options
	decider Decider[K]
	limit   *rate.Limiter

	mu     sync.Mutex
	wake   sync.Cond // a key became ready, or the end
	ready  [classes][]K
	keys   map[K]*entry
	count  [classes]int
	closed bool
}

// entry is a key that is queued, in flight, resting or backing off.
type entry struct {
	class    Class
	queued   bool
	inFlight bool
	again    bool // enqueued while in flight
	failures int
	hold     bool // backing off: only the timer readies it
	timer    *time.Timer
	resting  *Result // what the cache must show first
	until    time.Time
}

// New returns a Writer that writes nothing until Run.
func New[K comparable](d Decider[K], o Options) (*Writer[K], error) {
	if d == nil || o.API == nil {
		return nil, errors.New("writer: give a decider and an API client")
	}
	set(&o.Rate, 100)
	set(&o.Burst, 200)
	set(&o.Workers, 8)
	set(&o.MaxLearned, 16384)
	set(&o.BackoffMin, 100*time.Millisecond)
	set(&o.BackoffMax, 30*time.Second)
	if o.Observe == nil {
		o.Observe = func(string, Verb, string) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w := &Writer[K]{opts: o, decider: d, limit: rate.NewLimiter(rate.Limit(o.Rate), o.Burst), keys: map[K]*entry{}}
	w.wake.L = &w.mu
	return w, nil
}

func set[T int | float64 | time.Duration](v *T, unset T) {
	if *v == 0 {
		*v = unset
	}
}

// Enqueue asks for a decision on k. It never blocks. It returns false when the
// learned class is full and k is not in it yet; whoever asked asks again later.
func (w *Writer[K]) Enqueue(k K, c Class) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.keys[k]
	if e == nil {
		if c == Learned && w.count[Learned] >= w.opts.MaxLearned {
			return false
		}
		e = &entry{class: c}
		w.keys[k] = e
		w.count[c]++
	}
	if c < e.class {
		w.count[e.class]--
		w.count[c]++
		e.class = c
	}
	w.makeReady(k, e)
	return true
}

// Len returns the number of keys of a class that are not at rest for good:
// queued, in flight, waiting for the cache or backing off.
func (w *Writer[K]) Len(c Class) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count[c]
}

// makeReady queues k unless it is queued, in flight or backing off.
func (w *Writer[K]) makeReady(k K, e *entry) {
	if e.inFlight {
		e.again = true
		return
	}
	if e.queued || e.hold {
		return
	}
	e.queued = true
	w.ready[e.class] = append(w.ready[e.class], k)
	w.wake.Signal()
}

// Run works until ctx ends. Keys enqueued before stay for a next Run.
func (w *Writer[K]) Run(ctx context.Context) {
	w.mu.Lock()
	w.closed = false
	w.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.closed = true
		w.wake.Broadcast()
	})
	defer stop()
	var wg sync.WaitGroup
	for range w.opts.Workers {
		wg.Go(func() {
			for w.step(ctx) {
			}
		})
	}
	wg.Wait()
}

// step takes one key and deals with it. It returns false at the end.
func (w *Writer[K]) step(ctx context.Context) bool {
	k, e, ok := w.next()
	if !ok {
		return false
	}
	if !w.rested(k, e) {
		w.settle(k, e, false)
		return true
	}
	op := w.decider.Decide(k)
	if op.Verb == None {
		w.settle(k, e, true)
		return true
	}
	if !w.limit.Allow() {
		if w.limit.Wait(ctx) != nil { // the end: the key keeps its turn
			w.mu.Lock()
			defer w.mu.Unlock()
			e.inFlight = false
			w.makeReady(k, e)
			return false
		}
		if op = w.decider.Decide(k); op.Verb == None { // the wait may have overtaken it
			w.settle(k, e, true)
			return true
		}
	}
	result, err := do(ctx, w.opts.API, op)
	w.opts.Observe(op.Resource.Name, op.Verb, reason(err))
	w.done(k, e, op, result, err)
	if err == nil && op.Then != nil {
		op.Then()
	}
	return true
}

// next waits for a ready key, static first.
func (w *Writer[K]) next() (k K, e *entry, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if w.closed {
			return k, nil, false
		}
		for c := range w.ready {
			for len(w.ready[c]) > 0 {
				k = w.ready[c][0]
				w.ready[c] = w.ready[c][1:]
				if e = w.keys[k]; e == nil || !e.queued {
					continue // raised to the other class meanwhile
				}
				e.queued, e.inFlight, e.again = false, true, false
				return k, e, true
			}
		}
		w.wake.Wait()
	}
}

// rested reports whether the cache shows the key's last write.
func (w *Writer[K]) rested(k K, e *entry) bool {
	w.mu.Lock()
	r, until := e.resting, e.until
	w.mu.Unlock()
	if r == nil {
		return true
	}
	if !w.decider.Shows(k, *r) && time.Now().Before(until) {
		return false
	}
	w.mu.Lock()
	e.resting = nil
	w.mu.Unlock()
	return true
}

// settle ends a turn without a write. A key with nothing left to do is
// forgotten.
func (w *Writer[K]) settle(k K, e *entry, idle bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.inFlight = false
	if e.again {
		w.makeReady(k, e)
		return
	}
	if idle {
		if e.timer != nil {
			e.timer.Stop()
		}
		delete(w.keys, k)
		w.count[e.class]--
		return
	}
	if e.resting != nil {
		w.later(k, e, time.Until(e.until), false)
	}
}

// done ends a turn with a write.
func (w *Writer[K]) done(k K, e *entry, op Op, result Result, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.inFlight = false
	switch {
	case err == nil, op.Verb == Delete && apierrors.IsNotFound(err):
		e.failures = 0
		e.resting, e.until = &result, time.Now().Add(rest)
		w.makeReady(k, e)
		return
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		// The cache is behind. Its next event readies the key; the timer is for
		// the case that it came already.
		e.failures++
		if e.again {
			w.makeReady(k, e)
			return
		}
		w.later(k, e, w.backoff(e.failures), false)
	default:
		e.failures++
		d := w.backoff(e.failures)
		w.opts.Log.Warn("API write failed", "resource", op.Resource.Name, "name", op.Name, "verb", op.Verb.String(),
			"error", err, "failures", e.failures, "retry", d)
		e.hold = true
		w.later(k, e, d, true)
	}
}

// later readies k after d, or when it is enqueued, whichever comes first; with
// hold only after d.
func (w *Writer[K]) later(k K, e *entry, d time.Duration, hold bool) {
	e.hold = hold
	if e.timer != nil {
		e.timer.Stop()
	}
	e.timer = time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		e.hold = false
		if w.keys[k] == e {
			w.makeReady(k, e)
		}
	})
}

// backoff doubles with every failure up to the cap, less a random half.
func (w *Writer[K]) backoff(failures int) time.Duration {
	d := w.opts.BackoffMax
	if failures < 20 {
		d = min(d, w.opts.BackoffMin<<(failures-1))
	}
	return d/2 + rand.N(d/2+1)
}

// reason is what the metrics call an outcome.
func reason(err error) string {
	switch {
	case err == nil:
		return "ok"
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return "conflict"
	}
	if r := apierrors.ReasonForError(err); r != "" {
		return string(r)
	}
	return "transport"
}

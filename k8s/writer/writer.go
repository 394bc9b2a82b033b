package writer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Class is a key's place in the queue.
type Class uint8

// The classes, the most urgent first. Refresh is for what only tells a time.
const (
	Static Class = iota
	Learned
	Refresh
	classes
)

// Options of a Writer. Zero values mean the defaults named.
type Options struct {
	API        API
	Rate       float64       // writes a second; DefaultRate
	Burst      int           // writes at once after a rest; DefaultBurst
	Workers    int           // writes in flight; 8
	MaxLearned int           // keys of the learned class, and of the refresh class; 16384
	BackoffMin time.Duration // after a first failure; 100 ms
	BackoffMax time.Duration // the cap; 30 s
	// Observe, if set, is told of every attempt: the resource, the verb, and
	// "ok", "conflict" or the API's reason. It must not block.
	Observe func(resource string, v Verb, reason string)
	Log     *slog.Logger // nil: none
}

// The node's budget unless Options say otherwise. 50 creates and deletes of
// endpoints a second with two addresses each are 25 x 5 and 25 x 4 writes: the
// churn of a whole cluster on one node fits with a quarter to spare. A node that
// starts with 110 pods, the kubelet's default limit, has 550 writes to make: they
// go at once. See docs/decisions/0056.
const (
	DefaultRate  = 300
	DefaultBurst = 600
)

// rest is how long a key waits for the cache to show a write before it is
// decided again regardless. It is long: only a watch that lost its way needs it.
const rest = 15 * time.Second

// Writer is the queue and its workers. Make one with New.
type Writer[K comparable] struct {
	opts    Options
	decider Decider[K]
	limit   *rate.Limiter
	turn    chan struct{} // holds one while a worker chooses the next write
	log     *complaints

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
	set(&o.Rate, DefaultRate)
	set(&o.Burst, DefaultBurst)
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
	w := &Writer[K]{opts: o, decider: d, limit: rate.NewLimiter(rate.Limit(o.Rate), o.Burst), log: newComplaints(o.Log), keys: map[K]*entry{},
		turn: make(chan struct{}, 1)}
	w.wake.L = &w.mu
	return w, nil
}

func set[T int | float64 | time.Duration](v *T, unset T) {
	if *v == 0 {
		*v = unset
	}
}

// Enqueue asks for a decision on k. It never blocks. It returns false when a
// bounded class is full and k is not queued yet; whoever asked asks again later.
func (w *Writer[K]) Enqueue(k K, c Class) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.keys[k]
	if e == nil {
		if c != Static && w.count[c] >= w.opts.MaxLearned {
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
		if e.queued { // its old place is passed over
			w.ready[c] = append(w.ready[c], k)
		}
	}
	w.makeReady(k, e)
	return true
}

// Touch tells that the cache changed what it holds of k: a key that waits for
// that is decided anew, in its own class. A key at rest stays so.
func (w *Writer[K]) Touch(k K) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.keys[k]; e != nil {
		w.makeReady(k, e)
	}
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

// step makes one write. It returns false at the end.
func (w *Writer[K]) step(ctx context.Context) bool {
	k, e, op, ok := w.choose(ctx)
	if !ok {
		return false
	}
	result, err := do(ctx, w.opts.API, op)
	w.opts.Observe(op.Resource.Name, op.Verb, reason(err))
	if op.Done != nil {
		op.Done(result, err)
	}
	w.done(k, e, op, result, err)
	if err == nil && op.Then != nil {
		op.Then()
	}
	return true
}

// choose returns the most urgent write once the budget allows one. Whoever waits
// for the budget keeps no key meanwhile, so that nothing more urgent waits behind
// it.
func (w *Writer[K]) choose(ctx context.Context) (k K, e *entry, op Op, ok bool) {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	for paid := false; ; {
		if k, e, ok = w.next(); !ok {
			return k, e, op, false
		}
		if !w.rested(k, e) {
			w.settle(k, e, false)
			continue
		}
		if op = w.decider.Decide(k); op.Verb == None {
			w.settle(k, e, true)
			continue
		}
		if paid || w.limit.Allow() {
			return k, e, op, true
		}
		w.putBack(k, e)
		if w.limit.Wait(ctx) != nil {
			return k, e, op, false
		}
		paid = true
	}
}

// putBack gives a key its turn again.
func (w *Writer[K]) putBack(k K, e *entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.inFlight, e.queued = false, true
	w.ready[e.class] = slices.Insert(w.ready[e.class], 0, k)
}

// next waits for a ready key of the most urgent class.
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
					continue // its place before it was raised to a more urgent class
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
		w.log.failed(op, err, e.failures, d)
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

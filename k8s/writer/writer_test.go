package writer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
)

// world is a toy of one number per key: what is wanted, what is stored and what
// the cache shows. It is the decider and the API at once.
type world struct {
	mu     sync.Mutex
	want   map[int]int
	stored map[int]int
	cache  map[int]int
	writes []int        // keys, in the order of the writes
	fail   func() error // what the next write says
	delay  time.Duration
	lazy   bool // the cache follows only when told
	busy   map[int]bool
	t      *testing.T
}

func newWorld(t *testing.T) *world {
	return &world{t: t, want: map[int]int{}, stored: map[int]int{}, cache: map[int]int{}, busy: map[int]bool{}}
}

func (w *world) Decide(k int) Op {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.want[k] == w.cache[k] {
		return Op{}
	}
	return Op{Verb: Create, Name: fmt.Sprint(k), Object: &v1alpha1.FDBEntry{
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(w.cache[k])},
		Spec:       v1alpha1.FDBEntrySpec{Network: v1alpha1.NetworkName(fmt.Sprint(w.want[k]))}}}
}

func (w *world) Shows(k int, r Result) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(w.cache[k]) == r.ResourceVersion
}

var gr = schema.GroupResource{Resource: "things"}

func (w *world) Create(_ context.Context, _ client.Resource, obj runtime.Object) error {
	o := obj.(*v1alpha1.FDBEntry)
	var k, value int
	w.mu.Lock()
	for key := range w.want { // the op names no key: find it by the value wanted
		if fmt.Sprint(w.want[key]) == string(o.Spec.Network) {
			k, value = key, w.want[key]
		}
	}
	if w.busy[k] {
		w.t.Errorf("two writes of key %d at once", k)
	}
	w.busy[k] = true
	w.writes = append(w.writes, k)
	fail := w.fail
	w.mu.Unlock()
	time.Sleep(w.delay)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[k] = false
	if fail != nil {
		if err := fail(); err != nil {
			return err
		}
	}
	if o.ResourceVersion != fmt.Sprint(w.stored[k]) {
		return apierrors.NewConflict(gr, "x", errors.New("stale"))
	}
	w.stored[k] = value
	o.ResourceVersion = fmt.Sprint(value)
	if !w.lazy {
		w.cache[k] = value
	}
	return nil
}

func (w *world) Patch(context.Context, client.Resource, string, string, []byte, runtime.Object) error {
	return errors.New("not in this world")
}

func (w *world) Delete(context.Context, client.Resource, string, string, string) error {
	return errors.New("not in this world")
}

// run gives f a running writer in a bubble of its own time.
func run(t *testing.T, o Options, f func(t *testing.T, w *world, q *Writer[int])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o.API = w
		q, err := New[int](w, o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { q.Run(ctx) })
		f(t, w, q)
		cancel()
		wg.Wait()
	})
}

func (w *world) set(q *Writer[int], k, value int, c Class) {
	w.mu.Lock()
	w.want[k] = value
	w.mu.Unlock()
	q.Enqueue(k, c)
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.writes)
}

func TestCoalesces(t *testing.T) {
	run(t, Options{}, func(t *testing.T, w *world, q *Writer[int]) {
		w.delay = 10 * time.Millisecond
		for v := 1; v <= 1000; v++ {
			w.set(q, 1, v, Static)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if w.stored[1] != 1000 || w.count() > 3 {
			t.Errorf("stored %d by %d writes", w.stored[1], w.count())
		}
		if q.Len(Static) != 0 {
			t.Errorf("%d keys left", q.Len(Static))
		}
	})
}

// TestWaitsForItsOwnWrite holds that no decision is made on a cache that has not
// seen the last write.
func TestWaitsForItsOwnWrite(t *testing.T) {
	run(t, Options{}, func(t *testing.T, w *world, q *Writer[int]) {
		w.lazy = true
		w.set(q, 1, 5, Static)
		for range 50 { // whatever pokes it
			time.Sleep(10 * time.Millisecond)
			q.Enqueue(1, Static)
		}
		synctest.Wait()
		if w.count() != 1 {
			t.Errorf("%d writes, want 1", w.count())
		}
		w.mu.Lock()
		w.cache[1] = 5
		w.mu.Unlock()
		q.Enqueue(1, Static)
		synctest.Wait()
		if w.count() != 1 || q.Len(Static) != 0 {
			t.Errorf("%d writes, %d keys left", w.count(), q.Len(Static))
		}
	})
}

func TestConflictIsDecidedAgainFromTheCache(t *testing.T) {
	run(t, Options{}, func(t *testing.T, w *world, q *Writer[int]) {
		w.stored[1] = 3 // somebody wrote; the cache does not know
		w.set(q, 1, 5, Static)
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		if n := w.count(); n != 1 {
			t.Errorf("%d writes before the cache moved, want 1", n)
		}
		w.mu.Lock()
		w.cache[1] = 3
		w.mu.Unlock()
		q.Enqueue(1, Static) // its event
		synctest.Wait()
		if w.stored[1] != 5 || w.count() != 2 {
			t.Errorf("stored %d by %d writes", w.stored[1], w.count())
		}
	})
}

func TestBacksOffWithACap(t *testing.T) {
	run(t, Options{BackoffMin: 100 * time.Millisecond, BackoffMax: 10 * time.Second}, func(t *testing.T, w *world, q *Writer[int]) {
		w.fail = func() error { return errors.New("connection refused") }
		w.set(q, 1, 5, Static)
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			q.Enqueue(1, Static) // events do not hurry it
		}
		synctest.Wait()
		n := w.count()
		if n < 10 || n > 25 { // about 7 up to the cap, then one each 5 to 10 s
			t.Errorf("%d tries in a minute", n)
		}
		w.mu.Lock()
		w.fail = nil
		w.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if w.stored[1] != 5 || q.Len(Static) != 0 {
			t.Errorf("stored %d, %d keys left", w.stored[1], q.Len(Static))
		}
	})
}

func TestRateIsTheNodesBudget(t *testing.T) {
	run(t, Options{Rate: 50, Burst: 10}, func(t *testing.T, w *world, q *Writer[int]) {
		for k := range 200 {
			w.set(q, k+1, 1000+k, Static)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := w.count(); n < 105 || n > 115 {
			t.Errorf("%d writes in 2 s of 50 a second and a burst of 10", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if w.count() != 200 {
			t.Errorf("%d writes of 200", w.count())
		}
	})
}

// TestStaticGoesFirst fills the queue with learned keys and then asks for a
// static one.
func TestStaticGoesFirst(t *testing.T) {
	run(t, Options{Rate: 10, Burst: 1, Workers: 4}, func(t *testing.T, w *world, q *Writer[int]) {
		for k := range 500 {
			w.set(q, k+1, 1000+k, Learned)
		}
		time.Sleep(time.Second)
		before := w.count()
		w.set(q, 9000, 9000, Static)
		time.Sleep(time.Second)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, k := range w.writes {
			if k == 9000 {
				if i > before+1 { // the one in flight
					t.Errorf("the static key came %d writes late", i-before)
				}
				return
			}
		}
		t.Error("the static key starved")
	})
}

func TestLearnedClassIsBounded(t *testing.T) {
	run(t, Options{Rate: 1, Burst: 1, MaxLearned: 10}, func(t *testing.T, w *world, q *Writer[int]) {
		refused := 0
		for k := range 100 {
			w.mu.Lock()
			w.want[k+1] = 1000 + k
			w.mu.Unlock()
			if !q.Enqueue(k+1, Learned) {
				refused++
			}
		}
		if refused != 90 || q.Len(Learned) != 10 {
			t.Errorf("%d refused, %d kept", refused, q.Len(Learned))
		}
		if !q.Enqueue(1, Learned) {
			t.Error("a key that is in was refused")
		}
		for k := range 100 {
			if !q.Enqueue(200+k, Static) {
				t.Error("a static key was refused")
			}
		}
		if !q.Enqueue(1, Static) || q.Len(Learned) != 9 {
			t.Errorf("after a rise to static: %d learned", q.Len(Learned))
		}
	})
}

// TestOneCauseIsLoggedNowAndThen holds that many keys that fail alike do not
// fill the log, and that another cause is still heard.
func TestOneCauseIsLoggedNowAndThen(t *testing.T) {
	var lines atomic.Int32
	log := slog.New(slog.NewTextHandler(lineCounter{&lines}, nil))
	run(t, Options{Log: log, BackoffMin: 100 * time.Millisecond, BackoffMax: time.Second}, func(t *testing.T, w *world, q *Writer[int]) {
		w.fail = func() error { return apierrors.NewInternalError(errors.New("database space exceeded")) }
		for k := range 100 {
			w.set(q, k+1, 1000+k, Static)
		}
		time.Sleep(65 * time.Second)
		synctest.Wait()
		tries := w.count()
		if n := lines.Load(); n < 2 || n > 7 || tries < 1000 {
			t.Errorf("%d lines for %d failures in 65 s", n, tries)
		}
		before := lines.Load()
		w.mu.Lock()
		w.fail = func() error { return apierrors.NewForbidden(gr, "x", errors.New("no")) }
		w.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if lines.Load() == before {
			t.Error("another cause is not logged")
		}
	})
}

type lineCounter struct{ n *atomic.Int32 }

func (c lineCounter) Write(b []byte) (int, error) {
	c.n.Add(1)
	return len(b), nil
}

// TestNothingWaitsBehindRefreshes uses the budget up with refreshes: a key of
// each other class, and a refresh that becomes more than that, is written with
// the next token.
func TestNothingWaitsBehindRefreshes(t *testing.T) {
	run(t, Options{Rate: 10, Burst: 1, Workers: 4}, func(t *testing.T, w *world, q *Writer[int]) {
		for k := range 500 {
			w.set(q, k+1, 1000+k, Refresh)
		}
		time.Sleep(time.Second + 50*time.Millisecond)
		synctest.Wait()
		before := w.count()
		w.set(q, 400, 9400, Learned) // queued far behind
		w.set(q, 9001, 9001, Learned)
		w.set(q, 9002, 9002, Static)
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if got := fmt.Sprint(w.writes[before:]); got != "[9002 400 9001]" {
			t.Errorf("the next writes are %v", got)
		}
	})
}

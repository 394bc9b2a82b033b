package reclaim

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

const second = int64(time.Second)

// ward is a Judge and nodes that renew their Leases.
type ward struct {
	t      *testing.T
	r      *Judge
	now    int64
	silent map[string]bool
	state  map[string]Node
	beat   int
}

func newWard(t *testing.T, nodes int) *ward {
	t.Helper()
	r, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &ward{t: t, r: r, now: 5 * second, silent: map[string]bool{}, state: map[string]Node{}}
	for i := range nodes {
		name := fmt.Sprintf("n%02d", i)
		w.state[name] = Node{Name: name, Exists: true, Lease: "0"}
		r.Set(w.state[name], true, w.now)
	}
	r.Watching(true, w.now)
	return w
}

// pass lets time pass; who is not silent renews every 10 s.
func (w *ward) pass(d time.Duration) {
	for range int(d / (10 * time.Second)) {
		w.now += 10 * second
		w.beat++
		for name, s := range w.state {
			if !w.silent[name] {
				s.Lease = fmt.Sprint(w.beat)
				w.state[name] = s
				w.r.Set(s, true, w.now)
			}
		}
	}
}

func (w *ward) set(name string, change func(*Node)) {
	s := w.state[name]
	change(&s)
	w.state[name] = s
	w.r.Set(s, true, w.now)
}

// want checks one node, and that everybody else is alive and untouched unless others says not to.
func (w *ward) want(name string, alive bool, goes What) {
	w.t.Helper()
	for _, j := range w.r.Verdicts(w.now) {
		if j.Node == name && (j.Alive != alive || j.Goes != goes) {
			w.t.Errorf("%s: alive %v, reclaim %v (%s), want %v, %v", name, j.Alive, j.Goes, j.Why, alive, goes)
		}
		if j.Node != name && !w.silent[j.Node] && (!j.Alive || j.Goes != Nothing) {
			w.t.Errorf("%s renews its Lease: alive %v, reclaim %v", j.Node, j.Alive, j.Goes)
		}
	}
}

func TestDeadNode(t *testing.T) {
	w := newWard(t, 3)
	w.silent["n01"] = true
	w.pass(40 * time.Second)
	w.want("n01", true, Nothing)
	w.pass(10 * time.Second)
	w.want("n01", false, Nothing)
	w.pass(59 * time.Minute)
	w.want("n01", false, Nothing)
	w.pass(2 * time.Minute)
	w.want("n01", false, Learned)
	w.silent["n01"] = false
	w.pass(10 * time.Second)
	w.want("n01", true, Nothing)
}

func TestGoneAndOutOfService(t *testing.T) {
	w := newWard(t, 5)
	w.set("n02", func(s *Node) { s.OutOfService = true })
	w.want("n02", false, Learned)
	w.set("n02", func(s *Node) { s.OutOfService = false })
	w.pass(10 * time.Second)
	w.want("n02", true, Nothing)
	// Somebody deleted the Node of an agent that lives.
	w.set("n02", func(s *Node) { s.Exists = false })
	w.pass(time.Hour)
	w.want("n02", true, Nothing)
	w.silent["n02"] = true
	w.pass(50 * time.Second)
	w.want("n02", false, All)
	w.set("n03", func(s *Node) { s.Exists, s.Lease = false, "" })
	w.silent["n03"] = true
	w.want("n03", true, All) // nobody knows whether it lives, but it left this behind
	w.set("n03", func(s *Node) { s.Exists, s.Lease = true, "0" })
	w.silent["n03"] = false
	w.pass(10 * time.Second)
	w.want("n03", true, Nothing)
	w.r.Forget("n02")
	if got := len(w.r.Verdicts(w.now)); got != 4 {
		t.Errorf("%d judged, want 4", got)
	}
}

// Half of all Leases stale is an outage of the API.
func TestNothingGoesWhileTooManyAreStale(t *testing.T) {
	w := newWard(t, 10)
	for i := range 5 {
		w.silent[fmt.Sprintf("n%02d", i)] = true
	}
	w.pass(3 * time.Hour)
	for i := range 5 {
		w.want(fmt.Sprintf("n%02d", i), true, Nothing)
	}
	// A Node that is gone is a fact, whatever the Leases say.
	w.set("n00", func(s *Node) { s.Exists = false })
	w.want("n00", false, All)
	w.want("n01", true, Nothing)
	// 2 of 9 are few enough only when another two come back.
	w.silent["n03"], w.silent["n04"], w.silent["n02"] = false, false, false
	w.pass(10 * time.Second)
	w.want("n01", false, Learned)
}

// An hour counts only over an unbroken watch.
func TestWatchBreaks(t *testing.T) {
	w := newWard(t, 10)
	w.silent["n01"] = true
	w.pass(50 * time.Minute)
	w.want("n01", false, Nothing)
	w.r.Watching(false, w.now)
	if got := w.r.Verdicts(w.now); got != nil {
		t.Errorf("judged without a watch: %v", got)
	}
	w.pass(5 * time.Minute)
	w.r.Watching(true, w.now)
	w.want("n01", false, Nothing)
	w.pass(50 * time.Minute)
	w.want("n01", false, Nothing)
	w.pass(11 * time.Minute)
	w.want("n01", false, Learned)
}

// The watch stalls for everybody: nobody is dead when it is back.
func TestStalledWatch(t *testing.T) {
	w := newWard(t, 3)
	w.r.Watching(false, w.now)
	w.now += 7200 * second
	w.r.Watching(true, w.now)
	for i := range 3 {
		w.want(fmt.Sprintf("n%02d", i), true, Nothing)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Stale: time.Hour, Forget: time.Minute}, {MostOf: 2}, {MostOf: -1}, {AtLeast: -1}, {Stale: -1}} {
		if _, err := New(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Many fall silent, each at its own moment: the first is not found dead before the
// others show what it is.
func TestOutageDoesNotBeginAllAtOnce(t *testing.T) {
	w := newWard(t, 10)
	for i := range 5 {
		w.silent[fmt.Sprintf("n%02d", i)] = true
		if i%2 == 1 {
			w.pass(10 * time.Second) // two at a time
		}
	}
	for range 60 {
		w.pass(10 * time.Second)
		for i := range 5 {
			w.want(fmt.Sprintf("n%02d", i), true, Nothing)
		}
	}
}

// A node without a Lease, such as a router that is no agent's, is never dead, and
// does not count among the silent.
func TestNodesWithoutLeases(t *testing.T) {
	w := newWard(t, 5)
	for i := range 8 {
		w.r.Set(Node{Name: fmt.Sprintf("x%02d", i), Exists: true}, true, w.now)
		w.silent[fmt.Sprintf("x%02d", i)] = true
	}
	w.silent["n01"] = true
	w.pass(2 * time.Hour)
	w.want("n01", false, Learned)
	for i := range 8 {
		w.want(fmt.Sprintf("x%02d", i), true, Nothing)
	}
}

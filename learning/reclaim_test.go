package learning

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// ward is a Reclaimer and nodes that renew their Leases.
type ward struct {
	t      *testing.T
	r      *Reclaimer
	now    int64
	silent map[string]bool
	state  map[string]NodeState
	beat   int
}

func newWard(t *testing.T, nodes int) *ward {
	t.Helper()
	r, err := NewReclaimer(ReclaimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := &ward{t: t, r: r, now: 5 * second, silent: map[string]bool{}, state: map[string]NodeState{}}
	for i := range nodes {
		name := fmt.Sprintf("n%02d", i)
		w.state[name] = NodeState{Name: name, Exists: true, Lease: "0"}
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

func (w *ward) set(name string, change func(*NodeState)) {
	s := w.state[name]
	change(&s)
	w.state[name] = s
	w.r.Set(s, true, w.now)
}

// want checks one node, and that everybody else is alive and untouched unless others says not to.
func (w *ward) want(name string, alive bool, reclaim Reclaim) {
	w.t.Helper()
	for _, j := range w.r.Judge(w.now) {
		if j.Node == name && (j.Alive != alive || j.Reclaim != reclaim) {
			w.t.Errorf("%s: alive %v, reclaim %v (%s), want %v, %v", name, j.Alive, j.Reclaim, j.Why, alive, reclaim)
		}
		if j.Node != name && !w.silent[j.Node] && (!j.Alive || j.Reclaim != ReclaimNothing) {
			w.t.Errorf("%s renews its Lease: alive %v, reclaim %v", j.Node, j.Alive, j.Reclaim)
		}
	}
}

func TestReclaimDeadNode(t *testing.T) {
	w := newWard(t, 3)
	w.silent["n01"] = true
	w.pass(40 * time.Second)
	w.want("n01", true, ReclaimNothing)
	w.pass(10 * time.Second)
	w.want("n01", false, ReclaimNothing)
	w.pass(59 * time.Minute)
	w.want("n01", false, ReclaimNothing)
	w.pass(2 * time.Minute)
	w.want("n01", false, ReclaimLearned)
	w.silent["n01"] = false
	w.pass(10 * time.Second)
	w.want("n01", true, ReclaimNothing)
}

func TestReclaimGoneAndOutOfService(t *testing.T) {
	w := newWard(t, 5)
	w.set("n02", func(s *NodeState) { s.OutOfService = true })
	w.want("n02", false, ReclaimLearned)
	w.set("n02", func(s *NodeState) { s.OutOfService = false })
	w.pass(10 * time.Second)
	w.want("n02", true, ReclaimNothing)
	w.silent["n02"] = true
	w.set("n02", func(s *NodeState) { s.Exists = false })
	w.want("n02", false, ReclaimAll)
	w.r.Forget("n02")
	if got := len(w.r.Judge(w.now)); got != 4 {
		t.Errorf("%d judged, want 4", got)
	}
}

// Half of all Leases stale is an outage of the API.
func TestReclaimNothingWhileTooManyAreStale(t *testing.T) {
	w := newWard(t, 10)
	for i := range 5 {
		w.silent[fmt.Sprintf("n%02d", i)] = true
	}
	w.pass(3 * time.Hour)
	for i := range 5 {
		w.want(fmt.Sprintf("n%02d", i), true, ReclaimNothing)
	}
	// A Node that is gone is a fact, whatever the Leases say.
	w.set("n00", func(s *NodeState) { s.Exists = false })
	w.want("n00", false, ReclaimAll)
	w.want("n01", true, ReclaimNothing)
	// 2 of 9 are few enough only when another two come back.
	w.silent["n03"], w.silent["n04"], w.silent["n02"] = false, false, false
	w.pass(10 * time.Second)
	w.want("n01", false, ReclaimLearned)
}

// An hour counts only over an unbroken watch.
func TestReclaimWatchBreaks(t *testing.T) {
	w := newWard(t, 10)
	w.silent["n01"] = true
	w.pass(50 * time.Minute)
	w.want("n01", false, ReclaimNothing)
	w.r.Watching(false, w.now)
	if got := w.r.Judge(w.now); got != nil {
		t.Errorf("judged without a watch: %v", got)
	}
	w.pass(5 * time.Minute)
	w.r.Watching(true, w.now)
	w.want("n01", false, ReclaimNothing)
	w.pass(50 * time.Minute)
	w.want("n01", false, ReclaimNothing)
	w.pass(11 * time.Minute)
	w.want("n01", false, ReclaimLearned)
}

// The watch stalls for everybody: nobody is dead when it is back.
func TestReclaimStalledWatch(t *testing.T) {
	w := newWard(t, 3)
	w.r.Watching(false, w.now)
	w.now += 7200 * second
	w.r.Watching(true, w.now)
	for i := range 3 {
		w.want(fmt.Sprintf("n%02d", i), true, ReclaimNothing)
	}
}

func TestReclaimOptions(t *testing.T) {
	for _, o := range []ReclaimOptions{{Stale: time.Hour, Forget: time.Minute}, {MostOf: 2}, {MostOf: -1}, {AtLeast: -1}, {Stale: -1}} {
		if _, err := NewReclaimer(o); !errors.Is(err, ErrReclaimOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

package health

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func state(r *Registry) string {
	s := ""
	for _, p := range r.Reports() {
		s += fmt.Sprintf("%s %v %v %v; ", p.Name, p.Live, p.Ready, p.Problems)
	}
	return s
}

func TestHungIsNotSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Registry
		want := func(want string) {
			t.Helper()
			if got := state(&r); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		want("")
		loop, gate := r.Add("loop", time.Minute), r.Add("gate", 0)
		gate.Set("not listed yet")
		want("loop true true []; gate true false [not listed yet]; ")
		for range 10 { // slow: renewed between steps
			time.Sleep(50 * time.Second)
			loop.Renew()
		}
		want("loop true true []; gate true false [not listed yet]; ")
		gate.Set()
		time.Sleep(time.Minute)
		want("loop true true []; gate true true []; ")
		time.Sleep(time.Nanosecond) // hung
		want("loop false false []; gate true true []; ")
		loop.Set("x")
		want("loop true false [x]; gate true true []; ")
	})
}

func TestWatchedCounterMustMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Registry
		n := uint64(7)
		r.Watch("worker", time.Minute, func() uint64 { return n })
		for range 3 {
			time.Sleep(time.Hour) // nobody asked for an hour; it moved
			n++
			if got := state(&r); got != "worker true true []; " {
				t.Error(got)
			}
		}
		time.Sleep(time.Minute)
		if got := state(&r); got != "worker true true []; " {
			t.Error(got)
		}
		time.Sleep(time.Nanosecond)
		if got := state(&r); got != "worker false false []; " {
			t.Error(got)
		}
		n++
		if got := state(&r); got != "worker true true []; " {
			t.Error(got)
		}
	})
}

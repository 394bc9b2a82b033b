package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/routes/routestest"
)

// object is the device an operation is about, "" for none.
func object(op string) string {
	_, rest, _ := strings.Cut(op, " ")
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// firstApply is what an agent does from nothing to good, in the fake's own words.
func firstApply(t *testing.T) (tried, done []string) {
	inWorld(t, func(w *world) {
		w.start()
		w.listLinks()
		w.say(all(good()))
		w.pass(applyEvery)
		tried, done = w.devices.Ops(), w.mutations()
	})
	return tried, done
}

// Operation i fails, once or for ever, for every i: everything else lands in the
// same apply, what failed is named, tried again ever more slowly, and done once
// it can be. No storm of log lines, no spin.
func TestOneFailingOperationStopsNoOther(t *testing.T) {
	tried, done := firstApply(t)
	if len(tried) < 15 {
		t.Fatalf("only %q were tried", tried)
	}
	for _, op := range tried {
		for _, forEver := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s for ever %v", op, forEver), func(t *testing.T) {
				inWorld(t, func(w *world) {
					if n := 1; forEver {
						w.devices.Fail(op, -1)
					} else {
						w.devices.Fail(op, n)
					}
					w.start()
					w.listLinks()
					w.say(all(good()))
					w.pass(applyEvery)
					w.othersLanded(op, done)
					w.named(op, forEver)
					w.closed("with the fault")
					if !forEver {
						w.pass(time.Minute)
						w.healed()
						return
					}
					calls, lines := w.devices.Calls(), w.log.count()
					w.pass(10 * time.Minute)
					if n := w.devices.Tries(op); n < 10 || n > 200 {
						t.Errorf("tried %d times in ten minutes", n)
					}
					if n := w.devices.Calls() - calls; n > 3000 {
						t.Errorf("%d calls in ten minutes", n)
					}
					if n := w.log.count() - lines; n > 10 {
						t.Errorf("%d log lines in ten minutes:\n%s", n, strings.Join(w.log.text[lines:], ""))
					}
					w.named(op, true)
					if err, ended := w.ended(); ended {
						t.Fatalf("the agent ended: %v", err)
					}
					w.devices.Fail(op, 0)
					w.pass(2*lastRetry + time.Second)
					w.healed()
				})
			})
		}
	}
}

// othersLanded wants every mutation of objects the operation is not about.
func (w *world) othersLanded(op string, done []string) {
	w.t.Helper()
	got := w.mutations()
	for _, m := range done {
		about := object(op)
		if op == "place" { // of every workload
			about = "v"
		}
		if about != "" && strings.HasPrefix(object(m), about) {
			continue
		}
		if object(op) == uplinkName && strings.HasPrefix(m, "manage") {
			continue // ways over an uplink wait for it
		}
		if !slices.Contains(got, m) {
			w.t.Errorf("%q did not land in the same apply; landed:\n%s", m, strings.Join(got, "\n"))
		}
	}
}

// named wants the failing operation in what the agent waits for, if it still
// fails.
func (w *world) named(op string, fails bool) {
	w.t.Helper()
	waiting := strings.Join(w.waiting(), "\n")
	if fails && (!strings.Contains(waiting, "injected failure") || !strings.Contains(waiting, object(op))) {
		w.t.Errorf("%q is not named:\n%s", op, waiting)
	}
}

// healed wants everything as it would be without the fault.
func (w *world) healed() {
	w.t.Helper()
	if waiting := w.waiting(); len(waiting) > 0 {
		w.t.Errorf("waiting: %q", waiting)
	}
	w.closed("healed")
	w.bound("healed", good())
	for _, line := range w.devices.State() {
		if strings.HasPrefix(line, "v") && !strings.Contains(line, "up true silent true") ||
			!strings.HasPrefix(line, "pin") && !strings.Contains(line, "slots [0]") {
			w.t.Errorf("state: %s", line)
		}
	}
}

// The same of routes and rules, by kind.
func TestFailingRouteStopsNoOther(t *testing.T) {
	for _, op := range []routestest.Op{routestest.Lookup, routestest.Link, routestest.Neighbors, routestest.Manage,
		routestest.Routes, routestest.AddRoute, routestest.Rules, routestest.AddRule} {
		t.Run(string(op), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.routes.FailNext(op, -1)
				w.start()
				w.listLinks()
				w.say(all(good()))
				w.pass(time.Second)
				for _, m := range w.devices.Mutations() {
					if strings.Contains(m, "down") {
						t.Errorf("%q", m)
					}
				}
				if ids := w.devices.IDs(); len(ids) != workloads+1 {
					t.Errorf("pins %v", ids)
				}
				w.ask(func() {
					said := strings.Join(append(w.agent.waiting(), slices.Collect(maps.Values(w.agent.nodes.said))...), "\n")
					if !strings.Contains(said, "injected failure") && op != routestest.Manage { // no upkeep is no outage
						t.Errorf("not named: %s", said)
					}
				})
				lines := w.log.count()
				w.pass(10 * time.Minute)
				if n := w.log.count() - lines; n > 10 {
					t.Errorf("%d log lines in ten minutes", n)
				}
				w.routes.FailNext(op, 0)
				w.pass(time.Minute)
				w.bound("in the end", good())
				w.mutations()
				if left := w.left(); len(left) != (workloads+1)+4+3+1 {
					t.Errorf("in the end: %q", left)
				}
			})
		})
	}
}

// A port that must go and cannot be closed, for ever, ends the agent within a
// bound, with an error that says so; then the kernel closes it. Everything else
// works until then.
func TestPortThatCannotBeClosedEndsTheAgent(t *testing.T) {
	for _, op := range []string{"down v1", "close v1"} {
		t.Run(op, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.started()
				w.devices.Fail(op, -1)
				s := good()
				delete(s.Endpoints, endpoint(1).EndpointKey)
				delete(s.Endpoints, endpoint(2).EndpointKey)
				w.say(desired.Diff(good(), s))
				w.pass(time.Second)
				got := w.mutations()
				for _, m := range []string{"down v2", "close v2", "detach v2"} {
					if !slices.Contains(got, m) {
						t.Errorf("%q did not land in the same apply:\n%s", m, strings.Join(got, "\n"))
					}
				}
				if slices.Contains(got, "detach v1") {
					t.Error("the program went before the port was closed")
				}
				w.named(op, true)
				w.pass(closeWithin - 2*time.Second)
				if err, ended := w.ended(); ended {
					t.Fatalf("ended too early: %v", err)
				}
				w.pass(2*time.Second + lastRetry)
				err, ended := w.ended()
				if !ended || !errors.Is(err, ErrNotClosed) || !strings.Contains(err.Error(), "default/p1") || !strings.Contains(err.Error(), "v1") {
					t.Fatalf("ended %v: %v", ended, err)
				}
				w.die()
				w.closed("after the end")
			})
		})
	}
}

// One that comes round in time is closed, and the agent goes on.
func TestPortThatClosesLate(t *testing.T) {
	inWorld(t, func(w *world) {
		w.started()
		w.devices.Fail("down v1", 5)
		s := good()
		delete(s.Endpoints, endpoint(1).EndpointKey)
		w.say(desired.Diff(good(), s))
		w.pass(50 * time.Millisecond)
		w.say(desired.Diff(s, good())) // wanted again: what began to close closes first
		w.pass(time.Minute)
		if err, ended := w.ended(); ended {
			t.Fatal(err)
		}
		if got := w.mutations(); !slices.Contains(got, "detach v1") || !slices.Contains(got, "up v1") {
			t.Errorf("mutations:\n%s", strings.Join(got, "\n"))
		}
		w.healed()
	})
}

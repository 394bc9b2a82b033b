package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/desired"
)

// without is good without one endpoint of this node and what follows from it, as a
// stale list has it.
func without(i int) desired.State {
	s, key := good(), endpoint(i).EndpointKey
	delete(s.Endpoints, key)
	maps.DeleteFunc(s.FDB, func(_ desired.FDBKey, e *desired.FDBEntry) bool { return e.Endpoint.EndpointKey == key })
	maps.DeleteFunc(s.Neighbors, func(_ desired.NeighborKey, n *desired.Neighbor) bool { return n.Endpoint.EndpointKey == key })
	return s
}

// A stale list that omits an endpoint whose device is there sweeps nothing within
// the grace period: the port is closed, but program and device wait for it.
func TestStaleListSweepsNothingWithinTheGracePeriod(t *testing.T) {
	const grace = time.Minute
	for _, restored := range []bool{false, true} {
		t.Run(fmt.Sprintf("from a checkpoint %v", restored), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.config.SweepGrace = grace
				w.started()
				before := w.devices.IDs()
				w.die()
				w.start()
				if restored {
					w.ask(func() {
						w.agent.tables.apply(all(good()))
						w.agent.restored = true
					})
				}
				w.listLinks()
				w.pass(time.Second)
				if restored {
					w.want("from the checkpoint", ownSockets()...)
					w.bound("from the checkpoint", good())
				} else {
					w.want("before the list")
				}
				w.say(all(without(1)))
				w.pass(grace / 2)
				if after := w.devices.IDs(); fmt.Sprint(after) != fmt.Sprint(before) {
					t.Errorf("pins %v, were %v", after, before)
				}
				for _, m := range w.mutations() {
					if !slices.Contains(append(ownSockets(), "close v1"), m) {
						t.Errorf("within the grace period: %q", m)
					}
				}
				w.closed("within the grace period")
				w.bound("within the grace period", without(1))

				w.say(desired.Diff(without(1), good()))
				w.pass(time.Second)
				w.want("the list catches up", "open v1/0", "slot v1/0")
				if after := w.devices.IDs(); fmt.Sprint(after) != fmt.Sprint(before) {
					t.Errorf("pins %v, were %v", after, before)
				}
				w.pass(2 * grace)
				w.want("after the grace period")
				w.healed()
			})
		})
	}
}

// After it, what nobody wants goes, closed at every step.
func TestUnwantedIsSweptAfterTheGracePeriod(t *testing.T) {
	inWorld(t, func(w *world) {
		w.config.SweepGrace = time.Minute
		w.started()
		w.die()
		w.start()
		w.listLinks()
		w.say(all(without(1)))
		w.pass(time.Minute - time.Second)
		if got := w.mutations(); slices.Contains(got, "remove-pin v1") {
			t.Error("swept too early")
		}
		w.pass(2 * time.Second)
		w.want("after it", "remove-pin v1")
		w.closed("after it")
		w.bound("after it", without(1))
		// From now on an endpoint that goes takes its program along at once.
		w.say(desired.Diff(without(1), without(2)))
		w.pass(time.Second)
		if got := w.mutations(); !slices.Contains(got, "detach v2") {
			t.Errorf("mutations:\n%s", strings.Join(got, "\n"))
		}
		w.closed("in the end")
	})
}

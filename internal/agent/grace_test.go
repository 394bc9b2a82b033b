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

// A list that comes after a good one, from an API server that was restored from a
// backup or is behind, may be as stale as the first: whatever kind it omits, of what
// is ours in the kernel for this node's own devices nothing is swept within the grace
// period. Ports whose endpoint or network it omits are closed; what it says of other
// nodes holds at once.
func TestStaleRelistSweepsNothingWithinTheGracePeriod(t *testing.T) {
	const grace = time.Minute
	for _, c := range []struct {
		name string
		omit func(*desired.State)
		fine []string // mutations that may be
	}{
		{"an endpoint", func(s *desired.State) { delete(s.Endpoints, endpoint(1).EndpointKey) }, []string{"close v1"}},
		{"bindings", func(s *desired.State) { clear(s.FDB); clear(s.Neighbors) }, nil},
		{"networks, and so their endpoints", func(s *desired.State) { clear(s.Networks); clear(s.Endpoints) }, []string{"close v1", "close v2", "close v3"}},
		{"this node", func(s *desired.State) { delete(s.Nodes, "node1") }, nil},
		{"another node", func(s *desired.State) { delete(s.Nodes, "node2") }, []string{"delete-route 2001:db8:0:2::/64", "unmanage"}},
		{"everything", func(s *desired.State) { *s = desired.NewState() }, []string{"close v1", "close v2", "close v3", "unmanage"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.config.SweepGrace = grace
				w.started()
				w.pass(10 * grace)
				before, stale := w.devices.IDs(), good()
				w.mutations()
				c.omit(&stale)
				w.agent.desired <- update{delta: desired.Diff(good(), stale), open: true, relisted: true}
				w.pass(grace - 5*time.Second)
				for _, m := range w.mutations() {
					if !slices.ContainsFunc(c.fine, func(f string) bool { return strings.HasPrefix(m, f) }) {
						t.Errorf("within the grace period: %q", m)
					}
				}
				if after := w.devices.IDs(); fmt.Sprint(after) != fmt.Sprint(before) {
					t.Errorf("pins %v, were %v", after, before)
				}
				w.closed("within the grace period")
				w.say(desired.Diff(stale, good()))
				w.pass(2 * grace)
				w.healed()
				if after := w.devices.IDs(); fmt.Sprint(after) != fmt.Sprint(before) {
					t.Errorf("pins %v after it, were %v", after, before)
				}
			})
		})
	}
}

// After it, the list counts.
func TestRelistCountsAfterTheGracePeriod(t *testing.T) {
	inWorld(t, func(w *world) {
		w.config.SweepGrace = time.Minute
		w.started()
		w.pass(10 * time.Minute)
		w.agent.desired <- update{delta: desired.Diff(good(), without(1)), open: true, relisted: true}
		w.pass(time.Minute - 5*time.Second)
		w.want("within it", "close v1")
		w.pass(20 * time.Second)
		w.want("after it", "remove-pin v1")
		w.closed("after it")
	})
}

package agent

import (
	"fmt"
	"testing"
	"time"

	"picot.dev/picot/internal/desired"
)

// orders are all orders of n things.
func orders(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, o := range orders(n - 1) {
		for at := range n {
			next := append(append(append([]int{}, o[:at]...), n-1), o[at:]...)
			all = append(all, next)
		}
	}
	return all
}

// Nothing is touched before every source has said everything once, in whatever
// order they speak; then everything is, once.
func TestNothingIsTouchedBeforeAllGatesAreOpen(t *testing.T) {
	half := func(first bool) desired.Delta {
		d := all(good())
		if first {
			return desired.Delta{Networks: d.Networks, Nodes: d.Nodes, Endpoints: d.Endpoints}
		}
		return desired.Delta{FDB: d.FDB, Neighbors: d.Neighbors}
	}
	const links, firstHalf, secondHalf, routesChanged = 0, 1, 2, 3
	var state string
	for _, order := range orders(4) {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start()
				listed, said := false, 0
				for _, what := range order {
					switch what {
					case links:
						w.listLinks()
						listed = true
					case firstHalf, secondHalf:
						said++
						if d := half(what == firstHalf); said == 2 {
							w.say(d)
						} else {
							w.sayNot(d)
						}
					case routesChanged:
						w.agent.routes <- struct{}{}
					}
					w.pass(2 * defaultRefresh)
					if !listed || said < 2 {
						w.want("before the gates are open")
						if w.agent.applies > 0 || w.agent.published > 0 {
							t.Errorf("%d applies, snapshot %d", w.agent.applies, w.agent.published)
						}
						if len(w.waiting()) == 0 {
							t.Error("ready before the gates are open")
						}
					}
				}
				w.pass(time.Second)
				w.closed("after all")
				w.bound("after all", good())
				if waiting := w.waiting(); len(waiting) > 0 {
					t.Errorf("waiting: %q", waiting)
				}
				if n := len(w.mutations()); n != fromNothing {
					t.Errorf("%d mutations, want %d", n, fromNothing)
				}
				now := fmt.Sprint(w.devices.State())
				if state == "" {
					state = now
				}
				if now != state {
					t.Errorf("state\n%s\nin another order\n%s", now, state)
				}
				w.pass(10 * defaultRefresh)
				w.want("in ten refreshes")
			})
		})
	}
}

// fromNothing is what a node of good takes: attach, silence, open, slot, up for
// each workload; attach, open, slot for the uplink; two routes for the own
// locator, one guard, one next hop, three rules, one managed neighbour.
const fromNothing = 5*workloads + 3 + 2 + 1 + 1 + 3 + 1

// A source that never lists keeps the gate shut.
func TestSilentSourceKeepsTheGateShut(t *testing.T) {
	for name, speak := range map[string]func(*world){
		"links never":            func(w *world) { w.say(all(good())) },
		"desired never":          func(w *world) { w.listLinks() },
		"desired never complete": func(w *world) { w.listLinks(); w.sayNot(all(good())) },
		"nobody":                 func(*world) {},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start()
				speak(w)
				w.pass(time.Hour)
				w.want("in an hour")
				if len(w.waiting()) == 0 {
					t.Error("ready")
				}
			})
		})
	}
}

package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/routes"
	"picot.dev/picot/xsk/xdp"
)

// ownSockets are what every process must make of its own, whatever it finds.
func ownSockets() (ops []string) {
	for _, d := range []string{uplinkName, "v1", "v2", "v3"} {
		ops = append(ops, "open "+d+"/0", "slot "+d+"/0")
	}
	return ops
}

// A restart with the same state changes nothing: its own sockets, and nothing
// else. Links and programs stay the same ones.
func TestRestartWithTheSameStateChangesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.started()
		before := w.devices.IDs()
		for range 3 {
			w.die()
			w.closed("with a dead agent")
			w.start()
			w.say(all(good()))
			w.listLinks()
			w.pass(time.Second)
			w.want("restart", ownSockets()...)
			w.bound("restart", good())
			if after := w.devices.IDs(); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("link and program IDs %v, were %v", after, before)
			}
		}
	})
}

// plantForeign puts things of others everywhere ours are, and says what they are.
func (w *world) plantForeign() (foreign func() string) {
	w.plug(200, "other")
	w.devices.PlantForeign(200)
	o := w.config.Owner
	route := routes.Route{Table: o.Table, Prefix: netip.MustParsePrefix("2001:db8:f::/64"), Metric: 1024, Protocol: 4,
		Gateway: netip.MustParseAddr("fd00::1"), Link: uplinkIndex}
	rule := routes.Rule{Priority: o.Priority, Protocol: 3, Mark: o.Mark, Table: 254}
	w.routes.PlantRoute(route)
	w.routes.PlantRule(rule)
	return func() string {
		var text []string
		for _, line := range w.devices.State() {
			if strings.HasPrefix(line, "other ") {
				text = append(text, line)
			}
		}
		list, _ := w.routes.Routes(o.Table, o.GuardTable)
		rules, _ := w.routes.Rules()
		for _, r := range list {
			if r.Protocol != o.Protocol {
				text = append(text, fmt.Sprint(r))
			}
		}
		for _, r := range rules {
			if r.Protocol != o.Protocol {
				text = append(text, fmt.Sprint(r))
			}
		}
		return strings.Join(text, "\n")
	}
}

// left is what of ours the kernels have.
func (w *world) left() (text []string) {
	w.t.Helper()
	for name := range w.devices.IDs() {
		text = append(text, "pin "+name)
	}
	found, err := w.config.Owner.Find(w.routes)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range found.Routes {
		text = append(text, fmt.Sprint("route ", r.Prefix))
	}
	for _, r := range found.Rules {
		text = append(text, fmt.Sprint("rule ", r.Priority))
	}
	for _, n := range found.Neighbors {
		text = append(text, fmt.Sprint("neighbour ", n.IP))
	}
	slices.Sort(text)
	return text
}

// A restart with a datastore that knows nothing of this node leaves nothing of
// ours, and everything of others.
func TestRestartWithAnotherDatastoreLeavesNothing(t *testing.T) {
	for name, other := range map[string]desired.State{
		"empty": desired.NewState(),
		"another cluster's": func() desired.State {
			s := good()
			for key, e := range s.Endpoints {
				e.Node = "elsewhere"
				s.Endpoints[key] = e
			}
			delete(s.Nodes, "node1")
			return s
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				foreign := w.plantForeign()
				planted := foreign()
				w.started()
				w.die()
				w.start()
				w.listLinks()
				w.say(all(other))
				w.pass(time.Minute)
				if left := w.left(); len(left) > 0 {
					t.Errorf("left: %q", left)
				}
				w.closed("after the sweep")
				w.bound("after the sweep", other)
				if now := foreign(); now != planted || now == "" {
					t.Errorf("of others:\n%s\nwas\n%s", now, planted)
				}
			})
		})
	}
}

// What an older build, another mode or an old locator left is recognised: it is
// taken over where it can be, and else makes way.
func TestLeftoversOfEarlierLivesAreRecognised(t *testing.T) {
	inWorld(t, func(w *world) {
		w.plug(109, "v9")
		workload := func(index int, name string) xdp.AttachOptions {
			return xdp.AttachOptions{IfIndex: index, Kind: xdp.Workload, Queues: 1, Name: name}
		}
		w.devices.Plant(workload(101, "v1"), true)
		generic := workload(102, "v2")
		generic.Mode = xdp.Generic
		w.devices.Plant(generic, false)
		w.devices.Plant(workload(109, "v9"), true)
		w.devices.Plant(xdp.AttachOptions{
			IfIndex: uplinkIndex, Kind: xdp.Uplink, Queues: 1, Name: uplinkName, Locator: netip.MustParsePrefix("2001:db8:dead::/64"),
		}, false)
		old := routes.Route{Table: w.config.Owner.GuardTable, Prefix: netip.MustParsePrefix("2001:db8:dead::/64"),
			Metric: w.config.Owner.Metric, Protocol: w.config.Owner.Protocol, Unreachable: true}
		w.routes.PlantRoute(old)
		w.start()
		w.listLinks()
		w.say(all(good()))
		w.pass(time.Second)
		got := w.mutations()
		for _, op := range []string{"exchange v1", "remove-pin v2", "attach v2", "up v2", "remove-pin v9", "exchange up0",
			"delete-route 2001:db8:dead::/64 table 28778"} {
			if !slices.Contains(got, op) {
				t.Errorf("no %q in\n%s", op, strings.Join(got, "\n"))
			}
		}
		w.closed("after it")
		w.bound("after it", good())
		if pins := len(w.devices.IDs()); pins != workloads+1 {
			t.Errorf("%d pins", pins)
		}
	})
}

// k of n things wrong take exactly k mutations, within one refresh.
func TestWhatIsWrongIsMendedAndNothingElse(t *testing.T) {
	owner := routes.DefaultOwner()
	hop := routes.Route{Table: owner.Table, Prefix: netip.MustParsePrefix("2001:db8:0:2::/64"), Metric: owner.Metric}
	guard := routes.Rule{Priority: owner.Priority, Protocol: owner.Protocol, Mark: owner.Mark, Not: true, Table: owner.GuardTable}
	damages := []struct {
		do   func(*world)
		want string
	}{
		{func(w *world) { w.devices.LosePin("v1") }, "pin v1"},
		{func(w *world) { w.devices.LosePin(uplinkName) }, "pin up0"},
		{func(w *world) { w.devices.LoseSlot("v2", 0) }, "slot v2/0"},
		{func(w *world) { w.devices.LoseSlot(uplinkName, 0) }, "slot up0/0"},
		{func(w *world) { w.routes.LoseRoute(hop) }, "add-route 2001:db8:0:2::/64 table 28777"},
		{func(w *world) { w.routes.LoseRule(guard) }, "add-rule 70 table 28778"},
	}
	for k := range 1 << len(damages) {
		t.Run(fmt.Sprintf("%06b", k), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.started()
				var want []string
				for i, d := range damages {
					if k&(1<<i) != 0 {
						d.do(w)
						want = append(want, d.want)
					}
				}
				w.pass(defaultRefresh + defaultRefresh/4 + time.Second)
				w.want("within a refresh", want...)
				w.bound("within a refresh", good())
				w.die()
				w.closed("after death")
			})
		})
	}
}

// A program taken off by force leaves its device open: it is set down and made
// anew within one refresh.
func TestProgramTakenOffIsMadeAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		w.started()
		w.devices.LoseLink("v1")
		w.devices.LoseLink(uplinkName)
		w.pass(defaultRefresh + defaultRefresh/4 + time.Second)
		w.closed("within a refresh")
		got := w.mutations()
		down, attach := slices.Index(got, "down v1"), slices.Index(got, "attach v1")
		if down < 0 || attach < 0 || !slices.Contains(got, "attach up0") || !slices.Contains(got, "up v1") {
			t.Errorf("mutations\n%s", strings.Join(got, "\n"))
		}
		if waiting := w.waiting(); len(waiting) > 0 {
			t.Errorf("waiting: %q", waiting)
		}
	})
}

// An object deleted and made again before an apply costs nothing.
func TestDeletedAndMadeAgainBeforeAnApplyIsNoChange(t *testing.T) {
	inWorld(t, func(w *world) {
		w.started()
		published := w.agent.published
		w.agent.routes <- struct{}{} // an apply has just been
		w.say(desired.Diff(good(), desired.NewState()))
		w.say(all(good()))
		w.pass(time.Second)
		w.want("deleted and made again")
		w.bound("deleted and made again", good())
		if waiting := w.waiting(); len(waiting) > 0 {
			t.Errorf("waiting: %q", waiting)
		}
		if n := w.agent.published - published; n > 2 {
			t.Errorf("%d snapshots published", n)
		}
	})
}

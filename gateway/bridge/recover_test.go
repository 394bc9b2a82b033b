package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/gateway/bridge"
	"picot.dev/picot/gateway/flows"
)

// Parts of TestDriver: what is lost or changed behind the driver's back comes back.

// Drift is found by the flow monitor, and NO_FLOOD, which it does not cover, at the refresh.
func testDrift(t *testing.T, r *rig) {
	r.driver = bridge.New(bridge.Options{Bridge: r.bridge, Socket: r.Mgmt(r.bridge), Refresh: 300 * time.Millisecond})
	in := r.input(true)
	want := flows.Render(in)
	r.apply(in)
	r.watch(nil)
	right := func() bool {
		s := r.read()
		return sorted(s.Own).String() == want.String() && s.Ports[in.Patches[1].OFPort].NoFlood
	}
	follower := fmt.Sprint(in.Patches[1].OFPort)
	r.ofctl("del-flows", "in_port="+follower)
	eventually(t, "deleted flows are back", right)
	r.ofctl("mod-flows", fmt.Sprintf("cookie=%#x/-1,in_port=%s,actions=output:1", flows.Cookie, follower))
	eventually(t, "changed flows are right again", right)
	r.ofctl("add-flow", fmt.Sprintf("cookie=%#x,priority=3,actions=drop", flows.Cookie))
	eventually(t, "a flow nobody asked for is gone", right)
	r.Run("ovs-ofctl", "mod-port", "unix:"+r.Mgmt(r.bridge), follower, "flood")
	eventually(t, "NO_FLOOD is set again", right)
}

// Steering flows come back at once in every shape they have, and exactly: the comparison that
// follows finds nothing to write.
func testRepair(t *testing.T, r *rig) {
	for name, change := range map[string]func(*flows.Input){
		"plain": func(*flows.Input) {},
		"vlan":  func(in *flows.Input) { in.VLAN = 4094 },
	} {
		t.Run(name, func(t *testing.T) {
			r := *r
			r.t = t
			r.driver = bridge.New(bridge.Options{Bridge: r.bridge, Socket: r.Mgmt(r.bridge)})
			in := r.input(true, func(in *flows.Input) {
				in.Mode, in.Ingress = flows.Overlay, []flows.Port{in.Patches[4].Port}
				in.Patches = in.Patches[:4]
			}, change)
			want := flows.Render(in)
			r.apply(in)
			events := make(chan bridge.Event, 100)
			r.watch(func(e bridge.Event) { events <- e })
			r.ofctl("del-flows", fmt.Sprintf("cookie=%#x/-1", flows.Cookie))
			eventually(t, "our flows are back", func() bool { return len(r.read().Own) == len(want) })
			same(t, "own flows", r.read().Own, want)
			time.Sleep(2 * settleTime)
			restored := 0
			for len(events) > 0 {
				e := <-events
				restored += e.Restored
				if !e.Changes.Empty() || e.Err != nil {
					t.Errorf("the comparison after the repair: %+v", e)
				}
			}
			if restored != len(want) {
				t.Errorf("%d flows restored at once, want %d", restored, len(want))
			}
		})
	}
}

// settleTime is how long after an update the driver compares everything.
const settleTime = 200 * time.Millisecond

func testRecreatedPort(t *testing.T, r *rig) {
	r.apply(r.input(true))
	old := r.input(true)
	name := old.Patches[2].Name
	r.VSCtl("del-port", "br-ex", name, "--", "add-port", "br-ex", name, "--",
		"set", "interface", name, "type=patch", "options:peer="+name+"-peer", "ofport_request=77")
	in := r.input(true)
	if in.Patches[2].OFPort != 77 {
		t.Fatalf("the new port has number %d, want 77", in.Patches[2].OFPort)
	}
	c, err := r.driver.Apply(t.Context(), flows.Render(old), flows.NoFlood(old))
	if err != nil || !slices.Equal(c.Missing, []uint32{old.Patches[2].OFPort}) {
		t.Errorf("with the old number: missing %v, %v", c.Missing, err)
	}
	r.apply(in)
	s := r.read()
	same(t, "own flows", s.Own, flows.Render(in))
	if !s.Ports[in.Patches[2].OFPort].NoFlood {
		t.Error("the new port has no NO_FLOOD")
	}
}

func testSwitchRestart(t *testing.T, r *rig) {
	in := r.input(true)
	r.apply(in)
	want := flows.Render(in)
	events := make(chan bridge.Event, 100)
	r.watch(func(e bridge.Event) { events <- e })
	r.Script("restart", "ovs-vswitchd")
	eventually(t, "flows and NO_FLOOD are back", func() bool {
		s, err := r.driver.Read(t.Context())
		if err != nil || !carries(s, want) {
			return false
		}
		for n, bit := range flows.NoFlood(in) {
			if s.Ports[n].NoFlood != bit {
				return false
			}
		}
		return true
	})
	if again := r.input(true); fmt.Sprint(again) != fmt.Sprint(in) {
		t.Errorf("port numbers changed over the restart:\n%v\n%v", in, again)
	}
	reset := false
	for len(events) > 0 {
		e := <-events
		reset = reset || e.Reset && e.Err == nil
	}
	if !reset {
		t.Error("no event told of the restart")
	}
}

// carries reports whether the bridge does what want says, whoever's the flows are: a switch
// that starts brings a NORMAL flow of its own.
func carries(s bridge.State, want flows.Set) bool {
	have := map[flows.Key]string{}
	for _, f := range append(s.Foreign, s.Own...) {
		have[f.Key()] = f.Actions
	}
	for _, f := range want {
		if have[f.Key()] != f.Actions {
			return false
		}
	}
	return true
}

// Another owner replaces the whole table every second; nothing of it is changed.
func testReplaceStress(t *testing.T, r *rig) {
	r.Script("flows", "gate-off")
	others := r.read().Foreign
	in := r.input(true, func(in *flows.Input) { in.Mode = flows.Overlay })
	r.apply(in)
	measureReplace(t, r, "gate-off", time.Second, *replacements, others, flows.Render(in))
}

func TestUnreachable(t *testing.T) {
	d := bridge.New(bridge.Options{Bridge: "br-none", Socket: filepath.Join(t.TempDir(), "none.mgmt")})
	for _, noFlood := range []map[uint32]bool{nil, {1: true}} {
		if _, err := d.Apply(t.Context(), nil, noFlood); !errors.Is(err, bridge.ErrUnreachable) && !strings.Contains(err.Error(), "install openvswitch") {
			t.Errorf("%v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	told := 0
	if err := d.Watch(ctx, func(e bridge.Event) {
		if errors.Is(e.Err, bridge.ErrUnreachable) {
			told++
		}
	}); !errors.Is(err, context.DeadlineExceeded) || told == 0 {
		t.Errorf("Watch: %v, told %d times", err, told)
	}
}

package bridge_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"picot.dev/picot/gateway/bridge"
	"picot.dev/picot/gateway/flows"
	"picot.dev/picot/test/lab/ovn"
)

func flow(t *testing.T, line string) flows.Flow {
	t.Helper()
	f, err := flows.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// ofctl changes the bridge as another owner would.
func (r *rig) ofctl(args ...string) {
	r.t.Helper()
	r.Run("ovs-ofctl", append([]string{"-O", "OpenFlow13", args[0], "unix:" + r.Mgmt(r.bridge)}, args[1:]...)...)
}

// TestDriver holds what the driver promises, on a switch without OVN. The parts share a
// bridge, and each leaves it with the flows of no one.
func TestDriver(t *testing.T) {
	r := newRig(t, "br-ex", ovn.Options{UDNs: 4, Bare: true})
	parts := []struct {
		name string
		test func(*testing.T, *rig)
	}{
		{"UnchangedInputIsNoMutation", testUnchanged},
		{"RenderedAsTheReference", testReference},
		{"OnOffOnTouchesNoOtherFlowAndLeavesNothing", testOnOffOn},
		{"KeysOfOthersAreLeft", testHeld},
		{"BadLineRejectsAll", testBadLine},
		{"BitsAreSetBeforeFlowsAndClearedAfter", testBitOrder},
		{"StandsDownWhenAnotherSteers", testStandDown},
		{"LeftoversOfOtherModesAreRecognised", testLeftovers},
		{"RedesignationMovesFlowsAndBits", testRedesignation},
		{"DriftIsRepaired", testDrift},
		{"RepairIsComplete", testRepair},
		{"HostEntryIsStatic", testHostEntry},
		{"RecreatedPort", testRecreatedPort},
		{"SwitchRestart", testSwitchRestart},
		{"BackUnderReplaceFlows", testReplaceStress},
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			r.t = t
			r.driver = bridge.New(bridge.Options{Bridge: r.bridge, Socket: r.Mgmt(r.bridge)})
			r.ofctl("del-flows")
			p.test(t, r)
		})
	}
}

// The switch prints every rendered flow exactly as it was rendered: read back they compare
// equal, and unchanged input costs no mutation, also for a driver with no memory.
func testUnchanged(t *testing.T, r *rig) {
	for name, change := range map[string]func(*flows.Input){
		"gate off": func(in *flows.Input) { in.Gate = false },
		"gate on":  func(*flows.Input) {},
		"vlan":     func(in *flows.Input) { in.VLAN = 100 },
		"vlan off": func(in *flows.Input) { in.VLAN, in.Gate = 100, false },
		"v4":       func(in *flows.Input) { in.IPv6 = false },
		"v6":       func(in *flows.Input) { in.IPv4, in.Gate = false, false },
		"overlay":  func(in *flows.Input) { in.Mode = flows.Overlay },
		"dpu":      func(in *flows.Input) { in.Role, in.Host = flows.DPU, in.Patches[4].Port },
	} {
		in := r.input(true, change)
		if c := r.apply(in); c.Empty() || len(c.Held) != 0 || len(c.Missing) != 0 {
			t.Fatalf("%s: changes %+v", name, c)
		}
		s := r.read()
		same(t, name, s.Own, flows.Render(in))
		for n, bit := range flows.NoFlood(in) {
			if s.Ports[n].NoFlood != bit {
				t.Errorf("%s: port %d NO_FLOOD is %v, want %v", name, n, s.Ports[n].NoFlood, bit)
			}
		}
		fresh := bridge.New(bridge.Options{Bridge: r.bridge, Socket: r.Mgmt(r.bridge)})
		if c, err := fresh.Apply(t.Context(), flows.Render(in), flows.NoFlood(in)); err != nil || !c.Empty() {
			t.Errorf("%s, again: %+v %v", name, c, err)
		}
	}
}

// The lab's own rendering, written independently in shell, has the same section; it leaves
// out BFD, and what lies outside the section is not compared.
func testReference(t *testing.T, r *rig) {
	for mode, gate := range map[string]bool{"gate-off": false, "gate-on": true} {
		theirs, err := flows.ParseSet(r.Script("render", mode, "br-ex"))
		if err != nil {
			t.Fatal(err)
		}
		var want flows.Set
		for _, f := range theirs {
			if f.Table == 1 || f.Priority < 99 {
				f.Cookie = flows.Cookie
				want = append(want, f)
			}
		}
		got := slices.DeleteFunc(flows.Render(r.input(gate)), func(f flows.Flow) bool { return f.Table == 1 && f.Priority == 13 })
		same(t, mode, got, want)
	}
}

func testOnOffOn(t *testing.T, r *rig) {
	r.Script("flows", "rest")
	others := r.read().Foreign
	if len(others) < 10 {
		t.Fatalf("only %d flows of others", len(others))
	}
	for _, gate := range []bool{true, false, true} {
		in := r.input(gate)
		r.apply(in)
		s := r.read()
		same(t, fmt.Sprintf("gate %v: own flows", gate), s.Own, flows.Render(in))
		same(t, fmt.Sprintf("gate %v: others' flows", gate), s.Foreign, others)
	}
	if _, err := r.driver.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := r.read()
	same(t, "own flows after clean", s.Own, nil)
	same(t, "others' flows after clean", s.Foreign, others)
}

func testHeld(t *testing.T, r *rig) {
	in := r.input(true)
	port := in.Patches[1].OFPort
	r.ofctl("add-flow", "cookie=0xdeff105,priority=0,actions=NORMAL")                                 // as ours
	r.ofctl("add-flow", fmt.Sprintf("cookie=0xdeff105,priority=9,in_port=%d,actions=output:1", port)) // not as ours
	others := r.read().Foreign
	c := r.apply(in)
	if len(c.Held) != 1 || c.Held[0].Match != fmt.Sprintf("in_port=%d", port) {
		t.Errorf("held %s", c.Held)
	}
	same(t, "others' flows", r.read().Foreign, others)
	if c := r.apply(in); !c.Empty() {
		t.Errorf("again: %+v", c)
	}
	r.ofctl("del-flows", "cookie=0xdeff105/-1")
	if c := r.apply(in); len(c.Added) != 2 || len(c.Held) != 0 {
		t.Errorf("after the other owner left: %+v", c)
	}
	same(t, "own flows", r.read().Own, flows.Render(in))
}

func testBadLine(t *testing.T, r *rig) {
	r.apply(r.input(false))
	before := r.read()
	for name, bad := range map[string]flows.Flow{
		"refused by ovs-ofctl":  {Priority: 1, Cookie: flows.Cookie, Match: "nonsense=1", Actions: "drop"},
		"refused by the switch": {Priority: 1, Cookie: flows.Cookie, Match: "in_port=1", Actions: "group:77"},
	} {
		desired := append(flows.Render(r.input(true)), bad)
		c, err := r.driver.Apply(t.Context(), desired, nil)
		if !errors.Is(err, bridge.ErrRejected) || !strings.Contains(err.Error(), "br-ex") {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %v", name, err)
		if !c.Empty() {
			t.Errorf("%s: %+v", name, c)
		}
		same(t, name, r.read().Own, before.Own)
	}
	twice := flows.Render(r.input(true))
	twice = append(twice, twice[0])
	if _, err := r.driver.Apply(t.Context(), twice, nil); !errors.Is(err, flows.ErrInvalid) {
		t.Errorf("two flows with one key: %v", err)
	}
	if c := r.apply(r.input(true)); c.Empty() {
		t.Error("a good set after a bad one changed nothing")
	}
}

// If the flows cannot be changed, the followers have NO_FLOOD already and nobody lost it.
func testBitOrder(t *testing.T, r *rig) {
	in := r.input(true)
	follower, other := in.Patches[1].OFPort, in.Patches[2].OFPort
	if _, err := r.driver.Apply(t.Context(), nil, map[uint32]bool{follower: false, other: true}); err != nil {
		t.Fatal(err)
	}
	bad := flows.Set{{Priority: 1, Cookie: flows.Cookie, Match: "nonsense=1", Actions: "drop"}}
	c, err := r.driver.Apply(t.Context(), bad, map[uint32]bool{follower: true, other: false, 4242: true})
	if err == nil {
		t.Fatal("a bad flow was taken")
	}
	if !slices.Equal(c.Missing, []uint32{4242}) {
		t.Errorf("missing ports %v", c.Missing)
	}
	ports := r.read().Ports
	if !ports[follower].NoFlood || !ports[other].NoFlood {
		t.Errorf("NO_FLOOD is %v and %v, want both set", ports[follower].NoFlood, ports[other].NoFlood)
	}
}

func testStandDown(t *testing.T, r *rig) {
	in := r.input(true, func(in *flows.Input) { in.Mode = flows.Overlay })
	r.Script("flows", "gate-off")
	if c := r.apply(in); c.StoodDown || len(c.Added) != 8 {
		t.Fatalf("beside a gate that is off: %+v", c)
	}
	others := r.read().Foreign
	events := make(chan bridge.Event, 100)
	r.watch(func(e bridge.Event) { events <- e })

	theirs := r.Script("render", "gate-on", "br-ex")
	file := filepath.Join(r.Dir(), "gate-on")
	if err := os.WriteFile(file, []byte(theirs), 0o644); err != nil {
		t.Fatal(err)
	}
	r.Script("replace", file)
	eventually(t, "standing down is reported", func() bool { return stoodDown(events) })
	s := r.read()
	same(t, "own flows", s.Own, nil)
	want, err := flows.ParseSet(theirs)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "their flows", s.Foreign, want)
	if c := r.apply(in); !c.StoodDown || !c.Empty() {
		t.Errorf("again: %+v", c)
	}

	r.Script("flows", "gate-off")
	eventually(t, "steering again", func() bool { return len(r.read().Own) == 8 })
	same(t, "their flows", r.read().Foreign, others)
}

func stoodDown(events chan bridge.Event) bool {
	select {
	case e := <-events:
		return e.Changes.StoodDown
	default:
		return false
	}
}

// A new process finds what an earlier version, mode or gate left by the cookie alone.
func testLeftovers(t *testing.T, r *rig) {
	old := flows.Cookie + 7
	r.ofctl("add-flow", fmt.Sprintf("cookie=%#x,table=7,priority=1,actions=drop", old))
	r.ofctl("add-flow", fmt.Sprintf("cookie=%#x,priority=0,actions=NORMAL", old))
	r.ofctl("add-flow", "cookie=0x7069636f00000001,table=7,priority=2,actions=drop") // not ours
	r.apply(r.input(false))
	in := r.input(true, func(in *flows.Input) { in.Mode = flows.Overlay })
	fresh := bridge.New(bridge.Options{Bridge: r.bridge, Socket: r.Mgmt(r.bridge)})
	if _, err := fresh.Apply(t.Context(), flows.Render(in), flows.NoFlood(in)); err != nil {
		t.Fatal(err)
	}
	s := r.read()
	same(t, "own flows", s.Own, flows.Render(in))
	same(t, "others' flows", s.Foreign, flows.Set{flow(t, "cookie=0x7069636f00000001,table=7,priority=2,actions=drop")})
}

func testRedesignation(t *testing.T, r *rig) {
	group := func(source int) flows.Input {
		return r.input(true, func(in *flows.Input) {
			in.Patches = in.Patches[1:]
			for i := range in.Patches {
				in.Patches[i].Source = i == source
			}
		})
	}
	r.apply(group(0))
	c := r.apply(group(2))
	if len(c.Replaced) != 4 || len(c.Added)+len(c.Deleted) != 0 {
		t.Errorf("changed %+v, want the 4 steering flows replaced", c)
	}
	in := group(2)
	if want := map[uint32]bool{in.Patches[0].OFPort: true, in.Patches[2].OFPort: false}; fmt.Sprint(c.NoFlood) != fmt.Sprint(want) {
		t.Errorf("NO_FLOOD changed %v, want %v", c.NoFlood, want)
	}
	s := r.read()
	for _, p := range in.Patches {
		if s.Ports[p.OFPort].NoFlood != !p.Source {
			t.Errorf("%s: NO_FLOOD is %v", p.Name, s.Ports[p.OFPort].NoFlood)
		}
	}
	same(t, "own flows", s.Own, flows.Render(in))
}

// The bridge MAC is pinned to the host's port, whoever learned or pinned it elsewhere.
func testHostEntry(t *testing.T, r *rig) {
	in := r.input(true)
	control := func(args ...string) string {
		return r.Run("ovs-appctl", append([]string{"-t", filepath.Join(filepath.Dir(r.Mgmt("br-ex")), "ovs-vswitchd.ctl")}, args...)...)
	}
	pinned := func(port string, vlan int) bool {
		return strings.Contains(control("fdb/show", "br-ex"), fmt.Sprintf("%5s  %4d  %s  static", port, vlan, ovn.NodeMAC))
	}
	control("fdb/add", "br-ex", "phys0", "0", ovn.NodeMAC)
	if c := r.apply(in); !c.Host || !pinned("LOCAL", 0) {
		t.Errorf("not pinned to LOCAL: %s", control("fdb/show", "br-ex"))
	}
	if c := r.apply(in); !c.Empty() {
		t.Errorf("again: %+v", c)
	}
	dpu := r.input(true, func(in *flows.Input) { in.Role, in.Host, in.VLAN = flows.DPU, in.Patches[4].Port, 7 })
	if c := r.apply(dpu); !c.Host || !pinned(fmt.Sprint(dpu.Host.OFPort), 7) {
		t.Errorf("not pinned to the representor: %s", control("fdb/show", "br-ex"))
	}
	static := func() (entries []string) {
		for line := range strings.Lines(control("fdb/show", "br-ex")) {
			if strings.Contains(line, "static") {
				entries = append(entries, line)
			}
		}
		return entries
	}
	before := static()
	overlay := r.input(true, func(in *flows.Input) { in.Mode = flows.Overlay })
	if c := r.apply(overlay); c.Host || !slices.Equal(static(), before) {
		t.Errorf("overlay mode changed the static MACs %q to %q", before, static())
	}
	gone := r.input(true, func(in *flows.Input) { in.Bridge, in.VLAN = "br-none", 9 })
	r.driver.SetHost(flows.Host(gone))
	if _, err := r.driver.Apply(t.Context(), flows.Render(in), nil); !errors.Is(err, bridge.ErrRejected) {
		t.Errorf("a host port that does not exist: %v", err)
	}
}

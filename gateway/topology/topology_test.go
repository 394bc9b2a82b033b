package topology

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const node = "node_a" // holds the separator

func patch(bridge, network string, no int) Port {
	lsp := LocalnetPort(bridge, network, node)
	return Port{Name: PatchPort(lsp), Localnet: lsp, Interfaces: []Interface{{PatchPort(lsp), "patch", no}}}
}

func localnet(network string, no int) Port {
	lsp := networkReplacer.Replace(network) + secondarySuffix
	return Port{Name: PatchPort(lsp), Localnet: lsp, Interfaces: []Interface{{PatchPort(lsp), "patch", no}}}
}

func phys(name string, nos ...int) Port {
	p := Port{Name: name}
	for i, n := range nos {
		p.Interfaces = append(p.Interfaces, Interface{name + strings.Repeat("x", i), "", n})
	}
	return p
}

func local(bridge string) Port {
	return Port{Name: bridge, Interfaces: []Interface{{bridge, "internal", 65534}}}
}

func router(network string) Router {
	return Router{Network: network, Port: RouterPort(network, node), MAC: "02:00:00:00:00:01",
		Networks: []netip.Prefix{netip.MustParsePrefix("172.18.0.2/16")}, MaxAge: 300 * time.Second}
}

func brEx(ports ...Port) Bridge {
	return Bridge{Name: "br-ex", Uplink: "eth0", Ports: append([]Port{local("br-ex"), phys("eth0", 1)}, ports...)}
}

func compute(bridges []Bridge, routers ...Router) State {
	return Compute(Input{Node: node, Bridges: bridges, Routers: routers, DefaultBridge: "br-ex"})
}

func group(t *testing.T, s State, bridge string) Group {
	t.Helper()
	for _, g := range s.Groups {
		if g.Bridge == bridge {
			return g
		}
	}
	t.Fatalf("no group on %s: %+v", bridge, s)
	return Group{}
}

func names(ms []Member) (out []string) {
	for _, m := range ms {
		out = append(out, m.Network)
	}
	slices.Sort(out)
	return out
}

func TestDefaultNetworkIsTheSourceOnItsBridge(t *testing.T) {
	s := compute([]Bridge{brEx(patch("br-ex", "a-net/x", 3), patch("br-ex", "", 2), patch("br-ex", "net_b", 4))}, router("a-net/x"), router(""), router("net_b"))
	g := group(t, s, "br-ex")
	if !g.Default || g.Source == nil || g.Source.Network != "" || g.Source.OFPort != 2 || !slices.Equal(names(g.Followers), []string{"a-net/x", "net_b"}) {
		t.Fatalf("%+v", g)
	}
	if g.Followers[0].Port != "rtoe-GR_a.net.x_node_a" || g.Followers[0].Patch != "patch-br-ex_a.net.x_node_a-to-br-int" {
		t.Errorf("names: %+v", g.Followers[0])
	}
	if len(g.Uplinks) != 1 || g.Uplinks[0] != (Ingress{"eth0", 1}) {
		t.Errorf("%+v", g.Uplinks)
	}
}

// Patch ports may appear in any order at start: no user network is ever the source on br-ex.
func TestDefaultBridgeWaitsForTheDefaultNetwork(t *testing.T) {
	s := compute([]Bridge{brEx(patch("br-ex", "blue", 3))}, router("blue"), router(""))
	if g := group(t, s, "br-ex"); g.Source != nil || len(g.Followers) != 1 || !g.Default {
		t.Fatalf("%+v", g)
	}
	if len(s.Problems) != 1 {
		t.Error(s.Problems)
	}
}

func upBridge(ports ...Port) Bridge {
	return Bridge{Name: "br-up1", Uplink: "eth1", Ports: append([]Port{phys("eth1", 1)}, ports...)}
}

func TestUplinkBridgeDesignatesTheFirstAndKeepsIt(t *testing.T) {
	in := Input{Node: node, DefaultBridge: "br-ex", Routers: []Router{router("u1"), router("u2"), router("u3")},
		Bridges: []Bridge{upBridge(patch("br-up1", "u2", 5), patch("br-up1", "u3", 6))}}
	src := func() string {
		t.Helper()
		s := Compute(in)
		in.Previous = s.Designated()
		g := group(t, s, "br-up1")
		if g.Source == nil {
			return "none"
		}
		return g.Source.Network
	}
	if got := src(); got != "u2" {
		t.Fatal(got)
	}
	in.Bridges[0].Ports = append(in.Bridges[0].Ports, patch("br-up1", "u1", 7))
	if got := src(); got != "u2" {
		t.Fatal("a designated source stays:", got)
	}
	in.Bridges[0] = upBridge(patch("br-up1", "u1", 7), patch("br-up1", "u2", 0), patch("br-up1", "u3", 6))
	if got := src(); got != "u2" {
		t.Fatal("a port being numbered again is still there:", got)
	}
	in.Bridges[0] = upBridge(patch("br-up1", "u1", 7), patch("br-up1", "u2", -1), patch("br-up1", "u3", 6))
	if got := src(); got != "u1" {
		t.Fatal("a port that cannot be opened is not:", got)
	}
	in.Deleting = map[string]bool{"u1": true}
	if got := src(); got != "u3" {
		t.Fatal("a network being deleted is no source:", got)
	}
	in.Deleting, in.Routers = nil, []Router{router("u1")}
	if got := src(); got != "u1" {
		t.Fatal("a network without a router is no source:", got)
	}
	in.Routers = nil
	if got := src(); got != "none" {
		t.Fatal(got)
	}
}

func TestRedesignationMakesTheOldSourceAFollower(t *testing.T) {
	in := Input{Node: node, DefaultBridge: "br-ex", Routers: []Router{router("u1"), router("u2")}, Previous: map[string]string{"br-up1": "u1"},
		Deleting: map[string]bool{"u1": true}, Bridges: []Bridge{upBridge(patch("br-up1", "u1", 5), patch("br-up1", "u2", 6))}}
	g := group(t, Compute(in), "br-up1")
	if g.Source.Network != "u2" || !slices.Equal(names(g.Followers), []string{"u1"}) {
		t.Fatalf("%+v", g)
	}
}

func TestGroupsNeverMix(t *testing.T) {
	s := compute([]Bridge{brEx(patch("br-ex", "", 2), patch("br-ex", "a", 3)), upBridge(patch("br-up1", "u1", 2), patch("br-up1", "u2", 3))},
		router(""), router("a"), router("u1"), router("u2"))
	if g := group(t, s, "br-ex"); !slices.Equal(names(g.Followers), []string{"a"}) {
		t.Errorf("%+v", g)
	}
	if g := group(t, s, "br-up1"); !slices.Equal(names(g.Followers), []string{"u2"}) || g.Default {
		t.Errorf("%+v", g)
	}
}

func TestUplinkRepointedMovesTheNetworkToTheOtherGroup(t *testing.T) {
	a := []Bridge{brEx(patch("br-ex", "", 2), patch("br-ex", "a", 3)), upBridge(patch("br-up1", "u1", 2))}
	b := []Bridge{brEx(patch("br-ex", "", 2)), upBridge(patch("br-up1", "u1", 2), patch("br-up1", "a", 3))}
	rs := []Router{router(""), router("a"), router("u1")}
	before := Compute(Input{Node: node, Bridges: a, Routers: rs, DefaultBridge: "br-ex"})
	after := Compute(Input{Node: node, Bridges: b, Routers: rs, DefaultBridge: "br-ex", Previous: before.Designated()})
	if g := group(t, after, "br-up1"); g.Source.Network != "u1" || !slices.Equal(names(g.Followers), []string{"a"}) {
		t.Fatalf("%+v", g)
	}
	if g := group(t, after, "br-ex"); len(g.Followers) != 0 {
		t.Fatalf("%+v", g)
	}
}

func TestIngressOnDefaultBridgeIsUplinkAndLocalnets(t *testing.T) {
	s := compute([]Bridge{brEx(patch("br-ex", "", 2), patch("br-ex", "a", 3), localnet("vlan-net", 9), localnet("late", 0), localnet("dead", -1))}, router(""), router("a"))
	g := group(t, s, "br-ex")
	want := []Ingress{{"patch-dead_ovn_localnet_port-to-br-int", -1}, {"patch-late_ovn_localnet_port-to-br-int", 0}, {"patch-vlan.net_ovn_localnet_port-to-br-int", 9}}
	if !slices.Equal(g.Localnets, want) {
		t.Fatalf("%+v", g.Localnets)
	}
}

func TestIngressOnUplinkBridgeIsPhysOnly(t *testing.T) {
	s := compute([]Bridge{upBridge(patch("br-up1", "u1", 2), localnet("l", 9))}, router("u1"))
	if g := group(t, s, "br-up1"); len(g.Localnets) != 0 || len(g.Uplinks) != 1 {
		t.Fatalf("%+v", g)
	}
}

// Ports of routers that the NB database does not know (yet, or any more), and br-int's own ends,
// are no ingress.
func TestIngressIsNeverARouterPatchNorABrIntPeer(t *testing.T) {
	peer := localnet("l", 4)
	peer.Name = "patch-br-int-to-l_ovn_localnet_port"
	tricky := patch("br-ex", "x_ovn_localnet_port", 8) // a router of a network named like a localnet port
	s := compute([]Bridge{brEx(patch("br-ex", "", 2), patch("br-ex", "unborn", 3), peer, tricky)}, router(""))
	g := group(t, s, "br-ex")
	if len(g.Localnets) != 0 {
		t.Fatalf("%+v", g.Localnets)
	}
	if len(g.Followers) != 2 || g.Followers[0].Port != "" {
		t.Fatalf("an unborn router's patch still follows, without a logical port: %+v", g.Followers)
	}
}

func TestUplinkIsFoundWithoutItsName(t *testing.T) {
	br := Bridge{Name: "br-ex", Ports: []Port{local("br-ex"), patch("br-ex", "", 2), phys("bond0", 7, 8),
		{Name: "vx0", Interfaces: []Interface{{"vx0", "vxlan", 5}}}, phys("pf0hpf", 9)}}
	in := Input{Node: node, Bridges: []Bridge{br}, Routers: []Router{router("")}, DefaultBridge: "br-ex", HostPort: "pf0hpf"}
	g := group(t, Compute(in), "br-ex")
	if !slices.Equal(g.Uplinks, []Ingress{{"bond0", 7}, {"bond0x", 8}}) {
		t.Fatalf("every device of a bond: %+v", g.Uplinks)
	}
	if g.Host == nil || *g.Host != (Ingress{"pf0hpf", 9}) {
		t.Fatalf("%+v", g.Host)
	}
	in.HostPort = ""
	s := Compute(in)
	if len(group(t, s, "br-ex").Uplinks) != 0 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Error(), "bond0, pf0hpf") {
		t.Fatalf("%+v", s.Problems)
	}
	br.Uplink = "eth9"
	in.Bridges[0] = br
	if s := Compute(in); len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Reason, "eth9") {
		t.Fatalf("%+v", s.Problems)
	}
}

func TestBridgesWithoutRoutersAreNoGroup(t *testing.T) {
	if s := compute([]Bridge{brEx(localnet("l", 3)), {Name: "br-int"}}, router("")); len(s.Groups) != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestDefaultBridgeByPatchWhileMappingsAreUnknown(t *testing.T) {
	s := Compute(Input{Node: node, Bridges: []Bridge{brEx(patch("br-ex", "", 2), patch("br-ex", "a", 3))}, Routers: []Router{router(""), router("a")}})
	if g := group(t, s, "br-ex"); !g.Default || g.Source.Network != "" {
		t.Fatalf("%+v", g)
	}
}

func TestSameInputSameState(t *testing.T) {
	bridges := []Bridge{upBridge(patch("br-up1", "u2", 3), patch("br-up1", "u1", 2)), brEx(localnet("z", 8), patch("br-ex", "a", 3), patch("br-ex", "", 2), localnet("y", 9))}
	rs := []Router{router("u2"), router(""), router("a"), router("u1")}
	a := compute(bridges, rs...)
	slices.Reverse(bridges)
	slices.Reverse(rs)
	for i := range bridges {
		slices.Reverse(bridges[i].Ports)
	}
	if b := compute(bridges, rs...); !reflect.DeepEqual(a, b) {
		t.Fatalf("\n%+v\n%+v", a, b)
	}
}

func TestIsRouterPort(t *testing.T) {
	for name, want := range map[string]bool{"rtoe-GR_n": true, "rtoe-GR_net_n": true, "rtoe-GR_netn": false, "rtoj-GR_n": false, "rtoe-GR_n2": false, "": false} {
		if IsRouterPort(name, "n") != want {
			t.Error(name)
		}
	}
}

package desired

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
)

func mac(n int) packet.MAC { return packet.MACFromUint64(0x020000000000 + uint64(n)) }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// families are the address families, with the text of address n: one within the
// prefixes 10.0.0.0/24 and fd00::/64, or beside them if n is over 16 bits.
var families = map[string]func(n int) string{
	"v4": func(n int) string { return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String() },
	"v6": func(n int) string {
		return netip.AddrFrom16([16]byte{0: 0xfd, 7: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}).String()
	},
}

func network(name string, id uint32, prefixes ...string) Network {
	n := Network{Name: name, ID: id, PortSecurity: SecurityOff, Learning: Learning{Enabled: true}}
	for _, p := range prefixes {
		n.Prefixes = append(n.Prefixes, netip.MustParsePrefix(p))
	}
	n.LinkLocal = n.Has6()
	return n
}

func endpoint(name, net, node string, m int, ips ...string) Endpoint {
	e := Endpoint{Network: net, Node: node, Interface: "veth-" + name}
	e.EndpointKey = EndpointKey{"default", name}
	if m != 0 {
		e.MAC = mac(m)
	}
	for _, ip := range ips {
		e.Addresses = append(e.Addresses, addr(ip))
	}
	return e
}

// wantProblems checks that list has, in order, one problem for each pair of
// object and field.
func wantProblems(t *testing.T, list []Problem, want ...string) {
	t.Helper()
	var got []string
	for _, p := range list {
		got = append(got, p.Object.String()+" "+p.Field)
		if p.Reason == "" || p.Is == nil {
			t.Errorf("a problem without reason or sentinel: %+v", p)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("problems:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		for _, p := range list {
			t.Log(p.Error())
		}
	}
}

func TestDuplicateNetworkID(t *testing.T) {
	a, b, c := network("a", 1), network("b", 1), network("c", 2)
	s, list := Resolve(Candidates{Networks: []Network{a, b, c}}, nil)
	wantProblems(t, list, "Network b spec.id")
	if len(s.Networks) != 2 || s.Networks["a"].ID != 1 || !errors.Is(&list[0], ErrDuplicate) {
		t.Errorf("state %v", s.Networks)
	}
	// The holder stays, whatever order they come in.
	s2, list := Resolve(Candidates{Networks: []Network{b, a, c}}, &s)
	wantProblems(t, list, "Network b spec.id")
	if _, ok := s2.Networks["a"]; !ok {
		t.Error("the holder lost its id")
	}
	// The refused one is taken when the holder goes.
	s3, list := Resolve(Candidates{Networks: []Network{b, c}}, &s2)
	wantProblems(t, list)
	if _, ok := s3.Networks["b"]; !ok {
		t.Error("b was not taken after a went")
	}
}

func TestOverlappingLocators(t *testing.T) {
	node := func(name, locator string) Node { return Node{Name: name, Locator: netip.MustParsePrefix(locator)} }
	for _, c := range []struct {
		name  string
		nodes []Node
		want  []string
	}{
		{"equal", []Node{node("a", "2001:db8:0:1::/64"), node("b", "2001:db8:0:1::/64")}, []string{"SRv6Node b spec.locator"}},
		{"longer inside", []Node{node("a", "2001:db8::/48"), node("b", "2001:db8:0:1::/64")}, []string{"SRv6Node b spec.locator"}},
		{"shorter around", []Node{node("a", "2001:db8:0:1::/64"), node("b", "2001:db8::/32")}, []string{"SRv6Node b spec.locator"}},
		{"beside", []Node{node("a", "2001:db8:0:1::/64"), node("b", "2001:db8:0:2::/63"), node("c", "2001:db8:0:4::/62")}, nil},
		{"refused holds nothing", []Node{node("a", "2001:db8:0:1::/64"), node("b", "2001:db8::/48"), node("c", "2001:db8:0:2::/64")}, []string{"SRv6Node b spec.locator"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, list := Resolve(Candidates{Nodes: c.nodes}, nil)
			wantProblems(t, list, c.want...)
		})
	}
}

// TestLocatorsAgainstAllPairs compares with the comparison of all pairs.
func TestLocatorsAgainstAllPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		var in []Node
		for i := range 40 {
			a := addr("2001:db8::").As16()
			a[4], a[6], a[7] = byte(r.IntN(2)), byte(r.IntN(2)), byte(r.IntN(256))
			p := netip.PrefixFrom(netip.AddrFrom16(a), 32+r.IntN(33)).Masked()
			if r.IntN(3) > 0 {
				p = netip.PrefixFrom(netip.AddrFrom16(a), 60+r.IntN(5)).Masked()
			}
			in = append(in, Node{Name: fmt.Sprint("n", i), Locator: p})
		}
		want := map[string]Node{}
		for _, n := range in {
			free := true
			for _, h := range want {
				free = free && !h.Locator.Overlaps(n.Locator)
			}
			if free {
				want[n.Name] = n
			}
		}
		got, _ := ResolveNodes(in, nil)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v\nwant %v\nof %v", got, want, in)
		}
	}
}

func TestEndpointClaims(t *testing.T) {
	red := network("red", 1, "10.0.0.0/24", "fd00::/64")
	red.Gateway = Gateway{Addresses: []netip.Addr{addr("10.0.0.1"), addr("fd00::1")}, MAC: mac(0xfe)}
	blue, green := network("blue", 2, "10.0.0.0/24"), network("green", 3, "fd00::/64")
	device := func(e Endpoint, name string) Endpoint { e.Interface = name; return e }
	for _, c := range []struct {
		name      string
		endpoints []Endpoint
		want      []string
		kept      int
	}{
		{"same keys in two networks, v4", []Endpoint{endpoint("a", "red", "n1", 1, "10.0.0.5"), endpoint("b", "blue", "n1", 1, "10.0.0.5")}, nil, 2},
		{"same keys in two networks, v6", []Endpoint{endpoint("a", "red", "n1", 1, "fd00::5"), endpoint("b", "green", "n1", 1, "fd00::5")}, nil, 2},
		{"unknown network", []Endpoint{endpoint("a", "grey", "n1", 1)}, []string{"NetworkEndpoint default/a spec.network"}, 0},
		{"duplicate MAC", []Endpoint{endpoint("a", "red", "n1", 1), endpoint("b", "red", "n2", 1, "10.0.0.6")}, []string{"NetworkEndpoint default/b spec.mac"}, 1},
		{"duplicate v4", []Endpoint{endpoint("a", "red", "n1", 1, "10.0.0.5"), endpoint("b", "red", "n2", 2, "10.0.0.6", "10.0.0.5")}, []string{"NetworkEndpoint default/b spec.addresses[1]"}, 2},
		{"duplicate v6", []Endpoint{endpoint("a", "red", "n1", 1, "fd00::5"), endpoint("b", "red", "n2", 2, "fd00::6", "fd00::5")}, []string{"NetworkEndpoint default/b spec.addresses[1]"}, 2},
		{"v4 outside the prefixes", []Endpoint{endpoint("a", "red", "n1", 1, "10.0.1.5", "fd00::5")}, []string{"NetworkEndpoint default/a spec.addresses[0]"}, 1},
		{"v6 outside the prefixes", []Endpoint{endpoint("a", "red", "n1", 1, "10.0.0.5", "fd00:1::5")}, []string{"NetworkEndpoint default/a spec.addresses[1]"}, 1},
		{"v4 in a network of v6", []Endpoint{endpoint("a", "green", "n1", 1, "10.0.0.5")}, []string{"NetworkEndpoint default/a spec.addresses[0]"}, 1},
		{"v6 in a network of v4", []Endpoint{endpoint("a", "blue", "n1", 1, "fd00::5")}, []string{"NetworkEndpoint default/a spec.addresses[0]"}, 1},
		{"link-local without IPv6", []Endpoint{endpoint("a", "blue", "n1", 1, "fe80::1")}, []string{"NetworkEndpoint default/a spec.addresses[0]"}, 1},
		{"link-local", []Endpoint{endpoint("a", "red", "n1", 1, "fe80::1")}, nil, 1},
		{"gateway's", []Endpoint{endpoint("a", "red", "n1", 0xfe), endpoint("b", "red", "n1", 2, "10.0.0.1", "fd00::1")},
			[]string{"NetworkEndpoint default/a spec.mac", "NetworkEndpoint default/b spec.addresses[0]", "NetworkEndpoint default/b spec.addresses[1]"}, 1},
		{"one device twice", []Endpoint{device(endpoint("a", "red", "n1", 1), "tap0"), device(endpoint("b", "blue", "n1", 2), "tap0")}, []string{"NetworkEndpoint default/b spec.interface"}, 1},
		{"one device name on two nodes", []Endpoint{device(endpoint("a", "red", "n1", 1), "tap0"), device(endpoint("b", "red", "n2", 2), "tap0")}, nil, 2},
		{"no device named", []Endpoint{device(endpoint("a", "red", "n1", 1), ""), device(endpoint("b", "red", "n1", 2), "")}, nil, 2},
		{"no MAC", []Endpoint{endpoint("a", "red", "n1", 0), endpoint("b", "red", "n1", 0)}, nil, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, list := Resolve(Candidates{Networks: []Network{red, blue, green}, Endpoints: c.endpoints}, nil)
			wantProblems(t, list, c.want...)
			if len(s.Endpoints) != c.kept {
				t.Errorf("%d endpoints kept, want %d", len(s.Endpoints), c.kept)
			}
		})
	}
}

func TestHolderKeepsItsAddress(t *testing.T) {
	for family, ip := range families {
		t.Run(family, func(t *testing.T) {
			red := network("red", 1, "10.0.0.0/24", "fd00::/64")
			b := endpoint("b", "red", "n1", 2, ip(20))
			s, _ := Resolve(Candidates{Networks: []Network{red}, Endpoints: []Endpoint{endpoint("a", "red", "n1", 1), b}}, nil)
			// a, which comes first, now claims b's address too.
			s, list := Resolve(Candidates{Networks: []Network{red}, Endpoints: []Endpoint{endpoint("a", "red", "n1", 1, ip(20)), b}}, &s)
			wantProblems(t, list, "NetworkEndpoint default/a spec.addresses[0]")
			if h := s.Neighbors[NeighborKey{"red", addr(ip(20))}]; h.MAC != mac(2) {
				t.Errorf("%s went to %v", ip(20), h.MAC)
			}
		})
	}
}

func TestBindingsFollowFromEndpoints(t *testing.T) {
	red := network("red", 1, "10.0.0.0/24", "fd00::/64")
	red.PortSecurity = SecurityMAC
	e := endpoint("a", "red", "n1", 0xa, "10.0.0.5", "fd00::5")
	e.Segment = 7
	s, list := Resolve(Candidates{Networks: []Network{red}, Endpoints: []Endpoint{e}}, nil)
	wantProblems(t, list)
	owner := Owner{Static: true, Node: "n1", Endpoint: e.EndpointRef}
	wantFDB := map[FDBKey]*FDBEntry{{"red", mac(0xa)}: {FDBKey{"red", mac(0xa)}, owner, 7}}
	if !reflect.DeepEqual(s.FDB, wantFDB) {
		t.Errorf("FDB %v", s.FDB)
	}
	want := map[NeighborKey]*Neighbor{}
	for _, ip := range []string{"10.0.0.5", "fd00::5", "fe80::ff:fe00:a"} {
		k := NeighborKey{"red", addr(ip)}
		want[k] = &Neighbor{NeighborKey: k, Owner: owner, MAC: mac(0xa), Derived: ip[:4] == "fe80"}
	}
	if !reflect.DeepEqual(s.Neighbors, want) {
		t.Errorf("neighbors %v\nwant %v", s.Neighbors, want)
	}
	if got := s.Endpoints[e.EndpointKey].PortSecurity; got != SecurityMAC {
		t.Errorf("port security %v, want the network's", got)
	}
	red.LinkLocal = false
	s, _ = Resolve(Candidates{Networks: []Network{red}, Endpoints: []Endpoint{e}}, nil)
	if len(s.Neighbors) != 2 {
		t.Errorf("without link-local: %v", s.Neighbors)
	}
}

func TestExplicitBindings(t *testing.T) {
	for family, ip := range families {
		t.Run(family, func(t *testing.T) { explicitBindings(t, ip) })
	}
}

func explicitBindings(t *testing.T, ip func(int) string) {
	red := network("red", 1, "10.0.0.0/24", "fd00::/64")
	red.LinkLocal = false
	e := endpoint("a", "red", "n1", 1, ip(5))
	fdb := func(m int, node string, static bool) FDBEntry {
		return FDBEntry{FDBKey: FDBKey{"red", mac(m)}, Owner: Owner{Static: static, Node: node}}
	}
	neigh := func(ip string, m int, node string, static bool) Neighbor {
		return Neighbor{NeighborKey: NeighborKey{"red", addr(ip)}, Owner: Owner{Static: static, Node: node}, MAC: mac(m)}
	}
	router := neigh(ip(5), 1, "n1", true)
	router.Router = RouterYes
	s, list := Resolve(Candidates{
		Networks: []Network{red}, Endpoints: []Endpoint{e},
		FDB: []FDBEntry{fdb(1, "n1", true), fdb(2, "n2", true), fdb(1, "n3", false)},
		Neighbors: []Neighbor{
			router, neigh(ip(6), 2, "n2", true), neigh(ip(0x10006), 2, "n2", true),
		},
	}, nil)
	wantProblems(t, list, "Neighbor "+NeighborKey{"red", addr(ip(0x10006))}.Name()+" spec.ip")
	if len(s.FDB) != 2 || s.FDB[FDBKey{"red", mac(1)}].Node != "n1" || s.FDB[FDBKey{"red", mac(2)}].Node != "n2" {
		t.Errorf("FDB %v", s.FDB)
	}
	if len(s.Neighbors) != 2 || s.Neighbors[router.NeighborKey].Router != RouterYes {
		t.Errorf("neighbors %v", s.Neighbors)
	}
	_, list = Resolve(Candidates{
		Networks: []Network{red}, Endpoints: []Endpoint{e},
		FDB:       []FDBEntry{fdb(1, "n2", true)},
		Neighbors: []Neighbor{neigh(ip(5), 9, "n1", true)},
	}, nil)
	wantProblems(t, list, "FDBEntry red.02-00-00-00-00-01 status.managingNode", "Neighbor "+router.Name()+" status.mac")
}

// TestResolveIsDeterministic resolves the same candidates in the same order
// many times, and after a round trip through Diff and Apply.
func TestResolveIsDeterministic(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		c := randomCandidates(r)
		s, list := Resolve(c, nil)
		for range 3 {
			s2, list2 := Resolve(c, nil)
			if !reflect.DeepEqual(s, s2) || !reflect.DeepEqual(list, list2) {
				t.Fatal("two results of one input")
			}
		}
		// What was held stays held: the same candidates in any order.
		p := c
		p.Networks, p.Nodes, p.Endpoints = shuffled(r, c.Networks), shuffled(r, c.Nodes), shuffled(r, c.Endpoints)
		s3, _ := Resolve(p, &s)
		if d := Diff(s, s3); d.Len() != 0 {
			t.Fatalf("the order moved what was held: %+v", d)
		}
		other, _ := Resolve(randomCandidates(r), nil)
		d := Diff(s, other)
		s.Apply(d)
		if d := Diff(s, other); d.Len() != 0 {
			t.Fatalf("after Apply: %+v", d)
		}
	}
}

func shuffled[T any](r *rand.Rand, in []T) []T {
	out := append([]T(nil), in...)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func randomCandidates(r *rand.Rand) Candidates {
	var c Candidates
	for i := range 4 {
		c.Networks = append(c.Networks, network(fmt.Sprint("net", i), uint32(1+r.IntN(4)), "10.0.0.0/24", "fd00::/64"))
		c.Nodes = append(c.Nodes, Node{Name: fmt.Sprint("n", i), Locator: netip.MustParsePrefix(fmt.Sprintf("2001:db8:0:%d::/64", r.IntN(4)))})
	}
	for i := range 20 {
		e := endpoint(fmt.Sprint("e", i), fmt.Sprint("net", r.IntN(5)), fmt.Sprint("n", r.IntN(4)), r.IntN(12),
			families["v4"](r.IntN(12)), families["v6"](r.IntN(12)))
		e.Interface = fmt.Sprint("tap", r.IntN(10))
		if e.MAC.IsZero() {
			e.Addresses = nil
		}
		c.Endpoints = append(c.Endpoints, e)
	}
	return c
}

func TestMergeIsLatestWins(t *testing.T) {
	a, b := network("a", 1), network("a", 2)
	var d Delta
	d.Merge(Delta{Networks: map[string]*Network{"a": &a, "b": nil}})
	d.Merge(Delta{Networks: map[string]*Network{"a": &b}})
	if d.Len() != 2 || d.Networks["a"].ID != 2 || d.Networks["b"] != nil {
		t.Errorf("%+v", d)
	}
}

func TestIsolationRulesAreExceptions(t *testing.T) {
	rules := []IsolationRule{{From: []uint32{1, 2}, To: []uint32{3}}}
	deny, allow := Isolation{DefaultDeny: true, Rules: rules}, Isolation{Rules: rules}
	for _, c := range []struct {
		from, to uint32
		named    bool
	}{{1, 3, true}, {2, 3, true}, {3, 1, false}, {1, 1, false}} {
		if deny.Allowed(c.from, c.to) != c.named || allow.Allowed(c.from, c.to) == c.named {
			t.Errorf("%d -> %d", c.from, c.to)
		}
	}
}

func TestParseRefusals(t *testing.T) {
	yes := true
	meta := metav1.ObjectMeta{Name: "a", Namespace: "default"}
	ep := func(f func(*v1alpha1.NetworkEndpointSpec)) []Problem {
		o := &v1alpha1.NetworkEndpoint{ObjectMeta: meta, Spec: v1alpha1.NetworkEndpointSpec{Network: "red", NodeName: "n1", MAC: "02:00:00:00:00:0a", Interface: "tap0"}}
		f(&o.Spec)
		_, p := ParseEndpoint(o)
		return p
	}
	net := func(f func(*v1alpha1.NetworkSpec)) []Problem {
		o := &v1alpha1.Network{ObjectMeta: meta, Spec: v1alpha1.NetworkSpec{ID: 1, Prefixes: []v1alpha1.Prefix{"10.0.0.0/24", "fd00::/64"}, LinkLocal: &yes}}
		f(&o.Spec)
		_, p := ParseNetwork(o)
		return p
	}
	node := func(f func(*v1alpha1.SRv6NodeSpec)) []Problem {
		o := &v1alpha1.SRv6Node{ObjectMeta: meta, Spec: v1alpha1.SRv6NodeSpec{Locator: "2001:db8::/64"}}
		f(&o.Spec)
		_, p := ParseNode(o)
		return p
	}
	fdb := func(f func(*v1alpha1.FDBEntry)) []Problem {
		o := &v1alpha1.FDBEntry{ObjectMeta: metav1.ObjectMeta{Name: "red.02-00-00-00-00-0a"},
			Spec:   v1alpha1.FDBEntrySpec{Network: "red", MAC: "02:00:00:00:00:0a", Source: "static"},
			Status: &v1alpha1.FDBEntryStatus{ManagingNode: "n1"}}
		f(o)
		_, _, p := ParseFDB(o)
		return p
	}
	neigh := func(f func(*v1alpha1.Neighbor)) []Problem {
		o := &v1alpha1.Neighbor{ObjectMeta: metav1.ObjectMeta{Name: "red.fd00-0000-0000-0000-0000-0000-0000-0005"},
			Spec:   v1alpha1.NeighborSpec{Network: "red", IP: "fd00::5", Source: "static"},
			Status: &v1alpha1.NeighborStatus{ManagingNode: "n1", MAC: "02:00:00:00:00:0a"}}
		f(o)
		_, _, p := ParseNeighbor(o)
		return p
	}
	type es = v1alpha1.NetworkEndpointSpec
	type ns = v1alpha1.NetworkSpec
	type ss = v1alpha1.SRv6NodeSpec
	for _, c := range []struct {
		name  string
		got   []Problem
		field string // empty: nothing is wrong
		mend  string
	}{
		{"endpoint", ep(func(*es) {}), "", ""},
		{"upper-case MAC", ep(func(s *es) { s.MAC = "02:00:00:00:00:0A" }), "spec.mac", "write 02:00:00:00:00:0a"},
		{"wrong MAC", ep(func(s *es) { s.MAC = "02-00-00-00-00-0a" }), "spec.mac", "six pairs"},
		{"group MAC", ep(func(s *es) { s.MAC = "03:00:00:00:00:0a" }), "spec.mac", "unicast"},
		{"broadcast MAC", ep(func(s *es) { s.MAC = "ff:ff:ff:ff:ff:ff" }), "spec.mac", "unicast"},
		{"zero MAC", ep(func(s *es) { s.MAC = "00:00:00:00:00:00" }), "spec.mac", ""},
		{"addresses without a MAC", ep(func(s *es) { s.MAC, s.Addresses = "", []v1alpha1.IPAddress{"10.0.0.5"} }), "spec.mac", ""},
		{"IPv4-mapped", ep(func(s *es) { s.Addresses = []v1alpha1.IPAddress{"::ffff:10.0.0.5"} }), "spec.addresses[0]", "write 10.0.0.5"},
		{"zone", ep(func(s *es) { s.Addresses = []v1alpha1.IPAddress{"fe80::1%eth0"} }), "spec.addresses[0]", "write fe80::1"},
		{"multicast v4", ep(func(s *es) { s.Addresses = []v1alpha1.IPAddress{"10.0.0.5", "224.0.0.1"} }), "spec.addresses[1]", ""},
		{"multicast v6", ep(func(s *es) { s.Addresses = []v1alpha1.IPAddress{"fd00::5", "ff02::1"} }), "spec.addresses[1]", ""},
		{"unspecified v4", ep(func(s *es) { s.Addresses = []v1alpha1.IPAddress{"0.0.0.0"} }), "spec.addresses[0]", ""},
		{"unspecified v6", ep(func(s *es) { s.Addresses = []v1alpha1.IPAddress{"::"} }), "spec.addresses[0]", ""},
		{"loopback v4", ep(func(s *es) { s.Addresses = []v1alpha1.IPAddress{"127.0.0.1"} }), "spec.addresses[0]", ""},
		{"loopback v6", ep(func(s *es) { s.Addresses = []v1alpha1.IPAddress{"::1"} }), "spec.addresses[0]", ""},
		{"prefix for a v4", ep(func(s *es) { s.Addresses = []v1alpha1.IPAddress{"10.0.0.5/24"} }), "spec.addresses[0]", "without a prefix length"},
		{"prefix for a v6", ep(func(s *es) { s.Addresses = []v1alpha1.IPAddress{"fd00::5/64"} }), "spec.addresses[0]", "without a prefix length"},
		{"v4 twice", ep(func(s *es) { s.Addresses = []v1alpha1.IPAddress{"10.0.0.5", "10.0.0.5"} }), "spec.addresses[1]", "once"},
		{"v6 twice", ep(func(s *es) { s.Addresses = []v1alpha1.IPAddress{"fd00::5", "fd00:0::5"} }), "spec.addresses[1]", "once"},
		{"long device", ep(func(s *es) { s.Interface = "a23456789012345x" }), "spec.interface", "15 bytes"},
		{"device with a slash", ep(func(s *es) { s.Interface = "../eth0" }), "spec.interface", ""},
		{"segment", ep(func(s *es) { s.Segment = 1 << 24 }), "spec.segment", ""},
		{"port security", ep(func(s *es) { s.PortSecurity = "macip" }), "spec.portSecurity", `"mac+ip"`},
		{"network name", ep(func(s *es) { s.Network = "Red" }), "spec.network", ""},
		{"node name", ep(func(s *es) { s.NodeName = "" }), "spec.nodeName", ""},

		{"network", net(func(*ns) {}), "", ""},
		{"id 0", net(func(s *ns) { s.ID = 0 }), "spec.id", ""},
		{"id too large", net(func(s *ns) { s.ID = 1 << 24 }), "spec.id", ""},
		{"host bits, v4", net(func(s *ns) { s.Prefixes[0] = "10.0.0.5/24" }), "spec.prefixes[0]", "write 10.0.0.0/24"},
		{"host bits, v6", net(func(s *ns) { s.Prefixes[1] = "fd00::5/64" }), "spec.prefixes[1]", "write fd00::/64"},
		{"mapped prefix", net(func(s *ns) { s.Prefixes[0] = "::ffff:10.0.0.0/120" }), "spec.prefixes[0]", "IPv4"},
		{"v4 prefix twice", net(func(s *ns) { s.Prefixes[1] = "10.0.0.0/24" }), "spec.prefixes[1]", "once"},
		{"v6 prefix twice", net(func(s *ns) { s.Prefixes[0] = "fd00:0::/64" }), "spec.prefixes[1]", "once"},
		{"mtu", net(func(s *ns) { s.MTU = 1000 }), "spec.mtu", "1280"},
		{"v4 gateway outside", net(func(s *ns) {
			s.Gateway = &v1alpha1.Gateway{MAC: "02:00:00:00:00:fe", Addresses: []v1alpha1.IPAddress{"10.9.0.1"}}
		}), "spec.gateway.addresses[0]", ""},
		{"v6 gateway outside", net(func(s *ns) {
			s.Gateway = &v1alpha1.Gateway{MAC: "02:00:00:00:00:fe", Addresses: []v1alpha1.IPAddress{"fd00:9::1"}}
		}), "spec.gateway.addresses[0]", ""},
		{"gateway without address", net(func(s *ns) { s.Gateway = &v1alpha1.Gateway{MAC: "02:00:00:00:00:fe"} }), "spec.gateway.addresses", ""},
		{"isolation default", net(func(s *ns) { s.Isolation = &v1alpha1.Isolation{} }), "spec.isolation.default", "allow or deny"},
		{"isolation segment", net(func(s *ns) {
			s.Isolation = &v1alpha1.Isolation{Default: "deny", Rules: []v1alpha1.IsolationRule{{From: []v1alpha1.Segment{1}, To: []v1alpha1.Segment{2, -1}}}}
		}), "spec.isolation.rules[0].to[1]", ""},

		{"node", node(func(*ss) {}), "", ""},
		{"locator malformed", node(func(s *ss) { s.Locator = "2001:db8::" }), "spec.locator", "32 to 64"},
		{"locator too long", node(func(s *ss) { s.Locator = "2001:db8::/65" }), "spec.locator", "32 to 64"},
		{"locator host bits", node(func(s *ss) { s.Locator = "2001:db8::1/64" }), "spec.locator", "write 2001:db8::/64"},
		{"locator IPv4", node(func(s *ss) { s.Locator = "10.0.0.0/32" }), "spec.locator", ""},
		{"via IPv4", node(func(s *ss) { s.Via = []v1alpha1.IPv6Address{"10.0.0.1"} }), "spec.via[0]", "SID"},
		{"odd lengths", node(func(s *ss) { s.Locator = "2001:db8:10::/44" }), "", ""},

		{"fdb", fdb(func(*v1alpha1.FDBEntry) {}), "", ""},
		{"fdb name", fdb(func(o *v1alpha1.FDBEntry) { o.Name = "red.x" }), "metadata.name", "write red.02-00-00-00-00-0a"},
		{"fdb source", fdb(func(o *v1alpha1.FDBEntry) { o.Spec.Source = "" }), "spec.source", ""},
		{"neighbor", neigh(func(*v1alpha1.Neighbor) {}), "", ""},
		{"neighbor text", neigh(func(o *v1alpha1.Neighbor) { o.Spec.IP = "fd00:0::5" }), "spec.ip", "write fd00::5"},
		{"neighbor mac", neigh(func(o *v1alpha1.Neighbor) { o.Status.MAC = "x" }), "status.mac", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.field == "" {
				if len(c.got) > 0 {
					t.Errorf("refused: %v", c.got[0].Error())
				}
				return
			}
			if len(c.got) != 1 || c.got[0].Field != c.field || !strings.Contains(c.got[0].Mend, c.mend) || !errors.Is(&c.got[0], ErrInvalid) {
				t.Errorf("got %+v, want one problem of %s whose mend says %q", c.got, c.field, c.mend)
			}
		})
	}
}

func TestBindingWithoutOwnerBindsNothing(t *testing.T) {
	o := &v1alpha1.FDBEntry{ObjectMeta: metav1.ObjectMeta{Name: "red.02-00-00-00-00-0a"},
		Spec: v1alpha1.FDBEntrySpec{Network: "red", MAC: "02:00:00:00:00:0a", Source: "learned"}}
	if _, ok, p := ParseFDB(o); ok || len(p) > 0 {
		t.Errorf("ok %v, problems %v", ok, p)
	}
}

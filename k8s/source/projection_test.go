package source

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
)

func meta(name string, age int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
		CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-age), 0))}
}

func network(name string, id int32, age int, prefixes ...v1alpha1.Prefix) *v1alpha1.Network {
	return &v1alpha1.Network{ObjectMeta: meta(name, age), Spec: v1alpha1.NetworkSpec{ID: id, Prefixes: prefixes}}
}

func node(name, locator string, age int) *v1alpha1.SRv6Node {
	return &v1alpha1.SRv6Node{ObjectMeta: meta(name, age), Spec: v1alpha1.SRv6NodeSpec{Locator: locator}}
}

func endpoint(name, network string, mac int, ips ...v1alpha1.IPAddress) *v1alpha1.NetworkEndpoint {
	e := &v1alpha1.NetworkEndpoint{ObjectMeta: meta(name, 0), Spec: v1alpha1.NetworkEndpointSpec{
		Network: v1alpha1.NetworkName(network), NodeName: "n1", MAC: macText(mac), Addresses: ips, Interface: "veth-" + name}}
	e.Namespace = "default"
	return e
}

func macOf(n int) packet.MAC { return packet.MACFromUint64(0x020000000000 + uint64(n)) }

func macText(n int) v1alpha1.MACAddress { return v1alpha1.MACAddress(macOf(n).String()) }

func fdb(network string, mac int, node string, static bool, endpoint string) *v1alpha1.FDBEntry {
	o := &v1alpha1.FDBEntry{ObjectMeta: meta(v1alpha1.FDBName(network, macOf(mac)), 0),
		Spec: v1alpha1.FDBEntrySpec{Network: v1alpha1.NetworkName(network), MAC: macText(mac), Source: v1alpha1.SourceLearned}}
	if static {
		o.Spec.Source = v1alpha1.SourceStatic
	}
	if node != "" {
		o.Status = &v1alpha1.FDBEntryStatus{ManagingNode: node}
		if endpoint != "" {
			o.Status.Endpoint = &v1alpha1.EndpointReference{Namespace: "default", Name: endpoint, UID: "uid-" + endpoint}
		}
	}
	return o
}

func neighbor(network, ip string, mac int, node string, static bool) *v1alpha1.Neighbor {
	o := &v1alpha1.Neighbor{ObjectMeta: meta(v1alpha1.NeighborName(network, netip.MustParseAddr(ip)), 0),
		Spec:   v1alpha1.NeighborSpec{Network: v1alpha1.NetworkName(network), IP: v1alpha1.IPAddress(ip), Source: v1alpha1.SourceLearned},
		Status: &v1alpha1.NeighborStatus{ManagingNode: node, MAC: macText(mac)}}
	if static {
		o.Spec.Source = v1alpha1.SourceStatic
	}
	return o
}

func behind(n *v1alpha1.Neighbor, endpoint string) *v1alpha1.Neighbor {
	n.Status.Endpoint = &v1alpha1.EndpointReference{Namespace: "default", Name: endpoint, UID: "uid-" + endpoint}
	return n
}

// put gives the projection an object, or takes it away.
func put(p *projection, o any, gone bool) {
	switch o := o.(type) {
	case *v1alpha1.Network:
		p.setNetwork(o.Name, unlessGone(o, gone))
	case *v1alpha1.SRv6Node:
		p.setNode(o.Name, unlessGone(o, gone))
	case *v1alpha1.NetworkEndpoint:
		p.setEndpoint(desired.EndpointKey{Namespace: o.Namespace, Name: o.Name}, unlessGone(o, gone))
	case *v1alpha1.FDBEntry:
		p.setFDB(o, byNetwork, gone)
	case *v1alpha1.Neighbor:
		p.setNeighbor(o, byNetwork, gone)
	}
}

// scene is a set of objects with something of everything: two networks with one
// ID, two nodes with overlapping locators, an address outside, a binding without
// status, a MAC held elsewhere.
func scene() []any {
	return []any{
		network("red", 100, 5, "10.0.0.0/24", "fd00::/64"),
		network("blue", 200, 4, "10.0.0.0/24"),
		network("twin", 100, 1, "10.0.0.0/24"),
		node("n1", "2001:db8:0:1::/64", 3), node("n2", "2001:db8:0:2::/64", 2), node("n3", "2001:db8::/48", 1),
		endpoint("a", "red", 1, "10.0.0.1", "fd00::1", "192.0.2.1"),
		endpoint("b", "red", 2, "10.0.0.2"),
		endpoint("c", "green", 3, "10.0.0.3"),
		endpoint("d", "red", 4, "10.0.0.4"),
		fdb("red", 1, "n1", true, "a"), fdb("red", 2, "n1", true, "b"),
		fdb("red", 4, "n2", true, "other"), // d's MAC is held elsewhere
		fdb("red", 5, "n2", false, ""), fdb("red", 6, "", false, ""),
		fdb("twin", 7, "n2", true, "x"), fdb("blue", 8, "n2", true, "y"),
		behind(neighbor("red", "10.0.0.1", 1, "n1", true), "a"), behind(neighbor("red", "fd00::1", 1, "n1", true), "a"),
		neighbor("red", "10.0.0.5", 5, "n2", false), neighbor("red", "192.0.2.9", 5, "n2", false),
		neighbor("blue", "10.0.0.8", 8, "n2", true), neighbor("twin", "10.0.0.7", 7, "n2", true),
	}
}

// TestOrderOfArrivalDoesNotMatter gives the scene in many orders, some objects
// twice and some taken away and given back in between, and takes at random
// times: the sum of the deltas is always the same.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	var want *desired.State
	r := rand.New(rand.NewPCG(7, 8))
	for round := range 300 {
		p := newProjection("n1")
		got := desired.NewState()
		objects := scene()
		r.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
		for i, o := range objects {
			put(p, o, false)
			if r.IntN(3) == 0 {
				back := objects[r.IntN(i+1)]
				put(p, back, true)
				if r.IntN(2) == 0 {
					got.Apply(p.take())
				}
				put(p, back, false)
			}
			if r.IntN(4) == 0 {
				got.Apply(p.take())
			}
		}
		got.Apply(p.take())
		if want == nil {
			want = &got
			checkScene(t, got)
			continue
		}
		if !reflect.DeepEqual(got, *want) {
			t.Fatalf("round %d: %+v", round, desired.Diff(*want, got))
		}
		if d := p.take(); d.Len() != 0 {
			t.Fatalf("a second take: %+v", d)
		}
	}
}

// checkScene judges the scene's outcome by hand.
func checkScene(t *testing.T, s desired.State) {
	t.Helper()
	if len(s.Networks) != 2 || s.Networks["red"].ID != 100 || s.Networks["blue"].ID != 200 {
		t.Errorf("networks %v", s.Networks)
	}
	if len(s.Nodes) != 2 {
		t.Errorf("nodes %v", s.Nodes)
	}
	a := s.Endpoints[desired.EndpointKey{Namespace: "default", Name: "a"}]
	if len(s.Endpoints) != 2 || len(a.Addresses) != 2 {
		t.Errorf("endpoints %v", s.Endpoints)
	}
	var macs, ips []string
	for k := range s.FDB {
		macs = append(macs, k.Name())
	}
	for k, n := range s.Neighbors {
		ips = append(ips, fmt.Sprint(k.Name(), n.Derived))
	}
	// red 1, 2, 4 and 5, blue 8; red's three static MACs have a link-local address.
	if len(macs) != 5 || len(ips) != 4+3 {
		t.Errorf("FDB %v, neighbors %v", macs, ips)
	}
}

func TestDuplicateIDGoesToTheOlder(t *testing.T) {
	p := newProjection("n1")
	put(p, network("young", 1, 1), false)
	put(p, network("old", 1, 9), false)
	s := desired.NewState()
	s.Apply(p.take())
	if _, ok := s.Networks["old"]; !ok || len(s.Networks) != 1 {
		t.Errorf("networks %v", s.Networks)
	}
	if list := p.problems[desired.Ref{Kind: "Network", Name: "young"}]; len(list) != 1 || list[0].Field != "spec.id" {
		t.Errorf("problems %v", p.problems)
	}
	put(p, network("old", 1, 9), true)
	s.Apply(p.take())
	if _, ok := s.Networks["young"]; !ok || len(s.Networks) != 1 || len(p.problems) != 0 {
		t.Errorf("networks %v, problems %v", s.Networks, p.problems)
	}
}

// TestViewsMergeByName plays the two watches of a binding against each other.
func TestViewsMergeByName(t *testing.T) {
	at := func(rv string, o *v1alpha1.FDBEntry) *v1alpha1.FDBEntry { o.ResourceVersion = rv; return o }
	carried := func(p *projection) string {
		e := p.effectiveFDB("red", macOf(1))
		if e == nil {
			return ""
		}
		return e.Node
	}
	p := newProjection("n1")
	put(p, network("red", 1, 1), false)
	check := func(step, want string) {
		t.Helper()
		if got := carried(p); got != want {
			t.Errorf("%s: on node %q, want %q", step, got, want)
		}
	}
	p.setFDB(at("10", fdb("red", 1, "n1", false, "")), byNode, false)
	check("own view", "n1")
	p.setFDB(at("10", fdb("red", 1, "n1", false, "")), byNetwork, false)
	// It moves to n2: the label's view says so first, the node's view then
	// says "gone" with the old state.
	p.setFDB(at("11", fdb("red", 1, "n2", false, "")), byNetwork, false)
	check("moved", "n2")
	p.setFDB(at("11", fdb("red", 1, "n1", false, "")), byNode, true)
	check("left the own view", "n2")
	// A late state of the other view does not bring the past back.
	p.setFDB(at("10", fdb("red", 1, "n1", false, "")), byNode, false)
	check("late event", "n2")
	p.setFDB(at("11", fdb("red", 1, "n1", false, "")), byNode, true)
	// A list that is older than what is known takes nothing away.
	p.replaceFDB(nil, byNetwork, 10)
	check("older list", "n2")
	p.replaceFDB(nil, byNetwork, 11)
	check("newer list", "")
	if p.fdb.count != 0 || len(p.fdb.networks) != 0 {
		t.Errorf("%d rows left", p.fdb.count)
	}
}

// TestSightingsDirtyNothing changes what no table holds.
func TestSightingsDirtyNothing(t *testing.T) {
	p := newProjection("n1")
	put(p, network("red", 1, 1), false)
	put(p, fdb("red", 1, "n2", false, ""), false)
	p.take()
	o := fdb("red", 1, "n2", false, "")
	o.ResourceVersion = "2"
	now := metav1.NewMicroTime(time.Unix(5, 0))
	o.Status.LastObserved = &now
	put(p, o, false)
	if d := p.take(); d.Len() != 0 {
		t.Errorf("a sighting is a change: %+v", d)
	}
	if v := p.fdb.get("red", macOf(1)).value; v.LastObserved != 5e6 || v.Version.ResourceVersion != "2" {
		t.Errorf("the cache did not keep it: %+v", v)
	}
}

// TestBadObjectsAreRefused gives objects as they could be stored past the
// CRD's validation.
func TestBadObjectsAreRefused(t *testing.T) {
	p := newProjection("n1")
	put(p, network("red", 1, 1, "10.0.0.0/24"), false)
	bad := fdb("red", 1, "n2", true, "x")
	bad.Spec.MAC = "02:00:00:00:00:0A"
	put(p, bad, false)
	mapped := neighbor("red", "10.0.0.5", 1, "n2", true)
	mapped.Spec.IP = "::ffff:10.0.0.5"
	put(p, mapped, false)
	wrong := neighbor("red", "10.0.0.6", 1, "n2", true)
	wrong.Status.MAC = "nonsense"
	put(p, wrong, false)
	put(p, network("host-bits", 2, 1, "10.0.0.5/24"), false)
	e := endpoint("e", "red", 1)
	e.Spec.MAC = "02-00-00-00-00-01"
	put(p, e, false)
	d := p.take()
	if len(d.Networks) != 1 || len(d.FDB)+len(d.Neighbors)+len(d.Endpoints) != 0 {
		t.Errorf("delta %+v", d)
	}
	for _, ref := range []desired.Ref{
		{Kind: "FDBEntry", Name: bad.Name}, {Kind: "Neighbor", Name: mapped.Name}, {Kind: "Neighbor", Name: wrong.Name},
		{Kind: "Network", Name: "host-bits"}, {Kind: "NetworkEndpoint", Namespace: "default", Name: "e"},
	} {
		if len(p.problems[ref]) == 0 {
			t.Errorf("nothing said of %v", ref)
		}
	}
	put(p, bad, true)
	if len(p.problems) != 4 {
		t.Errorf("problems %v", p.problems)
	}
}

func TestOwnBindingsAreFiledByEndpoint(t *testing.T) {
	p := newProjection("n1")
	put(p, fdb("red", 1, "n1", true, "a"), false)
	put(p, fdb("red", 2, "n2", true, "a"), false)  // another node's
	put(p, fdb("red", 3, "n1", false, "a"), false) // learned
	if got := p.own["uid-a"]; len(got) != 1 || !got[fdbKey("red", macOf(1))] {
		t.Errorf("own %v", p.own)
	}
	moved := fdb("red", 1, "n2", true, "b")
	moved.ResourceVersion = "2"
	put(p, moved, false)
	if len(p.own) != 0 {
		t.Errorf("own %v after the move", p.own)
	}
}

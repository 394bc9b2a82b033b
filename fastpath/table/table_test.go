package table

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/internal/packet"
)

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestConflictsNameBoth(t *testing.T) {
	b := NewBuilder()
	port := NewPortID(1, 1)
	must(t,
		b.SetNetwork(Network{ID: 1, Name: "red", Gateway: Gateway{MAC: testMAC(9), Addresses: []netip.Addr{testIP(1)}}}),
		b.SetNode(testNode(0)),
		b.SetPort(Port{ID: port, Name: "veth-a", Network: 1}),
		b.SetFDB(1, FDBEntry{MAC: testMAC(1), Port: port, Static: true}),
		b.SetFDB(1, FDBEntry{MAC: testMAC(2), Node: "n2"}),
	)
	before := viewOf(b.Snapshot())
	overlap := testNode(1)
	overlap.Locator = testNode(0).Locator
	within := testNode(1)
	within.Locator, _ = srv6.LocatorFrom(netip.MustParsePrefix("2001:db8:1:7::/64"))
	for _, test := range []struct {
		name  string
		err   error
		words []string
	}{
		{"network ID", b.SetNetwork(Network{ID: 1, Name: "blue"}), []string{`"blue"`, `"red"`, "ID 1"}},
		{"network name", b.SetNetwork(Network{ID: 2, Name: "red"}), []string{`"red"`, "ID 2", "ID 1"}},
		{"same locator", b.SetNode(overlap), []string{`"n1"`, `"n2"`, "2001:db8:1::/48"}},
		{"overlapping locator", b.SetNode(within), []string{`"n1"`, `"n2"`, "2001:db8:1:7::/64"}},
		{"two static claims", b.SetFDB(1, FDBEntry{MAC: testMAC(1), Node: "n2", Static: true}), []string{"veth-a", "n2", testMAC(1).String()}},
		{"learned over static", b.SetFDB(1, FDBEntry{MAC: testMAC(1), Node: "n2"}), []string{"veth-a", "n2"}},
		{"gateway MAC", b.SetFDB(1, FDBEntry{MAC: testMAC(9), Port: port, Static: true}), []string{"veth-a", "the gateway"}},
		{"port index", b.SetPort(Port{ID: NewPortID(1, 2), Name: "veth-b", Network: 1}), []string{"veth-a", "veth-b"}},
	} {
		if !errors.Is(test.err, ErrConflict) {
			t.Errorf("%s: %v", test.name, test.err)
			continue
		}
		for _, w := range test.words {
			if !strings.Contains(test.err.Error(), w) {
				t.Errorf("%s: %q does not say %q", test.name, test.err, w)
			}
		}
	}
	compare(t, viewOf(b.Snapshot()), before)
	// When the holder goes, the claim is good.
	b.DeleteFDB(1, testMAC(1))
	b.DeleteNode("n1")
	must(t, b.SetFDB(1, FDBEntry{MAC: testMAC(1), Node: "n2", Static: true}), b.SetNode(overlap))
}

func TestGatewayBeatsStaticClaimThatCameFirst(t *testing.T) {
	b := NewBuilder()
	must(t, b.SetFDB(1, FDBEntry{MAC: testMAC(9), Node: "n1", Static: true}))
	red := Network{ID: 1, Name: "red", Gateway: Gateway{MAC: testMAC(9)}}
	if err := b.SetNetwork(red); !errors.Is(err, ErrConflict) {
		t.Fatal(err)
	}
	s := b.Snapshot()
	net, ok := s.NetworkByID(1)
	if !ok || s.FDB(net, testMAC(9).Uint64()).Kind() != KindGateway {
		t.Fatal("the network is not there, or its gateway is not")
	}
	red.Gateway = Gateway{}
	must(t, b.SetNetwork(red))
	if k := b.Snapshot().FDB(net, testMAC(9).Uint64()).Kind(); k != KindRemote {
		t.Errorf("without the gateway: %s", k)
	}
}

func TestInvalidIsRefused(t *testing.T) {
	b := NewBuilder()
	for name, err := range map[string]error{
		"network 0":        b.SetNetwork(Network{Name: "x"}),
		"network too big":  b.SetNetwork(Network{ID: MaxNetworkID + 1, Name: "x"}),
		"network no name":  b.SetNetwork(Network{ID: 1}),
		"host bits":        b.SetNetwork(Network{ID: 1, Name: "x", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}),
		"gateway no MAC":   b.SetNetwork(Network{ID: 1, Name: "x", Gateway: Gateway{Addresses: []netip.Addr{testIP(1)}}}),
		"gateway group":    b.SetNetwork(Network{ID: 1, Name: "x", Gateway: Gateway{MAC: packet.Broadcast}}),
		"gateway address":  b.SetNetwork(Network{ID: 1, Name: "x", Gateway: Gateway{MAC: testMAC(1), Addresses: []netip.Addr{{}}}}),
		"port 0":           b.SetPort(Port{ID: NewPortID(0, 1), Network: 1}),
		"port no network":  b.SetPort(Port{ID: NewPortID(1, 1)}),
		"port segment":     b.SetPort(Port{ID: NewPortID(1, 1), Network: 1, Segment: MaxSegment + 1}),
		"node no name":     b.SetNode(Node{Locator: testNode(0).Locator}),
		"node no locator":  b.SetNode(Node{Name: "x"}),
		"entry group":      b.SetFDB(1, FDBEntry{MAC: packet.Broadcast, Node: "n"}),
		"entry zero":       b.SetFDB(1, FDBEntry{Node: "n"}),
		"entry nowhere":    b.SetFDB(1, FDBEntry{MAC: testMAC(1)}),
		"entry twice":      b.SetFDB(1, FDBEntry{MAC: testMAC(1), Node: "n", Port: NewPortID(1, 1)}),
		"entry segment":    b.SetFDB(1, FDBEntry{MAC: testMAC(1), Node: "n", Segment: MaxSegment + 1}),
		"entry network 0":  b.SetFDB(0, FDBEntry{MAC: testMAC(1), Node: "n"}),
		"neighbour IP":     b.SetNeighbor(1, NeighborEntry{MAC: testMAC(1), IP: netip.MustParseAddr("ff02::1")}),
		"neighbour no IP":  b.SetNeighbor(1, NeighborEntry{MAC: testMAC(1)}),
		"neighbour no MAC": b.SetNeighbor(1, NeighborEntry{IP: testIP(1)}),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(b.networks)+len(b.nodes) != 0 {
		t.Errorf("a refused change left %d networks and %d nodes", len(b.networks), len(b.nodes))
	}
}

// A frame in flight may still carry an index; it must not mean another.
func TestIndexesAreQuarantined(t *testing.T) {
	b := NewBuilder()
	must(t, b.SetNetwork(Network{ID: 1, Name: "a"}), b.SetNode(testNode(0)), b.SetPort(Port{ID: NewPortID(1, 1), Name: "veth-a", Network: 1}))
	s := b.Snapshot()
	net, _ := s.NetworkByID(1)
	node, _ := s.NodeBySource(testNode(0).Locator.Hi)
	b.DeletePort(NewPortID(1, 1))
	b.DeleteNetwork(1)
	b.DeleteNode("n1")
	try := func(id NetworkID, n int) (NetIndex, NodeIndex) {
		t.Helper()
		must(t, b.SetNetwork(Network{ID: id, Name: fmt.Sprint(id)}), b.SetNode(testNode(n)))
		s := b.Snapshot()
		net, _ := s.NetworkByID(id)
		node, _ := s.NodeBySource(testNode(n).Locator.Hi)
		return net, node
	}
	if n, o := try(2, 1); n == net || o == node {
		t.Errorf("network %d and node %d reused while snapshot %d is in use", n, o, s.Version)
	}
	if err := b.SetPort(Port{ID: NewPortID(1, 2), Name: "veth-b", Network: 2}); !errors.Is(err, ErrQuarantined) {
		t.Errorf("port index reused: %v", err)
	}
	if id, err := b.NewPortID(); err != nil || id != NewPortID(2, 1) {
		t.Errorf("next port %#x, %v", id, err)
	}
	b.Release(s.Version) // s itself is still in use
	if n, o := try(3, 2); n == net || o == node {
		t.Errorf("network %d and node %d reused while snapshot %d is in use", n, o, s.Version)
	}
	b.Release(s.Version + 1)
	if n, o := try(4, 3); n != net || o != node {
		t.Errorf("network %d and node %d, want the free %d and %d", n, o, net, node)
	}
	if id, err := b.NewPortID(); err != nil || id != NewPortID(1, 2) {
		t.Errorf("next port %#x, %v", id, err)
	}
	must(t, b.SetPort(Port{ID: NewPortID(1, 2), Name: "veth-b", Network: 2}))
}

func TestSamePortMayComeBackAtOnce(t *testing.T) {
	b := NewBuilder()
	p := Port{ID: NewPortID(1, 1), Name: "veth-a", Network: 1}
	must(t, b.SetPort(p))
	b.Snapshot()
	b.DeletePort(p.ID)
	must(t, b.SetPort(p))
}

func TestEntryNeverLeadsToAPortOfAnotherNetwork(t *testing.T) {
	b := NewBuilder()
	p := Port{ID: NewPortID(1, 1), Name: "veth-a", Network: 1}
	must(t, b.SetNetwork(Network{ID: 1, Name: "a"}), b.SetNetwork(Network{ID: 2, Name: "b"}),
		b.SetFDB(2, FDBEntry{MAC: testMAC(1), Port: p.ID}), b.SetPort(p))
	s := b.Snapshot()
	net, _ := s.NetworkByID(2)
	if got := s.FDB(net, testMAC(1).Uint64()); got != 0 {
		t.Errorf("target %s", got.Kind())
	}
	p.Network = 2
	must(t, b.SetPort(p))
	if got := b.Snapshot().FDB(net, testMAC(1).Uint64()); got.Kind() != KindLocal {
		t.Errorf("target %s after the port moved", got.Kind())
	}
	// An entry of an older generation does not lead to its successor.
	b.DeletePort(p.ID)
	b.Release(b.Snapshot().Version)
	must(t, b.SetPort(Port{ID: NewPortID(1, 2), Name: "veth-b", Network: 2}))
	if got := b.Snapshot().FDB(net, testMAC(1).Uint64()); got != 0 {
		t.Errorf("target %s in the next generation", got.Kind())
	}
}

// shared counts the places of two directories that hold the same shard.
func shared(a, b index[uint64]) (same int) {
	for i := range min(len(a.dir), len(b.dir)) {
		if &a.dir[i][0] == &b.dir[i][0] {
			same++
		}
	}
	return same
}

func TestOneChangeCopiesOneShard(t *testing.T) {
	b := NewBuilder()
	must(t, b.SetNetwork(Network{ID: 1, Name: "a"}), b.SetNode(testNode(0)))
	for i := range 20000 {
		must(t, b.SetFDB(1, FDBEntry{MAC: testMAC(i + 1), Node: "n1"}))
	}
	first := b.Snapshot()
	n := testNode(0)
	n.Alive, n.PathMTU, n.NextHops = false, 1400, []NextHop{{Uplink: 1, MTU: 1500}}
	must(t, b.SetNode(n), b.SetPort(Port{ID: NewPortID(1, 1), Name: "p", Network: 1}))
	second := b.Snapshot()
	if &first.fdb.dir[0] != &second.fdb.dir[0] {
		t.Error("a node's or port's change touched the FDB")
	}
	if first.Nodes[1].PathMTU != 0 || second.Nodes[1].PathMTU != 1400 {
		t.Error("the node did not change, or changed in the old snapshot")
	}
	must(t, b.SetFDB(1, FDBEntry{MAC: testMAC(7), Node: "n2"}))
	third := b.Snapshot()
	h := b.fdb.hash(FDBKey(1, testMAC(7).Uint64()))
	places := 1 << (b.fdb.depth - b.fdb.dir[b.fdb.at(h)].depth)
	if same := shared(second.fdb, third.fdb); same != len(third.fdb.dir)-places {
		t.Errorf("%d of %d shards shared, want all but %d", same, len(third.fdb.dir), places)
	}
	// Setting what is set dirties nothing.
	must(t, b.SetFDB(1, FDBEntry{MAC: testMAC(7), Node: "n2"}))
	if fourth := b.Snapshot(); &fourth.fdb.dir[0] != &third.fdb.dir[0] || fourth.Version != third.Version+1 {
		t.Error("no change, yet a new directory")
	}
}

func TestNodeBySource(t *testing.T) {
	b := NewBuilder()
	for i := range testNodes {
		must(t, b.SetNode(testNode(i)))
	}
	b.SetSelf(testNode(3).Locator, srv6.DefaultFunction, packet.HashKey{})
	s := b.Snapshot()
	for _, test := range []struct{ addr, want string }{
		{"2001:db8:1::1", "n1"}, {"2001:db8:1:ffff::1", "n1"}, {"2001:db8:2:8::", "n2"}, {"2001:db8:2:f::1", "n2"},
		{"2001:db8:2:10::1", ""}, {"2001:db8:2:7::1", ""}, {"2001:db8:3:3::1", "n3"}, {"2001:db8:3:4::1", ""},
		{"2001:db8:4:1::1", ""}, {"::1", ""}, {"fe80::1", ""},
	} {
		i, ok := s.NodeBySource(packet.IPFromAddr(netip.MustParseAddr(test.addr)).Hi)
		if got := s.Nodes[i].Name; got != test.want || ok != (got != "") {
			t.Errorf("%s is of %q, want %q", test.addr, got, test.want)
		}
	}
}

func TestNetworkContains(t *testing.T) {
	b := NewBuilder()
	must(t, b.SetNetwork(Network{ID: 1, Name: "a", LinkLocal: true, Prefixes: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("192.0.2.128/25"), netip.MustParsePrefix("fd00:10::/64"), netip.MustParsePrefix("fd00:11::80/121")}}),
		b.SetNetwork(Network{ID: 2, Name: "b"}),
		b.SetNetwork(Network{ID: 3, Name: "c", Prefixes: []netip.Prefix{netip.MustParsePrefix("::/0")}}),
		b.SetNetwork(Network{ID: 4, Name: "d", Prefixes: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}))
	s := b.Snapshot()
	v4, v6 := packet.IPFromAddr(testIP(2)), packet.IPFromAddr(testIP(1))
	if s.Networks[3].Contains(v4) || !s.Networks[3].Contains(v6) || !s.Networks[4].Contains(v4) || s.Networks[4].Contains(v6) {
		t.Error("a prefix of one family holds addresses of the other")
	}
	for ip, want := range map[string]bool{"10.0.0.255": true, "10.0.1.0": false, "192.0.2.128": true, "192.0.2.127": false, "::10.0.0.1": false,
		"fd00:10::ffff": true, "fd00:10:0:1::": false, "fd00:11::ff": true, "fd00:11::7f": false, "fe80::5": true, "ff02::1": false} {
		if got := s.Networks[1].Contains(packet.IPFromAddr(netip.MustParseAddr(ip))); got != want {
			t.Errorf("%s: %v", ip, got)
		}
	}
	if s.Networks[2].Contains(packet.IPFromAddr(netip.MustParseAddr("fe80::1"))) {
		t.Error("link-local belongs to a network that does not have it")
	}
}

func TestEmptySnapshot(t *testing.T) {
	s := NewBuilder().Snapshot()
	if _, ok := s.NetworkByID(1); ok || s.FDB(1, 1) != 0 || s.Allowed(0, 1, 1) || s.Allowed(9, 1, 1) {
		t.Error("something is there")
	}
	if _, ok := s.NodeBySource(1); ok {
		t.Error("a node is there")
	}
	if _, ok := s.Neighbor(1, packet.IP{}); ok || len(s.Ports) != 1 || len(s.Networks) != 1 || len(s.Nodes) != 1 {
		t.Error("a neighbour is there, or place 0 is not")
	}
}

func TestLookupsDoNotAllocate(t *testing.T) {
	b := NewBuilder()
	must(t, b.SetNetwork(Network{ID: 1, Name: "a", Isolation: &Isolation{DefaultDeny: true, Rules: []IsolationRule{{[]Segment{1}, []Segment{2}}}}}),
		b.SetNode(testNode(0)), b.SetFDB(1, FDBEntry{MAC: testMAC(1), Node: "n1"}))
	s := b.Snapshot()
	var keys [Batch]uint64
	var out [Batch]Target
	if n := testing.AllocsPerRun(100, func() {
		net, _ := s.NetworkByID(1)
		s.FDB(net, testMAC(1).Uint64())
		s.FDBBatch(&keys, Batch, &out)
		s.Neighbor(net, packet.IP{Hi: 1})
		s.NodeBySource(testNode(0).Locator.Hi)
		s.Allowed(net, 1, 2)
		s.Networks[net].Contains(packet.IP{})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

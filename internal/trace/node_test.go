package trace

import (
	"net/netip"
	"testing"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func locator(t testing.TB, s string) srv6.Locator {
	t.Helper()
	l, err := srv6.LocatorFrom(netip.MustParsePrefix(s))
	must(t, err)
	return l
}

// testNode is node1 with ports va and vb in network red, isolated by segments, vc in
// blue with mac+ip security; node2 has station d of red, node3 no way to it.
func testNode(t testing.TB) Node {
	t.Helper()
	b := table.NewBuilder()
	self := locator(t, "2001:db8:0:1::/64")
	b.SetSelf(self, srv6.DefaultFunction, packet.HashKey{1, 2})
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00:10::/64")}
	must(t, b.SetNetwork(table.Network{ID: 100, Name: "red", Prefixes: prefixes, LinkLocal: true, Learning: true,
		Gateway:   table.Gateway{MAC: packet.MAC{2, 0, 0, 0, 0, 0xfe}, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00:10::1")}},
		Isolation: &table.Isolation{Rules: []table.IsolationRule{{From: []table.Segment{7}, To: []table.Segment{66}}}}}))
	must(t, b.SetNetwork(table.Network{ID: 200, Name: "blue", Prefixes: prefixes, LinkLocal: true}))
	e, err := srv6.NewEncap(srv6.EncapConfig{
		SrcMAC: packet.MAC{2, 0, 0, 0, 1, 1}, DstMAC: packet.MAC{2, 0, 0, 0, 1, 2}, Source: self,
		Dest: locator(t, "2001:db8:0:2::/64"), Function: srv6.DefaultFunction,
	})
	must(t, err)
	must(t, b.SetNode(table.Node{Name: "node2", Locator: locator(t, "2001:db8:0:2::/64"), Alive: true, NextHops: []table.NextHop{{Encap: e, MTU: 1500}}}))
	must(t, b.SetNode(table.Node{Name: "node3", Locator: locator(t, "2001:db8:0:3::/64"), Alive: true}))
	n := Node{Name: "node1", Limits: fastpath.Limits{}, Uplinks: []string{"up0"}, Ports: []Port{{Device: "vx", Endpoint: "default/x", Error: "there is no device vx"}}}
	for i, p := range []struct {
		name string
		net  table.NetworkID
		sec  table.PortSecurity
	}{{"a", 100, table.SecurityOff}, {"b", 100, table.SecurityOff}, {"c", 200, table.SecurityMACIP}} {
		id, err := b.NewPortID()
		must(t, err)
		mac := packet.MAC{2, 0, 0, 0, 0, byte(0xa + i)}
		ips := []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + i)}), netip.MustParseAddr("fd00:10::" + p.name)}
		must(t, b.SetPort(table.Port{ID: id, Name: "v" + p.name, Network: p.net, MAC: mac, Addresses: ips, Segment: 7, Security: p.sec, MTU: 1500}))
		must(t, b.SetFDB(p.net, table.FDBEntry{MAC: mac, Port: id, Segment: 7, Static: true}))
		for _, ip := range ips {
			must(t, b.SetNeighbor(p.net, table.NeighborEntry{IP: ip, MAC: mac, Static: true}))
		}
		n.Ports = append(n.Ports, Port{Device: "v" + p.name, Endpoint: "default/" + p.name, ID: id})
	}
	for i, s := range []struct {
		node    string
		segment table.Segment
	}{{"node2", 7}, {"node2", 66}, {"node3", 7}} {
		mac := packet.MAC{2, 0, 0, 0, 0, byte(0xd + i)}
		must(t, b.SetFDB(100, table.FDBEntry{MAC: mac, Node: s.node, Segment: s.segment}))
		for _, ip := range []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(13 + i)}), netip.MustParseAddr("fd00:10::" + string(rune('d'+i)))} {
			must(t, b.SetNeighbor(100, table.NeighborEntry{IP: ip, MAC: mac}))
		}
	}
	n.Snapshot = b.Snapshot()
	return n
}

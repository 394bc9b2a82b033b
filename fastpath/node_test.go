package fastpath

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// The node of the tests: two ports A and B in network red, C in network blue
// with A's very MAC, node2 beyond the uplink with station D of red.
const (
	red  table.NetworkID = 100
	blue table.NetworkID = 200
)

var (
	macA = packet.MAC{2, 0, 0, 0, 0, 0xa}
	macB = packet.MAC{2, 0, 0, 0, 0, 0xb}
	macD = packet.MAC{2, 0, 0, 0, 0, 0xd}
	gwA  = packet.MAC{2, 0, 0, 0, 0, 0xfe}

	ipA, ipB, ipD    = netip.MustParseAddr("10.0.0.10"), netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("10.0.0.13")
	ip6A, ip6B, ip6D = netip.MustParseAddr("fd00:10::a"), netip.MustParseAddr("fd00:10::b"), netip.MustParseAddr("fd00:10::d")

	// families are the address families, with the addresses of stations A, B and D.
	// The underlay is IPv6 for both.
	families = []struct {
		name    string
		a, b, d netip.Addr
	}{{"v4", ipA, ipB, ipD}, {"v6", ip6A, ip6B, ip6D}}

	selfLocator  = mustLocator("2001:db8:0:1::/64")
	otherLocator = mustLocator("2001:db8:0:2::/64")
	hashKey      = packet.HashKey{0x0123456789abcdef, 0xfedcba9876543210}
	uplinkMAC    = packet.MAC{2, 0, 0, 0, 1, 1}
	routerMAC    = packet.MAC{2, 0, 0, 0, 1, 2}
)

func mustLocator(s string) srv6.Locator {
	l, err := srv6.LocatorFrom(netip.MustParsePrefix(s))
	if err != nil {
		panic(err)
	}
	return l
}

type node struct {
	*table.Builder
	t                   testing.TB
	portA, portB, portC table.PortID
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{Builder: table.NewBuilder(), t: t}
	n.SetSelf(selfLocator, srv6.DefaultFunction, hashKey)
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00:10::/64")}
	n.must(n.SetNetwork(table.Network{ID: red, Name: "red", Prefixes: prefixes, LinkLocal: true}))
	n.must(n.SetNetwork(table.Network{ID: blue, Name: "blue", Prefixes: prefixes, LinkLocal: true}))
	n.setNode2(1500)
	n.portA = n.addPort("a", red, macA, ipA, ip6A)
	n.portB = n.addPort("b", red, macB, ipB, ip6B)
	n.portC = n.addPort("c", blue, macA, ipA, ip6A)
	n.must(n.SetFDB(red, table.FDBEntry{MAC: macD, Node: "node2", Segment: 7, Static: true}))
	for _, ip := range []netip.Addr{ipD, ip6D} {
		n.must(n.SetNeighbor(red, table.NeighborEntry{IP: ip, MAC: macD, Static: true}))
	}
	return n
}

func (n *node) setNode2(mtu int) {
	n.t.Helper()
	e, err := srv6.NewEncap(srv6.EncapConfig{
		SrcMAC: uplinkMAC, DstMAC: routerMAC, Source: selfLocator, Dest: otherLocator, Function: srv6.DefaultFunction,
	})
	n.must(err)
	n.must(n.SetNode(table.Node{
		Name: "node2", Locator: otherLocator, Alive: true,
		NextHops: []table.NextHop{{Encap: e, MTU: mtu}},
	}))
}

func (n *node) addPort(name string, network table.NetworkID, mac packet.MAC, ips ...netip.Addr) table.PortID {
	n.t.Helper()
	id, err := n.NewPortID()
	n.must(err)
	n.must(n.SetPort(table.Port{ID: id, Name: name, Network: network, MAC: mac, Addresses: ips, Segment: 7, MTU: 1500}))
	n.must(n.SetFDB(network, table.FDBEntry{MAC: mac, Port: id, Segment: 7, Static: true}))
	for _, ip := range ips {
		n.must(n.SetNeighbor(network, table.NeighborEntry{IP: ip, MAC: mac, Static: true}))
	}
	return id
}

// udpFrame is a UDP frame between the stations' red addresses, with a valid
// checksum of its own: payload bytes follow the headers.
func udpFrame(dst, src packet.MAC, v6 bool, sport uint16, payload int) []byte {
	b := append(append([]byte{}, dst[:]...), src[:]...)
	udp := make([]byte, 8+payload)
	binary.BigEndian.PutUint16(udp[0:], sport)
	binary.BigEndian.PutUint16(udp[2:], 9)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	udp = append(udp[:8], make([]byte, payload)...)
	if v6 {
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, byte(len(udp)>>8), byte(len(udp)), 17, 64)
		b = append(append(b, ip6A.AsSlice()...), ip6D.AsSlice()...)
		pseudo := packet.PseudoHeader6(packet.IPFromAddr(ip6A), packet.IPFromAddr(ip6D), 17, len(udp))
		binary.BigEndian.PutUint16(udp[6:], ^packet.Fold(packet.Add(pseudo, packet.Sum(udp))))
		return append(b, udp...)
	}
	b = append(b, 0x08, 0x00)
	h := make([]byte, 20)
	h[0], h[8], h[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(udp)))
	copy(h[12:], ipA.AsSlice())
	copy(h[16:], ipD.AsSlice())
	binary.BigEndian.PutUint16(h[10:], ^packet.Fold(packet.Sum(h)))
	pseudo := packet.PseudoHeader4(packet.IPFromAddr(ipA).V4(), packet.IPFromAddr(ipD).V4(), 17, len(udp))
	binary.BigEndian.PutUint16(udp[6:], ^packet.Fold(packet.Add(pseudo, packet.Sum(udp))))
	return append(append(b, h...), udp...)
}

package fastpath

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// serialize builds a frame with lengths and checksums right.
func serialize(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
		t.Fatal(err)
	}
	return append([]byte{}, buf.Bytes()...)
}

func ether(dst, src packet.MAC, typ layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{DstMAC: net.HardwareAddr(dst[:]), SrcMAC: net.HardwareAddr(src[:]), EthernetType: typ}
}

func ip4(src, dst netip.Addr, proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
}

func ip6(src, dst netip.Addr, proto layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func udpTo(t testing.TB, dst packet.MAC, to netip.Addr, port uint16) []byte {
	t.Helper()
	u := &layers.UDP{SrcPort: 1000, DstPort: layers.UDPPort(port)}
	if to.Is4() {
		ip := ip4(ipA, to, layers.IPProtocolUDP)
		_ = u.SetNetworkLayerForChecksum(ip)
		return serialize(t, ether(dst, macA, layers.EthernetTypeIPv4), ip, u, gopacket.Payload("payload"))
	}
	ip := ip6(ip6A, to, layers.IPProtocolUDP)
	_ = u.SetNetworkLayerForChecksum(ip)
	return serialize(t, ether(dst, macA, layers.EthernetTypeIPv6), ip, u, gopacket.Payload("payload"))
}

// udpOf is an untagged frame from its UDP header on.
func udpOf(frame []byte) []byte {
	if frame[12] == 0x86 {
		return frame[14+40:]
	}
	return frame[14+20:]
}

func arpFrame(t testing.TB, dst, src packet.MAC, op uint16, spa, tpa netip.Addr) []byte {
	t.Helper()
	return serialize(t, ether(dst, src, layers.EthernetTypeARP), &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
		Operation: op, SourceHwAddress: src[:], SourceProtAddress: spa.AsSlice(),
		DstHwAddress: make([]byte, 6), DstProtAddress: tpa.AsSlice(),
	})
}

// icmp6Frame is an ICMPv6 message of typ with body after the checksum.
func icmp6Frame(t testing.TB, dst, src packet.MAC, from, to netip.Addr, typ uint8, body []byte) []byte {
	t.Helper()
	ip := ip6(from, to, layers.IPProtocolICMPv6)
	i := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(typ, 0)}
	_ = i.SetNetworkLayerForChecksum(ip)
	return serialize(t, ether(dst, src, layers.EthernetTypeIPv6), ip, i, gopacket.Payload(body))
}

func nsFrame(t testing.TB, dst, src packet.MAC, from, to, target netip.Addr) []byte {
	t.Helper()
	body := append(make([]byte, 4), target.AsSlice()...)
	if !from.IsUnspecified() {
		body = append(append(body, 1, 1), src[:]...)
	}
	return icmp6Frame(t, dst, src, from, to, 135, body)
}

func solicited(a netip.Addr) (packet.MAC, netip.Addr) {
	b := a.As16()
	return packet.MAC{0x33, 0x33, 0xff, b[13], b[14], b[15]},
		netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
}

// tagged inserts VLAN tags behind the addresses, the outer one first.
func tagged(frame []byte, ids ...uint16) []byte {
	out := append([]byte{}, frame[:12]...)
	for _, id := range ids {
		out = binary.BigEndian.AppendUint16(append(out, 0x81, 0x00), id)
	}
	return append(out, frame[12:]...)
}

// outer encapsulates inner as node2 would for node1.
func outer(t testing.TB, inner []byte, change func(*srv6.EncapConfig), network, segment uint32) []byte {
	t.Helper()
	c := srv6.EncapConfig{SrcMAC: routerMAC, DstMAC: uplinkMAC, Source: otherLocator, Dest: selfLocator, Function: srv6.DefaultFunction}
	if change != nil {
		change(&c)
	}
	e, err := srv6.NewEncap(c)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, e.Overhead()+len(inner))
	copy(b[e.Overhead():], inner)
	e.Push(b, len(inner), network, segment, 0x1234567890abcdef, 0)
	return b
}

// underlay is ICMPv6 or other plain IPv6 from the router to one of our addresses.
func underlayICMP(t testing.TB, from, to netip.Addr, typ uint8, body []byte) []byte {
	t.Helper()
	return icmp6Frame(t, uplinkMAC, routerMAC, from, to, typ, body)
}

var gatewayIP, gatewayIP6 = addr("10.0.0.1"), addr("fd00:10::1")

// fullNode is newNode with everything a walk can meet: a gateway in red, an
// isolated network, dead and unresolved nodes, ports down, duplicates.
func fullNode(t testing.TB) *node {
	t.Helper()
	n := newNode(t)
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00:10::/64")}
	n.must(n.SetNetwork(table.Network{
		ID: red, Name: "red", Prefixes: prefixes, LinkLocal: true,
		Gateway:   table.Gateway{Addresses: []netip.Addr{gatewayIP, gatewayIP6}, MAC: gwA},
		Isolation: &table.Isolation{Rules: []table.IsolationRule{{From: []table.Segment{7}, To: []table.Segment{66}}}},
	}))
	n.must(n.SetNode(table.Node{Name: "node3", Locator: mustLocator("2001:db8:0:3::/64")}))
	down := n.addPort("down", red, macDown, addr("10.0.0.40"), addr("fd00:10::40"))
	p := table.Port{ID: down, Name: "down", Network: red, MAC: macDown, Segment: 7, Down: true}
	n.must(n.SetPort(p))
	for _, e := range []table.FDBEntry{
		{MAC: macDead, Node: "node3", Segment: 7}, {MAC: macDenied, Node: "node2", Segment: 66},
		{MAC: macUnresolved, Node: "node3", Segment: 7},
	} {
		n.must(n.SetFDB(red, e))
	}
	for _, e := range []table.NeighborEntry{
		{IP: addr("10.0.0.50"), MAC: macDead}, {IP: addr("fd00:10::50"), MAC: macDead},
		{IP: addr("10.0.0.60"), MAC: macB, Duplicate: true}, {IP: addr("fd00:10::60"), MAC: macB, Duplicate: true},
		{IP: addr("10.0.0.70"), MAC: macNowhere},
	} {
		n.must(n.SetNeighbor(red, e))
	}
	return n
}

var (
	macDown       = packet.MAC{2, 0, 0, 0, 0, 0x40}
	macDead       = packet.MAC{2, 0, 0, 0, 0, 0x50}
	macDenied     = packet.MAC{2, 0, 0, 0, 0, 0x66}
	macUnresolved = packet.MAC{2, 0, 0, 0, 0, 0x67}
	macNowhere    = packet.MAC{2, 0, 0, 0, 0, 0x70}
	macStranger   = packet.MAC{2, 0, 0, 0, 0, 0x99}
	broadcast     = packet.Broadcast
)

var _ = arpnd.OK

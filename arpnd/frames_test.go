package arpnd

import (
	"encoding/hex"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/internal/packet"
)

// The cast: an asker, the owner of an address, a third station, the gateway.
var (
	asker   = packet.MAC{0x02, 0, 0, 0, 0, 0x0a}
	owner   = packet.MAC{0x02, 0, 0, 0, 0, 0x0b}
	third   = packet.MAC{0x02, 0, 0, 0, 0, 0x0c}
	gateway = packet.MAC{0x02, 0, 0, 0, 0, 0x01}
	noMAC   = packet.MAC{}

	asker4, owner4, none4 = addr("10.0.0.10"), addr("10.0.0.11"), addr("0.0.0.0")
	asker6, owner6, none6 = addr("fd00:10::a"), addr("fd00:10::b"), addr("::")
	allNodes6             = addr("ff02::1")
)

func addr(s string) packet.IP { return packet.IPFromAddr(netip.MustParseAddr(s)) }

func wire(ip packet.IP) net.IP { return ip.Addr().AsSlice() }

// solicitedNode is ff02::1:ffXX:XXXX and the Ethernet group it maps to.
func solicitedNode(ip packet.IP) (packet.IP, packet.MAC) {
	low := ip.Lo & 0xffffff
	return packet.IP{Hi: 0xff02 << 48, Lo: 0x1ff<<24 | low}, packet.MACFromUint64(0x3333ff<<24 | low)
}

// serialize builds frames with gopacket, so that no code under test has a hand
// in its own input.
func serialize(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, ls...); err != nil {
		t.Fatalf("serialize: %v", err)
	}
	return append([]byte(nil), buf.Bytes()...)
}

// link returns Ethernet and VLAN layers; of several tags the outer is 802.1ad.
func link(src, dst packet.MAC, tags []uint16, inner layers.EthernetType) []gopacket.SerializableLayer {
	types := make([]layers.EthernetType, len(tags)+1)
	for i := range tags {
		types[i] = layers.EthernetTypeDot1Q
	}
	if len(tags) == 2 {
		types[0] = layers.EthernetTypeQinQ
	}
	types[len(tags)] = inner
	ls := []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: src[:], DstMAC: dst[:], EthernetType: types[0]}}
	for i, vid := range tags {
		ls = append(ls, &layers.Dot1Q{Priority: 5, VLANIdentifier: vid, Type: types[i+1]})
	}
	return ls
}

// arp is an ARP frame; src is the Ethernet source as well as sha.
type arp struct {
	op       uint16
	src, dst packet.MAC
	sha      packet.MAC // if not src
	tha      packet.MAC
	spa, tpa packet.IP
	tags     []uint16
	reverse  bool
}

func (a arp) frame(t testing.TB) []byte {
	t.Helper()
	if a.sha == noMAC {
		a.sha = a.src
	}
	etherType := layers.EthernetTypeARP
	if a.reverse {
		etherType = 0x8035
	}
	body := &layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4,
		HwAddressSize: 6, ProtAddressSize: 4, Operation: a.op,
		SourceHwAddress: a.sha[:], SourceProtAddress: wire(a.spa),
		DstHwAddress: a.tha[:], DstProtAddress: wire(a.tpa)}
	return serialize(t, append(link(a.src, a.dst, a.tags, etherType), body)...)
}

// nd is a Neighbor Discovery frame.
type nd struct {
	typ, code uint8
	src, dst  packet.MAC
	from, to  packet.IP
	target    packet.IP
	flags     uint8 // of an NA
	opts      []byte
	hop       uint8  // 0: 255
	fixed     []byte // instead of 4 reserved bytes and the target
	ext       []gopacket.SerializableLayer
	next      layers.IPProtocol // first extension header
	tags      []uint16
}

func (n nd) frame(t testing.TB) []byte {
	t.Helper()
	if n.hop == 0 {
		n.hop = 255
	}
	if n.next == 0 && n.ext == nil {
		n.next = layers.IPProtocolICMPv6
	}
	ip := &layers.IPv6{Version: 6, NextHeader: n.next, HopLimit: n.hop, SrcIP: wire6(n.from), DstIP: wire6(n.to)}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(n.typ, n.code)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	if n.fixed == nil {
		n.fixed = append([]byte{n.flags, 0, 0, 0}, wire6(n.target)...)
	}
	ls := append(link(n.src, n.dst, n.tags, layers.EthernetTypeIPv6), ip)
	ls = append(ls, n.ext...)
	ls = append(ls, icmp, gopacket.Payload(append(n.fixed, n.opts...)))
	return serialize(t, ls...)
}

// wire6 keeps a mapped address 16 bytes long.
func wire6(ip packet.IP) net.IP {
	b := make([]byte, 16)
	ip.Put((*[16]byte)(b))
	return b
}

func lladdr(typ byte, mac packet.MAC) []byte { return append([]byte{typ, 1}, mac[:]...) }

// ns is the ordinary multicast NS for owner6.
func ns() nd {
	to, dst := solicitedNode(owner6)
	return nd{typ: 135, src: asker, dst: dst, from: asker6, to: to, target: owner6, opts: lladdr(1, asker)}
}

// dad is the NS with which the asker tries to take owner6.
func dad() nd {
	n := ns()
	n.from, n.opts = none6, nil
	return n
}

// na is an unsolicited NA of the owner.
func na() nd {
	return nd{typ: 136, src: owner, dst: packet.MAC{0x33, 0x33, 0, 0, 0, 1}, from: owner6, to: allNodes6,
		target: owner6, flags: 0x20, opts: lladdr(2, owner)}
}

// request is the ordinary broadcast ARP request for owner4.
func request() arp {
	return arp{op: 1, src: asker, dst: packet.Broadcast, spa: asker4, tpa: owner4}
}

// parse wants the frame to be well-formed up to the layout.
func parse(t testing.TB, frame []byte) (packet.Layout, Message, Malformed) {
	t.Helper()
	var l packet.Layout
	var m Message
	if !packet.Parse(frame, &l) {
		t.Fatalf("packet.Parse refused\n%s", hex.Dump(frame))
	}
	return l, m, Parse(frame, &l, &m)
}

func mustParse(t testing.TB, frame []byte) (packet.Layout, Message) {
	t.Helper()
	var l packet.Layout
	var m Message
	if !packet.Parse(frame, &l) {
		t.Fatalf("packet.Parse refused\n%s", hex.Dump(frame))
	}
	if bad := Parse(frame, &l, &m); bad != OK {
		t.Fatalf("Parse = %v\n%s", bad, hex.Dump(frame))
	}
	return l, m
}

// reply answers a frame inside a chunk whose every other byte is fill.
func reply(t testing.TB, frame []byte, fill byte, mac packet.MAC, router bool) []byte {
	t.Helper()
	l, m := mustParse(t, frame)
	chunk := make([]byte, 4096-256)
	for i := range chunk {
		chunk[i] = fill
	}
	copy(chunk, frame)
	n := Reply(chunk, len(frame), &l, &m, mac, router)
	if n == 0 {
		t.Fatalf("Reply = 0 for %v", m.Op)
	}
	return chunk[:n]
}

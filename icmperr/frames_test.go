package icmperr

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/internal/packet"
)

var (
	pod     = packet.MAC{0x02, 0, 0, 0, 0, 0x0a}
	peer    = packet.MAC{0x02, 0, 0, 0, 0, 0x0b}
	gateway = packet.MAC{0x02, 0, 0, 0, 0, 0x01}

	pod4, peer4, gateway4 = addr("10.0.0.10"), addr("10.0.1.11"), addr("10.0.0.1")
	pod6, peer6, gateway6 = addr("fd00:10::a"), addr("fd00:11::b"), addr("fd00:10::1")

	from4 = Source{gateway, gateway4}
	from6 = Source{gateway, gateway6}
)

func addr(s string) packet.IP { return packet.IPFromAddr(netip.MustParseAddr(s)) }

func wire(ip packet.IP) net.IP { return ip.Addr().AsSlice() }

// wire6 keeps a mapped address 16 bytes long.
func wire6(ip packet.IP) net.IP {
	b := make([]byte, 16)
	ip.Put((*[16]byte)(b))
	return b
}

func serialize(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, ls...); err != nil {
		t.Fatalf("serialize: %v", err)
	}
	return bytes.Clone(buf.Bytes())
}

// offence is a frame some error is about.
type offence struct {
	src, dst packet.MAC
	from, to packet.IP
	proto    layers.IPProtocol // UDP unless set
	payload  []byte            // of the IP packet, if proto is set
	size     int               // of the UDP payload
	tags     []uint16
	frag     uint16 // IPv4 flags and offset
	options  int    // IPv4 option bytes, a multiple of 4
	six      bool
}

func udp4(size int) offence {
	return offence{src: pod, dst: peer, from: pod4, to: peer4, size: size}
}

func udp6(size int) offence {
	return offence{src: pod, dst: peer, from: pod6, to: peer6, size: size, six: true}
}

func (o offence) frame(t testing.TB) []byte {
	t.Helper()
	types := make([]layers.EthernetType, len(o.tags)+1)
	for i := range o.tags {
		types[i] = layers.EthernetTypeDot1Q
	}
	types[len(o.tags)] = layers.EthernetTypeIPv4
	if o.six {
		types[len(o.tags)] = layers.EthernetTypeIPv6
	}
	ls := []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: o.src[:], DstMAC: o.dst[:], EthernetType: types[0]}}
	for i, vid := range o.tags {
		ls = append(ls, &layers.Dot1Q{Priority: 3, VLANIdentifier: vid, Type: types[i+1]})
	}
	proto := o.proto
	if proto == 0 && o.payload == nil {
		proto = layers.IPProtocolUDP
	}
	var network gopacket.NetworkLayer
	if o.six {
		ip := &layers.IPv6{Version: 6, NextHeader: proto, HopLimit: 64, SrcIP: wire6(o.from), DstIP: wire6(o.to)}
		network, ls = ip, append(ls, ip)
	} else {
		ip := &layers.IPv4{Version: 4, TTL: 64, Id: 77, Protocol: proto, SrcIP: wire(o.from), DstIP: wire(o.to),
			Flags: layers.IPv4Flag(o.frag >> 13), FragOffset: o.frag & 0x1fff}
		if o.options > 0 {
			ip.Options = []layers.IPv4Option{{OptionType: 130, OptionLength: uint8(o.options), OptionData: make([]byte, o.options-2)}}
		}
		network, ls = ip, append(ls, ip)
	}
	if o.payload != nil {
		return serialize(t, append(ls, gopacket.Payload(o.payload))...)
	}
	udp := &layers.UDP{SrcPort: 4000, DstPort: 5000}
	if err := udp.SetNetworkLayerForChecksum(network); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, o.size)
	for i := range body {
		body[i] = byte(i)
	}
	return serialize(t, append(ls, udp, gopacket.Payload(body))...)
}

func layout(t testing.TB, frame []byte) packet.Layout {
	t.Helper()
	var l packet.Layout
	if !packet.Parse(frame, &l) {
		t.Fatalf("packet.Parse refused %x", frame)
	}
	return l
}

// writer is one of the package's writers with its arguments filled in.
type writer func(chunk []byte, n int, l *packet.Layout) int

// written runs w over the frame in a chunk whose other bytes are fill.
func written(t testing.TB, frame []byte, fill byte, w writer) []byte {
	t.Helper()
	l := layout(t, frame)
	chunk := bytes.Repeat([]byte{fill}, 4096-256)
	copy(chunk, frame)
	n := w(chunk, len(frame), &l)
	return chunk[:n]
}

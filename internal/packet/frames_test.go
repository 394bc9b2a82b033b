package packet

import (
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 0xa}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 0xb}
)

// serialize builds a frame whose lengths and checksums gopacket computed.
func serialize(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, ls...); err != nil {
		t.Fatal(err)
	}
	return append([]byte(nil), buf.Bytes()...)
}

// flow is one transport over one IP version, to be built by gopacket.
type flow struct {
	v6      bool
	proto   layers.IPProtocol
	tags    int
	options bool // IPv4 options or an IPv6 hop-by-hop header
	payload []byte
}

func (f flow) build(t testing.TB) []byte {
	t.Helper()
	etherType := layers.EthernetTypeIPv4
	if f.v6 {
		etherType = layers.EthernetTypeIPv6
	}
	eth := &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: etherType}
	ls := []gopacket.SerializableLayer{eth}
	if f.tags > 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		for i := range f.tags {
			tag := &layers.Dot1Q{VLANIdentifier: uint16(100 + i), Type: layers.EthernetTypeDot1Q}
			if i == f.tags-1 {
				tag.Type = etherType
			}
			ls = append(ls, tag)
		}
	}
	var network gopacket.NetworkLayer
	if f.v6 {
		ip := &layers.IPv6{Version: 6, NextHeader: f.proto, HopLimit: 64, SrcIP: net.ParseIP("fd00:10::a"), DstIP: net.ParseIP("fd00:10::b")}
		network = ip
		ls = append(ls, ip)
		if f.options {
			ip.NextHeader = layers.IPProtocolIPv6HopByHop
			hop := &layers.IPv6HopByHop{}
			hop.NextHeader = f.proto
			hop.Options = []*layers.IPv6HopByHopOption{{OptionType: 1, OptionData: []byte{0, 0, 0, 0}}}
			ls = append(ls, hop)
		}
	} else {
		ip := &layers.IPv4{Version: 4, Protocol: f.proto, TTL: 64, SrcIP: net.IP{10, 0, 0, 10}, DstIP: net.IP{10, 0, 0, 11}}
		if f.options {
			ip.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
		}
		network = ip
		ls = append(ls, ip)
	}
	switch f.proto {
	case layers.IPProtocolTCP:
		tcp := &layers.TCP{SrcPort: 40000, DstPort: 80, Seq: 7, ACK: true, Window: 1000}
		_ = tcp.SetNetworkLayerForChecksum(network)
		ls = append(ls, tcp)
	case layers.IPProtocolUDP:
		udp := &layers.UDP{SrcPort: 40000, DstPort: 53}
		_ = udp.SetNetworkLayerForChecksum(network)
		ls = append(ls, udp)
	case layers.IPProtocolSCTP:
		ls = append(ls, &layers.SCTP{SrcPort: 40000, DstPort: 9, VerificationTag: 5})
	}
	return serialize(t, append(ls, gopacket.Payload(f.payload))...)
}

func mustParse(t testing.TB, frame []byte) *Layout {
	t.Helper()
	l := new(Layout)
	if !Parse(frame, l) {
		t.Fatalf("does not parse: %x", frame)
	}
	return l
}

// makePartial puts into the transport field what a stack leaves for its device.
func makePartial(t testing.TB, frame []byte, l *Layout) {
	t.Helper()
	seg := frame[l.L4 : l.L3+l.L3Len]
	var pseudo uint64
	if l.IsIPv4() {
		ip := IPv4(frame[l.L3:])
		pseudo = PseudoHeader4(ip.Source().V4(), ip.Destination().V4(), l.Proto, len(seg))
	} else {
		ip := IPv6(frame[l.L3:])
		pseudo = PseudoHeader6(ip.Source(), ip.Destination(), l.Proto, len(seg))
	}
	switch l.Proto {
	case ProtoTCP:
		TCP(seg).SetChecksum(Fold(pseudo))
	case ProtoUDP:
		UDP(seg).SetChecksum(Fold(pseudo))
	case ProtoSCTP:
		SCTP(seg).SetChecksum(0)
	}
}

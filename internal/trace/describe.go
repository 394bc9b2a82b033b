package trace

import (
	"encoding/binary"
	"fmt"
	"strings"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/internal/packet"
)

// Describe is a frame in a line: addresses, tags, and what it carries. Any bytes.
func Describe(b []byte) string { return describe(b, 1) }

// describe looks into that many frames inside.
func describe(b []byte, inside int) string {
	if len(b) < packet.EthernetLen {
		return fmt.Sprintf("%d bytes, no whole Ethernet header", len(b))
	}
	e := packet.Ethernet(b)
	text := fmt.Sprintf("%s > %s", e.Source(), e.Destination())
	var l packet.Layout
	if !packet.Parse(b, &l) {
		return fmt.Sprintf("%s, EtherType %#04x, malformed, %d bytes", text, e.EtherType(), len(b))
	}
	for i := range int(l.Tags) {
		at := packet.EthernetLen - 2 + i*packet.VLANLen
		kind := "VLAN"
		if binary.BigEndian.Uint16(b[at:]) == packet.EtherTypeQinQ {
			kind = "S-VLAN"
		}
		text += fmt.Sprintf(", %s %d", kind, binary.BigEndian.Uint16(b[at+2:])&0xfff)
	}
	return text + ", " + describePacket(b, &l, inside)
}

func describePacket(b []byte, l *packet.Layout, inside int) string {
	var m arpnd.Message
	if bad := arpnd.Parse(b, l, &m); bad != arpnd.OK {
		return fmt.Sprintf("%s, malformed: %s", m.Op, bad)
	}
	if m.Op != arpnd.OpNone {
		return describeMessage(&m)
	}
	if l.L3Len == 0 {
		if l.EtherType < 0x600 {
			return fmt.Sprintf("IEEE 802.3, %d bytes", len(b))
		}
		return fmt.Sprintf("EtherType %#04x, %d bytes", l.EtherType, len(b))
	}
	version, src, dst := addressesOf(b, l)
	text := fmt.Sprintf("%s %s > %s, %s, %d bytes of IP", version, src, dst, describeUpper(b, l), l.L3Len)
	if inner, ok := innerOf(b, l); ok && inside > 0 {
		text += " [" + describe(inner, inside-1) + "]"
	}
	return text
}

// addressesOf are those of an IP packet.
func addressesOf(b []byte, l *packet.Layout) (version string, src, dst packet.IP) {
	if l.IsIPv4() {
		p := packet.IPv4(b[l.L3:])
		return "IPv4", p.Source(), p.Destination()
	}
	p := packet.IPv6(b[l.L3:])
	return "IPv6", p.Source(), p.Destination()
}

// innerOf is the frame inside an SRv6 packet.
func innerOf(b []byte, l *packet.Layout) ([]byte, bool) {
	if !l.IsIPv6() || l.Proto != packet.ProtoEthernet || l.L4 == 0 || l.L4 > l.End() || l.End() > len(b) {
		return nil, false
	}
	return b[l.L4:l.End()], true
}

func describeUpper(b []byte, l *packet.Layout) string {
	if l.ChainBroken {
		return "extension headers without end"
	}
	if l.Fragment && !l.FirstFragment {
		return fmt.Sprintf("a later fragment of protocol %d", l.Proto)
	}
	var t []byte
	if l.L4 != 0 && l.L4 < l.End() && l.End() <= len(b) {
		t = b[l.L4:l.End()]
	}
	switch {
	case len(t) >= 4 && (l.Proto == packet.ProtoUDP || l.Proto == packet.ProtoTCP || l.Proto == packet.ProtoSCTP):
		name := map[uint8]string{packet.ProtoUDP: "UDP", packet.ProtoTCP: "TCP", packet.ProtoSCTP: "SCTP"}[l.Proto]
		return fmt.Sprintf("%s %d > %d", name, binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:]))
	case l.Proto == packet.ProtoEthernet && l.IsIPv6():
		return "SRv6"
	case len(t) >= 8 && l.Proto == packet.ProtoICMP && l.IsIPv4():
		return describeICMP4(packet.ICMPv4(t))
	case len(t) >= 8 && l.Proto == packet.ProtoICMPv6 && l.IsIPv6():
		return describeICMP6(packet.ICMPv6(t))
	}
	return fmt.Sprintf("protocol %d", l.Proto)
}

func describeICMP4(m packet.ICMPv4) string {
	switch {
	case m.Type() == packet.ICMPv4Unreachable && m.Code() == 4:
		return fmt.Sprintf("ICMP fragmentation needed, MTU %d", m.Rest()&0xffff)
	case m.Type() == packet.ICMPv4Unreachable:
		return fmt.Sprintf("ICMP unreachable, code %d", m.Code())
	case m.Type() == packet.ICMPv4TimeExceeded:
		return "ICMP time exceeded"
	case m.Type() == packet.ICMPv4Echo:
		return "ICMP echo request"
	case m.Type() == packet.ICMPv4EchoReply:
		return "ICMP echo reply"
	}
	return fmt.Sprintf("ICMP type %d, code %d", m.Type(), m.Code())
}

func describeICMP6(m packet.ICMPv6) string {
	switch m.Type() {
	case packet.ICMPv6PacketTooBig:
		return fmt.Sprintf("ICMPv6 Packet Too Big, MTU %d", m.Rest())
	case packet.ICMPv6Unreachable:
		return fmt.Sprintf("ICMPv6 unreachable, code %d", m.Code())
	case packet.ICMPv6TimeExceeded:
		return "ICMPv6 time exceeded"
	case packet.ICMPv6ParamProblem:
		return fmt.Sprintf("ICMPv6 Parameter Problem, code %d, pointer %d", m.Code(), m.Rest())
	case packet.ICMPv6Echo:
		return "ICMPv6 echo request"
	case packet.ICMPv6EchoReply:
		return "ICMPv6 echo reply"
	}
	return fmt.Sprintf("ICMPv6 type %d, code %d", m.Type(), m.Code())
}

func describeMessage(m *arpnd.Message) string {
	switch m.Op {
	case arpnd.ARPRequest:
		switch {
		case m.Probe:
			return fmt.Sprintf("ARP probe for %s by %s", m.Target, m.SenderMAC)
		case m.Announcement:
			return fmt.Sprintf("ARP announcement of %s at %s", m.Sender, m.SenderMAC)
		}
		return fmt.Sprintf("ARP request for %s by %s at %s", m.Target, m.Sender, m.SenderMAC)
	case arpnd.ARPReply:
		return fmt.Sprintf("ARP reply: %s is at %s", m.Sender, m.SenderMAC)
	case arpnd.NS:
		if m.Probe {
			return fmt.Sprintf("duplicate address detection for %s", m.Target)
		}
		return fmt.Sprintf("Neighbor Solicitation for %s by %s", m.Target, m.Sender)
	case arpnd.NA:
		var flags []string
		for _, f := range []struct {
			on   bool
			name string
		}{{m.Router, "router"}, {m.Solicited, "solicited"}, {m.Override, "override"}} {
			if f.on {
				flags = append(flags, f.name)
			}
		}
		return fmt.Sprintf("Neighbor Advertisement: %s is at %s (%s)", m.Target, m.SenderMAC, strings.Join(flags, ", "))
	}
	return m.Op.String()
}

package arpnd

import (
	"encoding/binary"

	"picot.dev/picot/internal/packet"
)

const (
	arpLen    = 28
	arpHeader = 0x0001_0800_0604 // hrd, pro, hln, pln for IPv4 over Ethernet
)

// Parse reads an ARP, RARP or Neighbor Discovery message into m, which it
// overwrites whole. frame and l are those of a successful packet.Parse; padding
// behind the message is ignored. Any other frame is OK with m.Op == OpNone. If
// the result is not OK the frame is to be dropped, and of m only EtherSrc,
// EtherDst, Unicast and Op are set.
func Parse(frame []byte, l *packet.Layout, m *Message) Malformed {
	*m = Message{}
	if l.Proto == packet.ProtoICMPv6 && parsePlainNS(frame, l, m) {
		return OK
	}
	return parseAny(frame, l, m)
}

// parseAny is Parse for any message. m is all zero.
func parseAny(frame []byte, l *packet.Layout, m *Message) Malformed {
	if len(frame) < l.L3 || l.L3 < packet.EthernetLen {
		return OK
	}
	switch l.EtherType {
	case packet.EtherTypeARP, packet.EtherTypeRARP:
		setEther(frame, m)
		return parseARP(frame[l.L3:], l.EtherType == packet.EtherTypeRARP, m)
	case packet.EtherTypeIPv6:
		if l.Proto != packet.ProtoICMPv6 || l.L4 == 0 || len(frame) < l.L4+4 {
			return OK
		}
		if t := frame[l.L4]; t < icmpRS || t > icmpRedirect {
			return OK
		}
		setEther(frame, m)
		return parseND(frame, l, m)
	}
	return OK
}

// Asked is the address an untagged ARP request or Neighbor Solicitation without
// extension headers asks for. It is for looking ahead: it checks no more than
// that the frame looks like one, Parse has the say.
func Asked(frame []byte) (packet.IP, bool) {
	const (
		tpa    = packet.EthernetLen + 24
		icmp   = packet.EthernetLen + packet.IPv6Len
		target = icmp + 8
	)
	if len(frame) < tpa+4 {
		return packet.IP{}, false
	}
	switch binary.BigEndian.Uint16(frame[12:]) {
	case packet.EtherTypeARP:
		return packet.IPFrom4(be32(frame[tpa:])), true
	case packet.EtherTypeIPv6:
		if len(frame) >= target+16 && frame[20] == packet.ProtoICMPv6 && frame[icmp] == icmpNS {
			return ip6At(frame[target:]), true
		}
	}
	return packet.IP{}, false
}

func setEther(frame []byte, m *Message) {
	m.EtherDst = macAt(frame, 0)
	m.EtherSrc = macAt(frame, 6)
	m.SenderMAC = macAt(frame, 6)
	m.Unicast = frame[0]&1 == 0
}

// parseARP reads b, which begins at the ARP header. An unknown operation is no
// fault: RFC 826 leaves room for more of them.
func parseARP(b []byte, reverse bool, m *Message) Malformed {
	m.Op = ARPOther
	if reverse {
		m.Op = RARP
	}
	if len(b) < arpLen {
		return ARPLength
	}
	b = b[:arpLen]
	if be64(b)>>16 != arpHeader {
		return ARPHeader
	}
	m.SenderMAC, m.HasLLAO = macAt(b, 8), true
	m.ShaMismatch = m.SenderMAC != m.EtherSrc
	if reverse {
		return OK // its protocol addresses are not the sender's claim (RFC 903)
	}
	spa, tpa := be32(b[14:]), be32(b[24:])
	m.Sender, m.Target = packet.IPFrom4(spa), packet.IPFrom4(tpa)
	m.Announcement = spa == tpa && spa != 0
	switch binary.BigEndian.Uint16(b[6:]) {
	case 1:
		m.Op = ARPRequest
		m.Probe = spa == 0
	case 2:
		m.Op = ARPReply
	default:
		m.Announcement = false
	}
	return OK
}

func macAt(b []byte, i int) packet.MAC { return packet.MAC(b[i : i+6]) }

func ip6At(b []byte) packet.IP {
	_ = b[15]
	return packet.IP{Hi: be64(b), Lo: be64(b[8:])}
}

func be32(b []byte) uint32 { return binary.BigEndian.Uint32(b) }
func be64(b []byte) uint64 { return binary.BigEndian.Uint64(b) }

package icmperr

import (
	"encoding/binary"

	"picot.dev/picot/internal/packet"
)

// PTB is a Packet Too Big that a router of the underlay sent about an outer
// SRv6 packet. All of it comes from the network and may be forged: it may lower
// the path MTU toward a node only if Src is our outer source, Final is a SID of
// that node, and hashing the quoted inner frame gives FlowLabel again, which
// takes our key.
type PTB struct {
	MTU       uint32    // of the outer IPv6 packet, at least MinMTU6
	Router    packet.IP // who sent it; not to be trusted
	Src, Dst  packet.IP // of the quoted outer header
	Final     packet.IP // the last segment: Dst, or what the quoted SRH says
	FlowLabel uint32    // 20 bits
	TOS       uint8
	Length    int // of the quoted packet as its header states it, IPv6 header included
	// frame[Inner:End] is what is quoted of the inner Ethernet frame, for
	// packet.ParseQuote. It may be empty.
	Inner, End int
}

const (
	typePacketTooBig = 2
	routingTypeSRH   = 4 // RFC 8754 section 2
)

// ParsePTB reads a Packet Too Big about an SRv6 packet with an inner Ethernet
// frame, with or without SRH. false: it is none, its checksum is wrong, it
// quotes too little or something else, or its MTU is below MinMTU6 (to be
// discarded, RFC 8201 section 4). frame and l are those of a successful
// packet.Parse. The code field is not looked at (RFC 4443 section 3.2).
func ParsePTB(frame []byte, l *packet.Layout) (p PTB, ok bool) {
	if !l.IsIPv6() || l.Proto != packet.ProtoICMPv6 || l.Fragment || l.L4 == 0 || l.End() > len(frame) {
		return PTB{}, false
	}
	icmp := frame[l.L4:l.End()]
	if len(icmp) < icmpLen+packet.IPv6Len || icmp[0] != typePacketTooBig {
		return PTB{}, false
	}
	p.Router = ip6At(frame[l.L3+8:])
	p.MTU = binary.BigEndian.Uint32(icmp[4:])
	if p.MTU < MinMTU6 {
		return PTB{}, false
	}
	pseudo := packet.PseudoHeader6(p.Router, ip6At(frame[l.L3+24:]), packet.ProtoICMPv6, len(icmp))
	if packet.Fold(packet.Add(pseudo, packet.Sum(icmp))) != 0xffff {
		return PTB{}, false
	}
	p.Inner, p.End = l.L4+icmpLen, l.End()
	return p, p.parseQuote(frame[p.Inner:p.End])
}

// parseQuote reads the quoted outer headers q and moves p.Inner past them.
func (p *PTB) parseQuote(q []byte) bool {
	word := binary.BigEndian.Uint32(q)
	if word>>28 != 6 {
		return false
	}
	p.TOS, p.FlowLabel = uint8(word>>20), word&0xfffff
	p.Length = packet.IPv6Len + int(binary.BigEndian.Uint16(q[4:]))
	p.Src, p.Dst = ip6At(q[8:]), ip6At(q[24:])
	p.Final = p.Dst
	// Link padding copied into the quote is not part of it.
	if p.Length < len(q) {
		q, p.End = q[:p.Length], p.Inner+p.Length
	}
	next, at := q[6], packet.IPv6Len
	if next == packet.ProtoRouting {
		srh := q[at:]
		if len(srh) < 24 || srh[2] != routingTypeSRH || srh[1] < 2 {
			return false
		}
		p.Final = ip6At(srh[8:]) // Segment List[0] is the last one
		next, at = srh[0], at+8+int(srh[1])*8
	}
	p.Inner += at
	return next == packet.ProtoEthernet && at <= len(q)
}

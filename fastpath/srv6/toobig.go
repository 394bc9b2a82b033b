package srv6

import (
	"encoding/binary"

	"picot.dev/picot/internal/packet"
)

// Quote is an ICMPv6 Packet Too Big about a packet that may be ours.
type Quote struct {
	MTU        uint32 // of the link that was too small, bytes of outer IP
	Src, Dst   SID    // of the quoted packet; Dst is the last segment's
	FlowLabel  uint32
	Inner, End int // the quoted start of the inner frame, offsets in the frame
}

// PacketTooBig reads a Packet Too Big (RFC 4443 section 3.2) from the underlay:
// false unless its checksum is valid, it came to our locator, and it quotes an
// outer packet from our locator's function 0 with next header 143, behind an SRH
// or not. Anyone may send one: the caller must still recompute the quoted inner
// flow's hash ([packet.ParseQuote]) and compare [FlowLabel] and [Entropy], which
// only our key gives (RFC 8201 section 6 on forged ones).
func PacketTooBig(frame []byte, self Locator, q *Quote) bool {
	next, at, end, ok := upper(frame)
	if !ok || next != packet.ProtoICMPv6 || end-at < 8+packet.IPv6Len {
		return false
	}
	m := packet.ICMPv6(frame[at:end])
	outer := packet.IPv6(frame[packet.EthernetLen:])
	if m.Type() != packet.ICMPv6PacketTooBig || !self.Contains(outer.Destination().Hi) || icmpSum(frame, m) != 0xffff {
		return false
	}
	ip := packet.IPv6(m[8:]) // not Valid: a quote is cut
	src := ip.Source()
	if ip[0]>>4 != 6 || src.Hi != self.Hi || src.Lo == 0 || src.Lo > 0xffff {
		return false
	}
	*q = Quote{MTU: m.Rest(), Src: SID(ip[8:24]), Dst: SID(ip[24:40]), FlowLabel: ip.FlowLabel(), Inner: at + 8 + packet.IPv6Len, End: end}
	next = ip.NextHeader()
	if next == packet.ProtoRouting {
		s := packet.SRH(frame[q.Inner:end])
		if !s.Valid() {
			return false
		}
		next, q.Dst = s.NextHeader(), SID(s[8:24])
		q.Inner += s.Len()
	}
	// Nothing after the quoted packet belongs to it.
	q.End = min(q.End, at+8+packet.IPv6Len+int(binary.BigEndian.Uint16(ip[4:6])))
	return next == packet.ProtoEthernet && q.End >= q.Inner
}

package packet

import "encoding/binary"

// EtherTypes the data path knows.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeARP  = 0x0806
	EtherTypeRARP = 0x8035
	EtherTypeVLAN = 0x8100 // IEEE 802.1Q
	EtherTypeIPv6 = 0x86dd
	EtherTypeQinQ = 0x88a8 // IEEE 802.1ad
)

// IP protocol numbers the data path knows (IANA protocol-numbers).
const (
	ProtoHopByHop = 0
	ProtoICMP     = 1
	ProtoIGMP     = 2
	ProtoTCP      = 6
	ProtoUDP      = 17
	ProtoRouting  = 43
	ProtoFragment = 44
	ProtoESP      = 50
	ProtoAH       = 51
	ProtoICMPv6   = 58
	ProtoNone     = 59
	ProtoDestOpts = 60
	ProtoSCTP     = 132
	ProtoUDPLite  = 136
	ProtoEthernet = 143 // RFC 8986 section 10.1
)

// Lengths of fixed headers in bytes.
const (
	EthernetLen = 14
	VLANLen     = 4
	IPv4MinLen  = 20
	IPv6Len     = 40
)

// maxExtensions bounds the walk over IPv6 extension headers. Real stacks send
// at most four; a longer chain is taken as broken, not walked for ever.
const maxExtensions = 8

// Layout is where the headers of one Ethernet frame are. Offsets count from the
// frame's first byte. It is only meaningful with the frame it was parsed from.
type Layout struct {
	L3            int    // offset of the header after Ethernet and tags: 14, 18 or 22
	Len           int    // frame length seen
	L4            int    // offset of the transport header; 0: none, later fragment, or ChainBroken
	Source        IP     // of the IP packet; zero for non-IP
	L3Len         int    // IP length in bytes with its header, Ethernet padding excluded; 0 for non-IP
	EtherType     uint16 // after the tags; below 0x600 an IEEE 802.3 length
	Tags          uint8  // 0..2
	Proto         uint8  // transport protocol after IPv6 extension headers; IP only
	Fragment      bool   // any fragment (more fragments, or an offset)
	FirstFragment bool   // a fragment with offset 0
	ChainBroken   bool   // the IPv6 extension headers do not end inside the packet (RFC 7112)
	// Plain is the commonest shape: an untagged, unfragmented IP packet without
	// options or extension headers, with a whole TCP header or a UDP datagram that
	// fills it. Those who read it then know where everything is. Set by [Parse].
	Plain bool
}

// IsIPv4 reports that the layout describes an IPv4 packet.
func (l *Layout) IsIPv4() bool { return l.EtherType == EtherTypeIPv4 && l.L3Len != 0 }

// IsIPv6 reports that the layout describes an IPv6 packet.
func (l *Layout) IsIPv6() bool { return l.EtherType == EtherTypeIPv6 && l.L3Len != 0 }

// End is the offset one past the IP packet, or past the frame if it is not IP.
func (l *Layout) End() int {
	if l.L3Len != 0 {
		return l.L3 + l.L3Len
	}
	return l.Len
}

// Parse finds the headers of a frame, looking through up to two VLAN tags, and
// overwrites all of l. It returns false for a runt (no whole Ethernet header, a
// truncated tag) and for an IP header that is truncated or whose version or
// lengths do not fit the frame; l is then not to be used. A frame that is not
// IP always parses. No checksum is looked at.
func Parse(frame []byte, l *Layout) bool {
	// A Plain frame is read by whole words; whatever does not look like one is
	// left to parse, which looks at one field after the other.
	if len(frame) < plain4+udpLen {
		return parse(frame, l, false)
	}
	h := (*[plain4 + udpLen]byte)(frame)
	first := binary.BigEndian.Uint64(h[12:20]) // EtherType and 6 bytes of IP
	var l4, total int
	var proto uint8
	var transport uint64
	var source IP
	switch {
	case first>>40 == EtherTypeIPv4<<8|0x45:
		l4, total, proto = plain4, int(first>>16&0xffff), h[23]
		transport = binary.BigEndian.Uint64(h[plain4:])
		source = IPFrom4(binary.BigEndian.Uint32(h[26:30]))
		if binary.BigEndian.Uint16(h[20:22])&0x3fff != 0 {
			proto = 0 // a fragment
		}
	case first>>44 == EtherTypeIPv6<<4|6 && len(frame) >= plain6+udpLen:
		l4, total, proto = plain6, IPv6Len+int(first&0xffff), h[20]
		transport = binary.BigEndian.Uint64(frame[plain6 : plain6+udpLen])
		source = IPFrom16((*[16]byte)(h[22:38]))
	}
	size := total - (l4 - EthernetLen) // of the transport header and data
	switch {
	case total > len(frame)-EthernetLen:
		return parse(frame, l, false)
	case proto == ProtoUDP && size >= udpLen && size == int(transport>>16&0xffff):
	case proto == ProtoTCP && size >= tcpLen:
	case proto == ProtoICMPv6 && l4 == plain6 && size > 0: // Neighbor Discovery
	default:
		return parse(frame, l, false)
	}
	l.L3, l.Len, l.L4, l.L3Len = EthernetLen, len(frame), l4, total
	l.Source = source
	l.EtherType, l.Tags, l.Proto = uint16(first>>48), 0, proto
	l.Fragment, l.FirstFragment, l.ChainBroken, l.Plain = false, false, false, proto != ProtoICMPv6
	return true
}

// Where the transport header of a Plain frame is, and the least it has.
const (
	plain4 = EthernetLen + IPv4MinLen
	plain6 = EthernetLen + IPv6Len
	tcpLen = 20
	udpLen = 8
)

// ParseQuote is Parse for the start of a frame, as an ICMP error quotes it: the
// IP lengths may reach beyond the bytes at hand. L3Len is what the header says,
// so End may lie beyond the quote; users of L4 compare it with len(quote).
func ParseQuote(quote []byte, l *Layout) bool { return parse(quote, l, true) }

func parse(frame []byte, l *Layout, quote bool) bool {
	if len(frame) < EthernetLen {
		return false
	}
	l3, tags := EthernetLen, uint8(0)
	etherType := binary.BigEndian.Uint16(frame[12:14])
	for (etherType == EtherTypeVLAN || etherType == EtherTypeQinQ) && tags < 2 {
		tag := frame[l3:]
		if len(tag) < VLANLen {
			return false
		}
		etherType = binary.BigEndian.Uint16(tag[2:4])
		l3 += VLANLen
		tags++
	}
	*l = Layout{L3: l3, Len: len(frame), EtherType: etherType, Tags: tags}
	switch etherType {
	case EtherTypeIPv4:
		return parseIPv4(frame[l3:], l, quote)
	case EtherTypeIPv6:
		return parseIPv6(frame[l3:], l, quote)
	}
	return true
}

// parseIPv4 follows RFC 791 section 3.1.
func parseIPv4(p []byte, l *Layout, quote bool) bool {
	if len(p) < IPv4MinLen {
		return false
	}
	h := (*[IPv4MinLen]byte)(p)
	header := int(h[0]&15) * 4
	total := int(binary.BigEndian.Uint16(h[2:4]))
	if h[0]>>4 != 4 || header < IPv4MinLen || total < header || total > len(p) && !quote {
		return false
	}
	l.L3Len = total
	l.Proto = h[9]
	l.Source = IPFrom4(binary.BigEndian.Uint32(h[12:16]))
	if frag := binary.BigEndian.Uint16(h[6:8]); frag&0x3fff != 0 {
		l.Fragment = true
		l.FirstFragment = frag&0x1fff == 0
	}
	if total > header && (!l.Fragment || l.FirstFragment) {
		l.L4 = l.L3 + header
	}
	return true
}

// parseIPv6 follows RFC 8200 section 3.
func parseIPv6(p []byte, l *Layout, quote bool) bool {
	if len(p) < IPv6Len {
		return false
	}
	h := (*[IPv6Len]byte)(p)
	total := IPv6Len + int(binary.BigEndian.Uint16(h[4:6]))
	if h[0]>>4 != 6 || total > len(p) && !quote {
		return false
	}
	l.L3Len = total
	l.Proto = h[6]
	l.Source = IPFrom16((*[16]byte)(h[8:24]))
	if isExtension(h[6]) {
		walkExtensions(p[:min(total, len(p))], l)
		return true
	}
	if total > IPv6Len && h[6] != ProtoNone {
		l.L4 = l.L3 + IPv6Len
	}
	return true
}

// isExtension holds for the headers RFC 8200 section 4 chains and RFC 4302.
func isExtension(next uint8) bool {
	switch next {
	case ProtoHopByHop, ProtoRouting, ProtoFragment, ProtoAH, ProtoDestOpts:
		return true
	}
	return false
}

// walkExtensions follows the chain from the fixed header of packet p and sets
// L4, Proto and the fragment fields.
func walkExtensions(p []byte, l *Layout) {
	next, at := p[6], IPv6Len
	for range maxExtensions {
		if !isExtension(next) {
			l.Proto = next
			if next != ProtoNone && at < len(p) {
				l.L4 = l.L3 + at
			}
			// RFC 7112: the first fragment holds the whole chain.
			l.ChainBroken = next != ProtoNone && at >= len(p)
			return
		}
		h := p[at:]
		if len(h) < 8 {
			l.ChainBroken, l.Proto = true, next
			return
		}
		size := 8 + int(h[1])*8
		switch next {
		case ProtoFragment:
			size = 8
			// An atomic fragment (RFC 6946) has neither offset nor more; it
			// is still a fragment to us: touched by nobody.
			l.Fragment = true
			l.FirstFragment = binary.BigEndian.Uint16(h[2:4])&0xfff8 == 0
			if !l.FirstFragment {
				l.Proto = h[0]
				return
			}
		case ProtoAH:
			size = 8 + int(h[1])*4
		}
		if size > len(h) {
			l.ChainBroken, l.Proto = true, next
			return
		}
		next, at = h[0], at+size
	}
	l.ChainBroken, l.Proto = true, next
}

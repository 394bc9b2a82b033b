package packet

import (
	"encoding/binary"
	"hash/crc32"
)

// Checksum is what [CompleteChecksum] did.
type Checksum uint8

const (
	ChecksumNotNeeded Checksum = iota // not TCP, UDP or SCTP, or already complete
	ChecksumCompleted                 // the field was partial and is now complete
	ChecksumSkipped                   // a fragment, or a transport header that does not fit: untouched
)

// castagnoli is never written after its creation.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CompleteChecksum finishes a transport checksum that the sending stack left to
// its device (CHECKSUM_PARTIAL, Linux Documentation/networking/checksum-offloads.rst).
// Such a TCP or UDP field holds the folded, not complemented sum of the
// pseudo-header; an SCTP field holds zero. Deciding costs one pseudo-header sum.
//
// A complete field that happens to look partial is recomputed to the value it
// has, so there are no false alarms to avoid. A UDP field of 0 means none over
// IPv4 (RFC 768) and is left; a sum that comes out 0 is stored as 0xffff.
// Fragments are never touched: their sum covers bytes that are not here.
// A sum inside a tunnel of the sender is not looked for.
func CompleteChecksum(frame []byte, l *Layout) Checksum {
	if !l.Plain {
		return complete(frame, l)
	}
	// Nearly all fields are complete; to see that, no more is read than this.
	var sum uint64
	if l.L4 == plain4 {
		a := binary.BigEndian.Uint64(frame[plain4-8 : plain4])
		sum = a>>32 + a&0xffffffff + uint64(l.L3Len-IPv4MinLen) + uint64(l.Proto)
	} else {
		h := (*[IPv6Len]byte)(frame[EthernetLen:])
		sum = PseudoHeader6(IPFrom16((*[16]byte)(h[8:24])), IPFrom16((*[16]byte)(h[24:40])), l.Proto, l.L3Len-IPv6Len)
	}
	if checksumField(frame, l) != Fold(sum) {
		return ChecksumNotNeeded
	}
	return complete(frame, l)
}

func complete(frame []byte, l *Layout) Checksum {
	if l.Proto != ProtoTCP && l.Proto != ProtoUDP && l.Proto != ProtoSCTP || l.L3Len == 0 {
		return ChecksumNotNeeded
	}
	end := l.L3 + l.L3Len
	if l.Fragment || l.L4 == 0 || l.L4 > end || end > len(frame) {
		return ChecksumSkipped
	}
	t := frame[l.L4:end]
	switch l.Proto {
	case ProtoTCP:
		if len(t) < 20 {
			return ChecksumSkipped
		}
		pseudo, ok := pseudoHeader(frame, l, len(t))
		if !ok {
			return ChecksumSkipped
		}
		if binary.BigEndian.Uint16(t[16:18]) != Fold(pseudo) {
			return ChecksumNotNeeded
		}
		binary.BigEndian.PutUint16(t[16:18], ^Fold(Sum(t)))
		return ChecksumCompleted
	case ProtoUDP:
		return completeUDP(frame, l, t)
	}
	return completeSCTP(t)
}

func completeUDP(frame []byte, l *Layout, t []byte) Checksum {
	if len(t) < 8 {
		return ChecksumSkipped
	}
	field := binary.BigEndian.Uint16(t[6:8])
	length := int(binary.BigEndian.Uint16(t[4:6]))
	if field == 0 {
		return ChecksumNotNeeded
	}
	if length < 8 || length > len(t) {
		return ChecksumSkipped
	}
	pseudo, ok := pseudoHeader(frame, l, length)
	if !ok {
		return ChecksumSkipped
	}
	if field != Fold(pseudo) {
		return ChecksumNotNeeded
	}
	sum := ^Fold(Sum(t[:length]))
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(t[6:8], sum)
	return ChecksumCompleted
}

// completeSCTP follows RFC 9260 section 6.8 and appendix A: CRC32c, stored
// least significant byte first.
func completeSCTP(t []byte) Checksum {
	if len(t) < 12 {
		return ChecksumSkipped
	}
	if binary.LittleEndian.Uint32(t[8:12]) != 0 {
		return ChecksumNotNeeded
	}
	binary.LittleEndian.PutUint32(t[8:12], crc32.Checksum(t, castagnoli))
	return ChecksumCompleted
}

// pseudoHeader is the unfolded pseudo-header sum of the packet for length bytes
// of transport; false if its final destination is not known.
func pseudoHeader(frame []byte, l *Layout, length int) (uint64, bool) {
	p := frame[l.L3:]
	if l.EtherType == EtherTypeIPv4 {
		if len(p) < IPv4MinLen {
			return 0, false
		}
		h := (*[IPv4MinLen]byte)(p)
		return PseudoHeader4(binary.BigEndian.Uint32(h[12:16]), binary.BigEndian.Uint32(h[16:20]), l.Proto, length), true
	}
	if len(p) < IPv6Len {
		return 0, false
	}
	h := (*[IPv6Len]byte)(p)
	src, dst := IPFrom16((*[16]byte)(h[8:24])), IPFrom16((*[16]byte)(h[24:40]))
	if l.L4 != l.L3+IPv6Len {
		var ok bool
		if dst, ok = finalDestination(p[:l.L4-l.L3], dst); !ok {
			return 0, false
		}
	}
	return PseudoHeader6(src, dst, l.Proto, length), true
}

// finalDestination is the address the pseudo-header takes when a Routing header
// still has segments to visit (RFC 8200 section 8.1). p is the IPv6 header and
// its whole extension chain, already walked by Parse.
func finalDestination(p []byte, dst IP) (IP, bool) {
	next, at := p[6], IPv6Len
	for at+8 <= len(p) {
		h := p[at:]
		size := 8 + int(h[1])*8
		if next == ProtoAH {
			size = 8 + int(h[1])*4
		}
		if size > len(h) {
			return IP{}, false
		}
		if next == ProtoRouting && h[3] != 0 {
			if size < 24 {
				return IP{}, false
			}
			switch h[2] {
			case 4: // Segment Routing: the list is reversed (RFC 8754 section 2)
				return IPFrom16((*[16]byte)(h[8:24])), true
			case 0, 2: // RFC 2460 section 4.4, RFC 6275 section 6.4
				return IPFrom16((*[16]byte)(h[size-16 : size])), true
			}
			return IP{}, false
		}
		next, at = h[0], at+size
	}
	return dst, true
}

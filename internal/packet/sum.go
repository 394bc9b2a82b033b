package packet

import (
	"encoding/binary"
	"math/bits"
)

// Sum is the unfolded one's complement sum of b as big-endian 16-bit words, an
// odd last byte padded with zero (RFC 1071). Sums of pieces may be joined with
// [Add] if every piece but the last has an even length.
func Sum(b []byte) uint64 {
	var s, c uint64
	for len(b) >= 32 {
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b), c)
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b[8:]), c)
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b[16:]), c)
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b[24:]), c)
		b = b[32:]
	}
	for len(b) >= 8 {
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b), c)
		b = b[8:]
	}
	// 2^16 is 1 in this arithmetic, so a word's place in the sum is free.
	var tail uint64
	if len(b) >= 4 {
		tail = uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		tail += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		tail += uint64(b[0]) << 8
	}
	s, c = bits.Add64(s, tail, c)
	return Add(s, c)
}

// Add joins two unfolded sums.
func Add(a, b uint64) uint64 {
	s, c := bits.Add64(a, b, 0)
	return s + c // cannot wrap: s is at most 2^64-2 when c is 1
}

// Fold reduces an unfolded sum to 16 bits; a checksum field takes its complement.
func Fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}

// PseudoHeader4 is the unfolded sum of the pseudo-header of RFC 793 section 3.1
// for length bytes of transport header and data.
func PseudoHeader4(src, dst uint32, proto uint8, length int) uint64 {
	return uint64(src) + uint64(dst) + uint64(proto) + uint64(length)
}

// PseudoHeader6 is the unfolded sum of the pseudo-header of RFC 8200 section 8.1.
func PseudoHeader6(src, dst IP, proto uint8, length int) uint64 {
	s, c := bits.Add64(src.Hi, src.Lo, 0)
	s, c = bits.Add64(s, dst.Hi, c)
	s, c = bits.Add64(s, dst.Lo, c)
	s, c = bits.Add64(s, uint64(proto)+uint64(length), c)
	return Add(s, c)
}

// Update is the checksum field after one 16-bit word under it changed from old
// to new (RFC 1624, equation 3).
func Update(check, old, new uint16) uint16 {
	return ^Fold(uint64(^check) + uint64(^old) + uint64(new))
}

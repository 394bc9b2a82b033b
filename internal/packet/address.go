package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// ErrMAC is wrapped by every error of [ParseMAC].
var ErrMAC = errors.New("not a MAC address")

// MAC is an Ethernet address in wire order.
type MAC [6]byte

// Broadcast is the all-ones address.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// ParseMAC takes exactly six colon-separated pairs of hex digits, in any case.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	if len(s) != 17 {
		return MAC{}, fmt.Errorf("%w: %q: write six pairs of hex digits, like 02:00:00:00:00:0a", ErrMAC, s)
	}
	for i := range m {
		hi, lo := hexDigit(s[3*i]), hexDigit(s[3*i+1])
		if hi > 15 || lo > 15 || i < 5 && s[3*i+2] != ':' {
			return MAC{}, fmt.Errorf("%w: %q: write six pairs of hex digits, like 02:00:00:00:00:0a", ErrMAC, s)
		}
		m[i] = hi<<4 | lo
	}
	return m, nil
}

// hexDigit returns the value of c, or 255.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// String is the lower-case colon form.
func (m MAC) String() string {
	const digits = "0123456789abcdef"
	b := [17]byte{2: ':', 5: ':', 8: ':', 11: ':', 14: ':'}
	for i, v := range m {
		b[3*i], b[3*i+1] = digits[v>>4], digits[v&15]
	}
	return string(b[:])
}

// Uint64 is the address as a 48-bit big-endian number.
func (m MAC) Uint64() uint64 {
	return uint64(binary.BigEndian.Uint32(m[0:4]))<<16 | uint64(binary.BigEndian.Uint16(m[4:6]))
}

// MACFromUint64 is the inverse of [MAC.Uint64]; bits above 48 are ignored. It
// writes the words that a copy reads: a read of bytes just written one by one
// has to wait for them.
func MACFromUint64(v uint64) (m MAC) {
	binary.BigEndian.PutUint32(m[0:4], uint32(v>>16))
	binary.BigEndian.PutUint16(m[4:6], uint16(v))
	return m
}

// IsGroup reports the group bit: multicast or broadcast.
func (m MAC) IsGroup() bool { return m[0]&1 != 0 }

// IsZero reports the all-zero address.
func (m MAC) IsZero() bool { return m == MAC{} }

// IsBroadcast reports the all-ones address.
func (m MAC) IsBroadcast() bool { return m == Broadcast }

// mapped is the word before the address of an IPv4-mapped IPv6 address,
// ::ffff:0:0/96 (RFC 4291 section 2.5.5.2).
const mapped = 0xffff << 32

// IP is a 16-byte address as two big-endian words, so that it compares and
// hashes without a loop. IPv4 is stored IPv4-mapped. The zero value is ::.
type IP struct{ Hi, Lo uint64 }

// IPFromAddr drops the zone; the invalid Addr becomes ::.
func IPFromAddr(a netip.Addr) IP {
	if !a.IsValid() {
		return IP{}
	}
	b := a.As16()
	return IPFrom16(&b)
}

// IPFrom4 stores an IPv4 address, given as a big-endian number.
func IPFrom4(v uint32) IP { return IP{Lo: mapped | uint64(v)} }

// IPFrom16 reads an address from wire order.
func IPFrom16(b *[16]byte) IP {
	return IP{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// Put writes the address in wire order, IPv4 in its mapped form.
func (ip IP) Put(b *[16]byte) {
	binary.BigEndian.PutUint64(b[:8], ip.Hi)
	binary.BigEndian.PutUint64(b[8:], ip.Lo)
}

// Addr is the address for people and other packages; a mapped one comes out as IPv4.
func (ip IP) Addr() netip.Addr {
	var b [16]byte
	ip.Put(&b)
	return netip.AddrFrom16(b).Unmap()
}

// String is the address in its usual text form.
func (ip IP) String() string { return ip.Addr().String() }

// Is4 reports an IPv4 address.
func (ip IP) Is4() bool { return ip.Hi == 0 && ip.Lo>>32 == mapped>>32 }

// V4 is the IPv4 address as a big-endian number; meaningful only if Is4.
func (ip IP) V4() uint32 { return uint32(ip.Lo) }

// IsUnspecified reports :: or 0.0.0.0.
func (ip IP) IsUnspecified() bool { return ip.Hi == 0 && (ip.Lo == 0 || ip.Lo == mapped) }

// IsMulticast reports ff00::/8 or 224.0.0.0/4.
func (ip IP) IsMulticast() bool {
	return ip.Hi>>56 == 0xff || ip.Is4() && ip.V4()>>28 == 0xe
}

// IsLinkLocal6 reports fe80::/10.
func (ip IP) IsLinkLocal6() bool { return ip.Hi>>54 == 0xfe80>>6 }

// IsBroadcast4 reports 255.255.255.255.
func (ip IP) IsBroadcast4() bool { return ip == IPFrom4(0xffffffff) }

package icmperr

import (
	"encoding/binary"

	"picot.dev/picot/internal/packet"
)

const (
	// MinMTU4 and MinMTU6 are the least MTUs ever told to a sender: RFC 791
	// section 3.2 and RFC 8200 section 5. A sender ignores a Packet Too Big
	// below the latter, so there is no use in sending one.
	MinMTU4 = 68
	MinMTU6 = 1280

	maxError4 = 576  // RFC 1812 section 4.3.2.3, IP header included
	maxError6 = 1280 // RFC 4443 section 2.4 (c)
	icmpLen   = 8
	hopLimit  = 64
)

// Source is where an error comes from: the network's gateway, or else the very
// station the frame was sent to.
type Source struct {
	MAC packet.MAC
	IP  packet.IP // of the frame's family
}

// The writers below put an error about the frame chunk[:n], whose layout is l,
// in place of it and return the new length. They return 0 and leave the frame
// as it is if no error may be sent (see Allowed), if src.IP is of the other
// family, or if the chunk has no room for even the least quote. chunk's
// capacity is the room, l.L3 + 1280 bytes at most are used.
//
// The quote is the IP packet as it was received: neither a used up hop limit
// nor a checksum that the sender's NIC should have completed is mended.

// PacketTooBig writes an ICMPv6 Packet Too Big. mtu is what the inner IPv6
// packet may have; below MinMTU6 nothing is sent.
func PacketTooBig(chunk []byte, n int, l *packet.Layout, src Source, mtu int) int {
	if !l.IsIPv6() || mtu < MinMTU6 || uint64(mtu) > 0xffffffff {
		return 0
	}
	return write(chunk, n, l, src, 2, 0, uint32(mtu))
}

// FragNeeded writes an ICMPv4 Destination Unreachable, fragmentation needed.
// Nobody fragments here, so it is sent whether or not DF is set: senders heed it
// either way. mtu is what the inner IPv4 packet may have; below MinMTU4 or above
// 65535 nothing is sent.
func FragNeeded(chunk []byte, n int, l *packet.Layout, src Source, mtu int) int {
	if !l.IsIPv4() || mtu < MinMTU4 || mtu > 0xffff {
		return 0
	}
	return write(chunk, n, l, src, 3, 4, uint32(mtu))
}

// TooBig is PacketTooBig or FragNeeded, as the frame is.
func TooBig(chunk []byte, n int, l *packet.Layout, src Source, mtu int) int {
	if l.IsIPv4() {
		return FragNeeded(chunk, n, l, src, mtu)
	}
	return PacketTooBig(chunk, n, l, src, mtu)
}

// TimeExceeded writes that the TTL or hop limit was used up in transit.
func TimeExceeded(chunk []byte, n int, l *packet.Layout, src Source) int {
	if l.IsIPv4() {
		return write(chunk, n, l, src, 11, 0, 0)
	}
	return write(chunk, n, l, src, 3, 0, 0)
}

// HostUnreachable writes that nobody is known to have the destination address.
func HostUnreachable(chunk []byte, n int, l *packet.Layout, src Source) int {
	if l.IsIPv4() {
		return write(chunk, n, l, src, 3, 1, 0)
	}
	return write(chunk, n, l, src, 1, 3, 0)
}

// write puts the error in place. rest is the second word of the ICMP header.
func write(chunk []byte, n int, l *packet.Layout, src Source, icmpType, code byte, rest uint32) int {
	if n > cap(chunk) {
		return 0
	}
	chunk = chunk[:cap(chunk)]
	if n < l.L3 || !Allowed(chunk[:n], l) || src.IP.Is4() != l.IsIPv4() {
		return 0
	}
	header, limit, least := packet.IPv6Len, maxError6, packet.IPv6Len+8
	if l.IsIPv4() {
		header, limit = packet.IPv4MinLen, maxError4
		least = l.L4 - l.L3 + 8 // RFC 792: the IP header and 8 bytes of its data
	}
	start := header + icmpLen
	quote := min(n-l.L3, l.L3Len, limit-start, len(chunk)-l.L3-start)
	if quote < min(least, l.L3Len) {
		return 0
	}
	ip := chunk[l.L3 : l.L3+start+quote]
	dst := ip6At(ip[8:])
	if l.IsIPv4() {
		dst = packet.IPFrom4(binary.BigEndian.Uint32(ip[12:]))
	}
	copy(ip[start:], ip[:quote])
	icmp := ip[header:]
	binary.BigEndian.PutUint64(icmp, uint64(icmpType)<<56|uint64(code)<<48|uint64(rest))
	sum := packet.Sum(icmp)
	if l.IsIPv4() {
		putIPv4(ip, src.IP.V4(), dst.V4())
	} else {
		putIPv6(ip, src.IP, dst)
		sum = packet.Add(sum, packet.PseudoHeader6(src.IP, dst, packet.ProtoICMPv6, len(icmp)))
	}
	binary.BigEndian.PutUint16(icmp[2:], ^packet.Fold(sum))
	copy(chunk[0:6], chunk[6:12])
	copy(chunk[6:12], src.MAC[:])
	return l.L3 + len(ip)
}

// putIPv4 writes the header of packet ip: TOS as RFC 1812 section 4.3.2.5 wants
// it for errors, DF set and ID 0, an atomic datagram (RFC 6864 section 4.1)
// small enough for any link.
func putIPv4(ip []byte, src, dst uint32) {
	const internetworkControl = 6 << 5
	binary.BigEndian.PutUint64(ip, 0x45<<56|internetworkControl<<48|uint64(len(ip))<<32|0x4000)
	binary.BigEndian.PutUint32(ip[8:], hopLimit<<24|packet.ProtoICMP<<16)
	binary.BigEndian.PutUint32(ip[12:], src)
	binary.BigEndian.PutUint32(ip[16:], dst)
	binary.BigEndian.PutUint16(ip[10:], ^packet.Fold(packet.Sum(ip[:packet.IPv4MinLen])))
}

// putIPv6 writes the header of packet ip, without traffic class and flow label.
func putIPv6(ip []byte, src, dst packet.IP) {
	payload := uint64(len(ip) - packet.IPv6Len)
	binary.BigEndian.PutUint64(ip, 6<<60|payload<<16|packet.ProtoICMPv6<<8|hopLimit)
	src.Put((*[16]byte)(ip[8:]))
	dst.Put((*[16]byte)(ip[24:]))
}

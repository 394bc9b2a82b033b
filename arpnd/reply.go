package arpnd

import (
	"encoding/binary"

	"picot.dev/picot/internal/packet"
)

const (
	naLen = 32 // Neighbor Advertisement with one link-layer address option

	flagRouter    = 0x80
	flagSolicited = 0x40
	flagOverride  = 0x20
)

var allNodes = packet.IP{Hi: 0xff02 << 48, Lo: 1} // ff02::1

// Reply writes the answer to m over the request it was parsed from, chunk[:n],
// and returns the length of the answer, which is exact: whatever lay behind it
// is no part of it. mac and router are those of View.Answer. The VLAN tags stay
// as they are. An answer may be longer than its request (an NS without SLLAO is
// 8 bytes shorter than the NA), so chunk needs capacity for l.L3 + 72 bytes;
// the result is 0 and nothing is written if it has less, or if m is no request.
//
// The answer goes to the Ethernet source of the request, from the owner's MAC
// (RFC 9161 section 3.3, RFC 5227 section 2.6).
func Reply(chunk []byte, n int, l *packet.Layout, m *Message, mac packet.MAC, router bool) int {
	switch m.Op {
	case ARPRequest:
		end := l.L3 + arpLen
		if n < end || cap(chunk) < end {
			return 0
		}
		b := chunk[:end]
		putMAC(b, 0, m.EtherSrc)
		putMAC(b, 6, mac)
		putARP(b[l.L3:], 2, mac, m.Target.V4(), m.SenderMAC, m.Sender.V4())
		return end
	case NS:
		end := l.L3 + packet.IPv6Len + naLen
		if cap(chunk) < end {
			return 0
		}
		b := chunk[:end]
		to, dst, flags := m.Sender, m.EtherSrc, byte(flagSolicited|flagOverride)
		if m.Probe { // RFC 4861 section 7.2.4: all nodes, not solicited
			to, dst, flags = allNodes, allNodesMAC(), flagOverride
		}
		if router {
			flags |= flagRouter
		}
		putMAC(b, 0, dst)
		putMAC(b, 6, mac)
		putND(b[l.L3:], icmpNA, flags, m.Target, to, m.Target, optTLLAO, mac)
		return end
	}
	return 0
}

// putARP writes an Ethernet/IPv4 ARP packet to b[:28].
func putARP(b []byte, op uint16, sha packet.MAC, spa uint32, tha packet.MAC, tpa uint32) {
	_ = b[arpLen-1]
	binary.BigEndian.PutUint64(b, arpHeader<<16|uint64(op))
	putMAC(b, 8, sha)
	binary.BigEndian.PutUint32(b[14:], spa)
	putMAC(b, 18, tha)
	binary.BigEndian.PutUint32(b[24:], tpa)
}

// putND writes an IPv6 packet with an NS or NA that has one link-layer address
// option to b[:72].
func putND(b []byte, icmpType, flags byte, src, dst, target packet.IP, option byte, mac packet.MAC) {
	b = b[:packet.IPv6Len+naLen]
	binary.BigEndian.PutUint64(b, 6<<60|naLen<<16|packet.ProtoICMPv6<<8|255)
	putIP6(b[8:], src)
	putIP6(b[24:], dst)
	// Whole words, summed while they are at hand rather than read back.
	head := uint64(icmpType)<<56 | uint64(flags)<<24
	opt := uint64(option)<<56 | 1<<48 | mac.Uint64()
	sum := packet.PseudoHeader6(src, dst, packet.ProtoICMPv6, naLen)
	sum = packet.Add(packet.Add(sum, head), packet.Add(target.Hi, target.Lo))
	check := ^packet.Fold(packet.Add(sum, opt))
	binary.BigEndian.PutUint64(b[40:], head|uint64(check)<<32)
	putIP6(b[48:], target)
	binary.BigEndian.PutUint64(b[64:], opt)
}

func allNodesMAC() packet.MAC { return packet.MAC{0x33, 0x33, 0, 0, 0, 1} }

func putMAC(b []byte, i int, mac packet.MAC) { *(*packet.MAC)(b[i : i+6]) = mac }

func putIP6(b []byte, ip packet.IP) {
	_ = b[15]
	binary.BigEndian.PutUint64(b, ip.Hi)
	binary.BigEndian.PutUint64(b[8:], ip.Lo)
}

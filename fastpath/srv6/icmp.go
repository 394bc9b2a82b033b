package srv6

import (
	"encoding/binary"

	"picot.dev/picot/internal/packet"
)

// minMTU is what every IPv6 link carries (RFC 8200 section 5); an ICMPv6 error
// is never longer (RFC 4443 section 2.4 c).
const minMTU = 1280

// Codes of [ParameterProblem].
const (
	CodeErroneousHeader = 0 // RFC 4443 section 3.4; Segments Left not 0 (RFC 8986 section 4.11)
	CodeUpperLayer      = 4 // SR Upper-layer Header Error (RFC 8986 section 4.1.1)
)

// upper returns the offsets of the outer upper layer and of the packet's end,
// looking past one SRH with Segments Left 0.
func upper(frame []byte) (next byte, at, end int, ok bool) {
	if len(frame) < BaseOverhead {
		return 0, 0, 0, false
	}
	ip := packet.IPv6(frame[packet.EthernetLen:])
	if binary.BigEndian.Uint16(frame[12:14]) != packet.EtherTypeIPv6 || !ip.Valid() {
		return 0, 0, 0, false
	}
	next, at, end = ip.NextHeader(), BaseOverhead, BaseOverhead+ip.PayloadLen()
	if next == packet.ProtoRouting {
		s := packet.SRH(frame[at:end])
		if !s.Valid() {
			return 0, 0, 0, false
		}
		next, at = s.NextHeader(), at+s.Len()
	}
	return next, at, end, true
}

// answerable reports a sender one may answer: its frame came to us alone and
// its source names one node (RFC 4443 section 2.4 e).
func answerable(frame []byte) bool {
	eth, src := packet.Ethernet(frame), packet.IPv6(frame[packet.EthernetLen:]).Source()
	return !eth.Destination().IsGroup() && !eth.Source().IsGroup() && !src.IsUnspecified() && !src.IsMulticast()
}

// turn swaps the MACs and writes the IPv6 header of an answer: from the address
// that was asked (RFC 4443 section 2.2 a) back to the asker.
func turn(frame []byte, payload int) {
	eth, ip := packet.Ethernet(frame), packet.IPv6(frame[packet.EthernetLen:])
	src, dst := eth.Source(), eth.Destination()
	eth.SetSource(dst)
	eth.SetDestination(src)
	from, to := ip.Source(), ip.Destination()
	ip.SetVersion(0, 0)
	ip.SetPayloadLen(payload)
	ip.SetNextHeader(packet.ProtoICMPv6)
	ip.SetHopLimit(hopLimit)
	ip.SetSource(to)
	ip.SetDestination(from)
}

// EchoReply turns an ICMPv6 echo request to a SID into its reply, in place (RFC
// 9259 section 3, RFC 4443 section 4.2). An SRH on the request is left out of
// the reply. It returns the reply's length; false, with the frame untouched, if
// it is no echo request, its checksum is wrong or nobody may be answered.
func EchoReply(frame []byte) (n int, ok bool) {
	next, at, end, ok := upper(frame)
	if !ok || next != packet.ProtoICMPv6 || end-at < 8 || !answerable(frame) {
		return 0, false
	}
	m := packet.ICMPv6(frame[at:end])
	if m.Type() != packet.ICMPv6Echo || m.Code() != 0 || icmpSum(frame, m) != 0xffff {
		return 0, false
	}
	size := copy(frame[BaseOverhead:], m)
	turn(frame, size)
	m = packet.ICMPv6(frame[BaseOverhead : BaseOverhead+size])
	m.SetType(packet.ICMPv6EchoReply, 0)
	m.SetChecksum(0)
	m.SetChecksum(^icmpSum(frame, m))
	return BaseOverhead + size, true
}

// icmpSum is the folded sum over the pseudo-header of frame and message m.
func icmpSum(frame []byte, m []byte) uint16 {
	ip := packet.IPv6(frame[packet.EthernetLen:])
	pseudo := packet.PseudoHeader6(ip.Source(), ip.Destination(), packet.ProtoICMPv6, len(m))
	return packet.Fold(packet.Add(pseudo, packet.Sum(m)))
}

// ParameterProblem turns a frame to a SID of ours into the ICMPv6 Parameter
// Problem about it (RFC 4443 section 3.4), quoting as much as fits the minimum
// MTU and room, the bytes usable from the frame's start (at most cap(frame)).
// The pointer counts from the IPv6 header: [Outer.Pointer]. It returns the
// length of the answer, which begins where the frame did: false, with the frame
// untouched, for an ICMPv6 error or redirect, a sender that may not be answered,
// a destination that is not ours, or too little room.
func ParameterProblem(frame []byte, code byte, pointer uint32, self Locator, room int) (n int, ok bool) {
	const header = packet.IPv6Len + 8
	next, at, end, ok := upper(frame)
	room = min(room, cap(frame), packet.EthernetLen+minMTU)
	if !ok || !answerable(frame) || room < packet.EthernetLen+header+packet.IPv6Len {
		return 0, false
	}
	ip := packet.IPv6(frame[packet.EthernetLen:])
	if !self.Contains(ip.Destination().Hi) {
		return 0, false
	}
	if next == packet.ProtoICMPv6 && (at >= end || frame[at] < 128 || frame[at] == packet.ICMPv6Redirect) {
		return 0, false
	}
	frame = frame[:max(room, len(frame))]
	quote := min(end-packet.EthernetLen, room-packet.EthernetLen-header)
	copy(frame[packet.EthernetLen+header:], frame[packet.EthernetLen:packet.EthernetLen+quote])
	turn(frame, 8+quote)
	m := packet.ICMPv6(frame[BaseOverhead : BaseOverhead+8+quote])
	m.SetType(packet.ICMPv6ParamProblem, code)
	m.SetRest(pointer)
	m.SetChecksum(0)
	m.SetChecksum(^icmpSum(frame, m))
	return BaseOverhead + len(m), true
}

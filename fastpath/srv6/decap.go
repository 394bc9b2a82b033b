package srv6

import (
	"encoding/binary"

	"picot.dev/picot/internal/packet"
)

// Outer is what [Decap] read from the outer headers. On a Reason other than OK
// the fields up to the point of failure are set.
type Outer struct {
	Src, Dst   SID
	Inner      int    // offset of the inner Ethernet header in the frame
	End        int    // one past the inner frame, by the outer payload length
	FlowLabel  uint32 // 20 bits
	Pointer    uint32 // for SegmentsLeft and UpperLayer: offset of the fault from the IPv6 header
	Network    uint32 // 24 bits
	Arg        uint32 // 24 bits: the sender's segment
	Function   uint16
	NextHeader byte // of the upper layer
	TOS        byte // traffic class
}

// Reason is why a frame is not decapsulated.
type Reason uint8

const (
	OK              Reason = iota
	Runt                   // no whole outer Ethernet and IPv6 header
	NotIPv6                // outer EtherType, a tag included
	BadVersion             // IPv6 version field
	BadLength              // payload length beyond the frame
	NotOurs                // destination outside our locator
	SIDBits                // bits between the locator and bit 64 are not zero
	FunctionUnknown        // neither End.DT2U nor, for ICMPv6, 0
	SRHMalformed           // a Routing header that is no SRH, or whose lengths contradict
	SegmentsLeft           // an SRH that wants to go on: we are the last segment
	UpperLayer             // next header other than 143
	InnerRunt              // no whole inner Ethernet header
	ICMP                   // ICMPv6 to a SID of ours: not for decapsulation, but for an answer
	NumReasons
)

var reasonNames = [NumReasons]string{
	"ok", "runt", "not-ipv6", "bad-version", "bad-length", "not-ours", "sid-bits", "function-unknown",
	"srh-malformed", "segments-left", "upper-layer", "inner-runt", "icmp",
}

// String is the reason's name, for counters and people.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Decap checks the outer headers of a whole Ethernet frame against our locator
// and End.DT2U function, and fills o. On OK the inner frame is
// frame[o.Inner:o.End]; whatever follows is Ethernet padding. Whether the source
// is a known node and the network known is for the caller to say.
//
// An SRH is taken if Segments Left is 0, whatever TLVs it holds (RFC 8754
// section 4.3.1.1 ignores it then). Hop Limit is not looked at: a final
// destination does not (RFC 8200 section 3).
func Decap(frame []byte, self Locator, function uint16, o *Outer) Reason {
	if len(frame) < BaseOverhead {
		return Runt
	}
	h := (*[BaseOverhead]byte)(frame)
	if binary.BigEndian.Uint16(h[12:14]) != packet.EtherTypeIPv6 {
		return NotIPv6
	}
	first := binary.BigEndian.Uint64(h[14:22])
	if first>>60 != 6 {
		return BadVersion
	}
	end := BaseOverhead + int(first>>16&0xffff)
	if end > len(frame) {
		return BadLength
	}
	hi, lo := binary.BigEndian.Uint64(h[38:46]), binary.BigEndian.Uint64(h[46:54])
	// Field by field: a composite literal would be built aside and copied.
	o.Src, o.Dst = SID(h[22:38]), SID(h[38:54])
	o.Inner, o.End, o.Pointer = BaseOverhead, end, 0
	o.Function, o.Network, o.Arg = uint16(lo>>48), uint32(lo>>24&MaxNetwork), uint32(lo&MaxSegment)
	o.NextHeader, o.TOS, o.FlowLabel = byte(first>>8), byte(first>>52), uint32(first>>32&0xfffff)
	if hi != self.Hi || self.Bits == 0 {
		if self.Contains(hi) {
			return SIDBits
		}
		return NotOurs
	}
	if o.NextHeader == packet.ProtoRouting {
		if r := o.skipSRH(frame[BaseOverhead:end]); r != OK {
			return r
		}
	}
	if o.NextHeader == packet.ProtoICMPv6 && (o.Function == function || o.Function == 0) {
		return ICMP
	}
	if o.Function != function || function == 0 {
		return FunctionUnknown
	}
	if o.NextHeader != packet.ProtoEthernet {
		o.Pointer = uint32(o.Inner - packet.EthernetLen)
		return UpperLayer
	}
	if o.End-o.Inner < packet.EthernetLen {
		return InnerRunt
	}
	return OK
}

// skipSRH moves Inner behind the SRH at the start of p.
func (o *Outer) skipSRH(p []byte) Reason {
	s := packet.SRH(p)
	if !s.Valid() {
		return SRHMalformed
	}
	if s.SegmentsLeft() != 0 {
		o.Pointer = packet.IPv6Len + 3
		return SegmentsLeft
	}
	o.NextHeader = s.NextHeader()
	o.Inner += s.Len()
	return OK
}

package packet

import "encoding/binary"

// TCP is a segment from its header on (RFC 9293 section 3.1).
type TCP []byte

func (b TCP) Valid() bool             { return len(b) >= 20 && b.HeaderLen() >= 20 && b.HeaderLen() <= len(b) }
func (b TCP) HeaderLen() int          { return int(b[12]>>4) * 4 }
func (b TCP) SourcePort() uint16      { return binary.BigEndian.Uint16(b[0:2]) }
func (b TCP) DestinationPort() uint16 { return binary.BigEndian.Uint16(b[2:4]) }
func (b TCP) Checksum() uint16        { return binary.BigEndian.Uint16(b[16:18]) }
func (b TCP) SetChecksum(v uint16)    { binary.BigEndian.PutUint16(b[16:18], v) }

// UDP is a datagram from its header on (RFC 768).
type UDP []byte

func (b UDP) Valid() bool             { return len(b) >= 8 && b.Len() >= 8 && b.Len() <= len(b) }
func (b UDP) SourcePort() uint16      { return binary.BigEndian.Uint16(b[0:2]) }
func (b UDP) DestinationPort() uint16 { return binary.BigEndian.Uint16(b[2:4]) }
func (b UDP) Len() int                { return int(binary.BigEndian.Uint16(b[4:6])) }
func (b UDP) Checksum() uint16        { return binary.BigEndian.Uint16(b[6:8]) }
func (b UDP) SetChecksum(v uint16)    { binary.BigEndian.PutUint16(b[6:8], v) }

// SCTP is a packet from its common header on (RFC 9260 section 3.1).
type SCTP []byte

func (b SCTP) Valid() bool             { return len(b) >= 12 }
func (b SCTP) SourcePort() uint16      { return binary.BigEndian.Uint16(b[0:2]) }
func (b SCTP) DestinationPort() uint16 { return binary.BigEndian.Uint16(b[2:4]) }
func (b SCTP) Checksum() uint32        { return binary.LittleEndian.Uint32(b[8:12]) }
func (b SCTP) SetChecksum(v uint32)    { binary.LittleEndian.PutUint32(b[8:12], v) }

// ICMPv4 is a message from its type on (RFC 792).
type ICMPv4 []byte

// ICMPv4 types.
const (
	ICMPv4EchoReply    = 0
	ICMPv4Unreachable  = 3
	ICMPv4Redirect     = 5
	ICMPv4Echo         = 8
	ICMPv4TimeExceeded = 11
	ICMPv4ParamProblem = 12
)

func (b ICMPv4) Valid() bool          { return len(b) >= 8 }
func (b ICMPv4) Type() byte           { return b[0] }
func (b ICMPv4) Code() byte           { return b[1] }
func (b ICMPv4) Checksum() uint16     { return binary.BigEndian.Uint16(b[2:4]) }
func (b ICMPv4) SetType(t, code byte) { b[0], b[1] = t, code }
func (b ICMPv4) SetChecksum(v uint16) { binary.BigEndian.PutUint16(b[2:4], v) }
func (b ICMPv4) Rest() uint32         { return binary.BigEndian.Uint32(b[4:8]) }
func (b ICMPv4) SetRest(v uint32)     { binary.BigEndian.PutUint32(b[4:8], v) }

// IsError reports a message that reports an error (RFC 1122 section 3.2.2).
func (b ICMPv4) IsError() bool {
	switch b[0] {
	case ICMPv4Unreachable, 4, ICMPv4Redirect, ICMPv4TimeExceeded, ICMPv4ParamProblem:
		return true
	}
	return false
}

// ICMPv6 is a message from its type on (RFC 4443).
type ICMPv6 []byte

// ICMPv6 types.
const (
	ICMPv6Unreachable   = 1
	ICMPv6PacketTooBig  = 2
	ICMPv6TimeExceeded  = 3
	ICMPv6ParamProblem  = 4
	ICMPv6Echo          = 128
	ICMPv6EchoReply     = 129
	ICMPv6MLDQuery      = 130
	ICMPv6MLDReport     = 131
	ICMPv6MLDDone       = 132
	ICMPv6RouterSolicit = 133
	ICMPv6RouterAdvert  = 134
	ICMPv6NeighSolicit  = 135
	ICMPv6NeighAdvert   = 136
	ICMPv6Redirect      = 137
	ICMPv6MLDv2Report   = 143
)

func (b ICMPv6) Valid() bool          { return len(b) >= 8 }
func (b ICMPv6) Type() byte           { return b[0] }
func (b ICMPv6) Code() byte           { return b[1] }
func (b ICMPv6) Checksum() uint16     { return binary.BigEndian.Uint16(b[2:4]) }
func (b ICMPv6) SetType(t, code byte) { b[0], b[1] = t, code }
func (b ICMPv6) SetChecksum(v uint16) { binary.BigEndian.PutUint16(b[2:4], v) }
func (b ICMPv6) Rest() uint32         { return binary.BigEndian.Uint32(b[4:8]) }
func (b ICMPv6) SetRest(v uint32)     { binary.BigEndian.PutUint32(b[4:8], v) }

// IsError reports an error message (RFC 4443 section 2.1).
func (b ICMPv6) IsError() bool { return b[0] < 128 }

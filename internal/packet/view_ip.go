package packet

import "encoding/binary"

// IPv4 is a packet from its IPv4 header on (RFC 791).
type IPv4 []byte

// Valid holds if version, header length and total length fit the bytes.
func (b IPv4) Valid() bool {
	return len(b) >= IPv4MinLen && b[0]>>4 == 4 && b.HeaderLen() >= IPv4MinLen &&
		b.TotalLen() >= b.HeaderLen() && b.TotalLen() <= len(b)
}
func (b IPv4) HeaderLen() int       { return int(b[0]&15) * 4 }
func (b IPv4) TOS() byte            { return b[1] }
func (b IPv4) TotalLen() int        { return int(binary.BigEndian.Uint16(b[2:4])) }
func (b IPv4) ID() uint16           { return binary.BigEndian.Uint16(b[4:6]) }
func (b IPv4) DontFragment() bool   { return b[6]&0x40 != 0 }
func (b IPv4) FragmentOffset() int  { return int(binary.BigEndian.Uint16(b[6:8])&0x1fff) * 8 }
func (b IPv4) MoreFragments() bool  { return b[6]&0x20 != 0 }
func (b IPv4) TTL() byte            { return b[8] }
func (b IPv4) Protocol() uint8      { return b[9] }
func (b IPv4) Checksum() uint16     { return binary.BigEndian.Uint16(b[10:12]) }
func (b IPv4) Source() IP           { return IPFrom4(binary.BigEndian.Uint32(b[12:16])) }
func (b IPv4) Destination() IP      { return IPFrom4(binary.BigEndian.Uint32(b[16:20])) }
func (b IPv4) Payload() []byte      { return b[b.HeaderLen():b.TotalLen()] }
func (b IPv4) SetTOS(v byte)        { b[1] = v }
func (b IPv4) SetTotalLen(n int)    { binary.BigEndian.PutUint16(b[2:4], uint16(n)) }
func (b IPv4) SetID(v uint16)       { binary.BigEndian.PutUint16(b[4:6], v) }
func (b IPv4) SetTTL(v byte)        { b[8] = v }
func (b IPv4) SetProtocol(v uint8)  { b[9] = v }
func (b IPv4) SetChecksum(v uint16) { binary.BigEndian.PutUint16(b[10:12], v) }
func (b IPv4) SetSource(ip IP)      { binary.BigEndian.PutUint32(b[12:16], ip.V4()) }
func (b IPv4) SetDestination(ip IP) { binary.BigEndian.PutUint32(b[16:20], ip.V4()) }

// SetVersion writes version 4 and the header length in bytes, a multiple of 4.
func (b IPv4) SetVersion(header int) { b[0] = 0x40 | byte(header/4) }

// SetFlags writes the flags (DF 0x4000, MF 0x2000) and a zero offset.
func (b IPv4) SetFlags(v uint16) { binary.BigEndian.PutUint16(b[6:8], v&0xe000) }

// ComputeChecksum is the header checksum as it should be.
func (b IPv4) ComputeChecksum() uint16 {
	return ^Fold(Add(Sum(b[:10]), Sum(b[12:b.HeaderLen()])))
}

// IPv6 is a packet from its IPv6 header on (RFC 8200).
type IPv6 []byte

// Valid holds if version and payload length fit the bytes.
func (b IPv6) Valid() bool {
	return len(b) >= IPv6Len && b[0]>>4 == 6 && IPv6Len+b.PayloadLen() <= len(b)
}
func (b IPv6) TrafficClass() byte    { return byte(binary.BigEndian.Uint16(b[0:2]) >> 4) }
func (b IPv6) FlowLabel() uint32     { return binary.BigEndian.Uint32(b[0:4]) & 0xfffff }
func (b IPv6) PayloadLen() int       { return int(binary.BigEndian.Uint16(b[4:6])) }
func (b IPv6) NextHeader() uint8     { return b[6] }
func (b IPv6) HopLimit() byte        { return b[7] }
func (b IPv6) Source() IP            { return IPFrom16((*[16]byte)(b[8:24])) }
func (b IPv6) Destination() IP       { return IPFrom16((*[16]byte)(b[24:40])) }
func (b IPv6) Payload() []byte       { return b[IPv6Len : IPv6Len+b.PayloadLen()] }
func (b IPv6) SetPayloadLen(n int)   { binary.BigEndian.PutUint16(b[4:6], uint16(n)) }
func (b IPv6) SetNextHeader(v uint8) { b[6] = v }
func (b IPv6) SetHopLimit(v byte)    { b[7] = v }
func (b IPv6) SetSource(ip IP)       { ip.Put((*[16]byte)(b[8:24])) }
func (b IPv6) SetDestination(ip IP)  { ip.Put((*[16]byte)(b[24:40])) }

// SetVersion writes version 6, the traffic class and the flow label.
func (b IPv6) SetVersion(class byte, label uint32) {
	binary.BigEndian.PutUint32(b[0:4], 6<<28|uint32(class)<<20|label&0xfffff)
}

// SRH is a Segment Routing header (RFC 8754 section 2).
type SRH []byte

// Valid holds if the routing type is 4, the whole header is at hand, and the
// segment list that Last Entry names lies inside it.
func (b SRH) Valid() bool {
	return len(b) >= 8 && b.Len() <= len(b) && b[2] == 4 && 8+16*(int(b[4])+1) <= b.Len()
}
func (b SRH) NextHeader() uint8     { return b[0] }
func (b SRH) Len() int              { return 8 + 8*int(b[1]) }
func (b SRH) SegmentsLeft() int     { return int(b[3]) }
func (b SRH) LastEntry() int        { return int(b[4]) }
func (b SRH) Tag() uint16           { return binary.BigEndian.Uint16(b[6:8]) }
func (b SRH) Segment(i int) IP      { return IPFrom16((*[16]byte)(b[8+16*i:])) }
func (b SRH) TLVs() []byte          { return b[8+16*(b.LastEntry()+1) : b.Len()] }
func (b SRH) SetSegmentsLeft(n int) { b[3] = byte(n) }

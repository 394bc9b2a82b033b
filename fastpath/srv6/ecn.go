package srv6

import (
	"encoding/binary"

	"picot.dev/picot/internal/packet"
)

// InnerTOS is the DSCP and ECN byte of the inner packet, 0 if it is not IP.
func InnerTOS(inner []byte, l *packet.Layout) byte {
	if l.L3Len == 0 || l.L3+2 > len(inner) {
		return 0
	}
	v := binary.BigEndian.Uint16(inner[l.L3:])
	if l.EtherType == packet.EtherTypeIPv4 {
		return byte(v)
	}
	return byte(v >> 4)
}

// ECN codepoints (RFC 3168 section 5).
const (
	notECT = 0
	ect1   = 1
	ect0   = 2
	ce     = 3
)

// DecapECN gives the inner packet the ECN field it must leave the tunnel with
// (RFC 6040 section 4.2, figure 4) and mends the IPv4 header checksum. It
// returns true if the packet must be dropped: congestion was experienced and
// the inner flow cannot be told. An inner frame that is not IP has no ECN field
// and passes.
func DecapECN(inner []byte, l *packet.Layout, outerTOS byte) (drop bool) {
	outer := outerTOS & 3
	if outer == notECT || l.L3Len == 0 {
		return false
	}
	is4 := l.EtherType == packet.EtherTypeIPv4
	in := InnerTOS(inner, l) & 3
	out := in
	switch {
	case in == notECT:
		return outer == ce
	case outer == ce:
		out = ce
	case outer == ect1 && in == ect0:
		out = ect1
	}
	if out == in {
		return false
	}
	p := inner[l.L3:]
	if is4 {
		old := binary.BigEndian.Uint16(p[0:2])
		p[1] = p[1]&^3 | out
		ip := packet.IPv4(p)
		ip.SetChecksum(packet.Update(ip.Checksum(), old, binary.BigEndian.Uint16(p[0:2])))
		return false
	}
	p[1] = p[1]&^0x30 | out<<4
	return false
}

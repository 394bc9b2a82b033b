package capture

import (
	"encoding/binary"

	"picot.dev/picot/internal/packet"
)

// match says that a frame, of which b is the beginning, is from or to the
// addresses. The address an ARP message or a Neighbor Solicitation or
// Advertisement is about counts as its receiver's.
func (a addresses) match(b []byte) bool {
	if a.mac == nil && a.ip == nil {
		return true
	}
	if len(b) < packet.EthernetLen {
		return false
	}
	if a.mac != nil && packet.MAC(b[0:6]) != *a.mac && packet.MAC(b[6:12]) != *a.mac {
		return false
	}
	return a.ip == nil || hasIP(b, *a.ip)
}

func hasIP(b []byte, want packet.IP) bool {
	kind, b := binary.BigEndian.Uint16(b[12:]), b[packet.EthernetLen:]
	for range 2 {
		if (kind == 0x8100 || kind == 0x88a8) && len(b) >= 4 {
			kind, b = binary.BigEndian.Uint16(b[2:]), b[4:]
		}
	}
	switch {
	case kind == packet.EtherTypeIPv4 && len(b) >= 20:
		p := packet.IPv4(b)
		return p.Source() == want || p.Destination() == want
	case kind == packet.EtherTypeARP && len(b) >= 28:
		p := packet.ARP(b)
		return p.SenderIP() == want || p.TargetIP() == want
	case kind == packet.EtherTypeIPv6 && len(b) >= packet.IPv6Len:
		p := packet.IPv6(b)
		return p.Source() == want || p.Destination() == want || isAbout(p, want)
	}
	return false
}

// isAbout says that p is a solicitation or advertisement of the address.
func isAbout(p packet.IPv6, ip packet.IP) bool {
	const kind, target = packet.IPv6Len, packet.IPv6Len + 8
	return p.NextHeader() == packet.ProtoICMPv6 && len(p) >= target+16 && (p[kind] == 135 || p[kind] == 136) &&
		packet.IPFrom16((*[16]byte)(p[target:])) == ip
}

package icmperr

import (
	"encoding/binary"

	"picot.dev/picot/internal/packet"
)

// Allowed says whether the frame may cause an ICMP error (RFC 1122 section
// 3.2.2, RFC 1812 section 4.3.2.7, RFC 4443 section 2.4). It may not if
//
//   - it is not IP, or its transport header cannot be found, so that there is
//     no telling whether it is an ICMP error;
//   - its Ethernet addresses are not those of two stations;
//   - its source does not name one host: unspecified, loopback, group,
//     broadcast, reserved, IPv4-mapped in IPv6;
//   - its destination is a group or the broadcast address. RFC 4443 lets a
//     Packet Too Big through here; no group frame is ever forwarded, so none is;
//   - it is a fragment other than the first;
//   - it is an ICMP error itself, of a type not known to be none, or a redirect.
//
// frame and l are those of a successful packet.Parse.
func Allowed(frame []byte, l *packet.Layout) bool {
	if l.L4 == 0 || l.L4 >= len(frame) || l.Fragment && !l.FirstFragment {
		return false
	}
	if frame[0]&1 != 0 || frame[6]&1 != 0 || packet.MAC(frame[6:12]).IsZero() {
		return false
	}
	icmp := frame[l.L4:]
	switch {
	case l.IsIPv4():
		h := frame[l.L3:]
		src, dst := binary.BigEndian.Uint32(h[12:]), binary.BigEndian.Uint32(h[16:])
		if !isHost4(src) || dst>>28 >= 0xe {
			return false
		}
		return l.Proto != packet.ProtoICMP || isQuery4(icmp[0])
	case l.IsIPv6():
		src, dst := ip6At(frame[l.L3+8:]), ip6At(frame[l.L3+24:])
		if !isHost6(src) || dst.IsMulticast() {
			return false
		}
		return l.Proto != packet.ProtoICMPv6 || isInformational6(icmp[0])
	}
	return false
}

func isHost4(a uint32) bool { return a>>24 != 0 && a>>24 != 127 && a>>28 < 0xe }

func isHost6(a packet.IP) bool {
	return !a.IsUnspecified() && !a.IsMulticast() && !a.Is4() && a != packet.IP{Lo: 1}
}

// isQuery4: the ICMPv4 types known to be no error (IANA icmp-parameters).
func isQuery4(t byte) bool {
	switch t {
	case 0, 8, 9, 10, 13, 14, 15, 16, 17, 18, 42, 43:
		return true
	}
	return false
}

// isInformational6: the high bit tells (RFC 4443 section 2.1). Redirects are
// excepted by section 2.4 (e.2).
func isInformational6(t byte) bool { return t >= 128 && t != 137 }

func ip6At(b []byte) packet.IP { return packet.IPFrom16((*[16]byte)(b)) }

package arpnd

import "picot.dev/picot/internal/packet"

const (
	icmpRS       = 133
	icmpNS       = 135
	icmpNA       = 136
	icmpRedirect = 137

	optSLLAO = 1
	optTLLAO = 2
)

// ndTypes holds, by type - 133, what the five messages differ in.
var ndTypes = [5]struct {
	op      Op
	fixed   int  // bytes before the options
	option  byte // the link-layer address option it carries
	routers bool // sent by routers, so from a link-local source
}{
	{RS, 8, optSLLAO, false},
	{RA, 16, optSLLAO, true},
	{NS, 24, optSLLAO, false},
	{NA, 24, optTLLAO, false},
	{Redirect, 40, optTLLAO, true},
}

// parseND checks and reads a message of type 133..137 whose ICMPv6 header
// begins at l.L4, behind whatever extension headers. The checks are those of
// RFC 4861 sections 6.1.1, 6.1.2, 7.1.1, 7.1.2 and 8.1 and of RFC 6980.
// Reserved bits and unknown options are looked past, as all of them say.
func parseND(frame []byte, l *packet.Layout, m *Message) Malformed {
	t := &ndTypes[frame[l.L4]-icmpRS]
	m.Op = t.op
	if l.Fragment {
		return NDFragment
	}
	ip := frame[l.L3:]
	if ip[7] != 255 {
		return NDHopLimit
	}
	end := l.L3 + l.L3Len
	if end > len(frame) || end-l.L4 < t.fixed {
		return NDLength
	}
	body := frame[l.L4:end]
	src, dst := ip6At(ip[8:]), ip6At(ip[24:])
	if checksum(src, dst, body) != 0 {
		return NDChecksum
	}
	if body[1] != 0 {
		return NDCode
	}
	if src.Is4() {
		return NDMapped
	}
	if src.IsMulticast() || t.routers && !src.IsLinkLocal6() || m.Op == NA && src.IsUnspecified() {
		return NDSource
	}
	if bad := parseTarget(body, dst, m); bad != OK {
		return bad
	}
	if bad := parseOptions(body[t.fixed:], t.option, m); bad != OK {
		return bad
	}
	if src.IsUnspecified() && (m.Op == NS || m.Op == RS) {
		m.Probe = true
		if m.Op == NS && !isSolicitedNode(dst) {
			return NDUnspecifiedDest
		}
		if m.HasLLAO {
			return NDUnspecifiedSLLAO
		}
	}
	m.Sender = src
	return OK
}

// A plain solicitation is one as stacks send it: untagged, without extension
// headers, the source's link-layer address its one option.
const (
	plainICMP = packet.EthernetLen + packet.IPv6Len
	plainLen  = plainICMP + 32
)

// parsePlainNS reads a plain solicitation by whole words. What is none, or has
// anything about it that parseND would look at twice, it leaves to parseND. m is
// all zero.
func parsePlainNS(frame []byte, l *packet.Layout, m *Message) bool {
	if len(frame) < plainLen || l.L4 != plainICMP || l.L3Len != plainLen-packet.EthernetLen {
		return false
	}
	h := (*[plainLen]byte)(frame)
	src, dst, target := ip6At(h[22:38]), ip6At(h[38:54]), ip6At(h[62:78])
	head, option := be64(h[54:62]), be64(h[78:86])
	switch {
	case h[21] != 255, head>>48 != icmpNS<<8, option != (optSLLAO<<8|1)<<48|be64(h[6:14])>>16:
		return false
	case src.Hi == 0, src.Hi>>56 == 0xff, target.Hi == 0, target.Hi>>56 == 0xff:
		return false // unspecified, mapped or a group
	}
	sum := packet.PseudoHeader6(src, dst, packet.ProtoICMPv6, plainLen-plainICMP)
	sum = packet.Add(packet.Add(sum, head), packet.Add(target.Hi, target.Lo))
	if packet.Fold(packet.Add(sum, option)) != 0xffff {
		return false
	}
	setEther(frame, m)
	m.Op, m.HasLLAO = NS, true
	m.Target, m.Sender = target, src
	return true
}

// parseTarget reads the addresses and flags in the fixed part of a message.
func parseTarget(body []byte, dst packet.IP, m *Message) Malformed {
	switch m.Op {
	case RA:
		m.Router = true
		return OK
	case RS:
		return OK
	case NA:
		m.Router = body[4]&0x80 != 0
		m.Solicited = body[4]&0x40 != 0
		m.Override = body[4]&0x20 != 0
		if m.Solicited && dst.IsMulticast() {
			return NDSolicitedGroup
		}
		m.Announcement = !m.Solicited && !m.Unicast
	}
	m.Target = ip6At(body[8:])
	switch {
	case m.Target.Is4():
		return NDMapped
	case m.Target.IsMulticast():
		return NDTargetMulticast
	}
	if m.Op == Redirect {
		to := ip6At(body[24:])
		if to.IsMulticast() || !m.Target.IsLinkLocal6() && m.Target != to {
			return NDTarget
		}
	}
	return OK
}

// parseOptions walks all options, so that a bad one is found wherever it
// stands, and reads the link-layer address option of type want. The first of
// several counts; any that contradicts the Ethernet source sets ShaMismatch.
func parseOptions(b []byte, want byte, m *Message) Malformed {
	for len(b) > 0 {
		if len(b) < 8 {
			return NDOption
		}
		n := int(b[1]) * 8
		if n == 0 || n > len(b) {
			return NDOption
		}
		if b[0] == want {
			if n != 8 {
				return NDOption
			}
			mac := macAt(b, 2)
			if !m.HasLLAO {
				m.SenderMAC, m.HasLLAO = mac, true
			}
			if mac != m.EtherSrc && m.Op != Redirect {
				m.ShaMismatch = true
			}
		}
		b = b[n:]
	}
	return OK
}

// isSolicitedNode: ff02::1:ff00:0/104 (RFC 4291 section 2.7.1).
func isSolicitedNode(ip packet.IP) bool {
	return ip.Hi == 0xff02<<48 && ip.Lo>>24 == 0x1ff
}

// checksum is the ICMPv6 checksum of body (RFC 4443 section 2.3) as a receiver
// computes it: 0 if the field in body is right, the field itself if it is zero.
func checksum(src, dst packet.IP, body []byte) uint16 {
	pseudo := packet.PseudoHeader6(src, dst, packet.ProtoICMPv6, len(body))
	return ^packet.Fold(packet.Add(pseudo, packet.Sum(body)))
}

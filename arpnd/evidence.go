package arpnd

import "picot.dev/picot/internal/packet"

// Class is how much a frame proves about its sender.
type Class uint8

const (
	// None proves nothing: nothing is learned or refreshed.
	None Class = iota
	// Weak refreshes what its sender already holds and creates an FDB entry
	// (never a Neighbor) where nothing holds the MAC. It never moves anything.
	Weak
	// Strong creates and takes over.
	Strong
)

// String returns "none", "weak" or "strong".
func (c Class) String() string {
	return name([]string{"none", "weak", "strong"}, int(c))
}

// Evidence says what a message proves about the station m.EtherSrc. ok says
// that it also claims an IP address, ip. With Weak evidence the claim serves to
// refresh a Neighbor that is already this station's and nothing else.
//
// A message whose sha or link-layer option contradicts the Ethernet source
// proves nothing (A8), nor does one from ProbeMAC (N10). Probes and DAD solicitations claim no address: their
// sender does not own it yet (RFC 5227 section 2.1.1, RFC 4862 section 5.4.3).
// An NA claims its target; without the Override flag it is weak (RFC 4861
// section 7.2.8, RFC 4429 section 3.3, RFC 9131 section 6.1).
func Evidence(m *Message) (class Class, ip packet.IP, ok bool) {
	if m.ShaMismatch || !isStation(m.EtherSrc) {
		return None, packet.IP{}, false
	}
	claim := m.Sender
	switch m.Op {
	case RARP:
		return Strong, packet.IP{}, false
	case ARPOther:
		return Weak, packet.IP{}, false
	case ARPRequest, ARPReply, NS:
		class = Strong
	case NA:
		claim = m.Target
		class = Weak
		if m.Override {
			class = Strong
		}
	case RA, Redirect:
		// An ordinary IP frame of a router: a unicast one is strong.
		class = Weak
		if m.Unicast {
			class = Strong
		}
	case RS:
		class = Weak
	default:
		return None, packet.IP{}, false
	}
	if m.Probe || !claimable(claim) {
		return Weak, packet.IP{}, false
	}
	return class, claim, true
}

// FrameEvidence is Evidence for the frames that are not address resolution: a
// unicast IP frame is strong, any other is weak. frame and l are those of a
// successful packet.Parse.
func FrameEvidence(frame []byte, l *packet.Layout) (class Class, ip packet.IP, ok bool) {
	src, dst := macAt(frame, 6), macAt(frame, 0)
	if !isStation(src) {
		return None, packet.IP{}, false
	}
	switch {
	case l.EtherType == packet.EtherTypeIPv4 && len(frame) >= l.L3+20:
		ip = packet.IPFrom4(be32(frame[l.L3+12:]))
	case l.EtherType == packet.EtherTypeIPv6 && len(frame) >= l.L3+40:
		if ip = ip6At(frame[l.L3+8:]); ip.Is4() {
			return Weak, packet.IP{}, false
		}
	default:
		return Weak, packet.IP{}, false
	}
	if !claimable(ip) {
		return Weak, packet.IP{}, false
	}
	if dst.IsGroup() {
		return Weak, ip, true
	}
	return Strong, ip, true
}

// isStation says whether a guest may own mac. ProbeMAC is ours (N10).
func isStation(mac packet.MAC) bool {
	return !mac.IsGroup() && !mac.IsZero() && mac != ProbeMAC()
}

// claimable says whether one station can own ip (RFC 1122 section 3.2.1.3,
// RFC 4291 section 2.5): not unspecified, loopback, group or broadcast.
func claimable(ip packet.IP) bool {
	if ip.Is4() {
		a := ip.V4()
		return a>>24 != 0 && a>>24 != 127 && a>>28 < 0xe
	}
	return !ip.IsUnspecified() && !ip.IsMulticast() && ip != packet.IP{Lo: 1}
}

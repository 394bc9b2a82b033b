package fastpath

import (
	"encoding/binary"

	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/icmperr"
	"picot.dev/picot/internal/packet"
)

// route is the network's own gateway, alive on every node at once: an IP
// packet to its MAC goes to the station that has the destination address, in
// the same network. IP -> Neighbor -> MAC -> FDB -> port or node.
func (w *Walk) route(s *table.Snapshot, p *table.Port, f *Frame) {
	l := &w.layout
	b := f.bytes()
	ip, ok := destination(b, l)
	if !ok || ip.IsMulticast() || ip.IsLinkLocal6() && !ip.Is4() && !w.ownAddress(s, p, ip) {
		f.drop(ReasonGatewayNotIP)
		return
	}
	n, known := s.Neighbor(p.Net, ip)
	if known && n.Gateway() {
		w.gatewayEcho(f)
		return
	}
	if !hasHops(b, l) {
		f.drop(ReasonGatewayTTL)
		w.tell(s, p, f, func(chunk []byte, n int, src icmperr.Source) int {
			return icmperr.TimeExceeded(chunk, n, l, src)
		})
		return
	}
	target := table.Target(0)
	if known {
		target = s.FDB(p.Net, n.MAC48())
	}
	if k := target.Kind(); k != table.KindLocal && k != table.KindRemote {
		f.drop(ReasonGatewayNoNeighbor)
		w.tell(s, p, f, func(chunk []byte, n int, src icmperr.Source) int {
			return icmperr.HostUnreachable(chunk, n, l, src)
		})
		return
	}
	// Delivered first and rewritten in place afterwards: neither the target, the
	// flow's hash nor a checksum depends on what changes, and an ICMP error
	// must quote, and go back to, the frame as it came.
	w.deliver(s, p, f, b, target)
	if f.Verdict == Dropped {
		return
	}
	*(*packet.MAC)(b[0:6]) = n.MAC()
	*(*packet.MAC)(b[6:12]) = s.Networks[p.Net].Gateway.MAC
	decrement(b, l)
}

func (w *Walk) ownAddress(s *table.Snapshot, p *table.Port, ip packet.IP) bool {
	n, ok := s.Neighbor(p.Net, ip)
	return ok && n.Gateway()
}

func destination(b []byte, l *packet.Layout) (packet.IP, bool) {
	switch {
	case l.IsIPv4():
		return packet.IPv4(b[l.L3:]).Destination(), true
	case l.IsIPv6():
		return packet.IPv6(b[l.L3:]).Destination(), true
	}
	return packet.IP{}, false
}

// hasHops says that the packet may be forwarded once more (RFC 1812 section
// 5.3.1, RFC 8200 section 3).
func hasHops(b []byte, l *packet.Layout) bool {
	if l.IsIPv4() {
		return b[l.L3+8] > 1
	}
	return b[l.L3+7] > 1
}

// decrement takes one hop off and mends the IPv4 header checksum (RFC 1141).
func decrement(b []byte, l *packet.Layout) {
	if l.IsIPv6() {
		b[l.L3+7]--
		return
	}
	h := b[l.L3 : l.L3+20]
	h[8]--
	sum := uint32(binary.BigEndian.Uint16(h[10:])) + 0x100
	binary.BigEndian.PutUint16(h[10:], uint16(sum+sum>>16))
}

// gatewayEcho answers an echo request to the gateway's own address (RFC 792,
// RFC 4443 section 4.2); anything else to it is dropped.
func (w *Walk) gatewayEcho(f *Frame) {
	l := &w.layout
	b := f.bytes()
	request, reply := byte(8), byte(0)
	proto := uint8(packet.ProtoICMP)
	if l.IsIPv6() {
		request, reply, proto = 128, 129, packet.ProtoICMPv6
	}
	if l.Fragment || l.Proto != proto || l.L4 == 0 || l.L4+8 > l.L3+l.L3Len || b[l.L4] != request || b[l.L4+1] != 0 {
		f.drop(ReasonGatewayNotIP)
		return
	}
	dst, src := packet.MAC(b[0:6]), packet.MAC(b[6:12])
	*(*packet.MAC)(b[0:6]), *(*packet.MAC)(b[6:12]) = src, dst
	if l.IsIPv4() {
		swap(b[l.L3+12:l.L3+16], b[l.L3+16:l.L3+20])
		b[l.L3+8] = 64
		h := packet.IPv4(b[l.L3:])
		h.SetChecksum(0)
		h.SetChecksum(h.ComputeChecksum())
	} else {
		swap(b[l.L3+8:l.L3+24], b[l.L3+24:l.L3+40])
		b[l.L3+7] = 64
	}
	// Only the type changes: one subtraction from the sum (RFC 1624 eqn. 3).
	b[l.L4] = reply
	old := binary.BigEndian.Uint16(b[l.L4+2:])
	sum := uint64(^old) + uint64(^(uint16(request) << 8)) + uint64(reply)<<8
	binary.BigEndian.PutUint16(b[l.L4+2:], ^packet.Fold(sum))
	f.Verdict = Answered
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}

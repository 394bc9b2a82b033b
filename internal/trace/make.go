package trace

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// etherTypeLocal is for frames that are about their MACs only (IEEE 802 clause 9.2.3,
// local experimental EtherType 1).
const etherTypeLocal = 0x88b5

// minFrame is the shortest Ethernet frame without its checksum.
const minFrame = 60

// station is whom a made frame comes from.
type station struct {
	mac       packet.MAC
	known     bool // mac is
	name      string
	addresses []netip.Addr
	net       table.NetIndex
}

// address is the station's first of a family.
func (s *station) address(is4 bool) (netip.Addr, bool) {
	for _, a := range s.addresses {
		if a.Is4() == is4 {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// frameOf makes the frame that w is about, as st would send it.
func frameOf(w *wish, st *station, s *table.Snapshot) ([]byte, error) {
	if w.srcMAC != nil {
		st.mac = *w.srcMAC
	} else if !st.known {
		return nil, fmt.Errorf("%w: no --src-mac: name a station that is on node %s", ErrRequest, w.fromNode)
	}
	src, err := w.source(st)
	if err != nil {
		return nil, err
	}
	switch {
	case w.arpFor.IsValid():
		return arpRequest(w, st, src), nil
	case w.ndFor.IsValid():
		return solicitation(w, st, src), nil
	case !w.dst.IsValid():
		if w.dstMAC == nil {
			return nil, fmt.Errorf("%w: no --dst-mac or --dst: say where the frame goes", ErrRequest)
		}
		b := ether(*w.dstMAC, st.mac, etherTypeLocal)
		return append(b, make([]byte, max(minFrame-len(b), w.size))...), nil
	}
	dst, err := w.destinationMAC(st, s)
	if err != nil {
		return nil, err
	}
	return ipPacket(w, ether(dst, st.mac, 0), src)
}

// source is the sender's address: as given, or the station's own.
func (w *wish) source(st *station) (netip.Addr, error) {
	t := w.target()
	if w.src.IsValid() || !t.IsValid() {
		return w.src, nil
	}
	if t.Is6() && t.IsLinkLocalUnicast() {
		return table.LinkLocal(st.mac).Addr(), nil
	}
	if a, ok := st.address(t.Is4()); ok {
		return a, nil
	}
	if t.Is6() && w.ndFor.IsValid() {
		return table.LinkLocal(st.mac).Addr(), nil
	}
	return netip.Addr{}, fmt.Errorf("%w: no --src: %s has no address of the family of %s", ErrRequest, st.name, t)
}

// destinationMAC is where the sender's stack would send a packet for w.dst, were its
// ARP or ND answered from the tables.
func (w *wish) destinationMAC(st *station, s *table.Snapshot) (packet.MAC, error) {
	d := w.dst
	switch {
	case w.dstMAC != nil:
		return *w.dstMAC, nil
	case d == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return packet.Broadcast, nil
	case d.IsMulticast() && d.Is4(): // RFC 1112 section 6.4
		a := d.As4()
		return packet.MAC{1, 0, 0x5e, a[1] & 0x7f, a[2], a[3]}, nil
	case d.IsMulticast(): // RFC 2464 section 7
		a := d.As16()
		return packet.MAC{0x33, 0x33, a[12], a[13], a[14], a[15]}, nil
	}
	if n, ok := s.Neighbor(st.net, packet.IPFromAddr(d)); ok {
		return n.MAC(), nil
	}
	name := "the network"
	if int(st.net) < len(s.Networks) && s.Networks[st.net].Known {
		v := &s.Networks[st.net]
		name = "network " + v.Name
		if !v.Contains(packet.IPFromAddr(d)) && !v.Gateway.MAC.IsZero() {
			return v.Gateway.MAC, nil
		}
	}
	question := "--arp-for"
	if d.Is6() {
		question = "--nd-for"
	}
	return packet.MAC{}, fmt.Errorf("%w: --dst %s: no station of %s has it, so its MAC is not known: give --dst-mac, or trace the question, %s %s",
		ErrRequest, d, name, question, d)
}

func ether(dst, src packet.MAC, etherType uint16) []byte {
	b := append(append(make([]byte, 0, 128), dst[:]...), src[:]...)
	return binary.BigEndian.AppendUint16(b, etherType)
}

func arpRequest(w *wish, st *station, spa netip.Addr) []byte {
	dst := packet.Broadcast
	if w.dstMAC != nil {
		dst = *w.dstMAC
	}
	b := ether(dst, st.mac, packet.EtherTypeARP)
	a := make(packet.ARP, packet.ARPLen)
	a.SetHeader()
	a.SetOp(1)
	a.SetSender(st.mac, packet.IPFromAddr(spa))
	a.SetTarget(packet.MAC{}, packet.IPFromAddr(w.arpFor))
	return append(b, a...)
}

// solicitation is an NS, RFC 4861 section 4.3: to the solicited-node group, or, with
// a unicast MAC given, to the target itself as NUD sends it.
func solicitation(w *wish, st *station, src netip.Addr) []byte {
	target := w.ndFor.As16()
	to := netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 12: 0xff, 13: target[13], 14: target[14], 15: target[15]})
	dst := packet.MAC{0x33, 0x33, 0xff, target[13], target[14], target[15]}
	if w.dstMAC != nil {
		dst = *w.dstMAC
		if !dst.IsGroup() {
			to = w.ndFor
		}
	}
	m := append([]byte{packet.ICMPv6NeighSolicit, 0, 0, 0, 0, 0, 0, 0}, target[:]...)
	if !src.IsUnspecified() {
		m = append(append(m, 1, 1), st.mac[:]...)
	}
	b := append(ether(dst, st.mac, packet.EtherTypeIPv6), ip6Header(src, to, packet.ProtoICMPv6, len(m), 255)...)
	pseudo := packet.PseudoHeader6(packet.IPFromAddr(src), packet.IPFromAddr(to), packet.ProtoICMPv6, len(m))
	packet.ICMPv6(m).SetChecksum(^packet.Fold(packet.Add(pseudo, packet.Sum(m))))
	return append(b, m...)
}

func ip6Header(src, dst netip.Addr, proto uint8, payload int, hops byte) []byte {
	h := make(packet.IPv6, packet.IPv6Len)
	h.SetVersion(0, 0)
	h.SetPayloadLen(payload)
	h.SetNextHeader(proto)
	h.SetHopLimit(hops)
	h.SetSource(packet.IPFromAddr(src))
	h.SetDestination(packet.IPFromAddr(dst))
	return h
}

func ip4Header(src, dst netip.Addr, proto uint8, payload int) []byte {
	h := make(packet.IPv4, packet.IPv4MinLen)
	h.SetVersion(packet.IPv4MinLen)
	h.SetTotalLen(packet.IPv4MinLen + payload)
	h.SetFlags(0x4000) // do not fragment, as Linux sends
	h.SetTTL(64)
	h.SetProtocol(proto)
	h.SetSource(packet.IPFromAddr(src))
	h.SetDestination(packet.IPFromAddr(dst))
	h.SetChecksum(h.ComputeChecksum())
	return h
}

// ipPacket puts the packet behind the Ethernet header b and sets its EtherType.
func ipPacket(w *wish, b []byte, src netip.Addr) ([]byte, error) {
	is4 := w.dst.Is4()
	header, proto, t := packet.IPv6Len, uint8(packet.ProtoICMPv6), []byte{packet.ICMPv6Echo, 0, 0, 0, 0, 1, 0, 1}
	if is4 {
		header, proto, t = packet.IPv4MinLen, packet.ProtoICMP, []byte{packet.ICMPv4Echo, 0, 0, 0, 0, 1, 0, 1}
	}
	switch w.proto {
	case "udp":
		proto, t = packet.ProtoUDP, make([]byte, 8)
	case "tcp":
		proto, t = packet.ProtoTCP, make([]byte, 20)
		t[12], t[13] = 5<<4, 2 // a SYN
		binary.BigEndian.PutUint16(t[14:], 64240)
	}
	if w.proto != "icmp" {
		binary.BigEndian.PutUint16(t[0:], w.sport)
		binary.BigEndian.PutUint16(t[2:], w.dport)
	}
	size := w.size
	if size == 0 {
		size = header + len(t)
	}
	if size < header+len(t) || size > 1<<16-1 {
		return nil, fmt.Errorf("%w: --size %d: this packet has %d to 65535 bytes", ErrRequest, size, header+len(t))
	}
	t = append(t, make([]byte, size-header-len(t))...)
	if w.proto == "udp" {
		binary.BigEndian.PutUint16(t[4:], uint16(len(t)))
	}
	s, d := packet.IPFromAddr(src), packet.IPFromAddr(w.dst)
	var pseudo uint64
	switch {
	case !is4:
		pseudo = packet.PseudoHeader6(s, d, proto, len(t))
	case w.proto != "icmp":
		pseudo = packet.PseudoHeader4(s.V4(), d.V4(), proto, len(t))
	}
	at := map[string]int{"icmp": 2, "udp": 6, "tcp": 16}[w.proto]
	sum := ^packet.Fold(packet.Add(pseudo, packet.Sum(t)))
	if sum == 0 && w.proto == "udp" {
		sum = 0xffff // RFC 768: 0 says that there is none
	}
	binary.BigEndian.PutUint16(t[at:], sum)
	if is4 {
		binary.BigEndian.PutUint16(b[12:], packet.EtherTypeIPv4)
		b = append(b, ip4Header(src, w.dst, proto, len(t))...)
	} else {
		binary.BigEndian.PutUint16(b[12:], packet.EtherTypeIPv6)
		b = append(b, ip6Header(src, w.dst, proto, len(t), 64)...)
	}
	return append(b, t...), nil
}

// outerOf puts the outer headers before inner that node puts there, as they are once
// the packet has passed n.Via: Segments Left is 0, and the destination the final SID
// (RFC 8986 section 4.1). What differs is the flow's hash, for only that node has its
// key, and the hop limit; no decision here depends on them.
func outerOf(n *Node, node *table.NodeView, network, segment uint32, inner []byte) ([]byte, error) {
	s := n.Snapshot
	e, err := srv6.NewEncap(srv6.EncapConfig{
		// Any two: nobody looks at the MACs of a frame that is there.
		SrcMAC: packet.MAC{2, 0, 0, 0, 0, 2}, DstMAC: packet.MAC{2, 0, 0, 0, 0, 1},
		Source: node.Locator, Dest: s.Self, Function: s.Function, Via: n.Via, FixedSource: n.FixedSource,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: --from-node %s: %w", ErrRequest, node.Name, err)
	}
	var l packet.Layout
	var hash uint64
	var tos uint8
	if packet.Parse(inner, &l) {
		hash, tos, _ = packet.ReadFlow(&s.HashKey, inner, &l)
	}
	b := append(make([]byte, e.Overhead()), inner...)
	e.Push(b, len(inner), network, segment, hash, tos)
	if len(n.Via) > 0 {
		ip := packet.IPv6(b[packet.EthernetLen:])
		srh := packet.SRH(ip[packet.IPv6Len:])
		srh.SetSegmentsLeft(0)
		ip.SetDestination(srh.Segment(0)) // RFC 8754 section 2: the last is the first
	}
	return b, nil
}

package arpnd

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/internal/packet"
)

type proof struct {
	class Class
	ip    packet.IP
	ok    bool
}

func weak(ip packet.IP) proof   { return proof{Weak, ip, true} }
func strong(ip packet.IP) proof { return proof{Strong, ip, true} }

var (
	nothing    = proof{None, packet.IP{}, false}
	macWeak    = proof{Weak, packet.IP{}, false}
	macStrong  = proof{Strong, packet.IP{}, false}
	allRouters = packet.MAC{0x33, 0x33, 0, 0, 0, 2}
)

// TestEvidence holds what learning may conclude: A4, A5, A8, N7, N8 and the
// classes of docs/arp-ndp.md.
func TestEvidence(t *testing.T) {
	ll := addr("fe80::a")
	naOf := func(edit func(*nd)) func(testing.TB) []byte {
		n := na()
		edit(&n)
		return n.frame
	}
	rs := nd{typ: 133, src: asker, dst: allRouters, to: addr("ff02::2"), fixed: make([]byte, 4)}
	rsFrom, rsDAD := rs, rs
	rsFrom.from, rsFrom.opts, rsDAD.from = ll, lladdr(1, asker), none6
	ra := nd{typ: 134, src: asker, dst: packet.MAC{0x33, 0x33, 0, 0, 0, 1}, from: ll, to: allNodes6, fixed: make([]byte, 12)}
	raUnicast := ra
	raUnicast.dst, raUnicast.to = owner, owner6
	redirect := nd{typ: 137, src: asker, dst: owner, from: ll, to: owner6, opts: lladdr(2, third),
		fixed: append(append(make([]byte, 4), wire6(addr("fe80::2"))...), wire6(asker6)...)}

	for _, tc := range []struct {
		name  string
		frame func(testing.TB) []byte
		want  proof
	}{
		{"ARP request", request().frame, strong(asker4)},
		{"unicast ARP request", arpFrom(asker, owner, asker4, owner4), strong(asker4)},
		{"ARP reply", arp{op: 2, src: owner, dst: asker, spa: owner4, tpa: asker4}.frame, strong(owner4)},
		{"A4: probe makes no Neighbor", arpFrom(asker, packet.Broadcast, none4, owner4), macWeak},
		{"A5: announcement, row 7", arpFrom(asker, packet.Broadcast, asker4, asker4), strong(asker4)},
		{"A8: sha differs", arp{op: 1, src: asker, sha: third, dst: packet.Broadcast, spa: asker4, tpa: owner4}.frame, nothing},
		{"spa multicast", arpFrom(asker, packet.Broadcast, addr("224.0.0.1"), owner4), macWeak},
		{"spa broadcast", arpFrom(asker, packet.Broadcast, addr("255.255.255.255"), owner4), macWeak},
		{"spa loopback", arpFrom(asker, packet.Broadcast, addr("127.0.0.1"), owner4), macWeak},
		{"spa in 0/8", arpFrom(asker, packet.Broadcast, addr("0.0.0.1"), owner4), macWeak},
		{"InARP", arp{op: 8, src: asker, dst: packet.Broadcast, spa: asker4, tpa: owner4}.frame, macWeak},
		{"RARP", arp{op: 3, src: asker, dst: packet.Broadcast, tha: asker, spa: asker4, tpa: asker4, reverse: true}.frame, macStrong},
		{"RARP for another MAC", arp{op: 3, src: asker, sha: third, dst: packet.Broadcast, spa: none4, tpa: none4, reverse: true}.frame, nothing},
		{"NS", ns().frame, strong(asker6)},
		{"NS without SLLAO", nsWith(func(n *nd) { n.opts = nil }), strong(asker6)},
		{"NS from a link-local", nsWith(func(n *nd) { n.from = ll }), strong(ll)},
		{"NS from ::1", nsWith(func(n *nd) { n.from = addr("::1") }), macWeak},
		{"A8: SLLAO differs", nsWith(func(n *nd) { n.opts = lladdr(1, third) }), nothing},
		{"A8: a second SLLAO differs", nsWith(func(n *nd) { n.opts = append(n.opts, lladdr(1, third)...) }), nothing},
		{"N7: DAD NS", dad().frame, macWeak},
		{"NA, row 7", na().frame, strong(owner6)},
		{"NA for another address of the sender", naOf(func(n *nd) { n.from = addr("fe80::b") }), strong(owner6)},
		{"NA without TLLAO", naOf(func(n *nd) { n.opts = nil }), strong(owner6)},
		{"N8: optimistic NA", naOf(func(n *nd) { n.flags = 0 }), weak(owner6)},
		{"N8: solicited optimistic NA", naOf(func(n *nd) { n.flags, n.dst, n.to = 0x40, asker, asker6 }), weak(owner6)},
		{"NA with another's TLLAO", naOf(func(n *nd) { n.opts = lladdr(2, third) }), nothing},
		{"NA for ::", naOf(func(n *nd) { n.target = none6 }), macWeak},
		{"RS", rsFrom.frame, weak(ll)},
		{"RS from ::", rsDAD.frame, macWeak},
		{"RA to all nodes", ra.frame, weak(ll)},
		{"unicast RA", raUnicast.frame, strong(ll)},
		{"redirect: its TLLAO is the next hop's", redirect.frame, strong(ll)},
		{"group as Ethernet source", arpFrom(allRouters, packet.Broadcast, asker4, owner4), nothing},
		{"N10: from the probes' own MAC", arpFrom(ProbeMAC(), packet.Broadcast, asker4, owner4), nothing},
		{"zero Ethernet source", arp{op: 1, dst: packet.Broadcast, spa: asker4, tpa: owner4}.frame, nothing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, m := mustParse(t, tc.frame(t))
			var got proof
			got.class, got.ip, got.ok = Evidence(&m)
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestEvidenceOfNothing(t *testing.T) {
	m := Message{EtherSrc: asker}
	if class, _, ok := Evidence(&m); class != None || ok {
		t.Errorf("%v %v", class, ok)
	}
}

func TestFrameEvidence(t *testing.T) {
	udp4 := func(src, dst packet.MAC, from packet.IP, tags ...uint16) []byte {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: 253, SrcIP: wire(from), DstIP: wire(owner4)}
		return serialize(t, append(link(src, dst, tags, layers.EthernetTypeIPv4), ip, gopacket.Payload("x"))...)
	}
	udp6 := func(dst packet.MAC, from packet.IP) []byte {
		return nd{typ: 128, src: asker, dst: dst, from: from, to: owner6}.frame(t)
	}
	mld := nd{typ: 143, src: asker, dst: packet.MAC{0x33, 0x33, 0, 0, 0, 0x16}, from: addr("fe80::a"), to: addr("ff02::16")}
	mldDAD := mld
	mldDAD.from = none6
	for _, tc := range []struct {
		name  string
		frame []byte
		want  proof
	}{
		{"unicast IPv4", udp4(asker, owner, asker4), strong(asker4)},
		{"tagged unicast IPv4", udp4(asker, owner, asker4, 100, 7), strong(asker4)},
		{"unicast IPv6", udp6(owner, asker6), strong(asker6)},
		{"broadcast IPv4", udp4(asker, packet.Broadcast, asker4), weak(asker4)},
		{"DHCP discover", udp4(asker, packet.Broadcast, none4), macWeak},
		{"MLD", mld.frame(t), weak(addr("fe80::a"))},
		{"MLD from ::", mldDAD.frame(t), macWeak},
		{"IPv6 from a mapped address", udp6(owner, asker4), macWeak},
		{"IPv4 from a group", udp4(asker, owner, addr("224.1.1.1")), macWeak},
		{"not IP", serialize(t, append(link(asker, owner, nil, 0x88b5), gopacket.Payload("x"))...), macWeak},
		{"N10: from the probes' own MAC", udp4(ProbeMAC(), owner, asker4), nothing},
		{"group source MAC", udp4(packet.Broadcast, owner, asker4), nothing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var l packet.Layout
			if !packet.Parse(tc.frame, &l) {
				t.Fatal("packet.Parse refused")
			}
			var got proof
			got.class, got.ip, got.ok = FrameEvidence(tc.frame, &l)
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

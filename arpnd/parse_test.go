package arpnd

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/internal/packet"
)

// hopByHop is a Hop-by-Hop header of 8 bytes that holds only padding.
func hopByHop() gopacket.SerializableLayer {
	return gopacket.Payload{58, 0, 1, 4, 0, 0, 0, 0}
}

// TestA1_ARPHeader: only hrd 1, pro 0x0800, hln 6, pln 4 and 28 bytes (RFC 826).
func TestA1_ARPHeader(t *testing.T) {
	edit := func(at int, v byte) func([]byte) []byte {
		return func(b []byte) []byte { b[14+at] = v; return b }
	}
	for _, tc := range []struct {
		name string
		edit func([]byte) []byte
		want Malformed
	}{
		{"well-formed", func(b []byte) []byte { return b }, OK},
		{"padding to 60 is ignored", func(b []byte) []byte { return append(b, make([]byte, 18)...) }, OK},
		{"rubbish as padding is ignored", func(b []byte) []byte { return append(b, 0xde, 0xad) }, OK},
		{"one byte short", func(b []byte) []byte { return b[:41] }, ARPLength},
		{"no header at all", func(b []byte) []byte { return b[:14] }, ARPLength},
		{"hrd 6", edit(1, 6), ARPHeader},
		{"hrd 257", edit(0, 1), ARPHeader},
		{"pro 0x86dd", func(b []byte) []byte { b[16], b[17] = 0x86, 0xdd; return b }, ARPHeader},
		{"hln 8", edit(4, 8), ARPHeader},
		{"pln 16", edit(5, 16), ARPHeader},
		{"hln and pln 0", func(b []byte) []byte { b[18], b[19] = 0, 0; return b }, ARPHeader},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, _, got := parse(t, tc.edit(request().frame(t))); got != tc.want {
				t.Errorf("Parse = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestParseARP(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   arp
		want Message
	}{
		{"request", request(), Message{Op: ARPRequest, Target: owner4, Sender: asker4}},
		{"unicast request", arp{op: 1, src: asker, dst: owner, spa: asker4, tpa: owner4},
			Message{Op: ARPRequest, Unicast: true, Target: owner4, Sender: asker4}},
		{"probe, RFC 5227 2.1.1", arp{op: 1, src: asker, dst: packet.Broadcast, spa: none4, tpa: owner4},
			Message{Op: ARPRequest, Probe: true, Target: owner4, Sender: none4}},
		{"announcement, RFC 5227 2.3", arp{op: 1, src: asker, dst: packet.Broadcast, spa: asker4, tpa: asker4},
			Message{Op: ARPRequest, Announcement: true, Target: asker4, Sender: asker4}},
		{"gratuitous reply", arp{op: 2, src: asker, dst: packet.Broadcast, tha: packet.Broadcast, spa: asker4, tpa: asker4},
			Message{Op: ARPReply, Announcement: true, Target: asker4, Sender: asker4}},
		{"sha differs", arp{op: 1, src: asker, sha: third, dst: packet.Broadcast, spa: asker4, tpa: owner4},
			Message{Op: ARPRequest, ShaMismatch: true, SenderMAC: third, Target: owner4, Sender: asker4}},
		{"InARP", arp{op: 8, src: asker, dst: packet.Broadcast, spa: asker4, tpa: asker4},
			Message{Op: ARPOther, Target: asker4, Sender: asker4}},
		{"RARP, RFC 903", arp{op: 3, src: asker, dst: packet.Broadcast, tha: asker, spa: none4, tpa: none4, reverse: true},
			Message{Op: RARP}},
		{"two tags", arp{op: 1, src: asker, dst: packet.Broadcast, spa: asker4, tpa: owner4, tags: []uint16{100, 7}},
			Message{Op: ARPRequest, Target: owner4, Sender: asker4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			frame := tc.in.frame(t)
			l, got := mustParse(t, frame)
			tc.want.HasLLAO, tc.want.EtherSrc, tc.want.EtherDst = true, tc.in.src, tc.in.dst
			if tc.want.SenderMAC == noMAC {
				tc.want.SenderMAC = tc.in.src
			}
			if got != tc.want {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
			oracle(t, frame, &l, &got)
		})
	}
}

// TestN1_Malformed holds every check of RFC 4861 7.1.1 (and 6.1.1, 6.1.2, 7.1.2,
// 8.1 for the other types) and RFC 6980 section 5. Row 5 (CVE-2026-31752, -31682):
// options that lie about their length are dropped and named, never read past.
func TestN1_Malformed(t *testing.T) {
	with := func(n nd, edit func(*nd)) nd { edit(&n); return n }
	ra := nd{typ: 134, src: gateway, dst: packet.MAC{0x33, 0x33, 0, 0, 0, 1}, from: addr("fe80::1"), to: allNodes6,
		fixed: make([]byte, 12), opts: lladdr(1, gateway)}
	rs := nd{typ: 133, src: asker, dst: packet.MAC{0x33, 0x33, 0, 0, 0, 2}, from: none6, to: addr("ff02::2"), fixed: make([]byte, 4)}
	redirect := func(target, to packet.IP) nd {
		return nd{typ: 137, src: gateway, dst: asker, from: addr("fe80::1"), to: asker6,
			fixed: append(append(make([]byte, 4), wire6(target)...), wire6(to)...)}
	}
	fragment := func(b3 byte) []gopacket.SerializableLayer {
		return []gopacket.SerializableLayer{gopacket.Payload{58, 0, 0, b3, 1, 2, 3, 4}}
	}
	for _, tc := range []struct {
		name string
		in   nd
		want Malformed
	}{
		{"NS", ns(), OK},
		{"DAD NS", dad(), OK},
		{"hop limit 254", with(ns(), func(n *nd) { n.hop = 254 }), NDHopLimit},
		{"code 1", with(ns(), func(n *nd) { n.code = 1 }), NDCode},
		{"23 bytes", with(ns(), func(n *nd) { n.fixed, n.opts = make([]byte, 19), nil }), NDLength},
		{"target multicast", with(ns(), func(n *nd) { n.target = allNodes6 }), NDTargetMulticast},
		{"target IPv4-mapped", with(ns(), func(n *nd) { n.target = owner4 }), NDMapped},
		{"source IPv4-mapped", with(ns(), func(n *nd) { n.from = asker4 }), NDMapped},
		{"source multicast", with(ns(), func(n *nd) { n.from = allNodes6 }), NDSource},
		{"row 5: option length 0", with(ns(), func(n *nd) { n.opts = make([]byte, 8) }), NDOption},
		{"option length 0 after a good one", with(ns(), func(n *nd) { n.opts = append(n.opts, make([]byte, 8)...) }), NDOption},
		{"row 5: option past the end", with(ns(), func(n *nd) { n.opts[1] = 2 }), NDOption},
		{"option of 255 * 8", with(ns(), func(n *nd) { n.opts[1] = 255 }), NDOption},
		{"row 5: SLLAO cut short", with(ns(), func(n *nd) { n.opts = n.opts[:4] }), NDOption},
		{"row 5: one byte of an option", with(ns(), func(n *nd) { n.opts = append(n.opts, 14) }), NDOption},
		{"row 5: SLLAO of 16 bytes", with(ns(), func(n *nd) { n.opts = append(n.opts, make([]byte, 8)...); n.opts[1] = 2 }), NDOption},
		{"from :: to a unicast address", with(dad(), func(n *nd) { n.to = owner6 }), NDUnspecifiedDest},
		{"from :: to all nodes", with(dad(), func(n *nd) { n.to = allNodes6 }), NDUnspecifiedDest},
		{"from :: with SLLAO", with(dad(), func(n *nd) { n.opts = lladdr(1, asker) }), NDUnspecifiedSLLAO},
		{"RS from ::", rs, OK},
		{"RS from :: with SLLAO", with(rs, func(n *nd) { n.opts = lladdr(1, asker) }), NDUnspecifiedSLLAO},
		{"RS of 7 bytes", with(rs, func(n *nd) { n.fixed = n.fixed[:3] }), NDLength},
		{"RA", ra, OK},
		{"RA from a global address", with(ra, func(n *nd) { n.from = owner6 }), NDSource},
		{"RA of 15 bytes", with(ra, func(n *nd) { n.fixed, n.opts = n.fixed[:11], nil }), NDLength},
		{"NA", na(), OK},
		{"NA from ::", with(na(), func(n *nd) { n.from = none6 }), NDSource},
		{"NA solicited to a group", with(na(), func(n *nd) { n.flags |= 0x40 }), NDSolicitedGroup},
		{"NA target multicast", with(na(), func(n *nd) { n.target = allNodes6 }), NDTargetMulticast},
		{"redirect to a router", redirect(addr("fe80::2"), owner6), OK},
		{"redirect on link", redirect(owner6, owner6), OK},
		{"redirect to a global router", redirect(asker6, owner6), NDTarget},
		{"redirect for a group", redirect(addr("fe80::2"), allNodes6), NDTarget},
		{"behind hop-by-hop", with(ns(), func(n *nd) { n.ext = []gopacket.SerializableLayer{hopByHop()} }), OK},
		{"behind destination options", with(ns(), func(n *nd) {
			n.next, n.ext = layers.IPProtocolIPv6Destination, []gopacket.SerializableLayer{hopByHop()}
		}), OK},
		{"first fragment", with(ns(), func(n *nd) { n.next, n.ext = layers.IPProtocolIPv6Fragment, fragment(1) }), NDFragment},
		{"atomic fragment", with(ns(), func(n *nd) { n.next, n.ext = layers.IPProtocolIPv6Fragment, fragment(0) }), NDFragment},
		{"atomic fragment behind hop-by-hop", with(ns(), func(n *nd) {
			n.ext = append([]gopacket.SerializableLayer{gopacket.Payload{44, 0, 1, 4, 0, 0, 0, 0}}, fragment(0)...)
		}), NDFragment},
	} {
		t.Run(tc.name, func(t *testing.T) {
			frame := tc.in.frame(t)
			l, m, got := parse(t, frame)
			if got != tc.want {
				t.Fatalf("Parse = %v, want %v", got, tc.want)
			}
			if got == OK {
				oracle(t, frame, &l, &m)
			}
		})
	}
}

// TestN1_Checksum: any flipped bit of the message is found (RFC 4443 section 2.3).
func TestN1_Checksum(t *testing.T) {
	frame := ns().frame(t)
	for at := 14 + 8; at < len(frame); at++ {
		frame[at] ^= 0x10
		if _, _, got := parse(t, frame); got == OK && at != 14+40 {
			t.Errorf("byte %d flipped: accepted", at)
		}
		frame[at] ^= 0x10
	}
}

// TestN1_PaddingIsNoOption: what the Ethernet driver padded with is not read.
func TestN1_PaddingIsNoOption(t *testing.T) {
	n := ns()
	n.opts = nil
	frame := append(n.frame(t), 1, 0, 9, 9, 9, 9, 9, 9)
	if _, m := mustParse(t, frame); m.HasLLAO {
		t.Error("padding taken for an SLLAO")
	}
}

// TestN2_OptionsIgnored: unknown options, nonce and reserved bits stop nothing
// (RFC 4861 7.1.1, RFC 7527 section 4).
func TestN2_OptionsIgnored(t *testing.T) {
	n := ns()
	n.opts = append([]byte{14, 1, 1, 2, 3, 4, 5, 6}, n.opts...)               // nonce
	n.opts = append(n.opts, 253, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) // experimental
	n.fixed = append([]byte{0xff, 0xff, 0xff, 0xff}, wire6(owner6)...)
	_, m := mustParse(t, n.frame(t))
	if !m.HasLLAO || m.SenderMAC != asker || m.ShaMismatch {
		t.Errorf("SLLAO between unknown options: %+v", m)
	}
	if got := Decide(&m, &View{Known: true, MAC: owner}); got != Answer {
		t.Errorf("Decide = %v", got)
	}
}

func TestSecondSLLAOThatContradicts(t *testing.T) {
	n := ns()
	n.opts = append(n.opts, lladdr(1, third)...)
	if _, m := mustParse(t, n.frame(t)); m.SenderMAC != asker || !m.ShaMismatch {
		t.Errorf("%+v", m)
	}
}

func TestOtherFramesAreNone(t *testing.T) {
	for name, frame := range map[string][]byte{
		"echo":         nd{typ: 128, src: asker, dst: owner, from: asker6, to: owner6}.frame(t),
		"MLD":          nd{typ: 143, src: asker, dst: third, from: asker6, to: addr("ff02::16")}.frame(t),
		"type 132":     nd{typ: 132, src: asker, dst: owner, from: asker6, to: owner6}.frame(t),
		"type 138":     nd{typ: 138, src: asker, dst: owner, from: asker6, to: owner6}.frame(t),
		"unknown type": serialize(t, append(link(asker, owner, nil, 0x88b5), gopacket.Payload("x"))...),
	} {
		if _, m, got := parse(t, frame); got != OK || m != (Message{}) {
			t.Errorf("%s: %v %+v", name, got, m)
		}
	}
}

// TestAskedIsWhatParseFinds: looking ahead at a question names the address Parse
// reads, and nothing where there is no plain question.
func TestAskedIsWhatParseFinds(t *testing.T) {
	tagged := request()
	tagged.tags = []uint16{5}
	for name, test := range map[string]struct {
		frame []byte
		ok    bool
	}{
		"ARP": {request().frame(t), true}, "NS": {ns().frame(t), true}, "DAD NS": {dad().frame(t), true},
		"NA": {na().frame(t), false}, "tagged": {tagged.frame(t), false},
	} {
		ip, ok := Asked(test.frame)
		if ok != test.ok {
			t.Errorf("%s: %v", name, ok)
		}
		if _, m := mustParse(t, test.frame); ok && ip != m.Target {
			t.Errorf("%s: %v, Parse reads %v", name, ip, m.Target)
		}
		for n := range test.frame {
			Asked(test.frame[:n]) // a cut frame is no reason to panic
		}
	}
}

package fastpath

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// walkCase is one frame and what must become of it.
type walkCase struct {
	name    string
	frame   []byte
	uplink  bool
	change  func(*table.Port) // of port A, for this case
	verdict Verdict
	reason  DropReason
	reply   bool
}

func portCases(t testing.TB) []walkCase {
	mc, sol := solicited(ip6B)
	arpTo := func(tpa string) []byte { return arpFrame(t, broadcast, macA, 1, ipA, addr(tpa)) }
	unicast := func(dst packet.MAC) []byte { return udpTo(t, dst, ipD, 9) }
	unicast6 := func(dst packet.MAC) []byte { return udpTo(t, dst, ip6D, 9) }
	long := serialize(t, ether(macD, macA, layers.EthernetTypeIPv4), ip4(ipA, ipD, layers.IPProtocolUDP), gopacket.Payload(make([]byte, 1460)))
	gw := func(to string, ttl uint8) []byte {
		ip := ip4(ipA, addr(to), layers.IPProtocolUDP)
		ip.TTL = ttl
		return serialize(t, ether(gwA, macA, layers.EthernetTypeIPv4), ip, gopacket.Payload([]byte{0, 1, 0, 2, 0, 8, 0, 0}))
	}
	mac := func(p *table.Port) { p.Security = table.SecurityMAC }
	macip := func(p *table.Port) { p.Security = table.SecurityMACIP }
	cases := []walkCase{
		{name: "runt", frame: make([]byte, 13), reason: ReasonRunt},
		{name: "cut IPv4", frame: unicast(macD)[:30], reason: ReasonMalformed},
		{name: "cut IPv6", frame: unicast6(macD)[:50], reason: ReasonMalformed},
		{name: "group source", frame: arpFrame(t, broadcast, packet.MAC{3, 0, 0, 0, 0, 1}, 1, ipA, ipB), reason: ReasonSourceMAC},
		{name: "broadcast source", frame: arpFrame(t, broadcast, broadcast, 1, ipA, ipB), reason: ReasonSourceMAC},
		{name: "zero source", frame: arpFrame(t, broadcast, packet.MAC{}, 1, ipA, ipB), reason: ReasonSourceMAC},
		{name: "network unknown", frame: unicast(macD), change: func(p *table.Port) { p.Net = 0 }, reason: ReasonNetwork},
		{name: "spoofed MAC", frame: arpFrame(t, broadcast, macStranger, 1, ipA, ipB), change: mac, reason: ReasonSpoofedMAC},
		{name: "spoofed IP", frame: serialize(t, ether(macD, macA, layers.EthernetTypeIPv4), ip4(ipB, ipD, 17)), change: macip, reason: ReasonSpoofedIP},
		{name: "spoofed spa", frame: arpFrame(t, broadcast, macA, 1, ipB, ipD), change: macip, reason: ReasonSpoofedIP},
		{name: "own address with mac+ip", frame: arpFrame(t, broadcast, macA, 1, ipA, ipD), change: macip, verdict: Answered},
		{name: "probe with mac+ip", frame: arpFrame(t, broadcast, macA, 1, addr("0.0.0.0"), ipD), change: macip, verdict: Answered},

		{name: "DHCP", frame: udpTo(t, broadcast, addr("255.255.255.255"), 67), reason: ReasonGroupDHCP},
		{name: "DHCPv6", frame: udpTo(t, packet.MAC{0x33, 0x33, 0, 1, 0, 2}, addr("ff02::1:2"), 547), reason: ReasonGroupDHCP},
		{name: "RS", frame: icmp6Frame(t, packet.MAC{0x33, 0x33, 0, 0, 0, 2}, macA, addr("fe80::a"), addr("ff02::2"), 133, make([]byte, 4)), reason: ReasonGroupND},
		{name: "MLD", frame: icmp6Frame(t, packet.MAC{0x33, 0x33, 0, 0, 0, 0x16}, macA, addr("fe80::a"), addr("ff02::16"), 143, make([]byte, 4)), reason: ReasonGroupMLD},
		{name: "IGMP", frame: serialize(t, ether(packet.MAC{1, 0, 0x5e, 0, 0, 0x16}, macA, layers.EthernetTypeIPv4), ip4(ipA, addr("224.0.0.22"), layers.IPProtocolIGMP), gopacket.Payload(make([]byte, 8))), reason: ReasonGroupIGMP},
		{name: "VRRP", frame: serialize(t, ether(packet.MAC{1, 0, 0x5e, 0, 0, 0x12}, macA, layers.EthernetTypeIPv4), ip4(ipA, addr("224.0.0.18"), 112), gopacket.Payload(make([]byte, 8))), reason: ReasonGroupVRRP},
		{name: "VRRPv6", frame: serialize(t, ether(packet.MAC{0x33, 0x33, 0, 0, 0, 0x12}, macA, layers.EthernetTypeIPv6), ip6(ip6A, addr("ff02::12"), 112), gopacket.Payload(make([]byte, 8))), reason: ReasonGroupVRRP},
		{name: "mDNS", frame: udpTo(t, packet.MAC{1, 0, 0x5e, 0, 0, 0xfb}, addr("224.0.0.251"), 5353), reason: ReasonGroupMDNS},
		{name: "mDNSv6", frame: udpTo(t, packet.MAC{0x33, 0x33, 0, 0, 0, 0xfb}, addr("ff02::fb"), 5353), reason: ReasonGroupMDNS},
		{name: "STP", frame: append(append([]byte{1, 0x80, 0xc2, 0, 0, 0}, macA[:]...), append([]byte{0, 38, 0x42, 0x42, 3}, make([]byte, 35)...)...), reason: ReasonGroupSTP},
		{name: "LLDP", frame: append(append([]byte{1, 0x80, 0xc2, 0, 0, 0xe}, macA[:]...), append([]byte{0x88, 0xcc}, make([]byte, 46)...)...), reason: ReasonGroupLLDP},
		{name: "GARP", frame: arpFrame(t, broadcast, macA, 1, ipA, ipA), reason: ReasonGroupARP},
		{name: "ARP reply to all", frame: arpFrame(t, broadcast, macA, 2, ipA, ipB), reason: ReasonGroupARP},
		{name: "RARP", frame: append(append(append(broadcast[:6:6], macA[:]...), 0x80, 0x35), arpFrame(t, broadcast, macA, 3, ipA, ipA)[14:]...), reason: ReasonRARP},
		{name: "other group", frame: udpTo(t, packet.MAC{1, 0, 0x5e, 1, 1, 1}, addr("239.1.1.1"), 9), reason: ReasonGroupOther},
		{name: "broadcast non-IP", frame: append(append(broadcast[:6:6], macA[:]...), append([]byte{0x12, 0x34}, make([]byte, 46)...)...), reason: ReasonGroupOther},

		{name: "ARP answered", frame: arpTo("10.0.0.13"), verdict: Answered},
		{name: "ARP answered, tagged", frame: tagged(arpTo("10.0.0.13"), 100, 7), verdict: Answered},
		{name: "NS answered", frame: nsFrame(t, mc, macA, ip6A, sol, ip6B), verdict: Answered},
		{name: "ARP for own", frame: arpFrame(t, broadcast, macA, 1, addr("0.0.0.0"), ipA), reason: ReasonSilentOwnPort},
		{name: "owner asks elsewhere", frame: arpFrame(t, broadcast, macD, 1, addr("0.0.0.0"), ipD), reason: ReasonSilentOwnerAsks},
		{name: "ARP unknown", frame: arpTo("10.0.0.99"), reason: ReasonSilentUnknown},
		{name: "ARP for a MAC nowhere", frame: arpTo("10.0.0.70"), reason: ReasonSilentUnknown},
		{name: "ARP owner down", frame: arpTo("10.0.0.40"), reason: ReasonSilentOwnerDown},
		{name: "ARP node dead", frame: arpTo("10.0.0.50"), reason: ReasonSilentNodeDead},
		{name: "ARP duplicate", frame: arpTo("10.0.0.60"), reason: ReasonSilentDuplicate},
		{name: "unicast ARP forwarded", frame: arpFrame(t, macD, macA, 1, ipA, ipD), verdict: Remote},
		{name: "ARP for gateway", frame: arpTo("10.0.0.1"), verdict: Answered},
		{name: "unicast ARP to gateway", frame: arpFrame(t, gwA, macA, 1, ipA, gatewayIP), verdict: Answered},

		{name: "unknown unicast", frame: unicast(macStranger), reason: ReasonUnknownUnicast},
		{name: "other network's MAC", frame: unicast(macNowhere), reason: ReasonUnknownUnicast},
		{name: "segment denied", frame: unicast(macDenied), reason: ReasonSegment},
		{name: "segment denied, v6", frame: unicast6(macDenied), reason: ReasonSegment},
		{name: "same port", frame: unicast(macA), reason: ReasonSamePort},
		{name: "port down", frame: unicast(macDown), reason: ReasonPortDown},
		{name: "port down, v6", frame: unicast6(macDown), reason: ReasonPortDown},
		{name: "node unresolved", frame: unicast(macUnresolved), reason: ReasonNodeUnresolved},
		{name: "node unresolved, v6", frame: unicast6(macUnresolved), reason: ReasonNodeUnresolved},
		{name: "too big", frame: long, reason: ReasonTooBig, reply: true},
		{name: "local", frame: unicast(macB), verdict: Local},
		{name: "local, tagged", frame: tagged(unicast(macB), 5), verdict: Local},
		{name: "remote", frame: unicast(macD), verdict: Remote},
		{name: "remote, two tags", frame: tagged(unicast(macD), 5, 6), verdict: Remote},
		{name: "remote, non-IP", frame: append(append(macD[:6:6], macA[:]...), append([]byte{0x12, 0x34}, make([]byte, 46)...)...), verdict: Remote},

		{name: "gateway TTL", frame: gw("10.0.0.13", 1), reason: ReasonGatewayTTL, reply: true},
		{name: "gateway no neighbour", frame: gw("10.0.0.99", 64), reason: ReasonGatewayNoNeighbor, reply: true},
		{name: "gateway non-IP", frame: append(append(gwA[:6:6], macA[:]...), append([]byte{0x12, 0x34}, make([]byte, 46)...)...), reason: ReasonGatewayNotIP},
		{name: "gateway routes to remote", frame: gw("10.0.0.13", 64), verdict: Remote},
		{name: "gateway routes to local", frame: gw("10.0.0.11", 64), verdict: Local},
	}
	return append(cases, malformedCases(t)...)
}

// malformedCases has one frame for each arpnd.Malformed.
func malformedCases(t testing.TB) []walkCase {
	mc, sol := solicited(ip6B)
	base := nsFrame(t, mc, macA, ip6A, sol, ip6B)
	edit := func(f func(b []byte)) []byte {
		b := append([]byte{}, base...)
		f(b)
		return b
	}
	none := addr("::")
	body := func(target string, options ...byte) []byte {
		return append(append(make([]byte, 4), addr(target).AsSlice()...), options...)
	}
	arp := arpFrame(t, broadcast, macA, 1, ipA, ipB)
	hdr := append([]byte{}, arp...)
	hdr[15] = 6
	fragment := append([]byte{}, base[:54]...)
	fragment[20] = 44
	fragment = append(append(fragment, 58, 0, 0, 0, 0, 0, 0, 1), base[54:]...)
	fragment[18], fragment[19] = byte((len(fragment)-54)>>8), byte(len(fragment)-54)
	all := packet.MAC{0x33, 0x33, 0, 0, 0, 1}
	list := []struct {
		m     arpnd.Malformed
		frame []byte
	}{
		{arpnd.ARPLength, arp[:40]},
		{arpnd.ARPHeader, hdr},
		{arpnd.NDFragment, fragment},
		{arpnd.NDHopLimit, edit(func(b []byte) { b[21] = 64 })},
		{arpnd.NDLength, icmp6Frame(t, mc, macA, ip6A, sol, 135, make([]byte, 8))},
		{arpnd.NDChecksum, edit(func(b []byte) { b[56] ^= 1 })},
		{arpnd.NDCode, func() []byte {
			ip := ip6(ip6A, sol, layers.IPProtocolICMPv6)
			i := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(135, 1)}
			_ = i.SetNetworkLayerForChecksum(ip)
			return serialize(t, ether(mc, macA, layers.EthernetTypeIPv6), ip, i, gopacket.Payload(body("fd00:10::b")))
		}()},
		{arpnd.NDSource, icmp6Frame(t, all, macA, none, addr("ff02::1"), 136, body("fd00:10::b"))},
		{arpnd.NDTargetMulticast, icmp6Frame(t, mc, macA, ip6A, sol, 135, body("ff02::b"))},
		{arpnd.NDMapped, icmp6Frame(t, mc, macA, ip6A, sol, 135, body("::ffff:10.0.0.11"))},
		{arpnd.NDUnspecifiedDest, icmp6Frame(t, all, macA, none, addr("ff02::1"), 135, body("fd00:10::b"))},
		{arpnd.NDUnspecifiedSLLAO, icmp6Frame(t, mc, macA, none, sol, 135, body("fd00:10::b", 1, 1, 2, 0, 0, 0, 0, 0xa))},
		{arpnd.NDSolicitedGroup, icmp6Frame(t, all, macA, ip6A, addr("ff02::1"), 136, append([]byte{0x40, 0, 0, 0}, addr("fd00:10::a").AsSlice()...))},
		{arpnd.NDTarget, icmp6Frame(t, macB, macA, addr("fe80::1"), ip6B, 137, append(body("fd00:10::1"), addr("fd00:20::1").AsSlice()...))},
		{arpnd.NDOption, icmp6Frame(t, mc, macA, ip6A, sol, 135, body("fd00:10::b", 1, 0, 0, 0, 0, 0, 0, 0))},
	}
	var cases []walkCase
	for _, x := range list {
		cases = append(cases, walkCase{name: "malformed " + x.m.String(), frame: x.frame, reason: ReasonMalformedND + DropReason(x.m) - 1})
	}
	return cases
}

func uplinkCases(t testing.TB) []walkCase {
	inner := func(dst packet.MAC) []byte { return udpFrame(dst, macD, false, 1, 22) }
	inner6 := func(dst packet.MAC) []byte { return udpFrame(dst, macD, true, 1, 22) }
	good := outer(t, inner(macA), nil, uint32(red), 7)
	edit := func(f func(b []byte)) []byte {
		b := append([]byte{}, good...)
		f(b)
		return b
	}
	other := func(s string) func(*srv6.EncapConfig) {
		return func(c *srv6.EncapConfig) { c.Source = mustLocator(s) }
	}
	sid := srv6.NewSID(selfLocator, srv6.DefaultFunction, uint32(red), 0).Addr()
	srh := outer(t, inner(macA), func(c *srv6.EncapConfig) { c.Via = append(c.Via, sid) }, uint32(red), 7)
	ce := edit(func(b []byte) { b[15] |= 0x30 }) // traffic class low bits: ECN CE
	srcGroup := outer(t, udpFrame(macA, packet.MAC{3}, false, 1, 22), nil, uint32(red), 7)
	return []walkCase{
		{name: "decapsulated", frame: good, verdict: Local},
		{name: "runt", frame: good[:50], reason: ReasonRunt},
		{name: "outer length", frame: good[:len(good)-1], reason: ReasonOuter},
		{name: "no SID", frame: edit(func(b []byte) { b[46] ^= 1 }), reason: ReasonOuterSID},
		{name: "unknown source", frame: outer(t, inner(macA), other("2001:db8:0:9::/64"), uint32(red), 7), reason: ReasonOuterSource},
		{name: "own locator as source", frame: outer(t, inner(macA), other("2001:db8:0:1::/64"), uint32(red), 7), reason: ReasonOuterSource},
		{name: "unknown network", frame: outer(t, inner(macA), nil, 999, 7), reason: ReasonOuterNetwork},
		{name: "segments left", frame: srh, reason: ReasonOuterSegments, reply: true},
		{name: "upper layer", frame: edit(func(b []byte) { b[20] = 17 }), reason: ReasonOuterUpper, reply: true},
		{name: "unasked ICMP", frame: underlayICMP(t, addr("2001:db8:ff::1"), sid, 129, make([]byte, 4)), reason: ReasonOuterICMP},
		{name: "echo to a SID", frame: underlayICMP(t, addr("2001:db8:ff::1"), sid, 128, make([]byte, 12)), verdict: Answered},
		{name: "congestion on Not-ECT", frame: ce, reason: ReasonOuterECN},
		{name: "inner source is a group", frame: srcGroup, reason: ReasonInner},
		{name: "inner group", frame: outer(t, inner(broadcast), nil, uint32(red), 7), reason: ReasonInnerGroup},
		{name: "remote target", frame: outer(t, inner(macDenied), nil, uint32(red), 7), reason: ReasonNotLocal},
		{name: "unknown target", frame: outer(t, inner(macStranger), nil, uint32(red), 7), reason: ReasonNotLocal},
		{name: "target down", frame: outer(t, inner(macDown), nil, uint32(red), 7), reason: ReasonPortDown},
		{name: "segment closed", frame: outer(t, inner(macA), nil, uint32(red), 0), reason: ReasonSegment},
		{name: "decapsulated, v6", frame: outer(t, inner6(macA), nil, uint32(red), 7), verdict: Local},
		{name: "segment closed, v6", frame: outer(t, inner6(macA), nil, uint32(red), 0), reason: ReasonSegment},
		{name: "too big for the port", frame: outer(t, udpFrame(macA, macD, false, 1, 1490), nil, uint32(red), 7), reason: ReasonTooBig},
	}
}

// walk1 runs one frame and returns it as the walk left it.
func walk1(t testing.TB, s *table.Snapshot, port table.Port, w *Walk, c walkCase) Frame {
	t.Helper()
	buf := make([]byte, 4096)
	copy(buf[room:], c.frame)
	f := []Frame{{Buf: buf, Off: room, Len: len(c.frame)}}
	if c.uplink {
		w.FromUplink(s, f)
	} else {
		if c.change != nil {
			c.change(&port)
		}
		w.FromPort(s, &port, f)
	}
	return f[0]
}

func allCases(t testing.TB) []walkCase {
	cases := portCases(t)
	for _, c := range uplinkCases(t) {
		c.uplink = true
		c.name = "uplink: " + c.name
		cases = append(cases, c)
	}
	return cases
}

func TestWalk(t *testing.T) {
	n := fullNode(t)
	s := n.Snapshot()
	w := NewWalk(16, Limits{})
	for _, c := range allCases(t) {
		t.Run(c.name, func(t *testing.T) {
			f := walk1(t, s, s.Ports[n.portA.Index()], w, c)
			if f.Verdict != c.verdict || f.Reason != c.reason || f.Reply != c.reply {
				t.Fatalf("got %v %v reply=%t, want %v %v reply=%t", f.Verdict, f.Reason, f.Reply, c.verdict, c.reason, c.reply)
			}
		})
	}
}

// walkOnly are the reasons a walk gives; the rest come on the way out.
func walkReasons() map[DropReason]bool {
	all := map[DropReason]bool{}
	for r := ReasonNone + 1; r < NumReasons; r++ {
		switch r {
		case ReasonTXFull, ReasonPool, ReasonHandoffFull, ReasonNoSocket:
		default:
			all[r] = true
		}
	}
	return all
}

func TestEveryDropReasonOfTheWalkIsHit(t *testing.T) {
	missing := walkReasons()
	for _, c := range allCases(t) {
		delete(missing, c.reason)
	}
	delete(missing, ReasonAnswerRate) // TestAnswerRateIsHeld
	for r := range missing {
		t.Errorf("no case for %v", r)
	}
}

func TestReasonsHaveDistinctNames(t *testing.T) {
	seen := map[string]DropReason{}
	for r := ReasonNone; r < NumReasons; r++ {
		name := r.String()
		if old, ok := seen[name]; ok || name == "" || name == "invalid" {
			t.Errorf("reason %d is named %q, like %d", r, name, old)
		}
		seen[name] = r
	}
}

func TestAnswerRateIsHeld(t *testing.T) {
	n := fullNode(t)
	s := n.Snapshot()
	w := NewWalk(16, Limits{AnswerRate: 10, AnswerBurst: 3})
	ask := walkCase{frame: arpFrame(t, broadcast, macA, 1, ipA, ipD)}
	count := func() (answered int) {
		for range 10 {
			if f := walk1(t, s, s.Ports[n.portA.Index()], w, ask); f.Verdict == Answered {
				answered++
			} else if f.Reason != ReasonAnswerRate {
				t.Fatalf("dropped for %v", f.Reason)
			}
		}
		return answered
	}
	if got := count(); got != 3 {
		t.Errorf("burst of %d answers, want 3", got)
	}
	w.Now += 200e6 // a fifth of a second: two tokens
	if got := count(); got != 2 {
		t.Errorf("%d answers after 200 ms, want 2", got)
	}
	// Another port has its own.
	if f := walk1(t, s, s.Ports[n.portB.Index()], w, walkCase{frame: arpFrame(t, broadcast, macB, 1, ipB, ipD)}); f.Verdict != Answered {
		t.Errorf("port B: %v %v", f.Verdict, f.Reason)
	}
}

func TestIsolationBetweenNetworksWithTheSameMACs(t *testing.T) {
	n := newNode(t)
	s := n.Snapshot()
	w := NewWalk(16, Limits{})
	for _, family := range families {
		c := walkCase{frame: udpTo(t, macB, family.b, 9)}
		if f := walk1(t, s, s.Ports[n.portA.Index()], w, c); f.Verdict != Local || int(f.Port) != n.portB.Index() {
			t.Errorf("%s in red: %v %v port %d", family.name, f.Verdict, f.Reason, f.Port)
		}
		// Blue has no station B, though red does.
		if f := walk1(t, s, s.Ports[n.portC.Index()], w, c); f.Reason != ReasonUnknownUnicast {
			t.Errorf("%s in blue: %v %v", family.name, f.Verdict, f.Reason)
		}
	}
}

func TestRemoteFrameDecapsulatesToItself(t *testing.T) {
	n := newNode(t)
	s := n.Snapshot()
	w := NewWalk(16, Limits{})
	for _, frame := range [][]byte{udpTo(t, macD, ipD, 9), tagged(udpTo(t, macD, ip6D, 9), 100, 7)} {
		f := walk1(t, s, s.Ports[n.portA.Index()], w, walkCase{frame: frame})
		if f.Verdict != Remote {
			t.Fatalf("%v %v", f.Verdict, f.Reason)
		}
		var o srv6.Outer
		if r := srv6.Decap(f.bytes(), otherLocator, srv6.DefaultFunction, &o); r != srv6.OK {
			t.Fatal(r)
		}
		if got := f.bytes()[o.Inner:o.End]; !bytes.Equal(got, frame) {
			t.Errorf("inner frame changed:\n got %x\nwant %x", got, frame)
		}
		if o.Network != uint32(red) || o.Arg != 7 {
			t.Errorf("network %d segment %d", o.Network, o.Arg)
		}
	}
}

func TestPacketTooBigLowersOnlyWhatWeSent(t *testing.T) {
	n := newNode(t)
	s := n.Snapshot()
	w := NewWalk(16, Limits{})
	sent := walk1(t, s, s.Ports[n.portA.Index()], w, walkCase{frame: udpTo(t, macD, ip6D, 9)})
	quote := append([]byte{}, sent.bytes()[14:]...)
	ptb := func(q []byte, mtu uint16) []byte {
		var src srv6.SID
		copy(src[:], q[8:24])
		return underlayICMP(t, addr("2001:db8:ff::1"), src.Addr(), 2, append([]byte{0, 0, byte(mtu >> 8), byte(mtu)}, q...))
	}
	take := func(frame []byte) (got []PathMTU) {
		if f := walk1(t, s, table.Port{}, w, walkCase{frame: frame, uplink: true}); f.Verdict != Dropped {
			t.Fatalf("%v", f.Verdict)
		}
		w.TakePathMTUs(func(p PathMTU) { got = append(got, p) })
		return got
	}
	if got := take(ptb(quote, 1400)); len(got) != 1 || got[0].MTU != 1400 || s.Nodes[got[0].Node].Name != "node2" {
		t.Fatalf("report: %+v", got)
	}
	label := append([]byte{}, quote...)
	label[3] ^= 1
	flow := append([]byte{}, quote...)
	flow[40+14+8+3] ^= 1 // inner source address
	dest := append([]byte{}, quote...)
	dest[31] ^= 0x40 // another node's SID
	for name, q := range map[string][]byte{"label": label, "inner flow": flow, "destination": dest} {
		if got := take(ptb(q, 1300)); len(got) != 0 {
			t.Errorf("forged %s was believed: %+v", name, got)
		}
	}
	if got := take(ptb(quote, 1200)); len(got) != 0 {
		t.Errorf("MTU below 1280 was believed: %+v", got)
	}
}

func TestWalkDoesNotAllocate(t *testing.T) {
	n := fullNode(t)
	s := n.Snapshot()
	w := NewWalk(16, Limits{})
	for _, c := range allCases(t) {
		if c.change != nil {
			continue
		}
		buf := make([]byte, 4096)
		fs := make([]Frame, 1)
		p := &s.Ports[n.portA.Index()]
		if got := testing.AllocsPerRun(20, func() {
			w.Now += 1e9
			copy(buf[room:], c.frame)
			fs[0] = Frame{Buf: buf, Off: room, Len: len(c.frame)}
			if c.uplink {
				w.FromUplink(s, fs)
			} else {
				w.FromPort(s, p, fs)
			}
		}); got != 0 {
			t.Errorf("%s: %v allocations", c.name, got)
		}
	}
}

// TestGatewayErrorsGoToTheSender: routed frames that are too long are answered
// to the station that sent them, not to the gateway itself.
func TestGatewayErrorsGoToTheSender(t *testing.T) {
	n := fullNode(t)
	s := n.Snapshot()
	w := NewWalk(16, Limits{})
	long := serialize(t, ether(gwA, macA, layers.EthernetTypeIPv4), ip4(ipA, ipD, layers.IPProtocolUDP), gopacket.Payload(make([]byte, 1460)))
	f := walk1(t, s, s.Ports[n.portA.Index()], w, walkCase{frame: long})
	if f.Reason != ReasonTooBig || !f.Reply {
		t.Fatalf("%v %v reply=%t", f.Verdict, f.Reason, f.Reply)
	}
	b := f.bytes()
	if dst, src := packet.MAC(b[0:6]), packet.MAC(b[6:12]); dst != macA || src != gwA {
		t.Errorf("error from %v to %v", src, dst)
	}
	if quoted := b[14+20+8:]; quoted[8] != long[14+8] {
		t.Errorf("quoted TTL %d, sent %d", quoted[8], long[14+8])
	}
}

func TestGatewayRewritesWhatItRoutes(t *testing.T) {
	n := fullNode(t)
	s := n.Snapshot()
	w := NewWalk(16, Limits{})
	for _, to := range []packet.MAC{macB, macD} {
		ip := map[packet.MAC]string{macB: "10.0.0.11", macD: "10.0.0.13"}[to]
		frame := serialize(t, ether(gwA, macA, layers.EthernetTypeIPv4), ip4(ipA, addr(ip), layers.IPProtocolUDP), gopacket.Payload([]byte{0, 1, 0, 2, 0, 8, 0, 0}))
		f := walk1(t, s, s.Ports[n.portA.Index()], w, walkCase{frame: frame})
		b := f.bytes()
		if f.Verdict == Remote {
			b = b[srv6.BaseOverhead:]
		}
		h := packet.IPv4(b[14:])
		if packet.MAC(b[0:6]) != to || packet.MAC(b[6:12]) != gwA || h.TTL() != 63 || packet.Fold(packet.Sum(h[:20])) != 0xffff {
			t.Errorf("%v: routed frame %x", f.Verdict, b[:34])
		}
	}
}

// TestOwnLinkLocalIsFreeUnderPortSecurity holds the address that RFC 4291
// appendix A makes of 02:00:00:00:00:0a.
func TestOwnLinkLocalIsFreeUnderPortSecurity(t *testing.T) {
	n := fullNode(t)
	s := n.Snapshot()
	w := NewWalk(16, Limits{})
	macip := func(p *table.Port) { p.Security = table.SecurityMACIP }
	mc, sol := solicited(ip6B)
	for from, want := range map[string]Verdict{"fe80::ff:fe00:a": Answered, "fe80::ff:fe00:b": Dropped, "::": Answered} {
		f := walk1(t, s, s.Ports[n.portA.Index()], w, walkCase{frame: nsFrame(t, mc, macA, addr(from), sol, ip6B), change: macip})
		if f.Verdict != want {
			t.Errorf("from %s: %v %v", from, f.Verdict, f.Reason)
		}
	}
}

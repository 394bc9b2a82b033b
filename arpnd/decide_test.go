package arpnd

import (
	"testing"

	"picot.dev/picot/internal/packet"
)

// held is the View of an address that owner holds on another port.
func held() View { return View{Known: true, MAC: owner} }

func viewed(edit func(*View)) View {
	v := held()
	edit(&v)
	return v
}

// decision is one row: a frame, what the tables say, what must come of it.
type decision struct {
	name  string
	frame func(testing.TB) []byte
	view  View
	want  Outcome
}

func decide(t *testing.T, rows []decision) {
	t.Helper()
	for _, tc := range rows {
		t.Run(tc.name, func(t *testing.T) {
			_, m := mustParse(t, tc.frame(t))
			if got := Decide(&m, &tc.view); got != tc.want {
				t.Errorf("Decide = %v, want %v", got, tc.want)
			}
			if !NeedsView(&m) {
				bare := View{GatewayMAC: tc.view.GatewayMAC}
				if got := Decide(&m, &bare); got != tc.want {
					t.Errorf("without the view it did not need: %v, want %v", got, tc.want)
				}
			}
		})
	}
}

func arpFrom(src, dst packet.MAC, spa, tpa packet.IP) func(testing.TB) []byte {
	return arp{op: 1, src: src, dst: dst, spa: spa, tpa: tpa}.frame
}

func nsWith(edit func(*nd)) func(testing.TB) []byte {
	n := ns()
	edit(&n)
	return n.frame
}

func dadWith(edit func(*nd)) func(testing.TB) []byte {
	n := dad()
	edit(&n)
	return n.frame
}

// TestA3_NoReplyToOwnBinding: RFC 9161 3.3 (b). Row 1 (OVN 9fcb6a184): a probe or
// DAD NS from the owning port. Row 2 (openwrt 14309): the owner's MAC asks for
// its own address from another port. Row 14 (OVN 005d3abfb): its own NS does not
// come back to it.
func TestA3_NoReplyToOwnBinding(t *testing.T) {
	ownPort := viewed(func(v *View) { v.OwnPort = true })
	decide(t, []decision{
		{"row 1: probe from the owning port", arpFrom(owner, packet.Broadcast, none4, owner4), ownPort, SilentOwnPort},
		{"row 1: DAD NS from the owning port", dadWith(func(n *nd) { n.src = owner }), ownPort, SilentOwnPort},
		{"another MAC on the owning port", arpFrom(third, packet.Broadcast, asker4, owner4), ownPort, SilentOwnPort},
		{"NS of another MAC on the owning port", ns().frame, ownPort, SilentOwnPort},
		{"row 2: the owner asks from another port", arpFrom(owner, packet.Broadcast, none4, owner4), held(), SilentOwnerAsks},
		{"row 2: the owner's DAD on another port", dadWith(func(n *nd) { n.src = owner }), held(), SilentOwnerAsks},
		{"row 2: the owner's MAC only as sha", arp{op: 1, src: third, sha: owner, dst: packet.Broadcast, spa: none4, tpa: owner4}.frame, held(), SilentOwnerAsks},
		{"row 2: the owner's MAC only as SLLAO", nsWith(func(n *nd) { n.opts = lladdr(1, owner) }), held(), SilentOwnerAsks},
		{"row 14: own NS", nsWith(func(n *nd) { n.src, n.opts = owner, lladdr(1, owner) }), ownPort, SilentOwnPort},
		{"own port wins over down and duplicate", ns().frame,
			viewed(func(v *View) { v.OwnPort, v.OwnerDown, v.Duplicate = true, true, true }), SilentOwnPort},
	})
}

// TestA4_ProbeForAnothersAddress: answered (RFC 5227 2.1.1, 2.5).
func TestA4_ProbeForAnothersAddress(t *testing.T) {
	decide(t, []decision{{"probe", arpFrom(asker, packet.Broadcast, none4, owner4), held(), Answer}})
}

// TestA5_AnnouncementsAreNotAnswered: RFC 5227 2.3; likewise an NA nobody asked for.
func TestA5_AnnouncementsAreNotAnswered(t *testing.T) {
	free := View{}
	decide(t, []decision{
		{"request form", arpFrom(asker, packet.Broadcast, asker4, asker4), free, Announcement},
		{"request form for another's address", arpFrom(asker, packet.Broadcast, owner4, owner4), held(), Announcement},
		{"reply form", arp{op: 2, src: asker, dst: packet.Broadcast, tha: packet.Broadcast, spa: asker4, tpa: asker4}.frame, free, Announcement},
		{"unsolicited NA", na().frame, held(), Announcement},
		{"unicast, to another station", arpFrom(asker, third, asker4, asker4), free, Forward},
		{"unicast, to our gateway", arpFrom(asker, gateway, asker4, asker4), View{GatewayMAC: gateway}, Announcement},
	})
}

// TestA6_N6_UnicastRequests: forwarded to the owner whatever is known, so that
// one answer comes (RFC 9161 3.3 (c)); to our gateway MAC: decided here.
func TestA6_N6_UnicastRequests(t *testing.T) {
	toOwner := func(n *nd) { n.dst = owner }
	toGateway := func(n *nd) { n.dst = gateway }
	gw := View{Known: true, Gateway: true, GatewayMAC: gateway}
	beside := viewed(func(v *View) { v.GatewayMAC = gateway })
	decide(t, []decision{
		{"ARP to the owner", arpFrom(asker, owner, asker4, owner4), held(), Forward},
		{"NS to the owner", nsWith(toOwner), held(), Forward},
		{"NUD by IP unicast", nsWith(func(n *nd) { n.dst, n.to = owner, owner6 }), held(), Forward},
		{"IPv6 group in an Ethernet unicast, RFC 6085", nsWith(toOwner), beside, Forward},
		{"unknown target", arpFrom(asker, owner, asker4, owner4), View{}, Forward},
		{"own port", arpFrom(asker, owner, asker4, owner4), viewed(func(v *View) { v.OwnPort = true }), Forward},
		{"owner down", nsWith(toOwner), viewed(func(v *View) { v.OwnerDown = true }), Forward},
		{"unicast probe", arpFrom(asker, owner, none4, owner4), held(), Forward},
		{"ARP to the gateway", arpFrom(asker, gateway, asker4, owner4), gw, Answer},
		{"NS to the gateway", nsWith(toGateway), gw, Answer},
		{"to the gateway MAC for another's address", nsWith(toGateway), beside, Answer},
		{"to the gateway MAC for nobody's address", nsWith(toGateway), View{GatewayMAC: gateway}, SilentUnknown},
		{"no gateway, zero destination", arpFrom(asker, noMAC, asker4, owner4), held(), Forward},
	})
}

// TestA7_Silence: rows 15 (kube-ovn 4145: endpoint down) and 16 (vpp 982: an
// unknown address of the prefix).
func TestA7_Silence(t *testing.T) {
	for _, family := range []struct {
		name  string
		frame func(testing.TB) []byte
	}{{"ARP", request().frame}, {"NS", ns().frame}, {"DAD NS", dad().frame}} {
		decide(t, []decision{
			{family.name + " row 16: unknown", family.frame, View{}, SilentUnknown},
			{family.name + " row 15: owner down", family.frame, viewed(func(v *View) { v.OwnerDown = true }), SilentOwnerDown},
			{family.name + " node dead", family.frame, viewed(func(v *View) { v.NodeDead = true }), SilentNodeDead},
			{family.name + " duplicate", family.frame, viewed(func(v *View) { v.Duplicate = true }), SilentDuplicate},
			{family.name + " all well", family.frame, held(), Answer},
		})
	}
}

// TestA8_ShaDiffers: answered; that nothing is learned is held by TestEvidence.
func TestA8_ShaDiffers(t *testing.T) {
	decide(t, []decision{
		{"ARP", arp{op: 1, src: asker, sha: third, dst: packet.Broadcast, spa: asker4, tpa: owner4}.frame, held(), Answer},
		{"NS", nsWith(func(n *nd) { n.opts = lladdr(1, third) }), held(), Answer},
	})
	frame := arp{op: 1, src: asker, sha: third, dst: packet.Broadcast, spa: asker4, tpa: owner4}.frame(t)
	l, m := mustParse(t, reply(t, frame, 0xff, owner, false))
	if m.EtherDst != asker || l.L3 != 14 {
		t.Errorf("the answer goes to %v, not to the station that asked", m.EtherDst)
	}
}

// TestN5_RouterFlag: the gateway is a router whatever the Neighbor says (RFC 9161
// section 3.2.1).
func TestN5_RouterFlag(t *testing.T) {
	for _, tc := range []struct {
		name   string
		view   View
		mac    packet.MAC
		router bool
	}{
		{"host or unknown", held(), owner, false},
		{"router", viewed(func(v *View) { v.Router = true }), owner, true},
		{"gateway", viewed(func(v *View) { v.Gateway, v.GatewayMAC = true, gateway }), gateway, true},
	} {
		mac, router := tc.view.Answer()
		if mac != tc.mac || router != tc.router {
			t.Errorf("%s: %v %v", tc.name, mac, router)
		}
		answer := reply(t, ns().frame(t), 0, mac, router)
		if _, m := mustParse(t, answer); m.Router != tc.router {
			t.Errorf("%s: R = %v in the NA", tc.name, m.Router)
		}
	}
}

// TestN7_DADDefended: row 4 (calico PR 13199) a DAD NS for another's address is
// defended while the owner's node lives, and only then (RFC 4862 section 5.4.3).
func TestN7_DADDefended(t *testing.T) {
	decide(t, []decision{
		{"row 4: alive", dad().frame, held(), Answer},
		{"dead node", dad().frame, viewed(func(v *View) { v.NodeDead = true }), SilentNodeDead},
		{"for the gateway's address", dad().frame, View{Gateway: true, GatewayMAC: gateway}, Answer},
	})
}

// TestN9_LinkLocal: a link-local target is answered like any other.
func TestN9_LinkLocal(t *testing.T) {
	ll := addr("fe80::ff:fe00:b")
	to, dst := solicitedNode(ll)
	target := func(n *nd) { n.target, n.to, n.dst = ll, to, dst }
	decide(t, []decision{
		{"NS", nsWith(target), held(), Answer},
		{"DAD NS", dadWith(target), held(), Answer},
		{"nobody's", nsWith(target), View{}, SilentUnknown},
	})
	_, m := mustParse(t, reply(t, nsWith(target)(t), 0xff, owner, false))
	if m.Target != ll || m.Sender != ll {
		t.Errorf("%+v", m)
	}
}

func TestGateway(t *testing.T) {
	gw := View{Gateway: true, GatewayMAC: gateway}
	decide(t, []decision{
		{"broadcast", request().frame, gw, Answer},
		{"lives on every node", request().frame, View{Gateway: true, GatewayMAC: gateway, OwnerDown: true, NodeDead: true}, Answer},
		{"a station with the gateway's MAC asks", arpFrom(gateway, packet.Broadcast, none4, owner4), gw, SilentOwnerAsks},
		{"addresses but no MAC", request().frame, View{Gateway: true}, SilentUnknown},
	})
}

func TestNotARequest(t *testing.T) {
	decide(t, []decision{
		{"ARP reply", arp{op: 2, src: owner, dst: asker, spa: owner4, tpa: asker4}.frame, held(), NotARequest},
		{"solicited NA", nd{typ: 136, src: owner, dst: asker, from: owner6, to: asker6, target: owner6, flags: 0x60}.frame, held(), NotARequest},
		{"RARP", arp{op: 3, src: asker, dst: packet.Broadcast, reverse: true, spa: none4, tpa: none4}.frame, held(), NotARequest},
		{"InARP", arp{op: 8, src: asker, dst: packet.Broadcast, spa: asker4, tpa: owner4}.frame, held(), NotARequest},
		{"RS", nd{typ: 133, src: asker, dst: packet.MAC{0x33, 0x33, 0, 0, 0, 2}, from: none6, to: addr("ff02::2"), fixed: make([]byte, 4)}.frame, held(), NotARequest},
	})
}

// TestNames: counters and drop reasons are named after these.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	check := func(s string) {
		if s == "" || s == "invalid" || seen[s] {
			t.Errorf("name %q is empty or taken", s)
		}
		seen[s] = true
	}
	for i := range NumOutcomes {
		check(Outcome(i).String())
	}
	for i := range NumMalformed {
		check(Malformed(i).String())
	}
	for i := range numOps {
		check(i.String())
	}
	if Outcome(200).String() != "invalid" || Class(9).String() != "invalid" {
		t.Error("out of range")
	}
}

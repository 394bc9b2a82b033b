package fastpath

import (
	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// silence maps what arpnd decided to the reason a frame is dropped for.
var silence = [arpnd.NumOutcomes]DropReason{
	arpnd.Announcement:    ReasonGroupARP,
	arpnd.SilentUnknown:   ReasonSilentUnknown,
	arpnd.SilentOwnPort:   ReasonSilentOwnPort,
	arpnd.SilentOwnerAsks: ReasonSilentOwnerAsks,
	arpnd.SilentOwnerDown: ReasonSilentOwnerDown,
	arpnd.SilentNodeDead:  ReasonSilentNodeDead,
	arpnd.SilentDuplicate: ReasonSilentDuplicate,
}

// resolve is the way of ARP, RARP and ND: answered here, forwarded if unicast,
// else dropped. None of it is ever sent to a group.
func (w *Walk) resolve(s *table.Snapshot, p *table.Port, f *Frame, target table.Target) {
	m, l := &w.message, &w.layout
	b := f.bytes()
	if bad := arpnd.Parse(b, l, m); bad != arpnd.OK {
		f.drop(ReasonMalformedND + DropReason(bad) - 1)
		return
	}
	if p.Security == table.SecurityMACIP {
		if r := secureMessage(p, m); r != ReasonNone {
			f.drop(r)
			return
		}
	}
	if w.network.Learning {
		w.observeMessage(s, p, b)
	}
	if m.Op == arpnd.RARP {
		f.drop(ReasonRARP)
		return
	}
	w.look(s, p, target)
	switch o := arpnd.Decide(m, &w.view); o {
	case arpnd.Answer:
		w.answer(p, f)
	case arpnd.Forward, arpnd.NotARequest:
		if m.Unicast {
			w.deliver(s, p, f, b, target)
			return
		}
		f.drop(groupKind(b, l))
	default:
		f.drop(silence[o])
	}
}

// answer writes the reply over the request and sends it back.
func (w *Walk) answer(p *table.Port, f *Frame) {
	if !w.limitsOf(p).answer.Take(w.Now) {
		f.drop(ReasonAnswerRate)
		return
	}
	mac, router := w.view.Answer()
	n := arpnd.Reply(f.Buf[f.Off:], f.Len, &w.layout, &w.message, mac, router)
	if n == 0 {
		f.drop(ReasonMalformed)
		return
	}
	f.Len = n
	f.Verdict = Answered
}

// look fills w.view with what the tables know about w.message's target. Of a
// question to a group, what FromPort looked ahead is at hand.
func (w *Walk) look(s *table.Snapshot, p *table.Port, target table.Target) {
	v := &w.view
	*v = arpnd.View{}
	v.GatewayMAC = w.network.Gateway.MAC
	if !arpnd.NeedsView(&w.message) {
		return
	}
	n := w.owners[w.at]
	// A question without tags and extension headers is where Asked read it.
	l := &w.layout
	ahead := !w.message.Unicast && l.L3 == packet.EthernetLen && (w.message.Op != arpnd.NS || l.L4 == l.L3+packet.IPv6Len)
	if !ahead {
		n, _ = s.Neighbor(p.Net, w.message.Target)
	}
	if n == 0 {
		return
	}
	v.Known, v.MAC = true, n.MAC()
	v.Gateway = n.Gateway()
	v.Router = n.RouterKnown() && n.Router()
	v.Duplicate = n.Duplicate()
	if v.Gateway {
		return
	}
	if !ahead {
		target = s.FDB(p.Net, n.MAC48())
	}
	switch target.Kind() {
	case table.KindLocal:
		if i := target.Index(); i < len(s.Ports) {
			v.OwnPort = s.Ports[i].ID == p.ID
			v.OwnerDown = s.Ports[i].ID == 0 || s.Ports[i].Down
		}
	case table.KindRemote:
		if i := target.Index(); i < len(s.Nodes) {
			v.NodeDead = !s.Nodes[i].Alive
		}
	default:
		// Nobody can vouch for a MAC that is nowhere.
		v.Known = false
	}
}

// groupKind is the reason a frame to a group is dropped for.
func groupKind(b []byte, l *packet.Layout) DropReason {
	switch l.EtherType {
	case packet.EtherTypeARP:
		return ReasonGroupARP
	case packet.EtherTypeRARP:
		return ReasonRARP
	case etherTypeLLDP:
		return ReasonGroupLLDP
	}
	if mac48(b)&^0xf == stpGroup && l.EtherType < 0x0600 {
		return ReasonGroupSTP
	}
	switch {
	case l.IsIPv4():
		return groupKind4(b, l)
	case l.IsIPv6():
		return groupKind6(b, l)
	}
	return ReasonGroupOther
}

const (
	etherTypeLLDP = 0x88cc
	stpGroup      = 0x0180c2000000 // IEEE 802.1D table 7-10: ..00 to ..0f
	protoVRRP     = 112
)

func groupKind4(b []byte, l *packet.Layout) DropReason {
	switch l.Proto {
	case packet.ProtoIGMP:
		return ReasonGroupIGMP
	case protoVRRP:
		return ReasonGroupVRRP
	case packet.ProtoUDP:
		switch udpDestination(b, l) {
		case 67, 68:
			return ReasonGroupDHCP
		case 5353:
			return ReasonGroupMDNS
		}
	}
	return ReasonGroupOther
}

func groupKind6(b []byte, l *packet.Layout) DropReason {
	switch l.Proto {
	case protoVRRP:
		return ReasonGroupVRRP
	case packet.ProtoICMPv6:
		if l.L4 == 0 || l.L4 >= len(b) {
			break
		}
		switch b[l.L4] {
		case 130, 131, 132, 143: // RFC 2710, RFC 3810
			return ReasonGroupMLD
		case 133, 134, 135, 136, 137:
			return ReasonGroupND
		}
	case packet.ProtoUDP:
		switch udpDestination(b, l) {
		case 546, 547:
			return ReasonGroupDHCP
		case 5353:
			return ReasonGroupMDNS
		}
	}
	return ReasonGroupOther
}

// udpDestination is the UDP destination port, 0 if there is none.
func udpDestination(b []byte, l *packet.Layout) int {
	if l.L4 == 0 || l.L4+4 > len(b) {
		return 0
	}
	return int(b[l.L4+2])<<8 | int(b[l.L4+3])
}

package fastpath

import (
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/icmperr"
	"picot.dev/picot/internal/packet"
)

func (w *Walk) deliverLocal(s *table.Snapshot, p *table.Port, f *Frame, b []byte, target table.Target) {
	i := target.Index()
	if i >= len(s.Ports) || s.Ports[i].ID == 0 || s.Ports[i].Down {
		f.drop(ReasonPortDown)
		return
	}
	to := &s.Ports[i]
	if to.ID == p.ID {
		f.drop(ReasonSamePort)
		return
	}
	if !w.network.Allows(p.Segment, target.Segment()) {
		f.drop(ReasonSegment)
		return
	}
	l := &w.layout
	if tooLong(f, l, to.MTU) {
		w.tooBig(s, p, f, to.MTU)
		return
	}
	packet.CompleteChecksum(b, l)
	f.Verdict, f.Port = Local, uint16(i)
}

// deliver sends a unicast frame b of port p on to its target; w.layout is the
// frame's. The way to another node is its own body: most frames' last call.
func (w *Walk) deliver(s *table.Snapshot, p *table.Port, f *Frame, b []byte, target table.Target) {
	switch target.Kind() {
	case table.KindRemote: // below
	case table.KindLocal:
		w.deliverLocal(s, p, f, b, target)
		return
	case table.KindGateway:
		w.route(s, p, f)
		return
	default:
		f.drop(ReasonUnknownUnicast)
		return
	}
	if !w.network.Allows(p.Segment, target.Segment()) {
		f.drop(ReasonSegment)
		return
	}
	i := target.Index()
	if i >= len(s.Nodes) || len(s.Nodes[i].NextHops) == 0 {
		f.drop(ReasonNodeUnresolved)
		return
	}
	node := &s.Nodes[i]
	l := &w.layout
	hash, tos, complete := packet.ReadFlow(&s.HashKey, b, l)
	hop := &node.NextHops[0]
	if n := len(node.NextHops); n > 1 {
		hop = &node.NextHops[pick(hash, n)]
	}
	e := hop.Encap
	mtu := hop.MTU
	if node.PathMTU != 0 {
		mtu = min(mtu, node.PathMTU)
	}
	before := e.Overhead()
	// The outer packet is all of it but the outer Ethernet header.
	if before+f.Len-packet.EthernetLen > mtu {
		w.tooBig(s, p, f, mtu-before-4*int(l.Tags))
		return
	}
	if before > f.Off {
		f.drop(ReasonTooBig) // no headroom: not met with room bytes before a frame
		return
	}
	if !complete {
		packet.CompleteChecksum(b, l)
	}
	n := f.Len
	f.Off -= before
	f.Len += before
	e.Push(f.Buf[f.Off:], n, uint32(p.Network), uint32(p.Segment), hash, tos)
	f.Verdict, f.Uplink, f.Hash = Remote, hop.Uplink, hash
}

// pick maps a hash to 0..n-1 by its middle bits: the top ones choose the
// uplink queue, the low ones are in label and source.
func pick(hash uint64, n int) int { return int(hash >> 24 & 0xffff * uint64(n) >> 16) }

// tooLong says that the frame's IP packet exceeds mtu; 0: nothing does.
// Ethernet padding does not count.
func tooLong(f *Frame, l *packet.Layout, mtu int) bool {
	return mtu != 0 && f.Len-l.L3 > mtu && max(l.L3Len, f.Len-l.L3) > mtu
}

// tooBig drops a frame too long for its way and tells the sender what fits.
func (w *Walk) tooBig(s *table.Snapshot, p *table.Port, f *Frame, mtu int) {
	f.drop(ReasonTooBig)
	w.tell(s, p, f, func(chunk []byte, n int, src icmperr.Source) int {
		return icmperr.TooBig(chunk, n, &w.layout, src, mtu)
	})
}

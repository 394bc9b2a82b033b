package fastpath

import (
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// outerReasons maps why srv6 does not decapsulate to the reason of the drop.
var outerReasons = [srv6.NumReasons]DropReason{
	srv6.Runt: ReasonRunt, srv6.NotIPv6: ReasonOuter, srv6.BadVersion: ReasonOuter, srv6.BadLength: ReasonOuter,
	srv6.NotOurs: ReasonOuterSID, srv6.SIDBits: ReasonOuterSID, srv6.FunctionUnknown: ReasonOuterSID,
	srv6.SRHMalformed: ReasonOuter, srv6.SegmentsLeft: ReasonOuterSegments, srv6.UpperLayer: ReasonOuterUpper,
	srv6.InnerRunt: ReasonInner, srv6.ICMP: ReasonOuterICMP,
}

// FromUplink decides about frames received from an uplink: decapsulated and
// delivered to a port of this node, or dropped. Nothing from an uplink ever
// goes out of an uplink but an ICMPv6 answer to its sender. At most
// table.Batch frames.
func (w *Walk) FromUplink(s *table.Snapshot, frames []Frame) {
	n := min(len(frames), table.Batch)
	for i := range frames[:n] {
		w.keys[i], w.reasons[i] = w.open(s, &frames[i], &w.outers[i])
	}
	s.FDBBatch(&w.keys, n, &w.targets)
	for i := range frames[:n] {
		f := &frames[i]
		if r := w.reasons[i]; r != ReasonNone {
			f.drop(r)
			w.answerOuter(s, f, &w.outers[i])
			continue
		}
		w.deliverInner(s, f, &w.outers[i], w.targets[i], table.NetIndex(w.keys[i]>>48))
	}
}

// open checks the outer headers and returns the FDB key of the inner frame.
func (w *Walk) open(s *table.Snapshot, f *Frame, o *srv6.Outer) (uint64, DropReason) {
	b := f.bytes()
	if r := srv6.Decap(b, s.Self, s.Function, o); r != srv6.OK {
		return 0, outerReasons[r]
	}
	if _, ok := s.NodeBySource(o.Src.Hi()); !ok {
		return 0, ReasonOuterSource
	}
	net, ok := s.NetworkByID(table.NetworkID(o.Network))
	if !ok {
		return 0, ReasonOuterNetwork
	}
	return table.FDBKey(net, mac48(b[o.Inner:])), ReasonNone
}

// deliverInner hands the inner frame to its local target.
func (w *Walk) deliverInner(s *table.Snapshot, f *Frame, o *srv6.Outer, target table.Target, net table.NetIndex) {
	f.Len = o.End - o.Inner
	f.Off += o.Inner
	b := f.bytes()
	if len(b) < packet.EthernetLen {
		f.drop(ReasonInner)
		return
	}
	if src := mac48(b[6:14]); src&groupBit != 0 || src == 0 {
		f.drop(ReasonInner)
		return
	}
	if b[0]&1 != 0 {
		f.drop(ReasonInnerGroup)
		return
	}
	if target.Kind() != table.KindLocal {
		f.drop(ReasonNotLocal)
		return
	}
	i := target.Index()
	if i >= len(s.Ports) || s.Ports[i].ID == 0 || s.Ports[i].Down {
		f.drop(ReasonPortDown)
		return
	}
	if !s.Allowed(net, table.Segment(o.Arg), target.Segment()) {
		f.drop(ReasonSegment)
		return
	}
	l := &w.layout
	l.L3 = packet.EthernetLen
	mtu := s.Ports[i].MTU
	if o.TOS&3 != 0 || mtu != 0 && f.Len-packet.EthernetLen > mtu {
		if !packet.Parse(b, l) {
			f.drop(ReasonInner)
			return
		}
		if tooLong(f, l, mtu) {
			f.drop(ReasonTooBig)
			return
		}
		if srv6.DecapECN(b, l, o.TOS) {
			f.drop(ReasonOuterECN)
			return
		}
	}
	f.Verdict, f.Port = Local, uint16(i)
}

// answerOuter is what a SID says itself: echo replies (RFC 9259), and a
// Parameter Problem where RFC 8986 sections 4.1.1 and 4.9 ask for one. All
// uplinks share one rate.
func (w *Walk) answerOuter(s *table.Snapshot, f *Frame, o *srv6.Outer) {
	b := f.bytes()
	switch f.Reason {
	case ReasonOuterICMP:
		if w.noteTooBig(s, b) || !w.uplinks.Take(w.Now) {
			return
		}
		if n, ok := srv6.EchoReply(b); ok {
			f.Len = n
			f.Verdict, f.Reason = Answered, ReasonNone
		}
	case ReasonOuterSegments, ReasonOuterUpper:
		code := byte(srv6.CodeErroneousHeader)
		if f.Reason == ReasonOuterUpper {
			code = srv6.CodeUpperLayer
		}
		if !w.uplinks.Take(w.Now) {
			return
		}
		if n, ok := srv6.ParameterProblem(b, code, o.Pointer, s.Self, len(f.Buf)-f.Off); ok {
			f.Len = n
			f.Reply = true
		}
	}
}

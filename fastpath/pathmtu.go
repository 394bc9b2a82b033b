package fastpath

import (
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/icmperr"
	"picot.dev/picot/internal/packet"
)

// PathMTU says that the underlay reported what fits on the way to a node.
type PathMTU struct {
	Node table.NodeIndex
	MTU  int // bytes of outer IP
}

// maxPathMTUs bounds the reports a Walk keeps until they are taken; more in one
// batch say nothing new.
const maxPathMTUs = 16

// TakePathMTUs calls f for each report since the last call.
func (w *Walk) TakePathMTUs(f func(PathMTU)) {
	for _, r := range w.pathMTUs[:w.pathMTUCount] {
		f(r)
	}
	w.pathMTUCount = 0
}

// noteTooBig reports whether b is ICMPv6 Packet Too Big about an SRv6 packet,
// and keeps its MTU if only we can have sent what it quotes: the source is ours,
// the last segment is a known node's, and our secret key makes the quoted flow
// label and source entropy of the quoted inner flow.
func (w *Walk) noteTooBig(s *table.Snapshot, b []byte) bool {
	l := &w.layout
	if !packet.Parse(b, l) {
		return false
	}
	p, ok := icmperr.ParsePTB(b, l)
	if !ok {
		return false
	}
	node, known := s.NodeBySource(p.Final.Hi)
	if !known || !s.Self.Contains(p.Src.Hi) || !packet.ParseQuote(b[p.Inner:p.End], l) {
		return true
	}
	hash := packet.FlowHash(&s.HashKey, b[p.Inner:p.End], l)
	if srv6.FlowLabel(hash) != p.FlowLabel {
		return true
	}
	if e := uint16(p.Src.Lo); e != srv6.Entropy(hash) && e != srv6.Entropy(0) {
		return true
	}
	if w.pathMTUCount < maxPathMTUs {
		w.pathMTUs[w.pathMTUCount] = PathMTU{Node: node, MTU: int(min(p.MTU, 1<<16))}
		w.pathMTUCount++
	}
	return true
}

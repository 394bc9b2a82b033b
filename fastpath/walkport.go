package fastpath

import (
	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// FromPort decides about frames received from workload port p. At most
// table.Batch frames; each gets its Verdict.
func (w *Walk) FromPort(s *table.Snapshot, p *table.Port, frames []Frame) {
	n := min(len(frames), table.Batch)
	// The destination MAC needs no parse, nor does a question's address, so that
	// the lookups of the whole batch overlap their cache misses.
	for i := range frames[:n] {
		f := &frames[i]
		key := uint64(0)
		if f.Len >= packet.EthernetLen {
			mac := mac48(f.Buf[f.Off:])
			if mac&groupBit != 0 {
				mac = w.owner(s, p, i, f.bytes())
			}
			key = table.FDBKey(p.Net, mac)
		}
		w.keys[i] = key
	}
	s.FDBBatch(&w.keys, n, &w.targets)
	w.network, w.portMAC = nil, p.MAC.Uint64()
	if int(p.Net) < len(s.Networks) && s.Networks[p.Net].Known {
		w.network = &s.Networks[p.Net]
	}
	for i := range frames[:n] {
		w.at = i
		w.fromPort(s, p, &frames[i], w.targets[i])
	}
}

// owner looks up who holds the address that frame i of the batch, to a group,
// asks for. The FDB lookup is then the owner's: a group has none.
func (w *Walk) owner(s *table.Snapshot, p *table.Port, i int, b []byte) (mac uint64) {
	w.owners[i] = 0
	if ip, ok := arpnd.Asked(b); ok {
		w.owners[i], _ = s.Neighbor(p.Net, ip)
	}
	return w.owners[i].MAC48()
}

// fromPort is the way of one frame. The order is part of the contract: the
// first reason that applies is the one that is counted.
func (w *Walk) fromPort(s *table.Snapshot, p *table.Port, f *Frame, target table.Target) {
	b := f.bytes()
	l := &w.layout
	if !packet.Parse(b, l) {
		if len(b) < packet.EthernetLen {
			f.drop(ReasonRunt)
			return
		}
		f.drop(ReasonMalformed)
		return
	}
	if l.ChainBroken {
		f.drop(ReasonMalformed) // ND could hide behind headers nobody walks
		return
	}
	src := mac48(b[6:14])
	if src&groupBit != 0 || src == 0 {
		f.drop(ReasonSourceMAC)
		return
	}
	if w.network == nil {
		f.drop(ReasonNetwork)
		return
	}
	if p.Security != table.SecurityOff && src != w.portMAC {
		f.drop(ReasonSpoofedMAC)
		return
	}
	if !l.Plain && resolves(b, l) {
		w.resolve(s, p, f, target)
		return
	}
	if p.Security == table.SecurityMACIP && l.L3Len != 0 {
		if r := secureIP(p, l.Source); r != ReasonNone {
			f.drop(r)
			return
		}
	}
	if w.network.Learning {
		w.observe(s, p, b, l, src)
	}
	if b[0]&1 != 0 {
		f.drop(groupKind(b, l))
		return
	}
	w.deliver(s, p, f, b, target)
}

// resolves says that a frame is for the ARP/ND step.
func resolves(b []byte, l *packet.Layout) bool {
	switch l.EtherType {
	case packet.EtherTypeARP, packet.EtherTypeRARP:
		return true
	case packet.EtherTypeIPv6:
		return l.Proto == packet.ProtoICMPv6 && l.L4 != 0 && l.L4 < len(b) && b[l.L4]-133 <= 137-133
	}
	return false
}

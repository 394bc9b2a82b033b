package fastpath

import (
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/icmperr"
	"picot.dev/picot/internal/packet"
)

// tell turns a dropped frame into an ICMP error back to its port, if one may
// be sent and the port's rate allows it.
func (w *Walk) tell(s *table.Snapshot, p *table.Port, f *Frame, write func(chunk []byte, n int, src icmperr.Source) int) {
	l := &w.layout
	b := f.bytes()
	if l.L3Len == 0 || !icmperr.Allowed(b, l) {
		return
	}
	src, ok := errorSource(&s.Networks[p.Net], b, l)
	if !ok || !w.limitsOf(p).errors.Take(w.Now) {
		return
	}
	if n := write(f.Buf[f.Off:], f.Len, src); n > 0 {
		f.Len = n
		f.Reply = true
	}
}

// errorSource is whom an ICMP error comes from: the network's gateway if it
// has one of the family, else the station the frame was for.
func errorSource(v *table.NetworkView, b []byte, l *packet.Layout) (icmperr.Source, bool) {
	for _, a := range v.Gateway.Addresses {
		if a.Is4() == l.IsIPv4() {
			return icmperr.Source{IP: packet.IPFromAddr(a), MAC: v.Gateway.MAC}, true
		}
	}
	ip := b[l.L3:]
	src := icmperr.Source{MAC: packet.MAC(b[0:6])}
	if l.IsIPv4() {
		src.IP = packet.IPv4(ip).Destination()
	} else {
		src.IP = packet.IPv6(ip).Destination()
	}
	return src, !src.MAC.IsGroup()
}

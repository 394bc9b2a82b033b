package fastpath

import (
	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// Port security is what a port may claim to be. Where it is on, a frame's source
// MAC is the endpoint's. With mac+ip every address a frame claims is checked too:
// the IP source, and in ARP and ND the sender's MAC and address and an advertised
// target. Free are 0.0.0.0 and ::, which claim nothing (DHCP, probes, DAD), and
// the link-local address made from the endpoint's own MAC.

// secureMessage checks an ARP, RARP or ND message.
func secureMessage(p *table.Port, m *arpnd.Message) DropReason {
	if m.ShaMismatch || m.HasLLAO && m.Op != arpnd.Redirect && m.SenderMAC != p.MAC {
		return ReasonSpoofedMAC
	}
	if m.Op == arpnd.RARP {
		return ReasonNone
	}
	if r := secureIP(p, m.Sender); r != ReasonNone {
		return r
	}
	if m.Op == arpnd.NA {
		return secureIP(p, m.Target)
	}
	return ReasonNone
}

func secureIP(p *table.Port, ip packet.IP) DropReason {
	for _, own := range p.IPs {
		if own == ip {
			return ReasonNone
		}
	}
	if ip.IsUnspecified() {
		return ReasonNone
	}
	return ReasonSpoofedIP
}

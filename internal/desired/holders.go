package desired

import (
	"fmt"
	"net/netip"

	"picot.dev/picot/k8s/api/v1alpha1"
)

// ResolveNetworks gives every ID to the network that held it, else to the first
// that claims it.
func ResolveNetworks(in []Network, held map[string]Network) (map[string]Network, []Problem) {
	out := make(map[string]Network, len(in))
	holder := make(map[uint32]string, len(in))
	var list []Problem
	for _, n := range holdersFirst(in, func(n *Network) bool { return held[n.Name].ID == n.ID }) {
		if h, ok := holder[n.ID]; ok {
			list = append(list, Problem{
				Object: Ref{Kind: v1alpha1.KindNetwork, Name: n.Name}, Field: "spec.id",
				Reason: fmt.Sprintf("id %d is that of Network %s", n.ID, h), Mend: "give each network an id of its own",
				Is: ErrDuplicate, Holder: Ref{Kind: v1alpha1.KindNetwork, Name: h},
			})
			continue
		}
		holder[n.ID] = n.Name
		out[n.Name] = n
	}
	return out, list
}

// ResolveNodes gives every locator to the node that held it, else to the first
// that claims it or a part of it.
func ResolveNodes(in []Node, held map[string]Node) (map[string]Node, []Problem) {
	out := make(map[string]Node, len(in))
	taken := locators{}
	var list []Problem
	for _, n := range holdersFirst(in, func(n *Node) bool { return held[n.Name].Locator == n.Locator }) {
		if h, ok := taken.overlapping(n.Locator); ok {
			list = append(list, Problem{
				Object: Ref{Kind: v1alpha1.KindSRv6Node, Name: n.Name}, Field: "spec.locator",
				Reason: fmt.Sprintf("%s overlaps %s of SRv6Node %s", n.Locator, out[h].Locator, h),
				Mend:   "give each node a locator of its own",
				Is:     ErrDuplicate, Holder: Ref{Kind: v1alpha1.KindSRv6Node, Name: h},
			})
			continue
		}
		taken.add(n.Locator, n.Name)
		out[n.Name] = n
	}
	return out, list
}

// locators finds who holds an overlapping locator without comparing all pairs:
// every prefix of a held locator, from 32 bits up, names one of its holders.
type locators map[netip.Prefix]struct {
	name string
	held bool // exactly this prefix is held
}

func (l locators) overlapping(p netip.Prefix) (string, bool) {
	if x, ok := l[p]; ok { // held, or something inside it is
		return x.name, true
	}
	for bits := p.Bits() - 1; bits >= minLocator; bits-- {
		if x, ok := l[shorten(p, bits)]; ok && x.held {
			return x.name, true
		}
	}
	return "", false
}

func (l locators) add(p netip.Prefix, name string) {
	for bits := p.Bits(); bits >= minLocator; bits-- {
		q := shorten(p, bits)
		x := l[q]
		if x.name == "" {
			x.name = name
		}
		x.held = x.held || bits == p.Bits()
		l[q] = x
	}
}

func shorten(p netip.Prefix, bits int) netip.Prefix {
	return netip.PrefixFrom(p.Addr(), bits).Masked()
}

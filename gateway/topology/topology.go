package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Interface is one device of a port. OFPort is 0 while vswitchd has not given a number, -1 when
// the device could not be opened.
type Interface struct {
	Name, Type string
	OFPort     int
}

// Port is a port of a bridge. Localnet is its external_ids:ovn-localnet-port, which
// ovn-controller puts on the patch ports it makes.
type Port struct {
	Name, Localnet string
	Interfaces     []Interface
}

// Bridge is a bridge of the OVS database. Uplink is external_ids:bridge-uplink, the name of its
// physical port where ovn-kubernetes made the bridge.
type Bridge struct {
	Name, Uplink string
	MAC          string
	Ports        []Port
}

// Router is a gateway router of this node as the NB database has it.
type Router struct {
	Network  string // "" is the default network
	Port     string // logical port of its bindings
	MAC      string
	Networks []netip.Prefix
	// MaxAge is the smallest mac_binding_age_threshold of the router; 0: bindings never age.
	MaxAge time.Duration
}

// Input is all that Compute looks at.
type Input struct {
	Node    string
	Bridges []Bridge
	Routers []Router
	// DefaultBridge is the bridge of the default network, from ovn-bridge-mappings; empty while
	// unknown, then the default network's patch port tells.
	DefaultBridge string
	// HostPort is the DPU's host representor, which is no uplink; empty elsewhere.
	HostPort string
	// Deleting holds the networks that are being deleted: never designated.
	Deleting map[string]bool
	// Previous is the network designated on each uplink bridge by the last Compute.
	Previous map[string]string
}

// Member is one gateway router on a bridge.
type Member struct {
	Network string
	// Port is the logical port of its bindings; empty while the NB database does not know the router.
	Port     string
	Patch    string // name of its patch port
	OFPort   int    // see Interface
	MAC      string
	Networks []netip.Prefix
	MaxAge   time.Duration
	Deleting bool
}

// Ingress is a port by which external frames enter a bridge.
type Ingress struct {
	Name   string
	OFPort int
}

// Group is the gateway routers of one bridge.
type Group struct {
	Bridge, MAC string
	// Default: the bridge of the default network.
	Default bool
	// Source is the router whose bindings are mirrored; nil if there is none now.
	Source *Member
	// Followers are the other routers, by patch name.
	Followers []Member
	// Uplinks are the devices of the physical port (several on a bond); Localnets are the patch
	// ports of secondary localnets, on the default bridge only.
	Uplinks, Localnets []Ingress
	// Host is the DPU's host representor; nil elsewhere.
	Host *Ingress
}

// Problem is something an operator must mend; the rest works on.
type Problem struct {
	Object string
	Reason string
}

func (p Problem) Error() string { return p.Object + ": " + p.Reason }

// State is the result of Compute. It is not changed afterwards.
type State struct {
	Groups   []Group // by bridge name
	Problems []Problem
}

// Designated gives what the next Compute takes as Previous.
func (s State) Designated() map[string]string {
	out := map[string]string{}
	for _, g := range s.Groups {
		if g.Source != nil && !g.Default {
			out[g.Bridge] = g.Source.Network
		}
	}
	return out
}

// Compute gives the groups, in the same order for the same input.
func Compute(in Input) State {
	var st State
	for _, br := range in.Bridges {
		members, localnets := sort(in, br)
		if len(members) == 0 {
			continue
		}
		g := Group{Bridge: br.Name, MAC: br.MAC, Default: isDefault(in, br, members)}
		if g.Default {
			g.Localnets = localnets
		}
		for _, p := range br.Ports {
			if in.HostPort != "" && p.Name == in.HostPort && len(p.Interfaces) > 0 {
				g.Host = &devices(p)[0]
			}
		}
		var problem string
		if g.Uplinks, problem = uplinks(br, in.HostPort); problem != "" {
			st.Problems = append(st.Problems, Problem{"bridge " + br.Name, problem})
		}
		src := source(in, g, members)
		for i := range members {
			if i == src {
				g.Source = &members[i]
				continue
			}
			g.Followers = append(g.Followers, members[i])
		}
		if g.Source == nil {
			st.Problems = append(st.Problems, Problem{"bridge " + br.Name, "no gateway router can be the source of its group yet"})
		}
		st.Groups = append(st.Groups, g)
	}
	slices.SortFunc(st.Groups, func(a, b Group) int { return cmp.Compare(a.Bridge, b.Bridge) })
	return st
}

// sort tells the patch ports of gateway routers from those of secondary localnets.
func sort(in Input, br Bridge) (members []Member, localnets []Ingress) {
	expected := make(map[string]*Router, len(in.Routers))
	for i := range in.Routers {
		expected[LocalnetPort(br.Name, in.Routers[i].Network, in.Node)] = &in.Routers[i]
	}
	for _, p := range br.Ports {
		if p.Localnet == "" || p.Name != PatchPort(p.Localnet) || len(p.Interfaces) != 1 {
			continue
		}
		no := p.Interfaces[0].OFPort
		r, known := expected[p.Localnet]
		switch {
		case known:
			members = append(members, Member{Network: r.Network, Port: r.Port, Patch: p.Name, OFPort: no, MAC: r.MAC,
				Networks: r.Networks, MaxAge: r.MaxAge, Deleting: in.Deleting[r.Network]})
		case isGatewayLocalnet(p.Localnet, br.Name, in.Node):
			// a router not yet, or no longer, in the NB database: never an ingress, never a source
			members = append(members, Member{Patch: p.Name, OFPort: no})
		case isSecondaryLocalnet(p.Localnet):
			localnets = append(localnets, Ingress{p.Name, no})
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Patch, b.Patch) })
	slices.SortFunc(localnets, func(a, b Ingress) int { return cmp.Compare(a.Name, b.Name) })
	return members, localnets
}

func isDefault(in Input, br Bridge, members []Member) bool {
	if in.DefaultBridge != "" {
		return in.DefaultBridge == br.Name
	}
	return slices.ContainsFunc(members, func(m Member) bool { return m.Network == "" && m.Port != "" })
}

// source gives the index of the group's source, or -1. On an uplink bridge the previous one stays
// while it can; a port that is only being numbered again counts as there, one that vswitchd could
// not open does not. Else the first network by name that is up.
func source(in Input, g Group, members []Member) int {
	if g.Default {
		return slices.IndexFunc(members, func(m Member) bool { return m.Network == "" && m.Port != "" })
	}
	best := -1
	prev, had := in.Previous[g.Bridge]
	for i, m := range members {
		if m.Port == "" || m.Network == "" || m.Deleting || m.OFPort < 0 {
			continue
		}
		if had && m.Network == prev {
			return i
		}
		if m.OFPort > 0 && (best < 0 || m.Network < members[best].Network) {
			best = i
		}
	}
	return best
}

// virtual are the interface types that are no physical port.
var virtual = map[string]bool{"internal": true, "patch": true, "geneve": true, "vxlan": true, "gre": true, "ip6gre": true,
	"erspan": true, "ip6erspan": true, "stt": true, "lisp": true, "gtpu": true, "bareudp": true, "srv6": true}

// uplinks finds the physical port: the one the bridge names, else the only one it could be.
func uplinks(br Bridge, host string) ([]Ingress, string) {
	var candidates []Port
	for _, p := range br.Ports {
		if br.Uplink != "" && p.Name == br.Uplink {
			return devices(p), ""
		}
		if p.Name == br.Name || p.Name == host || len(p.Interfaces) == 0 || p.Localnet != "" ||
			slices.ContainsFunc(p.Interfaces, func(i Interface) bool { return virtual[i.Type] }) {
			continue
		}
		candidates = append(candidates, p)
	}
	switch {
	case br.Uplink != "":
		return nil, fmt.Sprintf("external_ids:bridge-uplink names %q, which is no port of it", br.Uplink)
	case len(candidates) == 1:
		return devices(candidates[0]), ""
	case len(candidates) == 0:
		return nil, "has no physical port"
	}
	names := make([]string, len(candidates))
	for i, p := range candidates {
		names[i] = p.Name
	}
	slices.Sort(names)
	return nil, fmt.Sprintf("cannot tell the physical port among %s: set external_ids:bridge-uplink", strings.Join(names, ", "))
}

// devices gives a port's interfaces by name. A port has at least one (the schema says so).
func devices(p Port) []Ingress {
	out := make([]Ingress, 0, len(p.Interfaces))
	for _, i := range p.Interfaces {
		out = append(out, Ingress{i.Name, i.OFPort})
	}
	slices.SortFunc(out, func(a, b Ingress) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

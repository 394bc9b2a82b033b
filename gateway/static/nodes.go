package static

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"picot.dev/picot/internal/packet"
)

// Node is what a Kubernetes Node says about its gateway.
type Node struct {
	Name        string
	InternalIPs []netip.Addr
	// L3Gateway is the annotation k8s.ovn.org/l3-gateway-config, "" if there is none.
	L3Gateway string
}

// Uplink is an UplinkState: the bridge a node gave a named uplink.
type Uplink struct {
	Name, Node string
	Bridge     string // status.ovsBridge.name
	MAC        string
	Addresses  []netip.Prefix
}

// Address is a neighbour that is known without asking.
type Address struct {
	IP  netip.Addr
	MAC string
}

// Gateway is the annotation, parsed. Enabled is false for mode "".
type Gateway struct {
	Enabled   bool
	Mode      string
	Bridge    string
	MAC       string
	Addresses []netip.Prefix
	VLAN      int
}

// ErrAnnotation is wrapped by the errors of ParseGateway.
var ErrAnnotation = errors.New("malformed k8s.ovn.org/l3-gateway-config")

// ParseGateway reads the annotation. Its numbers and booleans are strings; mode "" is a gateway
// switched off and has no MAC; ip-address is the older form of ip-addresses.
func ParseGateway(annotation string) (Gateway, error) {
	var all map[string]struct {
		Mode      *string  `json:"mode"`
		MAC       string   `json:"mac-address"`
		Bridge    string   `json:"bridge-id"`
		Addresses []string `json:"ip-addresses"`
		Address   string   `json:"ip-address"`
		VLAN      string   `json:"vlan-id"`
	}
	if err := json.Unmarshal([]byte(annotation), &all); err != nil {
		return Gateway{}, fmt.Errorf("%w: %w", ErrAnnotation, err)
	}
	raw, ok := all["default"]
	if !ok || raw.Mode == nil {
		return Gateway{}, fmt.Errorf("%w: no mode of network default", ErrAnnotation)
	}
	g := Gateway{Mode: *raw.Mode, Bridge: raw.Bridge, Enabled: *raw.Mode != ""}
	if !g.Enabled {
		return g, nil
	}
	mac, err := packet.ParseMAC(raw.MAC)
	if err != nil || mac.IsGroup() || mac.IsZero() {
		return Gateway{}, fmt.Errorf("%w: bad mac-address %q", ErrAnnotation, raw.MAC)
	}
	g.MAC = mac.String()
	if len(raw.Addresses) == 0 && raw.Address != "" {
		raw.Addresses = []string{raw.Address}
	}
	for _, a := range raw.Addresses {
		p, err := netip.ParsePrefix(a)
		if err != nil {
			return Gateway{}, fmt.Errorf("%w: bad address %q", ErrAnnotation, a)
		}
		g.Addresses = append(g.Addresses, p)
	}
	if raw.VLAN != "" {
		if _, err := fmt.Sscanf(raw.VLAN, "%d", &g.VLAN); err != nil || g.VLAN < 0 || g.VLAN > 4094 {
			return Gateway{}, fmt.Errorf("%w: bad vlan-id %q", ErrAnnotation, raw.VLAN)
		}
	}
	return g, nil
}

// Book keeps the last good state of every node.
type Book struct {
	self  string
	nodes map[string]entry
}

type entry struct {
	internal []netip.Addr
	gateway  Gateway
	known    bool // gateway holds a good annotation
}

// NewBook makes the book of the node named self.
func NewBook(self string) *Book { return &Book{self: self, nodes: map[string]entry{}} }

// SetNodes takes the nodes that exist now. A node that is gone is forgotten; one whose annotation
// is missing or malformed keeps its last good one, and a malformed one is reported.
func (b *Book) SetNodes(nodes []Node) []error {
	var errs []error
	next := make(map[string]entry, len(nodes))
	for _, n := range nodes {
		e := b.nodes[n.Name]
		e.internal = n.InternalIPs
		if n.L3Gateway != "" {
			if g, err := ParseGateway(n.L3Gateway); err == nil {
				e.gateway, e.known = g, true
			} else {
				errs = append(errs, fmt.Errorf("node %s: %w", n.Name, err))
			}
		}
		next[n.Name] = e
	}
	b.nodes = next
	return errs
}

// Self gives the local node's gateway, if its annotation was ever good.
func (b *Book) Self() (Gateway, bool) {
	e := b.nodes[b.self]
	return e.gateway, e.known
}

// Own gives the local node's addresses: never written, never mirrored.
func (b *Book) Own() map[netip.Addr]bool { return b.nodes[b.self].addresses() }

// All gives every node's addresses.
func (b *Book) All() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, e := range b.nodes {
		maps.Copy(out, e.addresses())
	}
	return out
}

func (e entry) addresses() map[netip.Addr]bool {
	out := make(map[netip.Addr]bool, len(e.internal)+len(e.gateway.Addresses))
	for _, ip := range e.internal {
		out[plain(ip)] = true
	}
	for _, p := range e.gateway.Addresses {
		out[plain(p.Addr())] = true
	}
	return out
}

// Others gives the neighbours the default network's bridge has among the other nodes, by address.
// A node with its gateway off, or without a good annotation yet, has no MAC and gives none.
func (b *Book) Others() []Address {
	own := b.Own()
	var out []Address
	for _, name := range slices.Sorted(maps.Keys(b.nodes)) {
		e := b.nodes[name]
		if name == b.self || !e.known || !e.gateway.Enabled {
			continue
		}
		for ip := range e.addresses() {
			if !own[ip] {
				out = append(out, Address{ip, e.gateway.MAC})
			}
		}
	}
	return unique(out)
}

// Uplinked gives the neighbours on an uplink bridge of this node: the addresses of the same uplink
// on the other nodes. States without a usable MAC give none.
func Uplinked(self, bridge string, states []Uplink) []Address {
	names, own := map[string]bool{}, map[netip.Addr]bool{}
	for _, s := range states {
		if s.Node != self || s.Bridge != bridge {
			continue
		}
		names[s.Name] = true
		for _, p := range s.Addresses {
			own[plain(p.Addr())] = true
		}
	}
	var out []Address
	for _, s := range states {
		mac, err := packet.ParseMAC(s.MAC)
		if s.Node == self || !names[s.Name] || err != nil || mac.IsGroup() || mac.IsZero() {
			continue
		}
		for _, p := range s.Addresses {
			if ip := plain(p.Addr()); !own[ip] {
				out = append(out, Address{ip, mac.String()})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Address) int { return strings.Compare(a.MAC, b.MAC) })
	return unique(out)
}

func plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// unique sorts by address and keeps the first of two claims for one.
func unique(in []Address) []Address {
	slices.SortStableFunc(in, func(a, b Address) int { return a.IP.Compare(b.IP) })
	return slices.CompactFunc(in, func(a, b Address) bool { return a.IP == b.IP })
}

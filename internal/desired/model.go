package desired

import (
	"net/netip"
	"slices"
	"time"

	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
)

// PortSecurity says which sources a port's frames may carry.
type PortSecurity uint8

// The levels of port security. SecurityUnset is an endpoint's that takes its
// network's; a State holds none.
const (
	SecurityUnset PortSecurity = iota
	SecurityOff
	SecurityMAC
	SecurityMACIP
)

// String is the form the API uses.
func (p PortSecurity) String() string {
	switch p {
	case SecurityMAC:
		return string(v1alpha1.PortSecurityMAC)
	case SecurityMACIP:
		return string(v1alpha1.PortSecurityMACIP)
	}
	return string(v1alpha1.PortSecurityOff)
}

// Network is one L2 broadcast domain.
type Network struct {
	Name     string
	ID       uint32         // 24 bits, not 0
	Prefixes []netip.Prefix // host bits zero
	MTU      int            // largest inner IP packet; 0: what the underlay leaves
	// LinkLocal says that fe80::/10 belongs to the network. It is false on a
	// network without an IPv6 prefix, whatever its spec says.
	LinkLocal    bool
	Gateway      Gateway
	Learning     Learning
	PortSecurity PortSecurity
	Isolation    Isolation
}

// Contains reports whether ip belongs to the network: it lies in a prefix, or
// is IPv6 link-local and the network has link-local addresses.
func (n *Network) Contains(ip netip.Addr) bool {
	for _, p := range n.Prefixes {
		if p.Contains(ip) {
			return true
		}
	}
	return n.LinkLocal && ip.Is6() && ip.IsLinkLocalUnicast()
}

// Has6 reports whether the network has an IPv6 prefix.
func (n *Network) Has6() bool {
	return slices.ContainsFunc(n.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// Gateway is the address picot itself has in a network; no Addresses: none.
type Gateway struct {
	Addresses []netip.Addr
	MAC       packet.MAC
}

// Learning governs learning in a network. A limit of 0 is the agent's own.
type Learning struct {
	Enabled               bool
	MACs                  int // learned MACs behind one port
	AddressesPerMAC       int
	ObservationsPerSecond int // of one port
}

// Isolation says which segments may send to which. The zero value lets all
// send to all. A rule is an exception to the default, one way.
type Isolation struct {
	DefaultDeny bool
	Rules       []IsolationRule
}

// IsolationRule names every pair of a segment of From and one of To.
type IsolationRule struct{ From, To []uint32 }

// Allowed reports whether segment from may send to segment to. It is the slow
// and obvious reading of the rules; the fastpath has its own.
func (i *Isolation) Allowed(from, to uint32) bool {
	for _, r := range i.Rules {
		if slices.Contains(r.From, from) && slices.Contains(r.To, to) {
			return i.DefaultDeny
		}
	}
	return !i.DefaultDeny
}

// EndpointKey names an endpoint.
type EndpointKey struct{ Namespace, Name string }

// String is namespace/name.
func (k EndpointKey) String() string { return k.Namespace + "/" + k.Name }

// EndpointRef names one life of an endpoint; UID is empty in manifests.
type EndpointRef struct {
	EndpointKey
	UID string
}

// Endpoint is one attachment to a network.
type Endpoint struct {
	EndpointRef
	Network string
	Node    string
	MAC     packet.MAC // zero: the port has only what it learns
	// Addresses are those that belong to the network and that no other
	// endpoint holds.
	Addresses    []netip.Addr
	Segment      uint32
	Interface    string // empty: not known yet
	PortSecurity PortSecurity
}

// Node is one node's place in the underlay.
type Node struct {
	Name    string
	Locator netip.Prefix
	NextHop netip.Addr   // invalid: routes come from elsewhere
	Via     []netip.Addr // SIDs passed on the way, in order
	// Dead is true when the elected agent found no life in the node. A node
	// nobody judged is not dead.
	Dead        bool
	UnderlayMTU int // 0: unknown
}

// FDBKey is the key of an FDBEntry.
type FDBKey struct {
	Network string
	MAC     packet.MAC
}

// Name is the name of the entry's object.
func (k FDBKey) Name() string { return v1alpha1.FDBName(k.Network, k.MAC) }

// NeighborKey is the key of a Neighbor.
type NeighborKey struct {
	Network string
	IP      netip.Addr
}

// Name is the name of the neighbor's object.
func (k NeighborKey) Name() string { return v1alpha1.NeighborName(k.Network, k.IP) }

// Owner is who owns a binding and what the cluster remembers of it. Times are
// Unix microseconds, 0 when not set.
type Owner struct {
	Static       bool
	Node         string // the managing node
	Endpoint     EndpointRef
	LastObserved int64
	Moves        int
	MovesSince   int64
	FrozenUntil  int64
	// Version is the stored object's, for preconditions; zero in manifests
	// and in what is derived.
	Version Version
}

// Frozen reports whether the binding is held where it is at time now.
func (o *Owner) Frozen(now time.Time) bool { return now.UnixMicro() < o.FrozenUntil }

// Version identifies one stored state of one life of an object.
type Version struct{ UID, ResourceVersion string }

// FDBEntry binds a MAC to its owner.
type FDBEntry struct {
	FDBKey
	Owner
	Segment uint32
}

// Neighbor binds an address to a MAC.
type Neighbor struct {
	NeighborKey
	Owner
	MAC    packet.MAC
	Router Router
	// Derived marks the EUI-64 link-local address of a static MAC, which no
	// object stands for.
	Derived bool
}

// Router is what is known of a neighbor's R flag.
type Router uint8

// Router flags.
const (
	RouterUnknown Router = iota
	RouterNo
	RouterYes
)

// EUI64 returns the link-local address a host makes of its MAC (RFC 4291
// appendix A).
func EUI64(mac packet.MAC) netip.Addr {
	a := [16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
	return netip.AddrFrom16(a)
}

// LinkLocal returns the Neighbor that follows from a static entry by EUI-64.
// ok is false when the network has no link-local addresses or the entry is not
// static.
func LinkLocal(n *Network, e *FDBEntry) (nb Neighbor, ok bool) {
	if !n.LinkLocal || !e.Static || e.Node == "" {
		return Neighbor{}, false
	}
	return Neighbor{
		NeighborKey: NeighborKey{Network: n.Name, IP: EUI64(e.MAC)},
		Owner:       Owner{Static: true, Node: e.Node, Endpoint: e.Endpoint},
		MAC:         e.MAC,
		Derived:     true,
	}, true
}

package routes

import (
	"cmp"
	"net/netip"

	"picot.dev/picot/internal/packet"
)

// Kernel is the part of rtnetlink this package uses. [Netlink] is the real one;
// package routestest has one that counts and fails on demand.
type Kernel interface {
	// Lookup returns every next hop of the route the FIB picks for dst with the
	// mark. Without a usable route the error says why.
	Lookup(dst netip.Addr, mark uint32) ([]Hop, error)
	Link(index int) (Link, error)

	Neighbors() ([]Neighbor, error)
	// Manage starts resolving a neighbour and keeps it resolved, as protocol.
	Manage(k NeighborKey, protocol uint8) error
	// Unmanage leaves the neighbour to its ordinary ageing.
	Unmanage(k NeighborKey) error

	Routes(tables ...int) ([]Route, error)
	AddRoute(Route) error
	DeleteRoute(Route) error

	Rules() ([]Rule, error)
	AddRule(Rule) error
	DeleteRule(Rule) error
}

// Hop is one next hop of a FIB entry.
type Hop struct {
	Link    int
	Gateway netip.Addr // the destination itself when it is on link
	MTU     int        // of the route, 0: none
	Weight  int        // share within its ECMP set, at least 1
}

// Link is what a next hop needs of its device.
type Link struct {
	Name string
	MAC  packet.MAC
	MTU  int
}

// NeighborKey names a neighbour.
type NeighborKey struct {
	Link int
	IP   netip.Addr // without zone
}

func (k NeighborKey) compare(o NeighborKey) int {
	return cmp.Or(cmp.Compare(k.Link, o.Link), k.IP.Compare(o.IP))
}

// Neighbor is an entry of the neighbour table.
type Neighbor struct {
	NeighborKey
	MAC      packet.MAC
	Usable   bool // MAC may be sent to: reachable, stale, delay, probe, permanent or noarp
	Fixed    bool // permanent or noarp: needs no upkeep
	Managed  bool // NTF_EXT_MANAGED
	Protocol uint8
}

// Route is an IPv6 route, as far as this package makes them.
type Route struct {
	Table       int
	Prefix      netip.Prefix
	Metric      int
	Protocol    uint8
	Unreachable bool
	Gateway     netip.Addr
	Link        int // 0 when writing: the kernel finds the gateway's device
}

// Rule is an IPv6 policy rule, as far as this package makes them.
type Rule struct {
	Priority int
	Protocol uint8
	Mark     uint32 // compared under an all-ones mask
	Not      bool   // matches everything but the mark
	Table    int
}

func (r Rule) compare(o Rule) int {
	return cmp.Or(cmp.Compare(r.Priority, o.Priority), cmp.Compare(r.Table, o.Table),
		cmp.Compare(r.Mark, o.Mark), cmp.Compare(r.Protocol, o.Protocol), compareBool(r.Not, o.Not))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

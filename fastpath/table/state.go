package table

import (
	"net/netip"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/internal/packet"
)

// PortSecurity is which sources a port may use.
type PortSecurity uint8

const (
	SecurityOff   PortSecurity = iota // any
	SecurityMAC                       // the endpoint's MAC
	SecurityMACIP                     // the endpoint's MAC and addresses
)

// Port is one workload port of this node.
type Port struct {
	ID        PortID
	Name      string // device
	Network   NetworkID
	Net       NetIndex // filled by the Builder; 0 while the network is unknown
	MAC       packet.MAC
	Addresses []netip.Addr
	IPs       []packet.IP // the Addresses and the link-local one of MAC; filled by the Builder
	Segment   Segment
	Security  PortSecurity
	MTU       int // of the device, in bytes of IP
	Worker    int // that owns its sockets
	Down      bool
}

// Gateway is a network's own gateway; the zero value is none.
type Gateway struct {
	Addresses []netip.Addr
	MAC       packet.MAC
}

// IsolationRule names every pair of a sending and a receiving segment.
type IsolationRule struct{ From, To []Segment }

// Isolation says which segments may send to which. A rule is an exception to
// the default: it allows where the default denies, and the other way round.
type Isolation struct {
	DefaultDeny bool
	Rules       []IsolationRule
}

// Network is one broadcast domain.
type Network struct {
	ID        NetworkID
	Name      string
	MTU       int // bytes of inner IP; 0: not limited here
	Prefixes  []netip.Prefix
	LinkLocal bool // fe80::/10 belongs to the network
	Learning  bool // ports report the stations they see
	Gateway   Gateway
	Isolation *Isolation // nil: all to all
}

// NextHop is one way toward a node.
type NextHop struct {
	Uplink uint8 // index of the uplink
	Encap  *srv6.Encap
	MTU    int // of the uplink, in bytes of outer IP
}

// Node is another node.
type Node struct {
	Name     string
	Locator  srv6.Locator
	NextHops []NextHop // empty: unresolved
	PathMTU  int       // bytes of outer IP learned from the underlay; 0: none
	Alive    bool
}

// FDBEntry says where a MAC is: on Port, or, if Port is 0, on Node.
type FDBEntry struct {
	MAC     packet.MAC
	Port    PortID
	Node    string
	Segment Segment
	Static  bool
}

// NeighborEntry says who owns an IP address.
type NeighborEntry struct {
	IP          netip.Addr
	MAC         packet.MAC
	Router      bool // with RouterKnown: the owner's R flag
	RouterKnown bool
	Static      bool
	Duplicate   bool
}

// LinkLocal is the address RFC 4291 appendix A makes from a MAC.
func LinkLocal(m packet.MAC) packet.IP {
	v := m.Uint64()
	return packet.IP{
		Hi: 0xfe80 << 48,
		Lo: (v>>24<<40 | 0xfffe<<24 | v&0xffffff) ^ 1<<57,
	}
}

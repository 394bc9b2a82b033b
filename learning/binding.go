package learning

import (
	"strconv"

	"picot.dev/picot/internal/packet"
)

// Key names a binding. An FDBEntry has a MAC and no IP, a Neighbor an IP and no
// MAC.
type Key struct {
	Network string
	MAC     packet.MAC
	IP      packet.IP
}

// FDB and Neighbor are the two kinds of keys.
func FDB(network string, mac packet.MAC) Key    { return Key{Network: network, MAC: mac} }
func Neighbor(network string, ip packet.IP) Key { return Key{Network: network, IP: ip} }

// IsNeighbor tells the kinds apart.
func (k Key) IsNeighbor() bool { return k.MAC.IsZero() }

func (k Key) String() string {
	if k.IsNeighbor() {
		return k.Network + " " + k.IP.String()
	}
	return k.Network + " " + k.MAC.String()
}

// EndpointKey names an endpoint; EndpointRef one life of it. The zero value is
// no endpoint.
type EndpointKey struct{ Namespace, Name string }

// EndpointRef is an endpoint with the UID of this life; empty where nothing has
// UIDs.
type EndpointRef struct {
	EndpointKey
	UID string
}

func (k EndpointKey) String() string { return k.Namespace + "/" + k.Name }

// Router is what is known of a Neighbor's R flag.
type Router uint8

// The values of Router.
const (
	RouterUnknown Router = iota
	RouterNo
	RouterYes
)

// Version is one stored state of one life of an object; the precondition of
// whoever wants to change just this.
type Version struct{ UID, ResourceVersion string }

// Binding is what the cluster knows of who owns a key. Wall clock times are Unix
// microseconds, 0 when not set.
type Binding struct {
	Node         string // the managing node
	Endpoint     EndpointRef
	Segment      uint32     // of an FDBEntry
	MAC          packet.MAC // of a Neighbor
	Router       Router     // of a Neighbor
	Static       bool
	LastObserved int64
	Moves        int
	MovesSince   int64
	FrozenUntil  int64
	Version      Version
}

// Same says that two states differ in nothing that a table is made of: not in
// lastObserved, the counting of moves or the version. A change between two such
// states dirties nothing.
func (b Binding) Same(o Binding) bool {
	b.LastObserved, b.Moves, b.MovesSince, b.FrozenUntil, b.Version = 0, 0, 0, 0, Version{}
	o.LastObserved, o.Moves, o.MovesSince, o.FrozenUntil, o.Version = 0, 0, 0, 0, Version{}
	return b == o
}

// Serves says what a binding is good for when its managing node is alive or
// not. It goes on forwarding, for the node may only be cut off from the API; but
// nobody answers for it or defends it, else a station that comes back elsewhere
// would find its own address taken.
func Serves(nodeAlive bool) (forward, answer bool) { return true, nodeAlive }

// older says that version a was stored before b, as far as that can be known:
// the API server's resource versions are numbers that grow, whatever the object.
func older(a, b Version) bool {
	if a.ResourceVersion == "" || b.ResourceVersion == "" {
		return false
	}
	x, err := strconv.ParseUint(a.ResourceVersion, 10, 64)
	if err != nil {
		return false
	}
	y, err := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return err == nil && x < y
}

// eui64 is the link-local address a host makes of its MAC (RFC 4291 appendix A).
// Those of static MACs are derived on every node and have no object.
func eui64(mac packet.MAC) packet.IP {
	u := mac.Uint64()
	return packet.IP{Hi: 0xfe80 << 48, Lo: (u>>24<<40 | 0xfffe<<24 | u&0xffffff) ^ 1<<57}
}

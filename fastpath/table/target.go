package table

import "picot.dev/picot/internal/packet"

// NetworkID is the 24-bit ID of a broadcast domain on the wire; 0 is none.
type NetworkID uint32

// Segment is the 24-bit policy identity of an endpoint; 0 is not known.
type Segment uint32

const (
	// MaxNetworkID and MaxSegment are the largest 24-bit values.
	MaxNetworkID NetworkID = 1<<24 - 1
	MaxSegment   Segment   = 1<<24 - 1
)

// PortID names a port for its life: an index in the low 16 bits, a generation
// in the high 16. Index 0 is no port.
type PortID uint32

// NewPortID joins index and generation.
func NewPortID(index int, generation uint16) PortID {
	return PortID(generation)<<16 | PortID(uint16(index))
}

func (p PortID) Index() int         { return int(uint16(p)) }
func (p PortID) Generation() uint16 { return uint16(p >> 16) }

// NetIndex and NodeIndex are dense positions in a snapshot's Networks and Nodes,
// stable for the life of the network or node; 0 is none.
type (
	NetIndex  uint16
	NodeIndex uint16
)

// Kind is what a target is.
type Kind uint8

const (
	KindNone    Kind = iota // no entry
	KindLocal               // a port of this node
	KindRemote              // another node
	KindGateway             // the network's own gateway: answered here, never forwarded
)

func (k Kind) String() string {
	return [4]string{"none", "local", "remote", "gateway"}[k&3]
}

// Target is where a MAC is. The zero value is no entry.
//
//	bits 0..15 index, 16..39 segment, 40..41 kind, 42 static
type Target uint64

const (
	targetKindShift    = 40
	targetSegmentShift = 16
	targetStatic       = 1 << 42
)

func newTarget(kind Kind, index int, segment Segment, static bool) Target {
	t := Target(kind)<<targetKindShift | Target(segment&MaxSegment)<<targetSegmentShift | Target(uint16(index))
	if static {
		t |= targetStatic
	}
	return t
}

func (t Target) Kind() Kind { return Kind(t>>targetKindShift) & 3 }

// Index is into Snapshot.Ports for KindLocal, Snapshot.Nodes for KindRemote.
func (t Target) Index() int       { return int(uint16(t)) }
func (t Target) Segment() Segment { return Segment(t>>targetSegmentShift) & MaxSegment }
func (t Target) Static() bool     { return t&targetStatic != 0 }

// Neighbor is what an IP address resolves to: bits 0..47 the MAC, then flags.
type Neighbor uint64

const (
	neighborPresent Neighbor = 1 << (48 + iota)
	neighborRouter
	neighborRouterKnown
	neighborStatic
	neighborDuplicate
	neighborGateway
)

func newNeighbor(e NeighborEntry) Neighbor {
	n := Neighbor(e.MAC.Uint64()) | neighborPresent
	for _, f := range [...]struct {
		on  bool
		bit Neighbor
	}{
		{e.Router, neighborRouter}, {e.RouterKnown, neighborRouterKnown},
		{e.Static, neighborStatic}, {e.Duplicate, neighborDuplicate},
	} {
		if f.on {
			n |= f.bit
		}
	}
	return n
}

// MAC is the owner's address; MAC48 the same as a number, a key for FDB.
func (n Neighbor) MAC() packet.MAC { return packet.MACFromUint64(uint64(n)) }
func (n Neighbor) MAC48() uint64   { return uint64(n) & (1<<48 - 1) }

// Router is the R flag to answer with; RouterKnown says it was seen or configured.
func (n Neighbor) Router() bool      { return n&neighborRouter != 0 }
func (n Neighbor) RouterKnown() bool { return n&neighborRouterKnown != 0 }
func (n Neighbor) Static() bool      { return n&neighborStatic != 0 }

// Duplicate says the address is under investigation: answer nobody.
func (n Neighbor) Duplicate() bool { return n&neighborDuplicate != 0 }

// Gateway says the address is the network's own gateway.
func (n Neighbor) Gateway() bool { return n&neighborGateway != 0 }

package arpnd

import "picot.dev/picot/internal/packet"

// View is what the tables know about a message's target, seen from the port
// that asks.
type View struct {
	// Known: a Neighbor (or the gateway) holds the target address.
	Known bool
	// MAC and Router are the Neighbor's; Gateway overrides both.
	MAC    packet.MAC
	Router bool
	// OwnPort: the binding is on the asking port.
	OwnPort bool
	// OwnerDown: the owner's port is down, known on its own node.
	OwnerDown bool
	// NodeDead: the owner's node is not alive.
	NodeDead bool
	// Duplicate: two stations claim the address and the matter is open.
	Duplicate bool
	// Gateway: the target is one of this network's gateway addresses.
	Gateway bool
	// GatewayMAC is the network's gateway MAC, zero if it has none. It is set
	// whatever the target is.
	GatewayMAC packet.MAC
}

// Answer returns the MAC and the router flag to give to Reply when Decide said
// Answer.
func (v *View) Answer() (mac packet.MAC, router bool) {
	if v.Gateway {
		return v.GatewayMAC, true
	}
	return v.MAC, v.Router
}

// Outcome is what becomes of a well-formed message; all but Answer and Forward
// end the frame on this port.
type Outcome uint8

const (
	// NotARequest: nothing to answer; the frame goes the way of any other.
	NotARequest Outcome = iota
	// Answer: call Reply and send the frame back to the asking port only.
	Answer
	// Forward: unicast, it goes to its Ethernet destination like any frame.
	Forward
	// Announcement: to a group; learned from, told to nobody.
	Announcement
	SilentUnknown
	SilentOwnPort
	SilentOwnerAsks
	SilentOwnerDown
	SilentNodeDead
	SilentDuplicate
	numOutcomes
)

var outcomeNames = [numOutcomes]string{
	"not-a-request", "answer", "forward", "announcement", "silent-unknown", "silent-own-port",
	"silent-owner-asks", "silent-owner-down", "silent-node-dead", "silent-duplicate",
}

// NumOutcomes is the number of Outcome values, for arrays of counters.
const NumOutcomes = int(numOutcomes)

// String returns a short lower-case name that does not change between versions.
func (o Outcome) String() string { return name(outcomeNames[:], int(o)) }

// NeedsView says whether Decide will look at more of the View than GatewayMAC,
// so that the caller can spare the lookup.
func NeedsView(m *Message) bool {
	return (m.Op == ARPRequest || m.Op == NS) && !m.Announcement
}

// Decide says what becomes of a message Parse found no fault with.
//
// Unicast requests stay between two stations and are forwarded, so that exactly
// one answer comes and it is the owner's (A6, N6); only what is addressed to
// our gateway MAC has no other owner and is decided here. The owner itself is
// never told about its own address, from whichever port it asks (A3): it would
// take the answer for a duplicate. What nobody can vouch for gets silence (A7).
func Decide(m *Message, v *View) Outcome {
	toGateway := m.Unicast && m.EtherDst == v.GatewayMAC && !v.GatewayMAC.IsZero()
	if m.Announcement && (!m.Unicast || toGateway) {
		return Announcement
	}
	if m.Op != ARPRequest && m.Op != NS {
		return NotARequest
	}
	if m.Unicast && !toGateway {
		return Forward
	}
	if v.Gateway {
		return decideGateway(m, v)
	}
	switch {
	case !v.Known:
		return SilentUnknown
	case v.OwnPort:
		return SilentOwnPort
	case m.EtherSrc == v.MAC || m.SenderMAC == v.MAC:
		return SilentOwnerAsks
	case v.Duplicate:
		return SilentDuplicate
	case v.OwnerDown:
		return SilentOwnerDown
	case v.NodeDead:
		return SilentNodeDead
	}
	return Answer
}

// decideGateway answers for an address of the gateway, which has no port and
// lives on every node, so that it can be neither down nor dead.
func decideGateway(m *Message, v *View) Outcome {
	switch {
	case v.GatewayMAC.IsZero():
		return SilentUnknown
	case m.EtherSrc == v.GatewayMAC || m.SenderMAC == v.GatewayMAC:
		return SilentOwnerAsks
	}
	return Answer
}

package learning

import (
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// Op is what a Write is for. It does not change what is to be done (create,
// update or delete the object), only how urgent it is and what is said of it.
type Op uint8

// The operations. All but Create carry a precondition; only OpRefresh may be
// delayed.
const (
	OpCreate   Op = iota + 1 // no object: create it, fail if there is one
	OpRefresh                // lastObserved alone
	OpTakeOver               // ours now, learned
	OpClaim                  // ours now, static, whoever held it
	OpUpdate                 // still ours: segment, endpoint, MAC or router flag changed
	OpRelease                // still ours: moves may be counted anew
	OpDelete
	numOps
)

func (o Op) String() string {
	return [numOps]string{"none", "create", "refresh", "takeover", "claim", "update", "release", "delete"}[o%numOps]
}

// Write is an object to write. At most one per key is under way; a later one of
// the same key replaces one that was not sent yet. Each is answered by Done.
type Write struct {
	Seq  uint64
	Op   Op
	Key  Key
	New  Binding // the whole status to store; nothing for OpDelete. Version is not set
	From Version // precondition, UID and resourceVersion; zero for OpCreate
}

// Probe asks a port's host whether it lives: arpnd.BuildProbe to MAC and IP, out
// of this port only, with the tags its last frame had.
type Probe struct {
	Port table.PortID
	IP   packet.IP
	MAC  packet.MAC
	Tags packet.Tags
}

// Ask asks the data plane when it last saw a claim (Suppressor.LastSeen, on the
// port's worker); to be answered by LastSeen. A zero IP asks for the MAC.
type Ask struct {
	Key  Key
	Port table.PortID
	IP   packet.IP
	MAC  packet.MAC
}

// EventKind is what there is to tell people.
type EventKind uint8

// The kinds of events.
const (
	EventMoved         EventKind = iota + 1 // we took Key over from Holder, or another of our endpoints
	EventLost                               // another node took Key over
	EventFrozen                             // Key moved too often and stays for a while
	EventReleased                           // ... and may move again
	EventCollision                          // Endpoint's static claim of Key is refused: Holder has it
	EventCollisionOver                      // ... no longer
	EventMACLimit                           // Endpoint's port has all the learned MACs it may have
	EventAddressLimit                       // a MAC at Endpoint's port has all the addresses it may have
	EventRateLimit                          // Endpoint's port makes too many observations
	numEventKinds
)

func (k EventKind) String() string {
	return [numEventKinds]string{"none", "moved", "lost", "frozen", "released", "collision", "collision over",
		"MAC limit", "address limit", "observation limit"}[k%numEventKinds]
}

// Event is one thing to tell.
type Event struct {
	Kind     EventKind
	Key      Key
	Endpoint EndpointRef // ours
	Holder   Binding     // of a move or collision: who had or has it
	Limit    int
}

// Intents are what the world is to do, in order.
type Intents struct {
	Writes []Write
	Probes []Probe
	Asks   []Ask
	Events []Event
}

// Outcome is what became of a Write.
type Outcome uint8

const (
	// Stored: the object is as written, or deleted.
	Stored Outcome = iota
	// Conflict: the object was not what the precondition said, existed, or was
	// gone. Decided anew.
	Conflict
	// Failed: the write may or may not have happened. Decided anew, later.
	Failed
	// Dropped: replaced by a later write of the key before it was sent. Nothing
	// follows; telling it is optional.
	Dropped
)

// Result answers a Write.
type Result struct {
	Outcome Outcome
	Version Version // after Stored: the object's
	// After a Conflict, what the API server has, if it was asked: Known, and
	// Current or nil for none. Without it the cache must catch up first.
	Known   bool
	Current *Binding
}

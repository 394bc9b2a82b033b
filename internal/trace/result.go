package trace

import "picot.dev/picot/internal/status"

// Result is what would become of a frame. Its JSON form is stable: fields are only
// added.
type Result struct {
	Node     string `json:"node"`
	Snapshot uint64 `json:"snapshot"` // version of the tables
	In       In     `json:"in"`
	Frame    Frame  `json:"frame"`
	// Verdict is local, remote, answered or dropped; or passed, of a frame an uplink's
	// program leaves to the kernel.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"` // of dropped, as counters name it
	Meaning string `json:"meaning"`
	Look    string `json:"look,omitempty"` // where to look next
	// Steps are what was looked up and decided, in the order of the walk.
	Steps []Step `json:"steps"`
	// Neighbor and FDB are the entries that decided, if any.
	Neighbor *status.Neighbor `json:"neighbor,omitempty"`
	FDB      *FDB             `json:"fdb,omitempty"`
	Out      *Out             `json:"out,omitempty"` // what leaves
	Claims   []Claim          `json:"claims,omitempty"`
	Notes    []string         `json:"notes,omitempty"`
}

// In is where the frame comes in.
type In struct {
	Device    string   `json:"device"`
	Uplink    bool     `json:"uplink,omitempty"`
	Endpoint  string   `json:"endpoint,omitempty"`
	Network   string   `json:"network,omitempty"`
	NetworkID uint32   `json:"networkID,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	Segment   uint32   `json:"segment,omitempty"`
	Security  string   `json:"security,omitempty"`
}

// Frame is a frame, in words and bytes.
type Frame struct {
	Length int    `json:"length"`
	Text   string `json:"text"`
	Hex    string `json:"hex"`
}

// Step is one thing that was found on the way.
type Step struct {
	Step  string `json:"step"`
	Found string `json:"found"`
}

// FDB is where a MAC is.
type FDB struct {
	status.FDBEntry
	SID string `json:"sid,omitempty"` // the node's for this network, its argument the sender's segment
}

// Out is what leaves, and where.
type Out struct {
	Device   string `json:"device"`
	Endpoint string `json:"endpoint,omitempty"`
	Node     string `json:"node,omitempty"`
	Frame    Frame  `json:"frame"`
	Outer    *Outer `json:"outer,omitempty"` // of an SRv6 packet
	MTU      int    `json:"mtu,omitempty"`   // of the way, in bytes of outer IP, or of the target's device
}

// Outer is an outer header.
type Outer struct {
	NextHop   string   `json:"nextHop"` // MAC
	Source    string   `json:"source"`
	SID       string   `json:"sid"`
	Segments  []string `json:"segments,omitempty"` // of an SRH, the first to pass first
	FlowLabel uint32   `json:"flowLabel"`
	Length    int      `json:"length"` // bytes of outer IP
}

// Claim is what learning would be told.
type Claim struct {
	MAC      string `json:"mac"`
	IP       string `json:"ip,omitempty"`
	Evidence string `json:"evidence"` // weak or strong
}

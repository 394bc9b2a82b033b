package bridge

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"picot.dev/picot/gateway/flows"
)

// Options say which bridge to drive and how.
type Options struct {
	// Bridge is its name, for messages.
	Bridge string
	// Socket is the path of its OpenFlow management socket, e.g. /run/openvswitch/br-ex.mgmt.
	Socket string
	// Ofctl is the ovs-ofctl program; empty means the one in $PATH.
	Ofctl string
	// Timeout bounds each exchange with the switch; 0 means 10 s.
	Timeout time.Duration
	// Log receives what an operator should know; nil discards it.
	Log *slog.Logger
}

// Port is a port of the bridge as the switch reports it.
type Port struct {
	Name    string // cut to 15 bytes by OpenFlow 1.0
	MAC     [6]byte
	NoFlood bool
}

// State is what a bridge carries.
type State struct {
	Own     flows.Set // flows with picot's cookie
	Foreign flows.Set // all others
	Ports   map[uint32]Port
}

// Changes is what an Apply did.
type Changes struct {
	Added, Replaced, Deleted flows.Set
	// NoFlood holds the bits that were changed, by port number.
	NoFlood map[uint32]bool
	// Held lists the flows left out because another owner has a flow with the same key.
	Held flows.Set
	// StoodDown is set when another owner steers ARP/NDP itself, so picot's steering flows
	// were left out or taken back.
	StoodDown bool
	// Missing lists ports whose NO_FLOOD bit was asked for but that the bridge does not have.
	Missing []uint32
}

// Empty reports whether nothing was written to the switch.
func (c Changes) Empty() bool {
	return len(c.Added)+len(c.Replaced)+len(c.Deleted)+len(c.NoFlood) == 0
}

// Driver drives one bridge.
type Driver struct {
	opt Options

	mu      sync.Mutex
	desired flows.Set       // what Apply was last asked for
	noFlood map[uint32]bool // likewise
}

// New returns a driver. It does not touch the bridge.
func New(opt Options) *Driver { return &Driver{opt: opt} }

// Apply makes the bridge carry exactly the desired flows of ours. noFlood gives the NO_FLOOD
// bit of each port it names; nil or an absent port leaves the bits alone. Bits are set before
// flows change and cleared after, so the steering is never without them. Either the whole
// difference is installed or, on an error, none of its flows.
func (d *Driver) Apply(ctx context.Context, desired flows.Set, noFlood map[uint32]bool) (Changes, error) {
	return Changes{}, nil
}

// Read returns what the bridge carries now.
func (d *Driver) Read(ctx context.Context) (State, error) { return State{}, nil }

// Event says what Watch saw.
type Event struct {
	Restored  int  // flows of ours put back
	Reset     bool // the switch went away and came back
	StoodDown bool
	Foreign   bool // another owner changed flows
	Err       error
}

// Watch follows the flow table until ctx ends, restoring what others removed. It survives
// restarts of the switch. onChange is called from Watch's goroutine after each repair.
func (d *Driver) Watch(ctx context.Context, onChange func(Event)) error { <-ctx.Done(); return nil }

// Clean removes every flow of ours and nothing else.
func (d *Driver) Clean(ctx context.Context) (Changes, error) { return d.Apply(ctx, nil, nil) }

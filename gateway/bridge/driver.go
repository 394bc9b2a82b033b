package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"picot.dev/picot/gateway/flows"
)

// Errors a caller can tell apart. Both say what the switch said.
var (
	// ErrUnreachable: the bridge's management socket does not answer.
	ErrUnreachable = errors.New("bridge unreachable")
	// ErrRejected: the switch refused a change, all of it.
	ErrRejected = errors.New("rejected by the switch")
)

// Options say which bridge to drive and how.
type Options struct {
	// Bridge is its name, for messages.
	Bridge string
	// Socket is the path of its OpenFlow management socket, e.g. /run/openvswitch/br-ex.mgmt.
	Socket string
	// Control is ovs-vswitchd's control socket; empty means the one beside Socket. See SetHost.
	Control string
	// Ofctl is the ovs-ofctl program; empty means the one in $PATH.
	Ofctl string
	// Timeout bounds each exchange with the switch; 0 means 10 s.
	Timeout time.Duration
	// Refresh is how often Watch looks for drift nobody reported; 0 means 30 s. It is jittered.
	Refresh time.Duration
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

// Changes is what an Apply did, and what it left out.
type Changes struct {
	Added, Replaced, Deleted flows.Set
	// NoFlood holds the bits that were changed, by port number.
	NoFlood map[uint32]bool
	// Held lists the flows left out because another owner has a different flow under the same key.
	Held flows.Set
	// StoodDown is set when another owner steers ARP/NDP itself, so that picot's steering flows
	// were left out or taken back.
	StoodDown bool
	// Host is set when the static MAC entry of the host was written.
	Host bool
	// Missing lists ports whose NO_FLOOD bit was asked for but that the bridge does not have.
	Missing []uint32
}

// Empty reports whether nothing was written to the switch.
func (c Changes) Empty() bool {
	return len(c.Added)+len(c.Replaced)+len(c.Deleted)+len(c.NoFlood) == 0 && !c.Host
}

// Driver drives one bridge.
type Driver struct {
	opt Options

	mu      sync.Mutex
	asked   bool            // Apply was called
	desired flows.Set       // what it was last asked for
	noFlood map[uint32]bool // likewise
	placed  flows.Set       // what it left on the bridge: desired without what others hold
	stood   bool            // the last Apply stood down
	host    *flows.HostEntry
}

// New returns a driver. It does not touch the bridge.
func New(opt Options) *Driver {
	if opt.Ofctl == "" {
		opt.Ofctl = "ovs-ofctl"
	}
	if opt.Timeout == 0 {
		opt.Timeout = 10 * time.Second
	}
	if opt.Refresh == 0 {
		opt.Refresh = 30 * time.Second
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	opt.Log = opt.Log.With("bridge", opt.Bridge)
	return &Driver{opt: opt}
}

// Apply makes the bridge carry exactly the desired flows of ours. noFlood gives the NO_FLOOD
// bit of each port it names; nil or an absent port leaves the bits alone. Bits are set before
// flows change and cleared after, so that no moment floods the followers. Either the whole
// difference in flows is installed or, on an error, none of it.
//
// Two flows of one key in desired are a mistake of the caller and refused.
func (d *Driver) Apply(ctx context.Context, desired flows.Set, noFlood map[uint32]bool) (Changes, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := distinct(desired); err != nil {
		return Changes{}, fmt.Errorf("bridge %s: %w", d.opt.Bridge, err)
	}
	d.asked, d.desired, d.noFlood = true, slices.Clone(desired), maps.Clone(noFlood)
	return d.reconcile(ctx)
}

// reconcile brings the bridge to what was last asked for. d.mu is held.
func (d *Driver) reconcile(ctx context.Context) (Changes, error) {
	ctx, cancel := context.WithTimeout(ctx, d.opt.Timeout)
	defer cancel()
	have, err := d.read(ctx, len(d.noFlood) > 0)
	if err != nil {
		return Changes{}, err
	}
	p := plan(have, d.desired)
	c := p.changes
	set, clear, missing := bits(have.Ports, d.noFlood)
	c.Missing = missing
	if err := d.setBits(ctx, have.Ports, set, &c); err != nil {
		return written(c), err
	}
	if c.Host, err = d.bindHost(ctx); err != nil {
		return written(c), err
	}
	if p.touches() {
		if err := d.bundle(ctx, p.lines()); err != nil {
			return written(c), err
		}
	}
	d.placed = p.placed
	if err := d.setBits(ctx, have.Ports, clear, &c); err != nil {
		return c, err
	}
	d.note(c)
	return c, nil
}

// written is what was done before the flows failed.
func written(c Changes) Changes {
	return Changes{NoFlood: c.NoFlood, Host: c.Host, Missing: c.Missing}
}

// note logs a change of heart once, not every time it is confirmed.
func (d *Driver) note(c Changes) {
	if c.StoodDown != d.stood {
		if c.StoodDown {
			d.opt.Log.Warn("another owner steers ARP and NDP on this bridge: standing down")
		} else {
			d.opt.Log.Info("no other owner steers ARP and NDP any more: steering again")
		}
		d.stood = c.StoodDown
	}
	if len(c.Held) > 0 && !c.Empty() {
		d.opt.Log.Warn("flows left out, another owner holds their keys", "flows", len(c.Held), "first", c.Held[0].String())
	}
}

// Read returns what the bridge carries now.
func (d *Driver) Read(ctx context.Context) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, d.opt.Timeout)
	defer cancel()
	return d.read(ctx, true)
}

func (d *Driver) read(ctx context.Context, ports bool) (State, error) {
	all, err := d.dump(ctx)
	if err != nil {
		return State{}, err
	}
	var s State
	for _, f := range all {
		if flows.Owned(f.Cookie) {
			s.Own = append(s.Own, f)
		} else {
			s.Foreign = append(s.Foreign, f)
		}
	}
	if ports {
		if s.Ports, err = d.ports(ctx); err != nil {
			return State{}, err
		}
	}
	return s, nil
}

// Clean removes every flow of ours and nothing else.
func (d *Driver) Clean(ctx context.Context) (Changes, error) { return d.Apply(ctx, nil, nil) }

func distinct(s flows.Set) error {
	seen := make(map[flows.Key]bool, len(s))
	for _, f := range s {
		if seen[f.Key()] {
			return fmt.Errorf("%w: two flows with the key of %q", flows.ErrInvalid, f)
		}
		seen[f.Key()] = true
	}
	return nil
}

// bits compares the asked-for NO_FLOOD bits with the bridge's.
func bits(have map[uint32]Port, want map[uint32]bool) (set, clear []uint32, missing []uint32) {
	for _, n := range slices.Sorted(maps.Keys(want)) {
		p, ok := have[n]
		switch {
		case !ok:
			missing = append(missing, n)
		case want[n] && !p.NoFlood:
			set = append(set, n)
		case !want[n] && p.NoFlood:
			clear = append(clear, n)
		}
	}
	return set, clear, missing
}

func (d *Driver) setBits(ctx context.Context, ports map[uint32]Port, numbers []uint32, c *Changes) error {
	if len(numbers) == 0 {
		return nil
	}
	bit := !ports[numbers[0]].NoFlood
	if err := d.modPorts(ctx, ports, numbers, bit); err != nil {
		return err
	}
	if c.NoFlood == nil {
		c.NoFlood = map[uint32]bool{}
	}
	for _, n := range numbers {
		c.NoFlood[n] = bit
	}
	return nil
}

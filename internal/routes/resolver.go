package routes

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"picot.dev/picot/internal/delta"
	"picot.dev/picot/internal/packet"
)

// ErrUnresolved says that there is a route but no next hop's MAC is known yet;
// resolution is under way and Watch will tell.
var ErrUnresolved = errors.New("no next hop resolved yet")

// NextHop is all a frame needs to leave toward a target.
type NextHop struct {
	LinkIndex int
	Gateway   netip.Addr
	DstMAC    packet.MAC
	SrcMAC    packet.MAC
	MTU       int // of the outer IPv6 packet
	Weight    int // share within the ECMP set
}

// Result is the answer for one target. NextHops holds the resolved ones, in the
// order of link and gateway; Err is set when there is none. Missing counts the
// next hops of the route left out because they are not resolved (or broken).
type Result struct {
	NextHops []NextHop
	Missing  int
	Err      error
}

// Resolver answers where targets are reached, and keeps the neighbours on the way
// alive. It only reads the kernel and sets or clears the managed flag. One owner
// goroutine, except for Relevant.
type Resolver struct {
	kernel  Kernel
	owner   Owner
	managed *delta.Tracker[NeighborKey, struct{}]
	usable  map[NeighborKey]bool // what was usable when last looked at

	inUse atomic.Pointer[map[NeighborKey]struct{}] // read by any goroutine
}

// NewResolver makes a resolver.
func NewResolver(k Kernel, o Owner) *Resolver {
	return &Resolver{kernel: k, owner: o, managed: delta.New(delta.Options[NeighborKey, struct{}]{
		Compare: NeighborKey.compare,
		Equal:   func(struct{}, struct{}) bool { return true },
	})}
}

// Resolve answers for the whole set of targets (other nodes' SIDs); neighbours
// that no target needs any more are released. A target that fails stops no other;
// the error is only about reading the neighbour table, and then nothing changed.
func (r *Resolver) Resolve(now time.Time, targets []netip.Addr) (map[netip.Addr]Result, error) {
	table, err := r.kernel.Neighbors()
	if err != nil {
		return nil, err
	}
	known := make(map[NeighborKey]Neighbor, len(table))
	for _, n := range table {
		known[n.NeighborKey] = n
	}

	hops := make(map[netip.Addr][]Hop, len(targets))
	results := make(map[netip.Addr]Result, len(targets))
	for _, dst := range targets {
		found, err := r.kernel.Lookup(dst, r.owner.Mark)
		if err != nil {
			results[dst] = Result{Err: err}
			continue
		}
		slices.SortFunc(found, func(a, b Hop) int { return a.key().compare(b.key()) })
		hops[dst] = found
	}

	r.keepAlive(now, hops, known)

	links := map[int]linkAnswer{}
	for dst, found := range hops {
		results[dst] = r.assemble(dst, found, known, links)
	}
	return results, nil
}

func (h Hop) key() NeighborKey { return NeighborKey{h.Link, h.Gateway} }

// keepAlive sets the managed flag where it is needed and missing, and clears ours
// where it is not needed.
func (r *Resolver) keepAlive(now time.Time, hops map[netip.Addr][]Hop, known map[NeighborKey]Neighbor) {
	used, need, usable := map[NeighborKey]struct{}{}, map[NeighborKey]struct{}{}, map[NeighborKey]bool{}
	for _, found := range hops {
		for _, h := range found {
			n := known[h.key()]
			used[h.key()] = struct{}{}
			usable[h.key()] = n.Usable
			// A fixed entry needs no upkeep, and managing a permanent one would
			// end its permanence; one managed by somebody else is theirs.
			if !n.Fixed && (!n.Managed || r.owner.ownsNeighbor(n)) {
				need[h.key()] = struct{}{}
			}
		}
	}
	r.inUse.Store(&used)
	r.managed.ReplaceActual(r.ours(known))
	r.managed.ReplaceDesired(maps.All(need))
	r.usable = usable
	r.managed.Apply(now, neighborWriter{r.kernel, r.owner})
}

// ours are the neighbours that have our flag, but for one that has just ceased to
// answer: its flag is set again. With that the kernel asks at once, everybody, where
// it would by itself after five seconds (neigh_managed_work, interval_probe_time_ms);
// a next hop with a new MAC that says nothing is found again so.
func (r *Resolver) ours(known map[NeighborKey]Neighbor) iter.Seq2[NeighborKey, struct{}] {
	return func(yield func(NeighborKey, struct{}) bool) {
		for k, n := range known {
			lost := r.usable[k] && !n.Usable
			if r.owner.ownsNeighbor(n) && !lost && !yield(k, struct{}{}) {
				return
			}
		}
	}
}

type neighborWriter struct {
	kernel Kernel
	owner  Owner
}

func (w neighborWriter) Write(k NeighborKey, _ struct{}) error {
	return w.kernel.Manage(k, w.owner.Protocol)
}
func (w neighborWriter) Delete(k NeighborKey) error { return w.kernel.Unmanage(k) }

// linkAnswer remembers one answer of Kernel.Link.
type linkAnswer struct {
	link Link
	err  error
}

func (r *Resolver) assemble(dst netip.Addr, found []Hop, known map[NeighborKey]Neighbor, links map[int]linkAnswer) Result {
	var out Result
	var broken error
	for _, h := range found {
		l, asked := links[h.Link]
		if !asked {
			l.link, l.err = r.kernel.Link(h.Link)
			links[h.Link] = l
		}
		n := known[h.key()]
		if l.err != nil || !n.Usable {
			broken = errors.Join(broken, l.err)
			out.Missing++
			continue
		}
		mtu := l.link.MTU
		if h.MTU > 0 {
			mtu = min(mtu, h.MTU)
		}
		out.NextHops = append(out.NextHops, NextHop{
			LinkIndex: h.Link, Gateway: h.Gateway, DstMAC: n.MAC, SrcMAC: l.link.MAC, MTU: mtu, Weight: h.Weight,
		})
	}
	if len(out.NextHops) == 0 {
		out.Err = fmt.Errorf("route to %s via %s: %w", dst, found[0].Gateway, ErrUnresolved)
		if broken != nil {
			out.Err = fmt.Errorf("route to %s: %w", dst, broken)
		}
	}
	return out
}

// Relevant says whether the last Resolve used a neighbour. It is for [Watch], and
// safe to call from any goroutine.
func (r *Resolver) Relevant(k NeighborKey) bool {
	used := r.inUse.Load()
	if used == nil {
		return true // nothing is known yet
	}
	_, ok := (*used)[k]
	return ok
}

// Failures names the neighbours whose flag could not be set or cleared.
func (r *Resolver) Failures() []delta.Failure[NeighborKey] { return r.managed.Failures() }

// NextRetry is when Resolve should be called again because of them.
func (r *Resolver) NextRetry() (time.Time, bool) { return r.managed.NextRetry() }

// Release clears every managed flag that is ours, for cleanup.
func (r *Resolver) Release(now time.Time) error {
	_, err := r.Resolve(now, nil)
	for _, f := range r.managed.Failures() {
		err = errors.Join(err, f.Err)
	}
	return err
}

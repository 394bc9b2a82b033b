package learning

import (
	"picot.dev/picot/arpnd"
	"picot.dev/picot/internal/packet"
)

// Set tells what the cache has of a key: a new object, or its change. The status
// must name a managing node; an object without binds nothing and is Gone.
func (c *Core) Set(k Key, b Binding, now Now) {
	c.now = now
	e := c.entry(k)
	if e.dead != "" && b.Version.UID == e.dead || older(b.Version, e.landed) {
		c.reconcile(e)
		return // from before our own last write
	}
	same := e.have && e.b == b
	if e.part != c.idle {
		e.landed, e.dead = Version{}, ""
		if !same {
			e.retryAt = 0
		}
	}
	if same {
		c.reconcile(e)
		return
	}
	c.put(e, b)
	c.reconcile(e)
	c.drain()
}

// Gone tells that the cache has no object of this key any more. uid is that of
// the object that went, "" if it is not known.
func (c *Core) Gone(k Key, uid string, now Now) {
	c.now = now
	e := c.entries[k]
	if e == nil {
		return
	}
	if e.dead != "" && (uid == "" || uid == e.dead) {
		e.dead = ""
	}
	if e.have && (uid == "" || uid == e.b.Version.UID) {
		if e.part != c.idle {
			e.landed, e.retryAt = Version{}, 0
		}
		old, seen, tags := e.b, e.seen, e.tags
		c.none(e)
		c.again(e, old, seen, tags)
	}
	c.reconcile(e)
	c.drain()
}

// put makes b what the cluster has, and sees what that changes for this node.
func (c *Core) put(e *entry, b Binding) {
	old, had := e.b, e.have
	if !had || old.FrozenUntil != b.FrozenUntil {
		if thaw := c.thawAt(b.FrozenUntil); thaw != e.thaw {
			c.part(e).thaw = thaw
		}
	}
	c.unindex(e)
	e.have, e.b = true, b
	c.index(e)

	if b.Static && b.Node == c.node {
		c.part(e).taken = b.Endpoint.UID
	}
	ours := b.Node == c.node && !b.Static
	wasOurs := had && old.Node == c.node && !old.Static
	if had && !b.Static && (old.Node != b.Node || old.Endpoint.EndpointKey != b.Endpoint.EndpointKey || old.MAC != b.MAC) {
		c.history.add(Move{Wall: c.now.Wall, Key: e.key, From: old, To: b})
	}
	switch {
	case ours && !wasOurs:
		p := c.part(e)
		if p.seen == 0 {
			p.seen = c.now.Mono // also: this node has just started
		}
		if p.written == 0 {
			p.written, p.writtenSeen = c.now.Mono, p.seen
		}
	case wasOurs && !ours:
		c.lost(e, old)
	}
	if !had || old.Node != b.Node || old.MAC != b.MAC {
		e.since = c.now.Mono
		c.followLate(e)
		c.reconcileAddresses(e)
	}
}

// reconcileAddresses looks at the addresses of a MAC that has just come here.
func (c *Core) reconcileAddresses(f *entry) {
	if f.key.IsNeighbor() || f.b.Node != c.node {
		return
	}
	for _, ip := range sortedIPs(c.bound[f.key]) {
		if e := c.entries[Neighbor(f.key.Network, ip)]; e != nil && e.b.Node != c.node {
			c.reconcile(e)
		}
	}
}

// lost forgets what this node knew of a binding that is no longer its own.
func (c *Core) lost(e *entry, old Binding) {
	p := c.part(e)
	tags := p.tags
	if p.want.class == arpnd.None {
		p.seen, p.tags = 0, 0
	}
	p.written, p.writtenSeen, p.router, p.probed, p.asked, p.answered, p.release = 0, 0, 0, 0, 0, 0, false
	if !e.have || e.b.Static || e.b.Node == c.node {
		return
	}
	c.event(Event{Kind: EventLost, Key: e.key, Endpoint: old.Endpoint, Holder: e.b})
	if !e.key.IsNeighbor() {
		c.askOldPort(e.key, old, tags)
	}
}

// none makes the cluster have nothing.
func (c *Core) none(e *entry) {
	if !e.have {
		return
	}
	old := e.b
	c.unindex(e)
	e.have, e.b = false, Binding{}
	if e.thaw != 0 {
		e.thaw = 0
	}
	if old.Node == c.node && !old.Static {
		c.lost(e, old)
	}
}

// again asks for a binding of this node that somebody else deleted, as is done
// to a node that seems dead: its station has been seen not long ago. It is no
// reason to take the key from anybody.
func (c *Core) again(e *entry, old Binding, seen int64, tags packet.Tags) {
	if old.Static || old.Node != c.node || e.flight.Op == OpDelete || e.want.class != arpnd.None ||
		seen == 0 || c.now.Mono-seen >= c.opt.Expiry.Nanoseconds() {
		return
	}
	n := c.part(e)
	n.seen, n.tags = seen, tags
	if p := c.portOf[old.Endpoint.EndpointKey]; p != nil && p.Up {
		c.setWant(e, want{class: arpnd.Weak, port: p.ID, at: c.now.Mono, mac: old.MAC, router: old.Router})
	}
}

// frozen is until when a binding stays where it is, 0 if nothing keeps it. A dead
// node keeps nothing: its station may be anywhere else.
func (c *Core) frozen(e *entry) int64 {
	if e.thaw != 0 && c.dead[e.b.Node] {
		return 0
	}
	return e.thaw
}

// thawAt is when a freeze ends, by the clock that does not step. Whatever the
// clocks say, it is not longer than ours would be.
func (c *Core) thawAt(until int64) int64 {
	if until == 0 || until <= c.now.Wall {
		return 0
	}
	left := min(until-c.now.Wall, c.opt.Freeze.Microseconds())
	return c.now.Mono + left*1000
}

func (c *Core) index(e *entry) {
	if e.b.Node == c.node {
		put(c.held, e.b.Endpoint.EndpointKey, e)
	}
	if e.key.IsNeighbor() && !e.b.Static {
		put(c.bound, FDB(e.key.Network, e.b.MAC), e.key.IP)
	}
}

func (c *Core) unindex(e *entry) {
	if !e.have {
		return
	}
	if e.b.Node == c.node {
		drop(c.held, e.b.Endpoint.EndpointKey, e)
	}
	if e.key.IsNeighbor() && !e.b.Static {
		drop(c.bound, FDB(e.key.Network, e.b.MAC), e.key.IP)
	}
}

func put[K, V comparable](m map[K]map[V]bool, k K, v V) {
	s := m[k]
	if s == nil {
		s = map[V]bool{}
		m[k] = s
	}
	s[v] = true
}

func drop[K, V comparable](m map[K]map[V]bool, k K, v V) {
	if s := m[k]; s != nil {
		delete(s, v)
		if len(s) == 0 {
			delete(m, k)
		}
	}
}

// reconcilePort looks at what a port holds and wants.
func (c *Core) reconcilePort(p *port) {
	c.reconcileEndpoint(p.Endpoint, nil)
	c.reconcileSet(c.wanted[p.ID])
	c.drain()
}

// reconcileEndpoint looks at what an endpoint holds, wants and claims.
func (c *Core) reconcileEndpoint(k EndpointKey, claims []Key) {
	c.reconcileSet(c.held[k])
	if p := c.portOf[k]; p != nil {
		c.reconcileSet(c.wanted[p.ID])
	}
	for _, key := range claims {
		if e := c.entries[key]; e != nil {
			c.reconcile(e)
		}
	}
	c.drain()
}

func (c *Core) reconcileSet(set map[*entry]bool) {
	all := make([]*entry, 0, len(set))
	for e := range set {
		all = append(all, e)
	}
	c.reconcileEach(all)
}

// reconcileAll looks at all of a network, "" for every one, that this node has,
// or may get, something to do with.
func (c *Core) reconcileAll(network string) {
	var all []*entry
	for _, e := range c.entries {
		if (network == "" || e.key.Network == network) && c.concerned(e) {
			all = append(all, e)
		}
	}
	c.reconcileEach(all)
	c.drain()
}

// concerned says that decide may have something to say on e.
func (c *Core) concerned(e *entry) bool {
	if e.part != c.idle || e.b.Node == c.node || len(c.claims[e.key]) > 0 {
		return true
	}
	_, p := c.stray(e)
	return p != nil
}

// reconcileEach goes in the order of the keys, so that the same inputs give the
// same intents; FDB entries first, for the addresses depend on them.
func (c *Core) reconcileEach(all []*entry) {
	sortEntries(all)
	for _, e := range all {
		c.reconcile(e)
	}
}

// Move is a binding that changed hands, here or elsewhere.
type Move struct {
	Wall     int64 // Unix microseconds, when this node learned of it
	Key      Key
	From, To Binding
}

// history is the last moves, in a ring.
type history struct {
	moves [256]Move
	count int
}

func (h *history) add(m Move) {
	h.moves[h.count%len(h.moves)] = m
	h.count++
}

// Moves returns the last moves this node has seen, up to 256, newest first.
func (c *Core) Moves() []Move {
	h := &c.history
	out := make([]Move, 0, min(h.count, len(h.moves)))
	for i := range cap(out) {
		out = append(out, h.moves[(h.count-1-i)%len(h.moves)])
	}
	return out
}

package learning

import (
	"cmp"
	"slices"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/internal/packet"
)

// reconcile brings one key a step further: what should be, against what is and
// what is under way.
func (c *Core) reconcile(e *entry) {
	c.next = 0
	if c.open && !e.forgotten {
		if op, b := c.decide(e); op != 0 {
			c.write(e, op, b)
		}
	}
	if c.next != 0 {
		c.part(e)
	}
	c.timers.set(e, c.next)
	c.recharge(e)
	c.settle(e)
	if !e.have && e.want.class == arpnd.None && e.flight.Seq == 0 && e.dead == "" && len(c.claims[e.key]) == 0 {
		c.timers.remove(e)
		e.forgotten = true
		delete(c.entries, e.key)
	}
}

// look asks for the entry to be reconciled again at a time to come.
func (c *Core) look(at int64) {
	if at > c.now.Mono && (c.next == 0 || at < c.next) {
		c.next = at
	}
}

// decide is the state table of the package comment. It says what is to be
// written, 0 for nothing, and which binding.
func (c *Core) decide(e *entry) (Op, Binding) {
	if holder := c.claimant(e); holder != nil {
		c.dropWant(e)
		if c.opt.ClaimsElsewhere {
			return 0, Binding{}
		}
		return c.decideStatic(e, holder)
	}
	if e.have && e.b.Static {
		c.dropWant(e)
		if !c.opt.ClaimsElsewhere && c.orphan(e) {
			return OpDelete, Binding{}
		}
		return 0, Binding{}
	}
	c.followStray(e)
	c.judgeWant(e)
	if e.have && e.b.Node == c.node {
		return c.decideOurs(e)
	}
	if e.want.class == arpnd.None {
		return 0, Binding{}
	}
	if !e.have {
		return OpCreate, c.wanting(e)
	}
	return OpTakeOver, c.moved(e, c.wanting(e))
}

// claimant is the endpoint of ours whose static claim of the key stands, nil for
// none. The others are refused, once said.
func (c *Core) claimant(e *entry) *Endpoint {
	claims := c.claims[e.key]
	if len(claims) == 0 {
		return nil
	}
	var holder *Endpoint
	if !e.have || !e.b.Static {
		holder = c.endpoints[claims[0]]
	} else if ep := c.endpoints[e.b.Endpoint.EndpointKey]; ep != nil && contains(claims, ep.EndpointKey) && c.mayHold(e, ep) {
		holder = ep
	}
	for _, k := range claims {
		ep := c.endpoints[k]
		switch {
		case ep == nil:
		case ep == holder:
			if c.refused[e.key][k] {
				drop(c.refused, e.key, k)
				c.event(Event{Kind: EventCollisionOver, Key: e.key, Endpoint: ep.EndpointRef})
			}
		case e.have && e.b.Static && c.orphan(e):
			// Held by a predecessor, but not for long.
		case !c.refused[e.key][k]:
			put(c.refused, e.key, k)
			by := e.b
			if !e.have || !e.b.Static {
				by = c.claimed(e, holder)
			}
			c.event(Event{Kind: EventCollision, Key: e.key, Endpoint: ep.EndpointRef, Holder: by})
		}
	}
	return holder
}

// mayHold says that a static binding of ep, or of another life of it, is ep's to
// keep. An endpoint that was made anew on another node takes its predecessor's
// binding from there; but only once, for whoever lost one in this way is himself
// the predecessor and has not heard yet.
func (c *Core) mayHold(e *entry, ep *Endpoint) bool {
	return e.b.Node == c.node || e.b.Endpoint.UID != ep.UID && e.taken != ep.UID
}

// orphan says that a static binding nobody claims was an endpoint's of this
// node: that endpoint is gone, or claims it no longer.
func (c *Core) orphan(e *entry) bool {
	return e.b.Node == c.node && e.b.Endpoint.Name != "" && !contains(c.claims[e.key], e.b.Endpoint.EndpointKey)
}

// claimed is the static binding an endpoint claims.
func (c *Core) claimed(e *entry, ep *Endpoint) Binding {
	b := Binding{Static: true, Node: c.node, Endpoint: ep.EndpointRef}
	if e.key.IsNeighbor() {
		b.MAC, b.Router = ep.MAC, e.b.Router
	} else {
		b.Segment = ep.Segment
	}
	return b
}

func (c *Core) decideStatic(e *entry, ep *Endpoint) (Op, Binding) {
	b := c.claimed(e, ep)
	switch {
	case c.networks[e.key.Network] == nil:
	case !e.have:
		return OpCreate, b
	case !e.b.Static || e.b.Node != c.node || e.b.Endpoint != ep.EndpointRef:
		return OpClaim, b
	case !e.b.Same(b):
		return OpUpdate, b
	}
	return 0, Binding{}
}

// judgeWant drops a claim that came true, or that no longer has a right to.
func (c *Core) judgeWant(e *entry) {
	w := e.want
	if w.class == arpnd.None {
		return
	}
	p := c.ports[w.port]
	if p == nil || !p.Up {
		c.dropWant(e)
		return
	}
	ep := c.endpoints[p.Endpoint]
	n := c.networks[e.key.Network]
	switch {
	case ep == nil || n == nil || !n.Learning || ep.Network != n.Name:
	case e.key.IsNeighbor() && (!n.contains(e.key.IP) || !c.atPort(FDB(n.Name, w.mac), ep, p)):
	case e.ours(c.node, ep) && (!e.key.IsNeighbor() || e.b.MAC == w.mac):
		if e.flight.Seq != 0 && e.flight.Op != OpRefresh {
			return // what is under way may undo it
		}
		c.part(e).router = w.router
	case e.have && w.class == arpnd.Weak:
		c.stats.Weak++
	case e.have && c.now.Mono < c.frozen(e):
		c.stats.Frozen++
	case c.now.Mono-w.at > c.opt.ReReport.Nanoseconds():
		c.stats.Stale++ // a station that still speaks has been heard again since
	default:
		c.look(w.at + c.opt.ReReport.Nanoseconds() + 1)
		return
	}
	c.dropWant(e)
}

// atPort says that a MAC is at a port, or is about to be.
func (c *Core) atPort(k Key, ep *Endpoint, p *port) bool {
	e := c.entries[k]
	if holder, ok := c.staticHolder(k, e); ok {
		return holder == ep.EndpointKey
	}
	if e == nil {
		return false
	}
	if e.want.class != arpnd.None {
		return e.want.port == p.ID
	}
	return e.ours(c.node, ep)
}

// wanting is the binding a claim asks for.
func (c *Core) wanting(e *entry) Binding {
	ep := c.endpoints[c.ports[e.want.port].Endpoint]
	b := Binding{Node: c.node, Endpoint: ep.EndpointRef, LastObserved: c.observed(e)}
	if e.key.IsNeighbor() {
		b.MAC, b.Router = e.want.mac, e.want.router
		if b.Router == RouterUnknown && e.have && e.b.MAC == b.MAC {
			b.Router = e.b.Router
		}
	} else {
		b.Segment = ep.Segment
	}
	return b
}

// moved counts a move into b, and freezes it when it was one too many.
func (c *Core) moved(e *entry, b Binding) Binding {
	window := c.opt.MoveWindow.Microseconds()
	since := c.now.Wall - e.b.MovesSince
	if e.b.MovesSince == 0 || e.b.FrozenUntil != 0 || since > window || since < -window {
		b.Moves, b.MovesSince = 1, c.now.Wall
	} else {
		b.Moves, b.MovesSince = e.b.Moves+1, e.b.MovesSince
	}
	if b.Moves > c.opt.MaxMoves {
		b.FrozenUntil = c.now.Wall + c.opt.Freeze.Microseconds()
	}
	return b
}

// observed is when the claim was last seen, by the wall clock.
func (c *Core) observed(e *entry) int64 {
	return c.now.Wall - (c.now.Mono-e.seen)/1000
}

// decideOurs is about a learned binding that this node manages.
func (c *Core) decideOurs(e *entry) (Op, Binding) {
	if e.want.class != arpnd.None {
		if ep := c.endpoints[c.ports[e.want.port].Endpoint]; !e.ours(c.node, ep) || e.b.MAC != e.want.mac {
			return OpTakeOver, c.moved(e, c.wanting(e))
		}
	}
	ep := c.endpoints[e.b.Endpoint.EndpointKey]
	p := c.portOf[e.b.Endpoint.EndpointKey]
	n := c.networks[e.key.Network]
	switch {
	case ep == nil || ep.EndpointRef != e.b.Endpoint, p != nil && !p.Up,
		n != nil && (!n.Learning || e.key.IsNeighbor() && !n.contains(e.key.IP)):
		return OpDelete, Binding{}
	case n == nil:
		return 0, Binding{}
	}
	b := e.b
	b.LastObserved = c.observed(e)
	if thawed := e.b.FrozenUntil != 0 && c.now.Mono >= e.thaw; e.release || thawed {
		b.Moves, b.MovesSince, b.FrozenUntil = 0, 0, 0
		return OpRelease, b
	}
	c.look(e.thaw)
	if e.key.IsNeighbor() && e.router != RouterUnknown {
		b.Router = e.router
	} else if !e.key.IsNeighbor() {
		b.Segment = ep.Segment
	}
	if !b.Same(e.b) {
		return OpUpdate, b
	}
	if c.onceOnly(n, e) {
		return 0, Binding{}
	}
	if c.expired(e, p) {
		return OpDelete, Binding{}
	}
	c.probe(e, p, n)
	c.queueRefresh(e)
	return 0, Binding{}
}

// onceOnly says that e is a link-local address behind a static MAC: it lives as
// long as its port.
func (c *Core) onceOnly(n *Network, e *entry) bool {
	if !e.key.IsNeighbor() || !e.key.IP.IsLinkLocal6() {
		return false
	}
	k := FDB(n.Name, e.b.MAC)
	holder, static := c.staticHolder(k, c.entries[k])
	return static && holder == e.b.Endpoint.EndpointKey
}

// expired says that nothing was seen of e for too long, and that the data plane
// was asked and has not seen anything either.
func (c *Core) expired(e *entry, p *port) bool {
	if c.now.Mono < e.seen+c.opt.Expiry.Nanoseconds() {
		if e.asked != 0 || e.answered != 0 {
			e.asked, e.answered = 0, 0
		}
		c.look(e.seen + c.opt.Expiry.Nanoseconds())
		return false
	}
	if p == nil {
		return true
	}
	timeout := c.opt.AskTimeout.Nanoseconds()
	if e.answered != 0 && c.now.Mono <= e.answered+timeout {
		return true
	}
	if e.asked == 0 || c.now.Mono >= e.asked+timeout {
		c.part(e).asked = c.now.Mono
		c.out.Asks = append(c.out.Asks, Ask{Key: e.key, Port: p.ID, IP: e.key.IP, MAC: e.mac()})
	}
	c.look(e.asked + timeout)
	return false
}

// mac is the MAC of the station.
func (e *entry) mac() packet.MAC {
	if e.key.IsNeighbor() {
		return e.b.MAC
	}
	return e.key.MAC
}

// probe asks a host that has been silent whether it lives. Its answer is an
// observation like any other.
func (c *Core) probe(e *entry, p *port, n *Network) {
	if !e.key.IsNeighbor() || p == nil {
		return
	}
	at := max(e.seen+c.opt.Probe.Nanoseconds(), p.mayProbe(n, e.key.IP, e.b.MAC))
	if e.probed > e.seen {
		at = max(at, e.probed+c.opt.ProbeEvery.Nanoseconds())
	}
	if c.now.Mono < at {
		c.look(at)
		return
	}
	c.part(e).probed = c.now.Mono
	c.look(e.probed + c.opt.ProbeEvery.Nanoseconds())
	c.sendProbe(p, e.key.IP, e.b.MAC, e.tags)
}

// mayProbe is when a probe does no harm: one from 0.0.0.0 is a conflict to a
// host that is probing for an address itself (RFC 5227 section 2.1.1).
func (p *port) mayProbe(n *Network, ip packet.IP, mac packet.MAC) int64 {
	if !ip.Is4() || n.gateway4() {
		return 0
	}
	return max(p.allQuiet, p.probing[mac])
}

func (c *Core) sendProbe(p *port, ip packet.IP, mac packet.MAC, tags packet.Tags) {
	c.stats.Probes++
	c.out.Probes = append(c.out.Probes, Probe{Port: p.ID, IP: ip, MAC: mac, Tags: tags})
}

// askOldPort probes a station that is said to have left. One that came back
// before the news of its leaving did, and has been silent since, answers; by ARP
// that is strong evidence and brings it home.
func (c *Core) askOldPort(k Key, old Binding, tags packet.Tags) {
	p, n := c.portOf[old.Endpoint.EndpointKey], c.networks[k.Network]
	if !c.open || p == nil || !p.Up || n == nil {
		return
	}
	for _, ip := range sortedIPs(c.bound[k]) {
		if ip.Is4() {
			if c.now.Mono >= p.mayProbe(n, ip, k.MAC) {
				c.sendProbe(p, ip, k.MAC, tags)
			}
			return
		}
	}
}

// sortedIPs makes what follows from a set the same every time.
func sortedIPs(set map[packet.IP]bool) []packet.IP {
	ips := make([]packet.IP, 0, len(set))
	for ip := range set {
		ips = append(ips, ip)
	}
	slices.SortFunc(ips, func(a, b packet.IP) int {
		return cmp.Or(cmp.Compare(a.Hi, b.Hi), cmp.Compare(a.Lo, b.Lo))
	})
	return ips
}

func sortEntries(all []*entry) {
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(
			cmp.Compare(a.key.Network, b.key.Network), cmp.Compare(a.key.IP.Hi, b.key.IP.Hi),
			cmp.Compare(a.key.IP.Lo, b.key.IP.Lo), cmp.Compare(a.key.MAC.Uint64(), b.key.MAC.Uint64()))
	})
}

package learning

import (
	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// maxProbing bounds the MACs of a port whose ARP probes are remembered.
const maxProbing = 256

// Observe takes one observation.
func (c *Core) Observe(o Observation, now Now) {
	c.now = now
	c.stats.Observations++
	p := c.ports[o.Port]
	if p == nil || !p.Up {
		c.stats.NoPort++
		return
	}
	ep := c.endpoints[p.Endpoint]
	if ep == nil {
		c.stats.NoPort++
		return
	}
	n := c.networks[ep.Network]
	if n == nil || !n.Learning {
		c.stats.Off++
		return
	}
	if o.Class == arpnd.None || o.MAC.IsGroup() || o.MAC.IsZero() || o.MAC == arpnd.ProbeMAC() {
		return
	}
	if o.MAC == n.GatewayMAC {
		c.stats.Gateway++
		return
	}
	o.Time = min(o.Time, now.Mono)
	if o.Flags&ARPProbe != 0 {
		p.noteProbing(o.MAC, o.Time, now.Mono, c.opt.ProbeQuiet.Nanoseconds())
	}
	here := c.observeMAC(p, ep, n, &o)
	switch {
	case !here || o.IP == packet.IP{}:
	case n.isGateway(o.IP):
		c.stats.Gateway++
	case !n.contains(o.IP):
		c.stats.OutOfPrefix++
	default:
		c.observeIP(p, ep, n, &o)
	}
	c.drain()
}

// observeMAC is the station's own claim. It returns whether the station's MAC is
// at this port now, as far as this node has a say: else its addresses are not
// either.
func (c *Core) observeMAC(p *port, ep *Endpoint, n *Network, o *Observation) bool {
	k := FDB(n.Name, o.MAC)
	e := c.entries[k]
	if holder, ok := c.staticHolder(k, e); ok {
		if holder != ep.EndpointKey {
			c.stats.Static++
			return false
		}
		return true
	}
	if e != nil && e.ours(c.node, ep) && (e.want.class == arpnd.None || e.want.port == p.ID) {
		c.saw(e, o.Time, o.Tags)
		return true
	}
	if e != nil && e.want.class != arpnd.None && e.want.port == p.ID && o.Class <= e.want.class {
		c.part(e).want.at = o.Time
		c.saw(e, o.Time, o.Tags)
		return true
	}
	if o.Class == arpnd.Weak && e != nil && (e.have || e.want.class != arpnd.None) {
		c.stats.Weak++
		return false
	}
	if e != nil && e.have && c.now.Mono < c.frozen(e) {
		c.stats.Frozen++
		return false
	}
	if (e == nil || e.charged != p.ID) && p.macs >= limit(n.MaxMACs, c.opt.MaxMACs) {
		c.stats.MACLimit++
		c.sayLimit(p, EventMACLimit, k, limit(n.MaxMACs, c.opt.MaxMACs))
		return false
	}
	e = c.entry(k)
	c.wants(e, want{class: o.Class, port: p.ID, at: o.Time, tags: o.Tags})
	if o.Class == arpnd.Strong {
		c.follow(k, p, ep, o)
	}
	return true
}

// follow makes the learned Neighbors of a MAC that has just come here this
// port's, too: a station that moves and says so by a RARP takes its addresses
// along.
func (c *Core) follow(k Key, p *port, ep *Endpoint, o *Observation) {
	for _, ip := range sortedIPs(c.bound[k]) {
		e := c.entries[Neighbor(k.Network, ip)]
		if e == nil || e.ours(c.node, ep) || c.now.Mono < c.frozen(e) {
			continue
		}
		c.wants(e, want{class: arpnd.Strong, port: p.ID, at: o.Time, mac: o.MAC, router: e.b.Router, tags: o.Tags})
	}
}

// followLate is follow for a Neighbor that was somewhere else when its MAC came
// here, which this node hears only now. The API server's versions tell the order.
func (c *Core) followLate(e *entry) {
	if f, p := c.stray(e); p != nil && c.frozen(e) == 0 && older(e.b.Version, f.b.Version) {
		c.adopt(e, f, p)
	}
}

// followStray is follow for a Neighbor that stays somewhere else than its MAC,
// which is here: the writes of both have crossed, or it was frozen. Whoever has
// just written the one may be about to take the other, and gets the time to.
func (c *Core) followStray(e *entry) {
	f, p := c.stray(e)
	if p == nil {
		return
	}
	if at := max(c.frozen(e), max(e.since, f.since)+c.opt.ReReport.Nanoseconds()); c.now.Mono < at {
		c.look(at)
		return
	}
	c.adopt(e, f, p)
}

// stray returns the MAC of a Neighbor that another node manages, and its port,
// if it was learned here.
func (c *Core) stray(e *entry) (*entry, *port) {
	if !e.key.IsNeighbor() || !e.have || e.b.Static || e.b.Node == c.node || e.want.class != arpnd.None {
		return nil, nil
	}
	f := c.entries[FDB(e.key.Network, e.b.MAC)]
	if f == nil || !f.have || f.b.Static || f.b.Node != c.node {
		return nil, nil
	}
	if p := c.portOf[f.b.Endpoint.EndpointKey]; p != nil && p.Up {
		return f, p
	}
	return nil, nil
}

// adopt has a Neighbor follow its MAC f to p.
func (c *Core) adopt(e, f *entry, p *port) {
	c.setWant(e, want{class: arpnd.Strong, port: p.ID, at: c.now.Mono, mac: e.b.MAC, router: e.b.Router})
	n := c.part(e)
	n.seen, n.tags = max(n.seen, f.seen), f.tags
}

// observeIP is the claim of an address by a station that is at this port.
func (c *Core) observeIP(p *port, ep *Endpoint, n *Network, o *Observation) {
	k := Neighbor(n.Name, o.IP)
	e := c.entries[k]
	if _, ok := c.staticHolder(k, e); ok {
		c.stats.Static++
		return
	}
	router := RouterUnknown
	if o.Flags&Advert != 0 {
		router = RouterNo
		if o.Flags&AdvertRouter != 0 {
			router = RouterYes
		}
	}
	if e != nil && e.ours(c.node, ep) && e.b.MAC == o.MAC && e.wantedBy(p, o.MAC) {
		if router != RouterUnknown {
			c.part(e).router = router
		}
		c.saw(e, o.Time, o.Tags)
		return
	}
	if o.Class != arpnd.Strong {
		c.stats.Weak++
		return
	}
	if e != nil && e.have && c.now.Mono < c.frozen(e) {
		c.stats.Frozen++
		return
	}
	if c.derived(n, ep, o.MAC, o.IP) {
		return
	}
	most := limit(n.MaxAddresses, c.opt.MaxAddresses)
	if (e == nil || e.charged != p.ID || e.chargedMAC != o.MAC) && p.addresses[o.MAC] >= most {
		c.stats.AddressLimit++
		c.sayLimit(p, EventAddressLimit, FDB(n.Name, o.MAC), most)
		return
	}
	c.wants(c.entry(k), want{class: arpnd.Strong, port: p.ID, at: o.Time, mac: o.MAC, router: router, tags: o.Tags})
}

// derived says that ip is the EUI-64 address of a static MAC, which every node
// derives without an object.
func (c *Core) derived(n *Network, ep *Endpoint, mac packet.MAC, ip packet.IP) bool {
	k := FDB(n.Name, mac)
	_, static := c.staticHolder(k, c.entries[k])
	return static && n.LinkLocal && ip == eui64(mac)
}

// staticHolder is the endpoint that holds k statically: by what the cluster
// has, else by the first claim of our endpoints.
func (c *Core) staticHolder(k Key, e *entry) (EndpointKey, bool) {
	if e != nil && e.have && e.b.Static {
		if e.b.Node != c.node {
			return EndpointKey{}, true
		}
		return e.b.Endpoint.EndpointKey, true
	}
	if claims := c.claims[k]; len(claims) > 0 {
		return claims[0], true
	}
	return EndpointKey{}, false
}

// ours says that e is a learned binding of this node at this endpoint.
func (e *entry) ours(node string, ep *Endpoint) bool {
	return e.have && !e.b.Static && e.b.Node == node && e.b.Endpoint == ep.EndpointRef
}

// wantedBy says that nobody but this station at this port wants e.
func (e *entry) wantedBy(p *port, mac packet.MAC) bool {
	return e.want.class == arpnd.None || e.want.port == p.ID && e.want.mac == mac
}

// saw notes life and does what it makes due.
func (c *Core) saw(e *entry, at int64, tags packet.Tags) {
	if at > e.seen {
		p := c.part(e)
		p.seen, p.tags = at, tags
	}
	c.reconcile(e)
}

// wants notes a claim, the latest wins, and acts on it.
func (c *Core) wants(e *entry, w want) {
	c.setWant(e, w)
	c.saw(e, w.at, w.tags)
}

func (c *Core) setWant(e *entry, w want) {
	if e.want.class != arpnd.None && e.want.port != w.port {
		drop(c.wanted, e.want.port, e)
	}
	c.part(e).want = w
	if w.class != arpnd.None {
		put(c.wanted, w.port, e)
	}
}

func (c *Core) dropWant(e *entry) {
	if e.want.class != arpnd.None {
		drop(c.wanted, e.want.port, e)
		c.part(e).want = want{}
	}
	if e.seen != 0 && (!e.have || e.b.Static || e.b.Node != c.node) {
		e.seen, e.tags = 0, 0 // of a port that has no right to it
	}
}

func (c *Core) sayLimit(p *port, kind EventKind, k Key, most int) {
	if p.said[kind] != 0 {
		return
	}
	p.said[kind] = most
	c.event(Event{Kind: kind, Key: k, Endpoint: c.ref(p.Endpoint), Limit: most})
}

// noteProbing remembers that mac is probing for an address. A port with too many
// such MACs is not probed from 0.0.0.0 at all for the time.
func (p *port) noteProbing(mac packet.MAC, at, now, quiet int64) {
	if _, ok := p.probing[mac]; !ok && len(p.probing) >= maxProbing {
		for m, until := range p.probing {
			if until <= now {
				delete(p.probing, m)
			}
		}
		if len(p.probing) >= maxProbing {
			p.allQuiet = max(p.allQuiet, at+quiet)
			return
		}
	}
	p.probing[mac] = max(p.probing[mac], at+quiet)
}

// recharge keeps the counts of the ports' limits.
func (c *Core) recharge(e *entry) {
	var id table.PortID
	var mac packet.MAC
	switch {
	case e.want.class != arpnd.None:
		id, mac = e.want.port, e.want.mac
	case e.flight.Seq != 0 && (e.flight.Op == OpCreate || e.flight.Op == OpTakeOver) && !e.flight.New.Static:
		// The claim was given up, but its write may still come true.
		if p := c.portOf[e.flight.New.Endpoint.EndpointKey]; p != nil {
			id, mac = p.ID, e.flight.New.MAC
		}
	case e.have && !e.b.Static && e.b.Node == c.node:
		if p := c.portOf[e.b.Endpoint.EndpointKey]; p != nil {
			id, mac = p.ID, e.b.MAC
		}
	}
	if id == e.charged && mac == e.chargedMAC {
		return
	}
	c.charge(e, -1)
	own := c.part(e)
	own.charged, own.chargedMAC = id, mac
	c.charge(e, 1)
}

func (c *Core) charge(e *entry, n int) {
	p := c.ports[e.charged]
	if p == nil {
		return
	}
	if !e.key.IsNeighbor() {
		p.macs += n
		p.calm(EventMACLimit, p.macs)
		return
	}
	p.addresses[e.chargedMAC] += n
	p.calm(EventAddressLimit, p.addresses[e.chargedMAC])
	if p.addresses[e.chargedMAC] == 0 {
		delete(p.addresses, e.chargedMAC)
	}
}

// calm lets an Event be told again once the count is well below the limit.
func (p *port) calm(kind EventKind, count int) {
	if count*4 < p.said[kind]*3 {
		p.said[kind] = 0
	}
}

func limit(own, common int) int {
	if own > 0 {
		return own
	}
	return common
}

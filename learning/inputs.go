package learning

import (
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// SetNetwork tells of a network that is hosted here, or of its change.
func (c *Core) SetNetwork(n Network, now Now) {
	c.now = now
	c.networks[n.Name] = &n
	c.reconcileAll(n.Name)
}

// NetworkGone tells that a network is no longer hosted here.
func (c *Core) NetworkGone(name string, now Now) {
	c.now = now
	delete(c.networks, name)
	c.reconcileAll(name)
}

// SetEndpoint tells of an endpoint of this node, or of its change.
func (c *Core) SetEndpoint(ep Endpoint, now Now) {
	c.now = now
	old := c.endpoints[ep.EndpointKey]
	c.endpoints[ep.EndpointKey] = &ep
	before, after := staticKeys(old), staticKeys(&ep)
	for _, k := range before {
		if !contains(after, k) {
			c.unclaim(k, ep.EndpointKey)
		}
	}
	for _, k := range after {
		if !contains(c.claims[k], ep.EndpointKey) {
			c.claims[k] = append(c.claims[k], ep.EndpointKey)
		}
		c.entry(k)
	}
	c.reconcileEndpoint(ep.EndpointKey, append(before, after...))
}

// EndpointGone tells that an endpoint is not, or no longer, this node's. What
// it held is deleted, learned and static.
func (c *Core) EndpointGone(k EndpointKey, now Now) {
	c.now = now
	keys := staticKeys(c.endpoints[k])
	delete(c.endpoints, k)
	for _, key := range keys {
		c.unclaim(key, k)
	}
	c.reconcileEndpoint(k, keys)
	if p := c.portOf[k]; p != nil && c.ports[p.ID] != p {
		delete(c.portOf, k)
	}
}

// staticKeys are the keys an endpoint claims, the FDB entry first.
func staticKeys(ep *Endpoint) []Key {
	if ep == nil || ep.MAC.IsZero() {
		return nil
	}
	keys := []Key{FDB(ep.Network, ep.MAC)}
	for _, ip := range ep.Addresses {
		keys = append(keys, Neighbor(ep.Network, ip))
	}
	return keys
}

func (c *Core) unclaim(k Key, ep EndpointKey) {
	var rest []EndpointKey
	for _, o := range c.claims[k] {
		if o != ep {
			rest = append(rest, o)
		}
	}
	if len(rest) == 0 {
		delete(c.claims, k)
	} else {
		c.claims[k] = rest
	}
	drop(c.refused, k, ep)
}

// SetPort tells of a port, or that it went up or down. What was learned behind a
// port that is down is deleted.
func (c *Core) SetPort(p Port, now Now) {
	c.now = now
	q := c.ports[p.ID]
	if q == nil {
		q = &port{addresses: map[packet.MAC]int{}, probing: map[packet.MAC]int64{}}
		c.ports[p.ID] = q
	}
	q.Port = p
	c.portOf[p.Endpoint] = q
	c.reconcilePort(q)
}

// PortGone tells that a port is no longer there.
func (c *Core) PortGone(id table.PortID, now Now) {
	c.now = now
	p := c.ports[id]
	if p == nil {
		return
	}
	delete(c.ports, id)
	p.Up = false
	if c.portOf[p.Endpoint] == p && c.endpoints[p.Endpoint] == nil {
		delete(c.portOf, p.Endpoint)
	}
	c.reconcilePort(p)
}

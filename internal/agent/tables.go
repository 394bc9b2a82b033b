package agent

import (
	"errors"
	"fmt"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
)

// tables compiles the desired state into the builder. It knows which ports are
// attached and how other nodes are reached because it is told.
type tables struct {
	*table.Builder
	self  string
	state desired.State

	ids   map[string]table.NetworkID // the ID each network is programmed under
	ports map[desired.EndpointKey]table.Port
	hops  map[string]reach
	// bound lists the FDB keys of each endpoint of this node, so that a port that
	// comes or goes touches only its own.
	bound map[desired.EndpointKey]map[desired.FDBKey]bool

	learns   bool // networks that say so have their ports observed
	function uint16
	hashKey  packet.HashKey
	dirty    bool
	failures map[string]error // by object
	last     *table.Snapshot  // as published
}

// reach is how a node is reached now.
type reach struct {
	hops    []table.NextHop
	pathMTU int
}

func newTables(self string, function uint16, key packet.HashKey) *tables {
	b := table.NewBuilder()
	return &tables{
		Builder: b, last: b.Snapshot(), self: self, state: desired.NewState(), function: function, hashKey: key,
		ids: map[string]table.NetworkID{}, ports: map[desired.EndpointKey]table.Port{}, hops: map[string]reach{},
		bound: map[desired.EndpointKey]map[desired.FDBKey]bool{}, failures: map[string]error{},
	}
}

// note remembers or forgets that an object could not be compiled.
func (t *tables) note(object string, err error) {
	t.dirty = true
	if err == nil {
		delete(t.failures, object)
		return
	}
	t.failures[object] = fmt.Errorf("%s: %w", object, err)
}

// apply takes a change of the desired state in. What goes away goes first, so
// that a key that changes hands is free when its new holder comes.
func (t *tables) apply(d desired.Delta) {
	for k, v := range d.Neighbors {
		if old, ok := t.state.Neighbors[k]; ok && (v == nil || v.Network != old.Network) {
			t.dropNeighbor(*old)
		}
	}
	for k, v := range d.FDB {
		if old, ok := t.state.FDB[k]; ok && (v == nil || v.Endpoint.EndpointKey != old.Endpoint.EndpointKey || v.Node != old.Node || v.Static != old.Static) {
			t.dropFDB(*old)
		}
	}
	for name, v := range d.Networks {
		if id, ok := t.ids[name]; ok && (v == nil || table.NetworkID(v.ID) != id) {
			t.dropNetwork(name, id)
		}
	}
	for name, v := range d.Nodes {
		if v == nil {
			t.DeleteNode(name)
			t.note("SRv6Node "+name, nil)
		}
	}
	t.state.Apply(d)
	for _, v := range d.Networks {
		if v != nil {
			t.setNetwork(*v)
		}
	}
	for name, v := range d.Nodes {
		if v != nil {
			t.setNode(name)
		}
	}
	for _, v := range d.FDB {
		if v != nil {
			t.setFDB(*v)
		}
	}
	for _, v := range d.Neighbors {
		if v != nil {
			t.setNeighbor(*v)
		}
	}
	t.dirty = t.dirty || d.Len() > 0
}

func (t *tables) setNetwork(n desired.Network) {
	id := table.NetworkID(n.ID)
	old, had := t.ids[n.Name]
	c := table.Network{
		ID: id, Name: n.Name, MTU: n.MTU, Prefixes: n.Prefixes, LinkLocal: n.LinkLocal, Learning: t.learns && n.Learning.Enabled,
		Gateway: table.Gateway{Addresses: n.Gateway.Addresses, MAC: n.Gateway.MAC},
	}
	if n.Isolation.DefaultDeny || len(n.Isolation.Rules) > 0 {
		c.Isolation = &table.Isolation{DefaultDeny: n.Isolation.DefaultDeny}
		for _, r := range n.Isolation.Rules {
			c.Isolation.Rules = append(c.Isolation.Rules, table.IsolationRule{From: segments(r.From), To: segments(r.To)})
		}
	}
	err := t.SetNetwork(c)
	t.note("Network "+n.Name, err)
	var conflict *table.NetworkConflictError
	if errors.As(err, &conflict) {
		return
	}
	t.ids[n.Name] = id
	if had && old == id {
		return
	}
	// The network's entries were kept under another ID, or under none.
	for _, e := range t.state.FDB {
		if e.Network == n.Name {
			t.setFDB(*e)
		}
	}
	for _, nb := range t.state.Neighbors {
		if nb.Network == n.Name {
			t.setNeighbor(*nb)
		}
	}
	for key, p := range t.ports {
		if t.state.Endpoints[key].Network == n.Name {
			t.portUp(key, p)
		}
	}
}

// dropNetwork takes out a network that goes, or gets another ID, with all that is
// under its ID: else that would hold its MACs against their owners when the ID
// comes back. setNetwork programs anew what is still desired.
func (t *tables) dropNetwork(name string, id table.NetworkID) {
	for _, e := range t.state.FDB {
		if e.Network == name {
			t.DeleteFDB(id, e.MAC)
		}
	}
	for _, n := range t.state.Neighbors {
		if n.Network == name {
			t.DeleteNeighbor(id, n.IP)
		}
	}
	t.DeleteNetwork(id)
	delete(t.ids, name)
	t.note("Network "+name, nil)
}

func segments(in []uint32) []table.Segment {
	out := make([]table.Segment, len(in))
	for i, s := range in {
		out[i] = table.Segment(s)
	}
	return out
}

// setNode programs a node from what is desired and how it is reached.
func (t *tables) setNode(name string) {
	n, ok := t.state.Nodes[name]
	if !ok {
		return
	}
	l, err := srv6.LocatorFrom(n.Locator)
	if err != nil {
		t.note("SRv6Node "+name, err)
		return
	}
	if name == t.self {
		t.SetSelf(l, t.function, t.hashKey)
	}
	r := t.hops[name]
	t.note("SRv6Node "+name, t.SetNode(table.Node{
		Name: name, Locator: l, NextHops: r.hops, PathMTU: r.pathMTU, Alive: !n.Dead,
	}))
}

// setReach tells how a node is reached from now on.
func (t *tables) setReach(name string, r reach) {
	t.hops[name] = r
	t.setNode(name)
}

func (t *tables) setFDB(e desired.FDBEntry) {
	if e.Node == t.self {
		if t.bound[e.Endpoint.EndpointKey] == nil {
			t.bound[e.Endpoint.EndpointKey] = map[desired.FDBKey]bool{}
		}
		t.bound[e.Endpoint.EndpointKey][e.FDBKey] = true
	}
	id, ok := t.ids[e.Network]
	if !ok {
		return
	}
	entry := table.FDBEntry{MAC: e.MAC, Segment: table.Segment(e.Segment), Static: e.Static}
	if e.Node == t.self {
		p, attached := t.ports[e.Endpoint.EndpointKey]
		if !attached {
			// A station of this node without its port is nowhere: unknown,
			// and nobody is told its addresses.
			t.DeleteFDB(id, e.MAC)
			t.note("FDBEntry "+e.Name(), nil)
			return
		}
		entry.Port = p.ID
	} else {
		entry.Node = e.Node
	}
	t.note("FDBEntry "+e.Name(), t.SetFDB(id, entry))
}

func (t *tables) dropFDB(e desired.FDBEntry) {
	delete(t.bound[e.Endpoint.EndpointKey], e.FDBKey)
	if len(t.bound[e.Endpoint.EndpointKey]) == 0 {
		delete(t.bound, e.Endpoint.EndpointKey)
	}
	if id, ok := t.ids[e.Network]; ok {
		t.DeleteFDB(id, e.MAC)
	}
	t.note("FDBEntry "+e.Name(), nil)
}

func (t *tables) setNeighbor(n desired.Neighbor) {
	if id, ok := t.ids[n.Network]; ok {
		t.note("Neighbor "+n.Name(), t.SetNeighbor(id, table.NeighborEntry{
			IP: n.IP, MAC: n.MAC, Static: n.Static,
			Router: n.Router == desired.RouterYes, RouterKnown: n.Router != desired.RouterUnknown,
		}))
	}
}

func (t *tables) dropNeighbor(n desired.Neighbor) {
	if id, ok := t.ids[n.Network]; ok {
		t.DeleteNeighbor(id, n.IP)
	}
	t.note("Neighbor "+n.Name(), nil)
}

// portUp programs an attached port and the entries that name its endpoint.
func (t *tables) portUp(key desired.EndpointKey, p table.Port) {
	t.ports[key] = p
	if id, ok := t.ids[t.state.Endpoints[key].Network]; ok {
		p.Network = id
	}
	err := t.SetPort(p)
	t.note("port of NetworkEndpoint "+key.String(), err)
	for k := range t.bound[key] {
		if e := t.state.FDB[k]; e != nil {
			t.setFDB(*e)
		}
	}
}

// portDown forgets a port that is going away.
func (t *tables) portDown(key desired.EndpointKey) {
	p, ok := t.ports[key]
	if !ok {
		return
	}
	delete(t.ports, key)
	for k := range t.bound[key] {
		if e := t.state.FDB[k]; e != nil {
			t.setFDB(*e)
		}
	}
	t.DeletePort(p.ID)
	t.note("port of NetworkEndpoint "+key.String(), nil)
}

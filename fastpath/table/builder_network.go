package table

import (
	"net/netip"
	"slices"

	"picot.dev/picot/internal/packet"
)

// network is a network by its ID, from its first mention on.
type network struct {
	id    NetworkID
	index NetIndex
	known bool // set by SetNetwork; else only named by ports or entries
	ports int  // that name it

	spec      Network
	prefixes  []prefix
	isolation *isolation

	fdb       map[uint64]claim
	neighbors map[packet.IP]Neighbor
}

// network returns the state of an ID, making it at its first mention.
func (b *Builder) network(id NetworkID) (*network, error) {
	if id == 0 || id > MaxNetworkID {
		return nil, invalid("network ID %d: give 1..%d", id, MaxNetworkID)
	}
	if n := b.networks[id]; n != nil {
		return n, nil
	}
	i, err := b.netIndex.take(b.released)
	if err != nil {
		return nil, err
	}
	n := &network{id: id, index: NetIndex(i), fdb: map[uint64]claim{}, neighbors: map[packet.IP]Neighbor{}}
	b.networks[id] = n
	b.networksDirty = true
	return n, nil
}

// dropNetwork lets a network go that nothing names any more.
func (b *Builder) dropNetwork(n *network) {
	if n.known || n.ports > 0 || len(n.fdb) > 0 || len(n.neighbors) > 0 {
		return
	}
	delete(b.networks, n.id)
	b.netIndex.give(uint16(n.index), b.version)
	b.networksDirty = true
}

// SetNetwork adds or changes a network. Its errors wrap [ErrInvalid] or
// [ErrFull], or are a [NetworkConflictError]. Two errors come with the network
// set all the same: isolation rules that do not compile close every pair of
// segments, and a static entry with the gateway's MAC, a [MACConflictError], is
// without effect while the gateway has it.
func (b *Builder) SetNetwork(c Network) error {
	if err := checkNetwork(&c); err != nil {
		return err
	}
	if held := b.names[c.Name]; held != nil && held.id != c.ID {
		return &NetworkConflictError{ID: c.ID, HeldID: held.id, Name: c.Name, Holder: c.Name}
	}
	if held := b.networks[c.ID]; held != nil && held.known && held.spec.Name != c.Name {
		return &NetworkConflictError{ID: c.ID, HeldID: c.ID, Name: c.Name, Holder: held.spec.Name}
	}
	n, err := b.network(c.ID)
	if err != nil {
		return err
	}
	c.Prefixes = slices.Clone(c.Prefixes)
	c.Gateway.Addresses = slices.Clone(c.Gateway.Addresses)
	old := n.spec.Gateway
	if !n.known {
		b.portsDirty = true
	}
	n.known, n.spec = true, c
	n.prefixes = compilePrefixes(c.Prefixes)
	n.isolation, err = compileIsolation(c.Isolation)
	b.names[c.Name] = n
	b.networksDirty = true
	b.ids.set(uint64(n.id), uint64(n.index))
	b.compileGateway(n, old)
	b.compileGateway(n, c.Gateway)
	if e, ok := n.fdb[c.Gateway.MAC.Uint64()]; ok && e.static && err == nil {
		err = &MACConflictError{Network: c.ID, MAC: c.Gateway.MAC, Claim: b.owner(e.nodeName(), e.port), Holder: "the gateway"}
	}
	return err
}

// DeleteNetwork deletes a network. What ports and entries name it stays, without
// effect, until it comes back or they go.
func (b *Builder) DeleteNetwork(id NetworkID) {
	n := b.networks[id]
	if n == nil || !n.known {
		return
	}
	old := n.spec
	n.known, n.spec, n.prefixes, n.isolation = false, Network{}, nil, nil
	delete(b.names, old.Name)
	b.ids.remove(uint64(id))
	b.networksDirty, b.portsDirty = true, true
	b.compileGateway(n, old.Gateway)
	b.dropNetwork(n)
}

// compileGateway compiles again what g covers or has covered.
func (b *Builder) compileGateway(n *network, g Gateway) {
	if !g.MAC.IsZero() {
		b.compileFDB(n, g.MAC.Uint64())
	}
	for _, a := range g.Addresses {
		b.compileNeighbor(n, packet.IPFromAddr(a))
	}
}

func checkNetwork(c *Network) error {
	if c.Name == "" {
		return invalid("network ID %d: give it a name", c.ID)
	}
	if c.ID == 0 || c.ID > MaxNetworkID {
		return invalid("network %q: ID %d: give 1..%d", c.Name, c.ID, MaxNetworkID)
	}
	for _, p := range c.Prefixes {
		if !p.IsValid() || p.Masked() != p {
			return invalid("network %q: prefix %s: give a prefix without host bits", c.Name, p)
		}
	}
	for _, a := range c.Gateway.Addresses {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			return invalid("network %q: gateway address %s: give a unicast address", c.Name, a)
		}
	}
	if c.Gateway.MAC.IsGroup() || c.Gateway.MAC.IsZero() && len(c.Gateway.Addresses) > 0 {
		return invalid("network %q: gateway MAC %s: give a unicast MAC", c.Name, c.Gateway.MAC)
	}
	return nil
}

func compilePrefixes(list []netip.Prefix) []prefix {
	var out []prefix
	for _, p := range list {
		bits := p.Bits()
		if p.Addr().Is4() {
			bits += 96
		}
		m := packet.IP{Hi: highBits(bits), Lo: highBits(bits - 64)}
		ip := packet.IPFromAddr(p.Addr())
		out = append(out, prefix{ip: ip, mask: m, is4: ip.Is4()})
	}
	return out
}

// highBits is a word with its n highest bits set; n may be out of range.
func highBits(n int) uint64 {
	switch {
	case n <= 0:
		return 0
	case n >= 64:
		return ^uint64(0)
	}
	return ^uint64(0) << (64 - n)
}

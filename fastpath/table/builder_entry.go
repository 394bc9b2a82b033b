package table

import (
	"fmt"
	"net/netip"
	"slices"

	"picot.dev/picot/internal/packet"
)

// claim is an FDB entry as it was set: on port, or else on node.
type claim struct {
	node    *node
	port    PortID
	segment Segment
	static  bool
}

// claimKey is an FDB entry's key.
type claimKey struct {
	network *network
	mac     uint64
}

// SetFDB adds or changes an entry. Its network, port or node need not be there
// yet. A static entry is only changed by its owner: any other claim gets a
// [MACConflictError], as does a static one of the gateway's MAC; other errors
// wrap [ErrInvalid].
func (b *Builder) SetFDB(id NetworkID, e FDBEntry) error {
	if e.MAC.IsZero() || e.MAC.IsGroup() || e.Segment > MaxSegment {
		return invalid("network %d: FDB entry %s, segment %d: give a unicast MAC and a segment up to %d", id, e.MAC, e.Segment, MaxSegment)
	}
	if (e.Port.Index() == 0) == (e.Node == "") {
		return invalid("network %d: FDB entry %s: give either a port or a node", id, e.MAC)
	}
	mac := e.MAC.Uint64()
	if n := b.networks[id]; n != nil {
		if err := b.checkClaim(n, mac, e); err != nil {
			return err
		}
	}
	c := claim{port: e.Port, segment: e.Segment, static: e.Static}
	if e.Node != "" {
		var err error
		if c.node, err = b.node(e.Node); err != nil {
			return fmt.Errorf("network %d: FDB entry %s: %w", id, e.MAC, err)
		}
		c.node.claims++
	}
	n, err := b.network(id)
	if err != nil {
		b.forget(nil, mac, c)
		return fmt.Errorf("FDB entry %s: %w", e.MAC, err)
	}
	old, had := n.fdb[mac]
	n.fdb[mac] = c
	if c.node == nil && (!had || old.port != c.port) {
		m := b.claims[c.port]
		if m == nil {
			m = map[claimKey]struct{}{}
			b.claims[c.port] = m
		}
		m[claimKey{n, mac}] = struct{}{}
	}
	if had && (old.node != nil || old.port != c.port) {
		b.forget(n, mac, old)
	}
	b.compileFDB(n, mac)
	return nil
}

// checkClaim says who else holds a MAC statically.
func (b *Builder) checkClaim(n *network, mac uint64, e FDBEntry) error {
	conflict := func(holder string) error {
		return &MACConflictError{Network: n.id, MAC: e.MAC, Claim: b.owner(e.Node, e.Port), Holder: holder}
	}
	if n.known && e.Static && e.MAC == n.spec.Gateway.MAC {
		return conflict("the gateway")
	}
	held, ok := n.fdb[mac]
	if !ok || !held.static || held.port == e.Port && held.nodeName() == e.Node {
		return nil
	}
	return conflict(b.owner(held.nodeName(), held.port))
}

// nodeName is the name of the node the claim is on, or empty.
func (c *claim) nodeName() string {
	if c.node == nil {
		return ""
	}
	return c.node.name
}

// owner names for people what a claim is on.
func (b *Builder) owner(node string, port PortID) string {
	if node != "" {
		return "node " + node
	}
	if p := b.port(port); p != nil {
		return "port " + p.spec.Name
	}
	return fmt.Sprintf("port %#x", uint32(port))
}

// DeleteFDB deletes an entry.
func (b *Builder) DeleteFDB(id NetworkID, mac packet.MAC) {
	n, key := b.networks[id], mac.Uint64()
	if n == nil {
		return
	}
	c, ok := n.fdb[key]
	if !ok {
		return
	}
	delete(n.fdb, key)
	b.forget(n, key, c)
	b.compileFDB(n, key)
	b.dropNetwork(n)
}

// forget takes a claim's name off what it named.
func (b *Builder) forget(n *network, mac uint64, c claim) {
	if c.node != nil {
		c.node.claims--
		b.dropNode(c.node)
		return
	}
	delete(b.claims[c.port], claimKey{n, mac})
	if len(b.claims[c.port]) == 0 {
		delete(b.claims, c.port)
	}
}

// compileFDB writes what the state says of one MAC.
func (b *Builder) compileFDB(n *network, mac uint64) {
	if t := b.target(n, mac); t != 0 {
		b.fdb.set(FDBKey(n.index, mac), uint64(t))
	} else {
		b.fdb.remove(FDBKey(n.index, mac))
	}
}

func (b *Builder) target(n *network, mac uint64) Target {
	if n.known && mac != 0 && mac == n.spec.Gateway.MAC.Uint64() {
		return newTarget(KindGateway, 0, 0, true)
	}
	c, ok := n.fdb[mac]
	if !ok {
		return 0
	}
	if c.node != nil {
		return newTarget(KindRemote, int(c.node.index), c.segment, c.static)
	}
	// A port of another network must never receive this one's frames.
	if p := b.port(c.port); p != nil && p.network == n {
		return newTarget(KindLocal, c.port.Index(), c.segment, c.static)
	}
	return 0
}

// SetNeighbor adds or changes a neighbour; its network need not be there yet. An
// address of the network's gateway stays the gateway's. The error wraps
// [ErrInvalid].
func (b *Builder) SetNeighbor(id NetworkID, e NeighborEntry) error {
	if !e.IP.IsValid() || e.IP.IsUnspecified() || e.IP.IsMulticast() || e.MAC.IsZero() || e.MAC.IsGroup() {
		return invalid("network %d: neighbour %s at %s: give a unicast address and MAC", id, e.IP, e.MAC)
	}
	n, err := b.network(id)
	if err != nil {
		return fmt.Errorf("neighbour %s: %w", e.IP, err)
	}
	ip := packet.IPFromAddr(e.IP)
	n.neighbors[ip] = newNeighbor(e)
	b.compileNeighbor(n, ip)
	return nil
}

// DeleteNeighbor deletes a neighbour.
func (b *Builder) DeleteNeighbor(id NetworkID, a netip.Addr) {
	n, ip := b.networks[id], packet.IPFromAddr(a)
	if n == nil {
		return
	}
	if _, ok := n.neighbors[ip]; !ok {
		return
	}
	delete(n.neighbors, ip)
	b.compileNeighbor(n, ip)
	b.dropNetwork(n)
}

// compileNeighbor writes what the state says of one address.
func (b *Builder) compileNeighbor(n *network, ip packet.IP) {
	v := n.neighbors[ip]
	if n.known && slices.ContainsFunc(n.spec.Gateway.Addresses, func(a netip.Addr) bool { return packet.IPFromAddr(a) == ip }) {
		v = newNeighbor(NeighborEntry{MAC: n.spec.Gateway.MAC, Router: true, RouterKnown: true, Static: true}) | neighborGateway
	}
	if ip.Is4() {
		set(b.neighbor4, uint64(n.index)<<32|uint64(ip.V4()), uint64(v))
	} else {
		set(b.neighbor6, key6{ip.Hi, ip.Lo, uint64(n.index)}, uint64(v))
	}
}

// set stores val under k, 0 meaning none.
func set[K comparable](d *dictionary[K], k K, val uint64) {
	if val == 0 {
		d.remove(k)
	} else {
		d.set(k, val)
	}
}

package source

import (
	"net/netip"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
)

// effectiveFDB returns the entry of a key as it is carried, or nil.
func (p *projection) effectiveFDB(network string, mac packet.MAC) *desired.FDBEntry {
	if _, ok := p.held[network]; !ok {
		return nil
	}
	return p.fdb.binding(network, mac)
}

// effectiveNeighbor returns the neighbor of a key as it is carried, or nil: the
// object's, else what follows from a static MAC by EUI-64.
func (p *projection) effectiveNeighbor(network string, ip netip.Addr) *desired.Neighbor {
	n, ok := p.held[network]
	if !ok || !n.Contains(ip) {
		return nil
	}
	if nb := p.neighbors.binding(network, ip); nb != nil {
		return nb
	}
	mac, ok := macOfEUI64(ip)
	if !ok {
		return nil
	}
	e := p.effectiveFDB(network, mac)
	if e == nil {
		return nil
	}
	nb, ok := desired.LinkLocal(&n, e)
	if !ok {
		return nil
	}
	return &nb
}

// macOfEUI64 is the inverse of desired.EUI64.
func macOfEUI64(ip netip.Addr) (packet.MAC, bool) {
	b := ip.As16()
	mac := packet.MAC{b[8] ^ 2, b[9], b[10], b[13], b[14], b[15]}
	return mac, !ip.Is4() && desired.EUI64(mac) == ip
}

// sameFDB compares what is carried; the time of the last sighting and the
// stored version dirty no table.
func sameFDB(a, b *desired.FDBEntry) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	x, y := *a, *b
	x.Owner, y.Owner = essential(x.Owner), essential(y.Owner)
	return x == y
}

func sameNeighbor(a, b *desired.Neighbor) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	x, y := *a, *b
	x.Owner, y.Owner = essential(x.Owner), essential(y.Owner)
	return x == y
}

func essential(o desired.Owner) desired.Owner {
	o.LastObserved, o.Version = 0, desired.Version{}
	return o
}

// changeFDB runs f, which may change the row of a key, and records what that
// changes of what is carried. It reports whether the key concerns the writer:
// an endpoint here claims it, or this node manages it or did.
func (p *projection) changeFDB(network string, mac packet.MAC, f func()) (concerns bool) {
	ll := desired.EUI64(mac)
	before, beforeLL := p.effectiveFDB(network, mac), p.effectiveNeighbor(network, ll)
	key := fdbKey(network, mac)
	concerns = p.fileOwn(key, rowOwner(p.fdb.get(network, mac)), false)
	old := p.fdb.binding(network, mac)
	f()
	if now := p.fdb.binding(network, mac); p.stored != nil && now != old {
		p.tell(key, fdbBinding(old), fdbBinding(now))
	}
	concerns = p.fileOwn(key, rowOwner(p.fdb.get(network, mac)), true) || concerns
	if after := p.effectiveFDB(network, mac); !sameFDB(before, after) {
		p.emitFDB(network, mac, after)
	}
	if after := p.effectiveNeighbor(network, ll); !sameNeighbor(beforeLL, after) {
		p.emitNeighbor(network, ll, after)
	}
	return p.dirtyClaimants(key) || concerns
}

// changeNeighbor is changeFDB for a Neighbor.
func (p *projection) changeNeighbor(network string, ip netip.Addr, f func()) (concerns bool) {
	before := p.effectiveNeighbor(network, ip)
	key := neighborKey(network, ip)
	concerns = p.fileOwn(key, rowNeighborOwner(p.neighbors.get(network, ip)), false)
	old := p.neighbors.binding(network, ip)
	f()
	if now := p.neighbors.binding(network, ip); p.stored != nil && now != old {
		p.tell(key, neighborBinding(old), neighborBinding(now))
	}
	concerns = p.fileOwn(key, rowNeighborOwner(p.neighbors.get(network, ip)), true) || concerns
	if after := p.effectiveNeighbor(network, ip); !sameNeighbor(before, after) {
		p.emitNeighbor(network, ip, after)
	}
	return p.dirtyClaimants(key) || concerns
}

// dirtyClaimants marks the endpoints that claim a key and reports whether there
// are any.
func (p *projection) dirtyClaimants(key Key) bool {
	for _, k := range p.claimed[key] {
		p.dirty[k] = true
	}
	return len(p.claimed[key]) > 0
}

func rowOwner(r *row[desired.FDBEntry]) *desired.Owner {
	if r == nil {
		return nil
	}
	return &r.value.Owner
}

func rowNeighborOwner(r *row[desired.Neighbor]) *desired.Owner {
	if r == nil {
		return nil
	}
	return &r.value.Owner
}

// fileOwn adds a static binding that this node manages for an endpoint to what
// is filed under the endpoint's UID, or takes it out. It reports whether this
// node manages the binding at all.
func (p *projection) fileOwn(key Key, o *desired.Owner, in bool) bool {
	if o == nil || o.Node != p.self {
		return false
	}
	if !o.Static || o.Endpoint.UID == "" {
		return true
	}
	m := p.own[o.Endpoint.UID]
	if in {
		if m == nil {
			m = map[Key]bool{}
			p.own[o.Endpoint.UID] = m
		}
		m[key] = true
		return true
	}
	if delete(m, key); len(m) == 0 {
		delete(p.own, o.Endpoint.UID)
	}
	return true
}

func (p *projection) emitFDB(network string, mac packet.MAC, v *desired.FDBEntry) {
	if p.delta.FDB == nil {
		p.delta.FDB = map[desired.FDBKey]*desired.FDBEntry{}
	}
	p.delta.FDB[macKey(network, mac)] = v
}

func (p *projection) emitNeighbor(network string, ip netip.Addr, v *desired.Neighbor) {
	if p.delta.Neighbors == nil {
		p.delta.Neighbors = map[desired.NeighborKey]*desired.Neighbor{}
	}
	p.delta.Neighbors[desired.NeighborKey{Network: network, IP: ip}] = v
}

// projectNetwork records every binding of a network as it is carried now. It is
// called when the network itself changed.
func (p *projection) projectNetwork(network string) {
	for mac := range p.fdb.networks[network] {
		p.emitFDB(network, mac, p.effectiveFDB(network, mac))
		ll := desired.EUI64(mac)
		p.emitNeighbor(network, ll, p.effectiveNeighbor(network, ll))
	}
	for ip := range p.neighbors.networks[network] {
		p.emitNeighbor(network, ip, p.effectiveNeighbor(network, ip))
	}
}

// takeFDB takes what view v says of an entry; gone: v has it no longer. The key
// is returned, the zero one if the object has none, and those that the writer is
// to be told of.
func (p *projection) takeFDB(r *record[desired.FDBEntry], v views, gone bool) (k desired.FDBKey, keys []Key) {
	keys = p.judge(desired.Ref{Kind: v1alpha1.KindFDBEntry, Name: r.name}, v, gone, r.node, r.version, r.more)
	k = r.value.FDBKey
	if k.MAC.IsZero() || k.Name() != r.name {
		return desired.FDBKey{}, keys // no key to file it under
	}
	if p.changeFDB(k.Network, k.MAC, func() {
		if gone {
			p.fdb.drop(k.Network, k.MAC, v)
			return
		}
		p.fdb.put(k.Network, k.MAC, v, version(r.version.ResourceVersion), r.value, r.binds)
	}) {
		keys = append(keys, fdbKey(k.Network, k.MAC))
	}
	return k, keys
}

// takeNeighbor is takeFDB for a Neighbor.
func (p *projection) takeNeighbor(r *record[desired.Neighbor], v views, gone bool) (k desired.NeighborKey, keys []Key) {
	keys = p.judge(desired.Ref{Kind: v1alpha1.KindNeighbor, Name: r.name}, v, gone, r.node, r.version, r.more)
	k = r.value.NeighborKey
	if !k.IP.IsValid() || k.Name() != r.name {
		return desired.NeighborKey{}, keys
	}
	if p.changeNeighbor(k.Network, k.IP, func() {
		if gone {
			p.neighbors.drop(k.Network, k.IP, v)
			return
		}
		p.neighbors.put(k.Network, k.IP, v, version(r.version.ResourceVersion), r.value, r.binds)
	}) {
		keys = append(keys, neighborKey(k.Network, k.IP))
	}
	return k, keys
}

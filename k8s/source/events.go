package source

import (
	"maps"
	"net/netip"
	"slices"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
)

func (p *projection) networkNames() []string { return slices.Collect(maps.Keys(p.networks)) }

func (p *projection) nodeNames() []string { return slices.Collect(maps.Keys(p.nodes)) }

func (p *projection) endpointNames() []desired.EndpointKey {
	return slices.Collect(maps.Keys(p.endpoints))
}

// endpointKeys returns the endpoint's own key and those of the bindings it
// claims.
func (p *projection) endpointKeys(k desired.EndpointKey) []Key {
	keys := []Key{{Kind: v1alpha1.KindNetworkEndpoint, Endpoint: k}}
	e := p.endpoints[k]
	if e == nil || e.MAC.IsZero() {
		return keys
	}
	keys = append(keys, fdbKey(e.Network, e.MAC))
	for _, a := range e.Addresses {
		keys = append(keys, neighborKey(e.Network, a))
	}
	return keys
}

func fdbKey(network string, mac packet.MAC) Key {
	return Key{Kind: v1alpha1.KindFDBEntry, Network: network, MAC: mac}
}

func neighborKey(network string, ip netip.Addr) Key {
	return Key{Kind: v1alpha1.KindNeighbor, Network: network, IP: ip}
}

// fdbEvent is takeFDB without the key.
func (p *projection) fdbEvent(r *record[desired.FDBEntry], v views, gone bool) []Key {
	_, keys := p.takeFDB(r, v, gone)
	return keys
}

func (p *projection) neighborEvent(r *record[desired.Neighbor], v views, gone bool) []Key {
	_, keys := p.takeNeighbor(r, v, gone)
	return keys
}

// replaceFDB makes list what view v has as of version rv.
func (p *projection) replaceFDB(list []*record[desired.FDBEntry], v views, rv uint64) (keys []Key) {
	there := make(map[desired.FDBKey]bool, len(list))
	refused := map[string]bool{}
	for _, o := range list {
		k, told := p.takeFDB(o, v, false)
		there[k] = true
		keys = append(keys, told...)
		if p.refused[desired.Ref{Kind: v1alpha1.KindFDBEntry, Name: o.name}] != nil {
			refused[o.name] = true
		}
	}
	listed := func(network string, mac packet.MAC) bool { return there[macKey(network, mac)] }
	p.fdb.missing(v, rv, listed, func(network string, mac packet.MAC) {
		if p.changeFDB(network, mac, func() { p.fdb.drop(network, mac, v) }) {
			keys = append(keys, fdbKey(network, mac))
		}
	})
	return append(keys, p.unlisted(v1alpha1.KindFDBEntry, v, rv, refused)...)
}

func (p *projection) replaceNeighbors(list []*record[desired.Neighbor], v views, rv uint64) (keys []Key) {
	there := make(map[desired.NeighborKey]bool, len(list))
	refused := map[string]bool{}
	for _, o := range list {
		k, told := p.takeNeighbor(o, v, false)
		there[k] = true
		keys = append(keys, told...)
		if p.refused[desired.Ref{Kind: v1alpha1.KindNeighbor, Name: o.name}] != nil {
			refused[o.name] = true
		}
	}
	listed := func(network string, ip netip.Addr) bool {
		return there[desired.NeighborKey{Network: network, IP: ip}]
	}
	p.neighbors.missing(v, rv, listed, func(network string, ip netip.Addr) {
		if p.changeNeighbor(network, ip, func() { p.neighbors.drop(network, ip, v) }) {
			keys = append(keys, neighborKey(network, ip))
		}
	})
	return append(keys, p.unlisted(v1alpha1.KindNeighbor, v, rv, refused)...)
}

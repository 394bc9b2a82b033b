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

// fdbEvent is setFDB, and returns the key if it concerns the writer.
func (p *projection) fdbEvent(o *v1alpha1.FDBEntry, v views, gone bool) []Key {
	k, ok := p.setFDB(o, v, gone)
	if !ok {
		return nil
	}
	return []Key{fdbKey(k.Network, k.MAC)}
}

func (p *projection) neighborEvent(o *v1alpha1.Neighbor, v views, gone bool) []Key {
	k, ok := p.setNeighbor(o, v, gone)
	if !ok {
		return nil
	}
	return []Key{neighborKey(k.Network, k.IP)}
}

// replaceFDB makes list what view v has as of version rv.
func (p *projection) replaceFDB(list []*v1alpha1.FDBEntry, v views, rv uint64) (keys []Key) {
	there := make(map[desired.FDBKey]bool, len(list))
	for _, o := range list {
		k, concerns := p.setFDB(o, v, false)
		there[k] = true
		if concerns {
			keys = append(keys, fdbKey(k.Network, k.MAC))
		}
	}
	listed := func(network string, mac packet.MAC) bool { return there[macKey(network, mac)] }
	p.fdb.missing(v, rv, listed, func(network string, mac packet.MAC) {
		if p.changeFDB(network, mac, func() { p.fdb.drop(network, mac, v) }) {
			keys = append(keys, fdbKey(network, mac))
		}
	})
	return keys
}

func (p *projection) replaceNeighbors(list []*v1alpha1.Neighbor, v views, rv uint64) (keys []Key) {
	there := make(map[desired.NeighborKey]bool, len(list))
	for _, o := range list {
		k, concerns := p.setNeighbor(o, v, false)
		there[k] = true
		if concerns {
			keys = append(keys, neighborKey(k.Network, k.IP))
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
	return keys
}

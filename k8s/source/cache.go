package source

import (
	"maps"
	"slices"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
)

// Endpoint returns the cached state of an endpoint of this node.
func (s *Source) Endpoint(k desired.EndpointKey) (Endpoint, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.p.endpoints[k]
	if e == nil {
		return Endpoint{}, false
	}
	return e.Endpoint, true
}

// FDB returns the stored state of an entry, whether it binds or not.
func (s *Source) FDB(k desired.FDBKey) (desired.FDBEntry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.p.fdb.get(k.Network, k.MAC)
	if r == nil {
		return desired.FDBEntry{}, false
	}
	return *r.value, true
}

// Neighbor returns the stored state of a neighbor, whether it binds or not.
func (s *Source) Neighbor(k desired.NeighborKey) (desired.Neighbor, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.p.neighbors.get(k.Network, k.IP)
	if r == nil {
		return desired.Neighbor{}, false
	}
	return *r.value, true
}

// Network returns a network that is carried.
func (s *Source) Network(name string) (desired.Network, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.p.held[name]
	return n, ok
}

// Live reports whether an endpoint of this node has this UID.
func (s *Source) Live(uid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.p.liveUIDs[uid]
	return ok
}

// EndpointProblems returns what is wrong with an endpoint of this node.
func (s *Source) EndpointProblems(k desired.EndpointKey) []desired.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.p.resolveEndpoint(k)
	return s.p.problems[endpointRef(k)]
}

// Claimants returns the endpoints of this node that claim a binding's key and
// are not being deleted, the oldest first.
func (s *Source) Claimants(k Key) []Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.p.claimants(k)
}

// Ready reports whether everything that a decision on this node's endpoints and
// their bindings rests on is in sync.
func (s *Source) Ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gates.Networks && s.gates.Endpoints && s.gates.Own
}

// Hosted reports whether the bindings of a network are in sync.
func (s *Source) Hosted(network string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gates.Hosted[network]
}

// OwnStatic returns the keys of the static bindings that this node manages for
// one life of an endpoint.
func (s *Source) OwnStatic(uid string) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.p.own[uid]))
}

// Orphans returns the keys of the static bindings that this node manages for
// endpoints that are not there.
func (s *Source) Orphans() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []Key
	for uid, m := range s.p.own {
		if _, ok := s.p.liveUIDs[uid]; !ok {
			keys = slices.AppendSeq(keys, maps.Keys(m))
		}
	}
	return keys
}

// EndpointsOf returns the keys of this node's endpoints in a network, and of
// the bindings they claim.
func (s *Source) EndpointsOf(network string) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []Key
	for k, e := range s.p.endpoints {
		if e.Network == network {
			keys = append(keys, s.p.endpointKeys(k)...)
		}
	}
	return keys
}

// Counts returns how many objects of each kind are cached.
func (s *Source) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]int{
		v1alpha1.KindNetwork:         len(s.p.networks),
		v1alpha1.KindSRv6Node:        len(s.p.nodes),
		v1alpha1.KindNetworkEndpoint: len(s.p.endpoints),
		v1alpha1.KindFDBEntry:        s.p.fdb.count,
		v1alpha1.KindNeighbor:        s.p.neighbors.count,
	}
}

// NetworkUID returns the UID of a network's object.
func (s *Source) NetworkUID(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.p.networks[name].uid
}

// Concerned returns the keys that a change of a binding may concern beside its
// own: those of the endpoints here that claim it, the ones being deleted
// included, and after a change of an FDBEntry those of their other bindings,
// which depend on it.
func (s *Source) Concerned(k Key) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []Key
	for _, e := range s.p.claimed[k] {
		if k.Kind == v1alpha1.KindFDBEntry {
			keys = append(keys, s.p.endpointKeys(e)...)
			continue
		}
		keys = append(keys, Key{Kind: v1alpha1.KindNetworkEndpoint, Endpoint: e})
	}
	return keys
}

package desired

import (
	"maps"
	"reflect"
)

// State is everything that is to be carried, by key. Of bindings there may be very
// many: what is pointed to is never changed, so that whoever keeps it, too, shares
// it.
type State struct {
	Networks  map[string]Network
	Endpoints map[EndpointKey]Endpoint
	Nodes     map[string]Node
	FDB       map[FDBKey]*FDBEntry
	Neighbors map[NeighborKey]*Neighbor
}

// NewState returns an empty state.
func NewState() State {
	return State{
		Networks:  map[string]Network{},
		Endpoints: map[EndpointKey]Endpoint{},
		Nodes:     map[string]Node{},
		FDB:       map[FDBKey]*FDBEntry{},
		Neighbors: map[NeighborKey]*Neighbor{},
	}
}

// Delta is a set of changes, the latest per key; a nil value says the key is
// gone. Nil maps are empty.
type Delta struct {
	Networks  map[string]*Network
	Endpoints map[EndpointKey]*Endpoint
	Nodes     map[string]*Node
	FDB       map[FDBKey]*FDBEntry
	Neighbors map[NeighborKey]*Neighbor
}

// Len is the number of keys that change.
func (d *Delta) Len() int {
	return len(d.Networks) + len(d.Endpoints) + len(d.Nodes) + len(d.FDB) + len(d.Neighbors)
}

// Merge adds the changes of later, which win.
func (d *Delta) Merge(later Delta) {
	d.Networks = merge(d.Networks, later.Networks)
	d.Endpoints = merge(d.Endpoints, later.Endpoints)
	d.Nodes = merge(d.Nodes, later.Nodes)
	d.FDB = merge(d.FDB, later.FDB)
	d.Neighbors = merge(d.Neighbors, later.Neighbors)
}

func merge[K comparable, V any](into, from map[K]*V) map[K]*V {
	if into == nil && len(from) > 0 {
		into = make(map[K]*V, len(from))
	}
	maps.Copy(into, from)
	return into
}

// Apply makes s what it is after d.
func (s *State) Apply(d Delta) {
	apply(s.Networks, d.Networks)
	apply(s.Endpoints, d.Endpoints)
	apply(s.Nodes, d.Nodes)
	share(s.FDB, d.FDB)
	share(s.Neighbors, d.Neighbors)
}

func share[K comparable, V any](s, d map[K]*V) {
	for k, v := range d {
		if v == nil {
			delete(s, k)
			continue
		}
		s[k] = v
	}
}

func apply[K comparable, V any](s map[K]V, d map[K]*V) {
	for k, v := range d {
		if v == nil {
			delete(s, k)
			continue
		}
		s[k] = *v
	}
}

// Diff returns what turns from into to.
func Diff(from, to State) Delta {
	return Delta{
		Networks:  diff(from.Networks, to.Networks),
		Endpoints: diff(from.Endpoints, to.Endpoints),
		Nodes:     diff(from.Nodes, to.Nodes),
		FDB:       diffShared(from.FDB, to.FDB),
		Neighbors: diffShared(from.Neighbors, to.Neighbors),
	}
}

func diffShared[K, V comparable](from, to map[K]*V) map[K]*V {
	var d map[K]*V
	if len(from) == 0 && len(to) > 0 {
		return maps.Clone(to)
	}
	set := func(k K, v *V) {
		if d == nil {
			d = map[K]*V{}
		}
		d[k] = v
	}
	for k, v := range to {
		if old := from[k]; old == nil || old != v && *old != *v {
			set(k, v)
		}
	}
	for k := range from {
		if to[k] == nil {
			set(k, nil)
		}
	}
	return d
}

func diff[K comparable, V any](from, to map[K]V) map[K]*V {
	var d map[K]*V
	set := func(k K, v *V) {
		if d == nil {
			d = map[K]*V{}
		}
		d[k] = v
	}
	for k, v := range to {
		if old, ok := from[k]; !ok || !reflect.DeepEqual(old, v) {
			set(k, &v)
		}
	}
	for k := range from {
		if _, ok := to[k]; !ok {
			set(k, nil)
		}
	}
	return d
}

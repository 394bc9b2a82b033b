package source

import (
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
)

// Binding is the stored state of a binding of either kind.
type Binding struct {
	desired.Owner
	Segment uint32         // of an FDBEntry
	MAC     packet.MAC     // of a Neighbor
	Router  desired.Router // of a Neighbor
}

func fdbBinding(e *desired.FDBEntry) *Binding {
	if e == nil {
		return nil
	}
	return &Binding{Owner: e.Owner, Segment: e.Segment}
}

func neighborBinding(n *desired.Neighbor) *Binding {
	if n == nil {
		return nil
	}
	return &Binding{Owner: n.Owner, MAC: n.MAC, Router: n.Router}
}

// Stored returns the stored state of a binding, and whether there is an object.
// binds is false for one that names no owner yet.
func (s *Source) Stored(k Key) (b Binding, binds, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.Kind == v1alpha1.KindFDBEntry {
		if r := s.p.fdb.get(k.Network, k.MAC); r != nil {
			return *fdbBinding(r.value), r.binds, true
		}
		return Binding{}, false, false
	}
	if r := s.p.neighbors.get(k.Network, k.IP); r != nil {
		return *neighborBinding(r.value), r.binds, true
	}
	return Binding{}, false, false
}

// tell passes a change of what is stored on; nil: nothing that binds.
func (p *projection) tell(k Key, old, now *Binding) {
	switch {
	case now == nil:
		p.stored(k, *old, true)
	case old == nil || *old != *now:
		p.stored(k, *now, false)
	}
}

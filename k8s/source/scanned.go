package source

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/k8s/api/v1alpha1"
)

// What a scanner knows of a binding's JSON. A field that is neither here nor one
// nobody reads makes it strange, conditions and null among them.

func (s *scanner) fdb(to *stored[v1alpha1.FDBEntrySpec, v1alpha1.FDBEntryStatus]) bool {
	return s.stored(&to.Metadata, func(name []byte) {
		if string(name) == "mac" {
			to.Spec.MAC = v1alpha1.MACAddress(s.text())
			return
		}
		s.spec(name, &to.Spec.Network, &to.Spec.Source)
	}, func(name []byte) {
		st := fresh(&to.Status)
		if string(name) == "segment" {
			st.Segment = v1alpha1.Segment(s.integer(32))
			return
		}
		s.owner(name, &st.Endpoint, &st.ManagingNode, &st.Moves, &st.LastObserved, &st.MovesSince, &st.FrozenUntil)
	})
}

func (s *scanner) neighbor(to *stored[v1alpha1.NeighborSpec, v1alpha1.NeighborStatus]) bool {
	return s.stored(&to.Metadata, func(name []byte) {
		if string(name) == "ip" {
			to.Spec.IP = v1alpha1.IPAddress(s.text())
			return
		}
		s.spec(name, &to.Spec.Network, &to.Spec.Source)
	}, func(name []byte) {
		st := fresh(&to.Status)
		switch string(name) {
		case "mac":
			st.MAC = v1alpha1.MACAddress(s.text())
		case "router":
			yes := s.boolean()
			st.Router = &yes
		default:
			s.owner(name, &st.Endpoint, &st.ManagingNode, &st.Moves, &st.LastObserved, &st.MovesSince, &st.FrozenUntil)
		}
	})
}

// spec reads what both kinds have in their specs.
func (s *scanner) spec(name []byte, network *v1alpha1.NetworkName, source *v1alpha1.Source) {
	switch string(name) {
	case "network":
		*network = v1alpha1.NetworkName(canonicalBytes(s.raw()))
	case "source":
		*source = v1alpha1.Source(canonicalBytes(s.raw()))
	default:
		s.strange = true
	}
}

// fresh is what p points to, made if it is not there.
func fresh[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}

// stored reads a whole object and reports whether it could.
func (s *scanner) stored(h *header, spec, status func(name []byte)) bool {
	s.object(func(name []byte) {
		switch string(name) {
		case "metadata":
			s.header(h)
		case "spec":
			s.object(spec)
		case "status":
			if s.peek() != '{' || len(s.b) > s.at+1 && s.b[s.at+1] == '}' {
				s.strange = true // none, or one of nothing
				return
			}
			s.object(status)
		case "apiVersion", "kind":
			s.skip()
		default:
			s.strange = true
		}
	})
	s.peek()
	return !s.strange && s.at == len(s.b)
}

func (s *scanner) header(h *header) {
	s.object(func(name []byte) {
		switch string(name) {
		case "name":
			h.Name = s.text()
		case "uid":
			h.UID = s.text()
		case "resourceVersion":
			h.ResourceVersion = s.text()
		case "generation":
			h.Generation = s.integer(64)
		case "creationTimestamp", "labels", "managedFields", "ownerReferences", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds":
			s.skip()
		default: // annotations: see whether they end a list
			s.strange = true
		}
	})
}

func (s *scanner) owner(name []byte, endpoint **v1alpha1.EndpointReference, node *string, moves *int32, observed, since, until **metav1.MicroTime) {
	switch string(name) {
	case "endpoint":
		e := fresh(endpoint)
		s.object(func(name []byte) {
			switch string(name) {
			case "namespace":
				e.Namespace = canonicalBytes(s.raw())
			case "name":
				e.Name = s.text()
			case "uid":
				e.UID = s.text()
			default:
				s.strange = true
			}
		})
	case "managingNode":
		*node = canonicalBytes(s.raw())
	case "moves":
		*moves = int32(s.integer(32))
	case "lastObserved":
		s.time(observed)
	case "movesSince":
		s.time(since)
	case "frozenUntil":
		s.time(until)
	default:
		s.strange = true
	}
}

func (s *scanner) time(to **metav1.MicroTime) {
	s.peek()
	from := s.at
	s.raw()
	var t metav1.MicroTime
	if s.strange || t.UnmarshalJSON(s.b[from:s.at]) != nil {
		s.strange = true
		return
	}
	*to = &t
}

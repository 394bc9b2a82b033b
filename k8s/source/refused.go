package source

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
)

// Refused is a binding of this node that is wrong in itself, or was and still
// says so. What is wrong may be its key, so its object's name stands for it.
type Refused struct {
	Version    desired.Version
	Generation int64
	Conditions []metav1.Condition // as stored
	Problems   []desired.Problem  // none: it is right now
}

// refusedRow is a binding of any node with problems, or one of this node with a
// condition.
type refusedRow struct {
	Refused
	mine  bool // status.managingNode is this node
	rv    uint64
	views views
}

// refusedKey names a refused binding to the writer.
func refusedKey(ref desired.Ref) Key { return Key{Kind: ref.Kind, Name: ref.Name} }

// judge takes what view v says of a binding's faults; gone: v has it no longer.
// It returns the key to tell the writer of, if this node is to say so on the
// object.
func (p *projection) judge(ref desired.Ref, v views, gone bool, node string, is desired.Version, more *remarks) []Key {
	if len(p.refused) == 0 && more == nil {
		return nil
	}
	r := p.refused[ref]
	if gone {
		return p.unjudge(ref, v)
	}
	if more == nil {
		more = &remarks{}
	}
	mine := node == p.self
	if len(more.problems) == 0 && !(mine && apimeta.FindStatusCondition(more.conditions, v1alpha1.ConditionReady) != nil) {
		if r == nil || version(is.ResourceVersion) < r.rv {
			return nil
		}
		delete(p.refused, ref)
		p.note(ref, nil)
		return toldOf(ref, r.mine)
	}
	if r == nil {
		r = &refusedRow{}
		p.refused[ref] = r
	}
	r.views |= v
	if rv := version(is.ResourceVersion); rv >= r.rv {
		was := r.mine
		r.rv, r.mine = rv, mine
		r.Refused = Refused{
			Version: is, Generation: more.generation, Conditions: more.conditions, Problems: more.problems,
		}
		p.note(ref, more.problems)
		return toldOf(ref, mine || was)
	}
	return nil
}

// unjudge records that view v no longer has a binding.
func (p *projection) unjudge(ref desired.Ref, v views) []Key {
	r := p.refused[ref]
	if r == nil {
		return nil
	}
	if r.views &^= v; r.views != 0 {
		return nil
	}
	delete(p.refused, ref)
	p.note(ref, nil)
	return toldOf(ref, r.mine)
}

func toldOf(ref desired.Ref, mine bool) []Key {
	if !mine {
		return nil
	}
	return []Key{refusedKey(ref)}
}

// unlisted forgets the refused bindings of a kind that view v has and a list of
// version rv has not.
func (p *projection) unlisted(kind string, v views, rv uint64, listed map[string]bool) (keys []Key) {
	for ref, r := range p.refused {
		if ref.Kind == kind && r.views&v != 0 && r.rv <= rv && !listed[ref.Name] {
			keys = append(keys, p.unjudge(ref, v)...)
		}
	}
	return keys
}

// Refused returns a binding that this node manages and that is wrong in itself,
// or was and still says so, by a Key with its Kind and Name.
func (s *Source) Refused(k Key) (Refused, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.p.refused[desired.Ref{Kind: k.Kind, Name: k.Name}]
	if r == nil || !r.mine {
		return Refused{}, false
	}
	return r.Refused, true
}

// AllRefused returns the keys of the bindings that Refused returns.
func (s *Source) AllRefused() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []Key
	for ref, r := range s.p.refused {
		if r.mine {
			keys = append(keys, refusedKey(ref))
		}
	}
	return keys
}

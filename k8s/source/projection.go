package source

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
)

// projection holds what the watches said and works out what of it is carried.
// It does no I/O and has no lock: Source has.
type projection struct {
	self string // this node

	networks  map[string]parsed[desired.Network]
	nodes     map[string]parsed[desired.Node]
	endpoints map[desired.EndpointKey]*endpointRow
	fdb       rows[packet.MAC, desired.FDBEntry]
	neighbors rows[netip.Addr, desired.Neighbor]

	held     map[string]desired.Network // networks that are carried
	carried  map[desired.EndpointKey]desired.Endpoint
	claimed  map[Key][]desired.EndpointKey // by which endpoints here
	own      map[string]map[Key]bool       // static bindings managed here, by their endpoint's UID
	liveUIDs map[string]desired.EndpointKey
	carriedN map[string]desired.Node
	problems map[desired.Ref][]desired.Problem
	refused  map[desired.Ref]*refusedRow // bindings with problems, or this node's with a condition

	devices map[string][]desired.EndpointKey // endpoints here, by the device they name
	dirty   map[desired.EndpointKey]bool     // endpoints that must be worked out anew
	staleN  bool                             // carriedN must be
	delta   desired.Delta
	stored  func(Key, Binding, bool) // Options.Stored; nil: nobody is told
}

// parsed is an object right in itself, with its age.
type parsed[V any] struct {
	value V
	age
}

// age orders objects that claim the same: the older creation, then the UID.
type age struct {
	created int64
	uid     string
}

func ageOf(m *metav1.ObjectMeta) age { return age{m.CreationTimestamp.Unix(), string(m.UID)} }

func (a age) compare(b age) int {
	if a.created != b.created {
		if a.created < b.created {
			return -1
		}
		return 1
	}
	return strings.Compare(a.uid, b.uid)
}

func newProjection(self string) *projection {
	return &projection{
		self:      self,
		networks:  map[string]parsed[desired.Network]{},
		nodes:     map[string]parsed[desired.Node]{},
		endpoints: map[desired.EndpointKey]*endpointRow{},
		fdb:       newRows[packet.MAC, desired.FDBEntry](),
		neighbors: newRows[netip.Addr, desired.Neighbor](),
		held:      map[string]desired.Network{},
		carried:   map[desired.EndpointKey]desired.Endpoint{},
		devices:   map[string][]desired.EndpointKey{},
		dirty:     map[desired.EndpointKey]bool{},
		claimed:   map[Key][]desired.EndpointKey{},
		own:       map[string]map[Key]bool{},
		liveUIDs:  map[string]desired.EndpointKey{},
		carriedN:  map[string]desired.Node{},
		problems:  map[desired.Ref][]desired.Problem{},
		refused:   map[desired.Ref]*refusedRow{},
	}
}

// note keeps the problems of one object, or forgets them.
func (p *projection) note(ref desired.Ref, list []desired.Problem) {
	if len(list) == 0 {
		delete(p.problems, ref)
		return
	}
	p.problems[ref] = list
}

// setNetwork takes a network's new state; nil: it is gone.
func (p *projection) setNetwork(name string, o *v1alpha1.Network) {
	ref := desired.Ref{Kind: v1alpha1.KindNetwork, Name: name}
	delete(p.networks, name)
	p.note(ref, nil)
	if o != nil {
		v, list := desired.ParseNetwork(o)
		if len(list) == 0 {
			p.networks[name] = parsed[desired.Network]{v, ageOf(&o.ObjectMeta)}
		}
		p.note(ref, list)
	}
	p.resolveNetworks()
}

// resolveNetworks works out which networks hold their IDs, and projects the
// bindings of those for which that changed.
func (p *projection) resolveNetworks() {
	held, list := desired.ResolveNetworks(byAge(p.networks), nil)
	for name := range p.networks {
		p.note(desired.Ref{Kind: v1alpha1.KindNetwork, Name: name}, nil)
	}
	for _, pr := range list {
		p.note(pr.Object, []desired.Problem{pr})
	}
	d := desired.Diff(desired.State{Networks: p.held}, desired.State{Networks: held})
	p.held = held
	if len(d.Networks) == 0 {
		return
	}
	p.delta.Merge(d)
	for name := range d.Networks {
		p.projectNetwork(name)
	}
	for k, e := range p.endpoints {
		if _, changed := d.Networks[e.Network]; changed {
			p.dirty[k] = true
		}
	}
}

// byAge returns the values, the oldest first.
func byAge[V any](m map[string]parsed[V]) []V {
	list := slices.SortedFunc(maps.Values(m), func(a, b parsed[V]) int { return a.compare(b.age) })
	out := make([]V, 0, len(list))
	for _, x := range list {
		out = append(out, x.value)
	}
	return out
}

// setNode takes a node's new state; nil: it is gone.
func (p *projection) setNode(name string, o *v1alpha1.SRv6Node) {
	ref := desired.Ref{Kind: v1alpha1.KindSRv6Node, Name: name}
	delete(p.nodes, name)
	p.note(ref, nil)
	if o != nil {
		v, list := desired.ParseNode(o)
		if len(list) == 0 {
			p.nodes[name] = parsed[desired.Node]{v, ageOf(&o.ObjectMeta)}
		}
		p.note(ref, list)
	}
	p.staleN = true
}

func (p *projection) resolveNodes() {
	if !p.staleN {
		return
	}
	p.staleN = false
	held, list := desired.ResolveNodes(byAge(p.nodes), nil)
	for name := range p.nodes {
		p.note(desired.Ref{Kind: v1alpha1.KindSRv6Node, Name: name}, nil)
	}
	for _, pr := range list {
		p.note(pr.Object, []desired.Problem{pr})
	}
	p.delta.Merge(desired.Diff(desired.State{Nodes: p.carriedN}, desired.State{Nodes: held}))
	p.carriedN = held
}

// take works out what is due and returns all changes since the last take.
func (p *projection) take() desired.Delta {
	p.resolveNodes()
	p.resolveEndpoints()
	d := p.delta
	p.delta = desired.Delta{}
	return d
}

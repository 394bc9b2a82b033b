package static

import (
	"encoding/json"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
	"picot.dev/picot/k8s/source"
	"picot.dev/picot/k8s/writer"
)

// Options of a Planner.
type Options struct {
	Source *source.Source
	Node   string
	// Enqueue asks for a decision on a key: the writer's, of the static class.
	Enqueue func(source.Key)
	// Touch tells of a change of a binding that is no business of static ones, but
	// that a write of the key may be waiting for. Nil: Enqueue.
	Touch func(source.Key)
	// Port returns the name of an endpoint's port, "" with why while there is
	// none, and settled=false while the agent has not got to it yet. Nil: every
	// endpoint is ready without a port.
	Port func(desired.EndpointKey) (port, why string, settled bool)
	// Closed reports whether the port of an endpoint that goes is shut, after
	// which its finalizer may go. Nil: it is.
	Closed func(desired.EndpointKey) bool
	// Refused is told, once for each time it is written to the status, what an
	// endpoint does not hold, or what is wrong with a binding. Nil: nobody is.
	Refused func(desired.Ref, []desired.Problem)
}

// Planner decides the writes of this node's static bindings. It is a
// writer.Decider of source.Key, safe for use by any number of goroutines.
type Planner struct {
	o Options
}

// New returns a Planner. Its Changed is to be the source's hook.
func New(o Options) *Planner {
	if o.Port == nil {
		o.Port = func(desired.EndpointKey) (string, string, bool) { return "", "", true }
	}
	if o.Touch == nil {
		o.Touch = o.Enqueue
	}
	if o.Closed == nil {
		o.Closed = func(desired.EndpointKey) bool { return true }
	}
	if o.Refused == nil {
		o.Refused = func(desired.Ref, []desired.Problem) {}
	}
	return &Planner{o: o}
}

// Changed enqueues whatever a change of an object may call for.
func (p *Planner) Changed(k source.Key) {
	switch {
	case k.Name != "":
		p.o.Enqueue(k)
	case k.Kind == v1alpha1.KindNetwork:
		for _, k := range p.o.Source.EndpointsOf(k.Network) {
			p.o.Enqueue(k)
		}
	case k.Kind == v1alpha1.KindNetworkEndpoint:
		p.o.Enqueue(k)
		if e, ok := p.o.Source.Endpoint(k.Endpoint); ok {
			for _, b := range p.o.Source.OwnStatic(e.UID) { // of addresses it claims no more
				p.o.Enqueue(b)
			}
		}
	default:
		concerned := p.o.Source.Concerned(k)
		if r, stored := p.row(k); len(concerned) > 0 || stored && p.ours(&r.owner) {
			p.o.Enqueue(k)
		} else {
			p.o.Touch(k) // learned, or gone: it must not pass others of its kind by
		}
		for _, e := range concerned {
			p.o.Enqueue(e)
		}
	}
}

// Resync enqueues what may have been missed: the bindings of endpoints that
// went while this node was not looking, and those that are wrong. To be called
// once the gates are open.
func (p *Planner) Resync() {
	for _, k := range p.o.Source.AllRefused() {
		p.o.Enqueue(k)
	}
	for _, k := range p.o.Source.Orphans() {
		p.o.Enqueue(k)
	}
}

// Decide implements writer.Decider.
func (p *Planner) Decide(k source.Key) writer.Op {
	// Nothing is written on half a picture.
	if !p.o.Source.Ready() {
		return writer.Op{}
	}
	switch {
	case k.Name != "":
		return p.refused(k)
	case k.Kind == v1alpha1.KindNetworkEndpoint:
		return p.endpoint(k.Endpoint)
	case k.Kind == v1alpha1.KindFDBEntry, k.Kind == v1alpha1.KindNeighbor:
		return p.binding(k)
	}
	return writer.Op{}
}

// Shows implements writer.Decider.
func (p *Planner) Shows(k source.Key, r writer.Result) bool {
	if k.Name != "" {
		x, ok := p.o.Source.Refused(k)
		return !ok || number(x.Version.ResourceVersion) >= number(r.ResourceVersion)
	}
	v, ok := p.stored(k)
	if r.Gone {
		return !ok || v.UID != r.UID
	}
	return ok && number(v.ResourceVersion) >= number(r.ResourceVersion)
}

// stored returns the version of a key's object in the cache.
func (p *Planner) stored(k source.Key) (desired.Version, bool) {
	if k.Kind == v1alpha1.KindNetworkEndpoint {
		e, ok := p.o.Source.Endpoint(k.Endpoint)
		return e.Version, ok
	}
	b, ok := p.row(k)
	return b.owner.Version, ok
}

func number(rv string) uint64 {
	n, _ := strconv.ParseUint(rv, 10, 64)
	return n
}

// row is a binding of either kind as it is stored.
type row struct {
	owner   desired.Owner
	segment uint32  // of an FDBEntry
	mac     [6]byte // of a Neighbor
}

func (p *Planner) row(k source.Key) (row, bool) {
	if k.Kind == v1alpha1.KindFDBEntry {
		e, ok := p.o.Source.FDB(desired.FDBKey{Network: k.Network, MAC: k.MAC})
		return row{owner: e.Owner, segment: e.Segment}, ok
	}
	n, ok := p.o.Source.Neighbor(desired.NeighborKey{Network: k.Network, IP: k.IP})
	return row{owner: n.Owner, mac: n.MAC}, ok
}

// binding decides on one key.
func (p *Planner) binding(k source.Key) writer.Op {
	r, stored := p.row(k)
	claimants := p.o.Source.Claimants(k)
	e := p.choose(k, claimants, &r, stored)
	if e == nil {
		if stored && p.given(&r.owner, claimants) {
			return remove(k, &r.owner.Version)
		}
		return writer.Op{}
	}
	if !p.o.Source.Hosted(k.Network) {
		return writer.Op{} // somebody may have it, unseen
	}
	switch {
	case !stored:
		return p.create(k, e)
	case !r.owner.Static, r.owner.Endpoint.UID == e.UID && p.differs(k, &r, e):
		return claim(k, e, p.o.Node, &r.owner.Version)
	case r.owner.Endpoint.UID != e.UID && p.given(&r.owner, claimants):
		return claim(k, e, p.o.Node, &r.owner.Version)
	}
	return writer.Op{} // held as it should be, or by another
}

// ours reports whether a static binding is managed here for an endpoint, so
// that nobody else will remove it.
func (p *Planner) ours(o *desired.Owner) bool {
	return o.Static && o.Node == p.o.Node && o.Endpoint.UID != ""
}

// given reports whether a static binding is managed here for an endpoint that
// no longer claims it: one that is gone, is going, or has another address now.
func (p *Planner) given(o *desired.Owner, claimants []source.Endpoint) bool {
	return p.ours(o) && !claims(claimants, o.Endpoint.UID)
}

func claims(claimants []source.Endpoint, uid string) bool {
	for i := range claimants {
		if claimants[i].UID == uid {
			return true
		}
	}
	return false
}

// choose returns the endpoint that is to have a key: the one that has it, else
// the oldest. Only an endpoint that will be cleaned up after may have one, and a
// Neighbor only one that holds its MAC.
func (p *Planner) choose(k source.Key, claimants []source.Endpoint, r *row, stored bool) *source.Endpoint {
	var first *source.Endpoint
	for i := range claimants {
		e := &claimants[i]
		if !e.Finalized() || !p.may(k, e) {
			continue
		}
		if stored && r.owner.Static && r.owner.Endpoint.UID == e.UID {
			return e
		}
		if first == nil {
			first = e
		}
	}
	return first
}

func (p *Planner) may(k source.Key, e *source.Endpoint) bool {
	n, ok := p.o.Source.Network(e.Network)
	if !ok || e.MAC == n.Gateway.MAC {
		return false
	}
	if k.Kind == v1alpha1.KindFDBEntry {
		return true
	}
	if desired.AddressProblem(desired.Ref{}, "", k.IP, &n) != nil {
		return false
	}
	f, ok := p.o.Source.FDB(desired.FDBKey{Network: e.Network, MAC: e.MAC})
	return ok && f.Static && f.Endpoint.UID == e.UID
}

// differs reports whether a binding of e says something else than e does.
func (p *Planner) differs(k source.Key, r *row, e *source.Endpoint) bool {
	if r.owner.Node != p.o.Node || r.owner.Endpoint != e.EndpointRef {
		return true
	}
	if k.Kind == v1alpha1.KindFDBEntry {
		return r.segment != e.Segment
	}
	return r.mac != e.MAC
}

func (p *Planner) create(k source.Key, e *source.Endpoint) writer.Op {
	meta := metav1.ObjectMeta{Labels: map[string]string{v1alpha1.NetworkLabel: k.Network}}
	if uid := p.o.Source.NetworkUID(k.Network); uid != "" {
		meta.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindNetwork, Name: k.Network, UID: types.UID(uid)}}
	}
	ref := &v1alpha1.EndpointReference{Namespace: e.Namespace, Name: e.Name, UID: e.UID}
	op := writer.Op{Verb: writer.Create}
	op.Resource, op.Name = resource(k)
	meta.Name = op.Name
	if k.Kind == v1alpha1.KindFDBEntry {
		op.Object = &v1alpha1.FDBEntry{ObjectMeta: meta,
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: k.Kind},
			Spec:     v1alpha1.FDBEntrySpec{Network: v1alpha1.NetworkName(k.Network), MAC: v1alpha1.MACAddress(k.MAC.String()), Source: v1alpha1.SourceStatic},
			Status:   &v1alpha1.FDBEntryStatus{Endpoint: ref, ManagingNode: p.o.Node, Segment: v1alpha1.Segment(e.Segment)}}
		return op
	}
	op.Object = &v1alpha1.Neighbor{ObjectMeta: meta,
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: k.Kind},
		Spec:     v1alpha1.NeighborSpec{Network: v1alpha1.NetworkName(k.Network), IP: v1alpha1.IPAddress(k.IP.String()), Source: v1alpha1.SourceStatic},
		Status:   &v1alpha1.NeighborStatus{Endpoint: ref, ManagingNode: p.o.Node, MAC: v1alpha1.MACAddress(e.MAC.String())}}
	return op
}

// claim makes a stored binding e's, in one write: what it had been learned goes.
func claim(k source.Key, e *source.Endpoint, node string, v *desired.Version) writer.Op {
	status := map[string]any{
		"endpoint":     map[string]any{"namespace": e.Namespace, "name": e.Name, "uid": e.UID},
		"managingNode": node,
		"lastObserved": nil, "moves": nil, "movesSince": nil, "frozenUntil": nil,
	}
	if k.Kind == v1alpha1.KindFDBEntry {
		status["segment"] = e.Segment
	} else {
		status["mac"] = e.MAC.String()
		status["router"] = nil
	}
	return patch(k, v, map[string]any{"spec": map[string]any{"source": v1alpha1.SourceStatic}, "status": status})
}

// patch makes a merge patch of body that holds only for one stored state.
func patch(k source.Key, v *desired.Version, body map[string]any) writer.Op {
	m, _ := body["metadata"].(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	m["uid"], m["resourceVersion"] = v.UID, v.ResourceVersion
	body["metadata"] = m
	raw, err := json.Marshal(body)
	if err != nil { // maps of strings, numbers and conditions: cannot be
		return writer.Op{}
	}
	op := writer.Op{Verb: writer.Patch, Patch: raw, UID: v.UID, Version: v.ResourceVersion}
	op.Resource, op.Name = resource(k)
	switch k.Kind {
	case v1alpha1.KindFDBEntry:
		op.Object = &v1alpha1.FDBEntry{}
	case v1alpha1.KindNeighbor:
		op.Object = &v1alpha1.Neighbor{}
	default:
		op.Object = &v1alpha1.NetworkEndpoint{}
	}
	return op
}

func remove(k source.Key, v *desired.Version) writer.Op {
	op := writer.Op{Verb: writer.Delete, UID: v.UID, Version: v.ResourceVersion}
	op.Resource, op.Name = resource(k)
	return op
}

// resource returns where a key's object is stored, and its name.
func resource(k source.Key) (client.Resource, string) {
	switch k.Kind {
	case v1alpha1.KindFDBEntry:
		return client.Resource{Name: v1alpha1.ResourceFDBEntries}, v1alpha1.FDBName(k.Network, k.MAC)
	case v1alpha1.KindNeighbor:
		return client.Resource{Name: v1alpha1.ResourceNeighbors}, v1alpha1.NeighborName(k.Network, k.IP)
	}
	return client.Resource{Name: v1alpha1.ResourceNetworkEndpoints, Namespace: k.Endpoint.Namespace}, k.Endpoint.Name
}

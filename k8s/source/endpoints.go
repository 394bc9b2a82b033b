package source

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
)

// endpointRow is what is kept of a NetworkEndpoint of this node.
type endpointRow struct {
	Endpoint
	age
}

// Endpoint is the cached state of a NetworkEndpoint of this node, as the
// writer's decisions need it. It is read only.
type Endpoint struct {
	desired.Endpoint
	Version    desired.Version
	Generation int64
	Deleting   bool
	Finalizers []string
	Status     v1alpha1.NetworkEndpointStatus
	// Problems of the object by itself; with any it claims nothing.
	Problems []desired.Problem
}

// Finalized reports whether the endpoint carries picot's finalizer.
func (e *Endpoint) Finalized() bool {
	return slices.Contains(e.Finalizers, v1alpha1.EndpointFinalizer)
}

// Claims reports whether the endpoint claims bindings at all.
func (e *Endpoint) Claims() bool { return !e.Deleting && len(e.Problems) == 0 }

func endpointFrom(o *v1alpha1.NetworkEndpoint) *endpointRow {
	v, list := desired.ParseEndpoint(o)
	return &endpointRow{
		Endpoint: Endpoint{
			Endpoint:   v,
			Version:    desired.Version{UID: string(o.UID), ResourceVersion: o.ResourceVersion},
			Generation: o.Generation,
			Deleting:   o.DeletionTimestamp != nil,
			Finalizers: slices.Clone(o.Finalizers),
			Status:     *o.Status.DeepCopy(),
			Problems:   list,
		},
		age: ageOf(&o.ObjectMeta),
	}
}

func endpointRef(k desired.EndpointKey) desired.Ref {
	return desired.Ref{Kind: v1alpha1.KindNetworkEndpoint, Namespace: k.Namespace, Name: k.Name}
}

// setEndpoint takes an endpoint's new state; nil: it is gone.
func (p *projection) setEndpoint(k desired.EndpointKey, o *v1alpha1.NetworkEndpoint) {
	if old := p.endpoints[k]; old != nil {
		delete(p.liveUIDs, old.UID)
		p.unclaim(k)
		delete(p.endpoints, k)
	}
	p.note(endpointRef(k), nil)
	if o != nil && o.Spec.NodeName == p.self {
		e := endpointFrom(o)
		p.endpoints[k] = e
		p.liveUIDs[e.UID] = k
		p.claim(k)
	}
	p.staleEndpoints = true
}

// claim files an endpoint under the bindings it claims.
func (p *projection) claim(k desired.EndpointKey) {
	for _, key := range p.endpointKeys(k)[1:] {
		p.claimed[key] = append(p.claimed[key], k)
	}
}

func (p *projection) unclaim(k desired.EndpointKey) {
	for _, key := range p.endpointKeys(k)[1:] {
		rest := slices.DeleteFunc(p.claimed[key], func(x desired.EndpointKey) bool { return x == k })
		if p.claimed[key] = rest; len(rest) == 0 {
			delete(p.claimed, key)
		}
	}
}

// claimants returns the endpoints that claim a binding's key and are not being
// deleted, the oldest first.
func (p *projection) claimants(key Key) []Endpoint {
	var list []*endpointRow
	for _, k := range p.claimed[key] {
		if e := p.endpoints[k]; e.Claims() {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, compareRows)
	out := make([]Endpoint, 0, len(list))
	for _, e := range list {
		out = append(out, e.Endpoint)
	}
	return out
}

// compareRows puts the older endpoint first.
func compareRows(a, b *endpointRow) int {
	return cmp.Or(a.compare(b.age), cmp.Compare(a.Endpoint.String(), b.Endpoint.String()))
}

// resolveEndpoints works out which endpoints of this node are carried: each has
// a network that is, a device of its own, and a MAC that no other static
// binding holds. Of its addresses it has those that are in the network and held
// by no other.
func (p *projection) resolveEndpoints() {
	if !p.staleEndpoints {
		return
	}
	p.staleEndpoints = false
	order := slices.SortedFunc(maps.Values(p.endpoints), compareRows)
	carried := make(map[desired.EndpointKey]desired.Endpoint, len(order))
	devices := map[string]desired.EndpointKey{}
	for _, row := range order {
		ref := endpointRef(row.EndpointKey)
		if !row.Claims() {
			p.note(ref, row.Problems)
			continue
		}
		e, list := p.resolveEndpoint(&row.Endpoint, devices)
		p.note(ref, list)
		if e == nil {
			continue
		}
		carried[e.EndpointKey] = *e
		if e.Interface != "" {
			devices[e.Interface] = e.EndpointKey
		}
	}
	p.delta.Merge(desired.Diff(desired.State{Endpoints: p.carried}, desired.State{Endpoints: carried}))
	p.carried = carried
}

// resolveEndpoint returns the endpoint as it is carried, or nil, and what of it
// is not.
func (p *projection) resolveEndpoint(row *Endpoint, devices map[string]desired.EndpointKey) (*desired.Endpoint, []desired.Problem) {
	ref := endpointRef(row.EndpointKey)
	n, ok := p.held[row.Network]
	if !ok {
		return nil, []desired.Problem{desired.UnknownNetwork(ref, row.Network)}
	}
	if h, ok := devices[row.Interface]; ok {
		return nil, []desired.Problem{{Object: ref, Field: "spec.interface",
			Reason: fmt.Sprintf("%s is the device of %s", row.Interface, endpointRef(h)),
			Mend:   "give each endpoint a device of its own", Is: desired.ErrDuplicate, Holder: endpointRef(h)}}
	}
	if !row.MAC.IsZero() {
		if pr := p.macHeld(row, &n); pr != nil {
			return nil, []desired.Problem{*pr}
		}
	}
	e := row.Endpoint
	var list []desired.Problem
	e.Addresses = nil
	for i, a := range row.Addresses {
		if pr := p.addressHeld(row, &n, i, a); pr != nil {
			list = append(list, *pr)
			continue
		}
		e.Addresses = append(e.Addresses, a)
	}
	desired.ResolveEndpoint(&e, &n)
	return &e, list
}

func (p *projection) macHeld(row *Endpoint, n *desired.Network) *desired.Problem {
	pr := &desired.Problem{Object: endpointRef(row.EndpointKey), Field: "spec.mac", Is: desired.ErrDuplicate,
		Mend: "give each endpoint of a network a MAC of its own"}
	if row.MAC == n.Gateway.MAC {
		pr.Holder = desired.Ref{Kind: v1alpha1.KindNetwork, Name: n.Name}
		pr.Reason = fmt.Sprintf("%s is the gateway's MAC of %s", row.MAC, pr.Holder)
		return pr
	}
	r := p.fdb.get(row.Network, row.MAC)
	if r == nil || !r.binds || !heldByOther(&r.value.Owner, row) {
		return nil
	}
	pr.Holder = endpointRef(r.value.Endpoint.EndpointKey)
	pr.Reason = fmt.Sprintf("%s in network %s is held by %s on node %s", row.MAC, n.Name, pr.Holder, r.value.Node)
	return pr
}

func (p *projection) addressHeld(row *Endpoint, n *desired.Network, i int, a netip.Addr) *desired.Problem {
	ref := endpointRef(row.EndpointKey)
	field := fmt.Sprintf("spec.addresses[%d]", i)
	if pr := desired.AddressProblem(ref, field, a, n); pr != nil {
		return pr
	}
	r := p.neighbors.get(row.Network, a)
	if r == nil || !r.binds || !heldByOther(&r.value.Owner, row) {
		return nil
	}
	holder := endpointRef(r.value.Endpoint.EndpointKey)
	return &desired.Problem{Object: ref, Field: field, Is: desired.ErrDuplicate, Holder: holder,
		Reason: fmt.Sprintf("%s in network %s is held by %s on node %s", a, n.Name, holder, r.value.Node),
		Mend:   "give each endpoint of a network addresses of its own"}
}

// heldByOther reports whether a static binding belongs to another endpoint than
// this one.
func heldByOther(o *desired.Owner, e *Endpoint) bool {
	return o.Static && o.Endpoint.UID != e.UID
}

func macKey(network string, mac packet.MAC) desired.FDBKey {
	return desired.FDBKey{Network: network, MAC: mac}
}

// hosted returns the networks of the endpoints here that claim anything.
func (p *projection) hosted() map[string]bool {
	out := map[string]bool{}
	for _, e := range p.endpoints {
		if len(e.Problems) == 0 {
			out[e.Network] = true
		}
	}
	return out
}

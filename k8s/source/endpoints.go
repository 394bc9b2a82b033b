package source

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
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
		p.dirtyDevice(old.Interface)
		delete(p.endpoints, k)
	}
	if o != nil && o.Spec.NodeName == p.self {
		e := endpointFrom(o)
		p.endpoints[k] = e
		p.liveUIDs[e.UID] = k
		p.claim(k)
		p.dirtyDevice(e.Interface)
	}
	p.dirty[k] = true
}

// dirtyDevice marks the endpoints that name a device.
func (p *projection) dirtyDevice(name string) {
	for _, k := range p.devices[name] {
		p.dirty[k] = true
	}
}

// claim files an endpoint under its device and the bindings it claims.
func (p *projection) claim(k desired.EndpointKey) {
	for _, key := range p.endpointKeys(k)[1:] {
		p.claimed[key] = append(p.claimed[key], k)
	}
	if dev := p.endpoints[k].Interface; dev != "" {
		p.devices[dev] = append(p.devices[dev], k)
	}
}

func (p *projection) unclaim(k desired.EndpointKey) {
	for _, key := range p.endpointKeys(k)[1:] {
		unfile(p.claimed, key, k)
	}
	unfile(p.devices, p.endpoints[k].Interface, k)
}

func unfile[K comparable](m map[K][]desired.EndpointKey, key K, k desired.EndpointKey) {
	rest := slices.DeleteFunc(m[key], func(x desired.EndpointKey) bool { return x == k })
	if m[key] = rest; len(rest) == 0 {
		delete(m, key)
	}
}

// claimants returns the endpoints that claim a binding's key and are not being
// deleted, the oldest first.
func (p *projection) claimants(key Key) []Endpoint {
	list := p.oldest(p.claimed[key])
	out := make([]Endpoint, 0, len(list))
	for _, e := range list {
		out = append(out, e.Endpoint)
	}
	return out
}

// oldest returns those of keys that claim anything, the oldest first.
func (p *projection) oldest(keys []desired.EndpointKey) []*endpointRow {
	var list []*endpointRow
	for _, k := range keys {
		if e := p.endpoints[k]; e.Claims() {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, compareRows)
	return list
}

// compareRows puts the older endpoint first.
func compareRows(a, b *endpointRow) int {
	return cmp.Or(a.compare(b.age), cmp.Compare(a.Endpoint.String(), b.Endpoint.String()))
}

// resolveEndpoints works out what is carried of the endpoints that something
// changed for.
func (p *projection) resolveEndpoints() {
	for k := range p.dirty {
		p.resolveEndpoint(k)
	}
}

// resolveEndpoint works out whether one endpoint of this node is carried: its
// network is, it is the oldest that names its device, and no other static
// binding holds its MAC. Of its addresses it has those that are in the network
// and held by no other.
func (p *projection) resolveEndpoint(k desired.EndpointKey) {
	if !p.dirty[k] {
		return
	}
	delete(p.dirty, k)
	var next *desired.Endpoint
	var list []desired.Problem
	if row := p.endpoints[k]; row != nil {
		if list = row.Problems; row.Claims() {
			next, list = p.carriedEndpoint(&row.Endpoint)
		}
	}
	p.note(endpointRef(k), list)
	old, had := p.carried[k]
	switch {
	case next == nil && !had, next != nil && had && reflect.DeepEqual(old, *next):
		return
	case next == nil:
		delete(p.carried, k)
	default:
		p.carried[k] = *next
	}
	if p.delta.Endpoints == nil {
		p.delta.Endpoints = map[desired.EndpointKey]*desired.Endpoint{}
	}
	p.delta.Endpoints[k] = next
}

// carriedEndpoint returns an endpoint as it is carried, or nil, and what of it
// is not.
func (p *projection) carriedEndpoint(row *Endpoint) (*desired.Endpoint, []desired.Problem) {
	ref := endpointRef(row.EndpointKey)
	n, ok := p.held[row.Network]
	if !ok {
		return nil, []desired.Problem{desired.UnknownNetwork(ref, row.Network)}
	}
	if row.Interface != "" {
		if h := p.oldest(p.devices[row.Interface])[0]; h.EndpointKey != row.EndpointKey {
			return nil, []desired.Problem{{Object: ref, Field: "spec.interface",
				Reason: fmt.Sprintf("%s is the device of %s", row.Interface, endpointRef(h.EndpointKey)),
				Mend:   "give each endpoint a device of its own", Is: desired.ErrDuplicate, Holder: endpointRef(h.EndpointKey)}}
		}
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

package desired

import (
	"fmt"
	"net/netip"

	"picot.dev/picot/k8s/api/v1alpha1"
)

// Candidates are values that are right in themselves, no two of a kind with the
// same key. Their order is their right: an earlier one holds what a later one
// also claims.
type Candidates struct {
	Networks  []Network
	Nodes     []Node
	Endpoints []Endpoint
	FDB       []FDBEntry
	Neighbors []Neighbor
}

// Resolve makes a State of the candidates and says what of them was left out.
// held is the State before, or nil: who held an ID, a locator, a MAC, a device
// or an address there and still claims it keeps it, whatever the order says.
//
// A network, a node, an endpoint is left out whole when another holds its ID,
// its locator, its MAC or its device; of an endpoint's addresses only those
// that are outside the network or held by another. Static bindings follow from
// the endpoints, and the link-local addresses of static MACs from those.
// Explicit bindings come last: where an endpoint has the key, the endpoint's
// node holds it.
func Resolve(c Candidates, held *State) (State, []Problem) {
	if held == nil {
		held = &State{}
	}
	r := resolver{state: NewState(), held: held, leftOut: map[string]bool{}, devices: map[device]EndpointKey{}}
	var networks, nodes []Problem
	r.state.Networks, networks = ResolveNetworks(c.Networks, held.Networks)
	r.state.Nodes, nodes = ResolveNodes(c.Nodes, held.Nodes)
	for _, p := range networks {
		r.leftOut[p.Object.Name] = true
	}
	r.list = append(networks, nodes...)
	r.endpoints(c.Endpoints)
	for i := range c.FDB {
		r.fdb(c.FDB[i])
	}
	for i := range c.Neighbors {
		r.neighbor(c.Neighbors[i])
	}
	r.linkLocals()
	return r.state, r.list
}

// holdersFirst returns in with those that keep what they held before the rest,
// each part in its order.
func holdersFirst[T any](in []T, holds func(*T) bool) []T {
	out := make([]T, 0, len(in))
	var rest []T
	for i := range in {
		if holds(&in[i]) {
			out = append(out, in[i])
		} else {
			rest = append(rest, in[i])
		}
	}
	return append(out, rest...)
}

type device struct{ node, name string }

// resolver fills state with endpoints and bindings.
type resolver struct {
	state   State
	held    *State
	list    []Problem
	leftOut map[string]bool // networks that are there but hold no ID
	devices map[device]EndpointKey
}

func (r *resolver) refuse(p Problem) { r.list = append(r.list, p) }

func (r *resolver) endpoints(in []Endpoint) {
	in = holdersFirst(in, func(e *Endpoint) bool {
		h, ok := r.held.Endpoints[e.EndpointKey]
		return ok && h.Network == e.Network && h.Node == e.Node && h.MAC == e.MAC && h.Interface == e.Interface
	})
	var claims []claim
	for _, e := range in {
		if !r.endpoint(e) {
			continue
		}
		for i, a := range e.Addresses {
			claims = append(claims, claim{e.EndpointKey, NeighborKey{e.Network, a}, i})
		}
	}
	r.addresses(claims)
}

// endpoint adds e, without addresses, if it holds all it must hold to be there
// at all.
func (r *resolver) endpoint(e Endpoint) bool {
	self := endpointRefOf(e.EndpointKey)
	n, ok := r.state.Networks[e.Network]
	if !ok {
		r.refuse(r.noNetwork(self, e.Network))
		return false
	}
	dev := device{e.Node, e.Interface}
	if h, ok := r.devices[dev]; ok && e.Interface != "" {
		r.refuse(Problem{
			Object: self, Field: "spec.interface",
			Reason: fmt.Sprintf("%s on node %s is the device of %s", e.Interface, e.Node, endpointRefOf(h)),
			Mend:   "give each endpoint a device of its own",
			Is:     ErrDuplicate, Holder: endpointRefOf(h),
		})
		return false
	}
	if p := r.macHeld(&e, &n); p != nil {
		r.refuse(*p)
		return false
	}
	r.devices[dev] = e.EndpointKey
	e.Addresses = nil
	ResolveEndpoint(&e, &n)
	r.state.Endpoints[e.EndpointKey] = e
	if fdb, _ := Bindings(&e); fdb != nil {
		r.state.FDB[fdb.FDBKey] = fdb
	}
	return true
}

func (r *resolver) macHeld(e *Endpoint, n *Network) *Problem {
	if e.MAC.IsZero() {
		return nil
	}
	p := &Problem{Object: endpointRefOf(e.EndpointKey), Field: "spec.mac", Mend: "give each endpoint of a network a MAC of its own", Is: ErrDuplicate}
	if h, ok := r.state.FDB[FDBKey{n.Name, e.MAC}]; ok {
		p.Holder = endpointRefOf(h.Endpoint.EndpointKey)
		p.Reason = fmt.Sprintf("%s in network %s is the MAC of %s", e.MAC, n.Name, p.Holder)
		return p
	}
	if e.MAC == n.Gateway.MAC {
		p.Holder = Ref{Kind: v1alpha1.KindNetwork, Name: n.Name}
		p.Reason = fmt.Sprintf("%s is the gateway's MAC of %s", e.MAC, p.Holder)
		return p
	}
	return nil
}

// claim is one address an endpoint claims: the index-th of its spec.
type claim struct {
	endpoint EndpointKey
	key      NeighborKey
	index    int
}

// addresses gives every address to the endpoint that held it, else to the first
// that claims it.
func (r *resolver) addresses(claims []claim) {
	claims = holdersFirst(claims, func(c *claim) bool {
		h, ok := r.held.Neighbors[c.key]
		return ok && h.Static && h.Endpoint.EndpointKey == c.endpoint
	})
	for _, c := range claims {
		self := endpointRefOf(c.endpoint)
		field := fmt.Sprintf("spec.addresses[%d]", c.index)
		n := r.state.Networks[c.key.Network]
		if p := AddressProblem(self, field, c.key.IP, &n); p != nil {
			r.refuse(*p)
			continue
		}
		if h, ok := r.state.Neighbors[c.key]; ok {
			ref := endpointRefOf(h.Endpoint.EndpointKey)
			r.refuse(Problem{
				Object: self, Field: field,
				Reason: fmt.Sprintf("%s in network %s is an address of %s", c.key.IP, n.Name, ref),
				Mend:   "give each endpoint of a network addresses of its own",
				Is:     ErrDuplicate, Holder: ref,
			})
			continue
		}
		e := r.state.Endpoints[c.endpoint]
		e.Addresses = append(e.Addresses, c.key.IP)
		r.state.Endpoints[c.endpoint] = e
		r.state.Neighbors[c.key] = &Neighbor{NeighborKey: c.key, Owner: endpointOwner(&e), MAC: e.MAC}
	}
}

// fdb adds an explicit entry unless an endpoint has its key.
func (r *resolver) fdb(e FDBEntry) {
	self := Ref{Kind: v1alpha1.KindFDBEntry, Name: e.Name()}
	n, ok := r.state.Networks[e.Network]
	if !ok {
		r.refuse(r.noNetwork(self, e.Network))
		return
	}
	if e.MAC == n.Gateway.MAC {
		ref := Ref{Kind: v1alpha1.KindNetwork, Name: n.Name}
		r.refuse(Problem{Object: self, Field: "spec.mac", Reason: fmt.Sprintf("%s is the gateway's MAC of %s", e.MAC, ref),
			Mend: "leave the entry out", Is: ErrDuplicate, Holder: ref})
		return
	}
	if h, ok := r.state.FDB[e.FDBKey]; ok {
		r.staticClash(self, &e.Owner, &h.Owner)
		return
	}
	r.state.FDB[e.FDBKey] = &e
}

// neighbor adds an explicit neighbor unless an endpoint has its key.
func (r *resolver) neighbor(nb Neighbor) {
	self := Ref{Kind: v1alpha1.KindNeighbor, Name: nb.Name()}
	n, ok := r.state.Networks[nb.Network]
	if !ok {
		r.refuse(r.noNetwork(self, nb.Network))
		return
	}
	if p := AddressProblem(self, "spec.ip", nb.IP, &n); p != nil {
		r.refuse(*p)
		return
	}
	h, ok := r.state.Neighbors[nb.NeighborKey]
	if !ok {
		r.state.Neighbors[nb.NeighborKey] = &nb
		return
	}
	if nb.MAC == h.MAC {
		if nb.Router != RouterUnknown { // what an endpoint cannot say
			more := *h
			more.Router = nb.Router
			r.state.Neighbors[nb.NeighborKey] = &more
		}
	} else if nb.Static {
		ref := endpointRefOf(h.Endpoint.EndpointKey)
		r.refuse(Problem{Object: self, Field: "status.mac", Reason: fmt.Sprintf("%s has the MAC %s of %s", nb.IP, h.MAC, ref),
			Mend: "leave the object out: it follows from the endpoint", Is: ErrDuplicate, Holder: ref})
		return
	}
	r.staticClash(self, &nb.Owner, &h.Owner)
}

// staticClash refuses a static binding whose key an endpoint on another node
// has. A learned one just gives way.
func (r *resolver) staticClash(self Ref, e, holder *Owner) {
	if !e.Static || e.Node == holder.Node {
		return
	}
	ref := endpointRefOf(holder.Endpoint.EndpointKey)
	r.refuse(Problem{Object: self, Field: "status.managingNode",
		Reason: fmt.Sprintf("%s on node %s holds this key", ref, holder.Node),
		Mend:   "leave the object out: it follows from the endpoint", Is: ErrDuplicate, Holder: ref})
}

func (r *resolver) linkLocals() {
	for _, e := range r.state.FDB {
		n := r.state.Networks[e.Network]
		nb, ok := LinkLocal(&n, e)
		if !ok {
			continue
		}
		if _, taken := r.state.Neighbors[nb.NeighborKey]; !taken {
			r.state.Neighbors[nb.NeighborKey] = &nb
		}
	}
}

// ResolveEndpoint fills in what an endpoint takes from its network.
func ResolveEndpoint(e *Endpoint, n *Network) {
	if e.PortSecurity == SecurityUnset {
		e.PortSecurity = n.PortSecurity
	}
}

// AddressProblem says why address a cannot be an endpoint's in network n, or
// nil.
func AddressProblem(object Ref, field string, a netip.Addr, n *Network) *Problem {
	if !n.Contains(a) {
		return &Problem{Object: object, Field: field, Reason: fmt.Sprintf("%s is outside the prefixes of network %s", a, n.Name),
			Mend: "give an address within them, or add a prefix", Is: ErrOutside}
	}
	for _, g := range n.Gateway.Addresses {
		if a == g {
			ref := Ref{Kind: v1alpha1.KindNetwork, Name: n.Name}
			return &Problem{Object: object, Field: field, Reason: fmt.Sprintf("%s is the gateway's address of %s", a, ref),
				Mend: "give another address", Is: ErrDuplicate, Holder: ref}
		}
	}
	return nil
}

// Bindings returns the static bindings that follow from an endpoint: none when
// it has no MAC.
func Bindings(e *Endpoint) (*FDBEntry, []Neighbor) {
	if e.MAC.IsZero() {
		return nil, nil
	}
	owner := endpointOwner(e)
	fdb := &FDBEntry{FDBKey: FDBKey{e.Network, e.MAC}, Owner: owner, Segment: e.Segment}
	neighbors := make([]Neighbor, 0, len(e.Addresses))
	for _, a := range e.Addresses {
		neighbors = append(neighbors, Neighbor{NeighborKey: NeighborKey{e.Network, a}, Owner: owner, MAC: e.MAC})
	}
	return fdb, neighbors
}

func endpointOwner(e *Endpoint) Owner {
	return Owner{Static: true, Node: e.Node, Endpoint: e.EndpointRef}
}

func endpointRefOf(k EndpointKey) Ref {
	return Ref{Kind: v1alpha1.KindNetworkEndpoint, Namespace: k.Namespace, Name: k.Name}
}

func (r *resolver) noNetwork(object Ref, network string) Problem {
	if r.leftOut[network] {
		return Problem{Object: object, Field: "spec.network", Reason: fmt.Sprintf("Network %s was left out", network),
			Mend: "mend the Network", Is: ErrUnknown}
	}
	return UnknownNetwork(object, network)
}

// UnknownNetwork is the problem of an object whose network is not there.
func UnknownNetwork(object Ref, network string) Problem {
	return Problem{Object: object, Field: "spec.network", Reason: fmt.Sprintf("there is no Network %s", network),
		Mend: "add the Network, or name one that is there", Is: ErrUnknown}
}

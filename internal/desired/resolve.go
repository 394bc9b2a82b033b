package desired

import (
	"fmt"
	"net/netip"

	"picot.dev/picot/internal/packet"
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
// A network, a node, an endpoint is left out whole when another holds its ID,
// its locator, its MAC or its interface; of an endpoint's addresses only those
// that are outside the network or held by another. Static bindings follow from
// the endpoints, and the link-local addresses of static MACs from those.
// Explicit bindings come last: where an endpoint has the key, the endpoint's
// node holds it.
func Resolve(c Candidates) (State, []Problem) {
	s := NewState()
	var list []Problem
	add := func(p []Problem) { list = append(list, p...) }

	var ps []Problem
	s.Networks, ps = ResolveNetworks(c.Networks)
	add(ps)
	s.Nodes, ps = ResolveNodes(c.Nodes)
	add(ps)
	r := resolver{state: &s, interfaces: map[device]EndpointKey{}}
	for i := range c.Endpoints {
		add(r.endpoint(c.Endpoints[i]))
	}
	for i := range c.FDB {
		add(r.fdb(c.FDB[i]))
	}
	for i := range c.Neighbors {
		add(r.neighbor(c.Neighbors[i]))
	}
	r.linkLocals()
	return s, list
}

// ResolveNetworks gives every ID to the first network that claims it.
func ResolveNetworks(in []Network) (map[string]Network, []Problem) {
	out := make(map[string]Network, len(in))
	holder := make(map[uint32]string, len(in))
	var list []Problem
	for _, n := range in {
		if h, ok := holder[n.ID]; ok {
			list = append(list, Problem{
				Object: Ref{Kind: v1alpha1.KindNetwork, Name: n.Name}, Field: "spec.id",
				Reason: fmt.Sprintf("id %d is that of Network %s", n.ID, h), Mend: "give each network an id of its own",
				Is: ErrDuplicate, Holder: Ref{Kind: v1alpha1.KindNetwork, Name: h},
			})
			continue
		}
		holder[n.ID] = n.Name
		out[n.Name] = n
	}
	return out, list
}

// ResolveNodes gives every locator to the first node that claims it or a part
// of it.
func ResolveNodes(in []Node) (map[string]Node, []Problem) {
	out := make(map[string]Node, len(in))
	held := locators{}
	var list []Problem
	for _, n := range in {
		if h, ok := held.overlapping(n.Locator); ok {
			list = append(list, Problem{
				Object: Ref{Kind: v1alpha1.KindSRv6Node, Name: n.Name}, Field: "spec.locator",
				Reason: fmt.Sprintf("%s overlaps %s of SRv6Node %s", n.Locator, out[h].Locator, h),
				Mend:   "give each node a locator of its own",
				Is:     ErrDuplicate, Holder: Ref{Kind: v1alpha1.KindSRv6Node, Name: h},
			})
			continue
		}
		held.add(n.Locator, n.Name)
		out[n.Name] = n
	}
	return out, list
}

// locators finds who holds an overlapping locator without comparing all pairs:
// every prefix of a held locator, from 32 bits up, names one of its holders.
type locators map[netip.Prefix]struct {
	name string
	held bool // exactly this prefix is held
}

func (l locators) overlapping(p netip.Prefix) (string, bool) {
	if x, ok := l[p]; ok { // held, or something inside it is
		return x.name, true
	}
	for bits := p.Bits() - 1; bits >= minLocator; bits-- {
		if x, ok := l[shorten(p, bits)]; ok && x.held {
			return x.name, true
		}
	}
	return "", false
}

func (l locators) add(p netip.Prefix, name string) {
	for bits := p.Bits(); bits >= minLocator; bits-- {
		q := shorten(p, bits)
		x := l[q]
		if x.name == "" {
			x.name = name
		}
		x.held = x.held || bits == p.Bits()
		l[q] = x
	}
}

func shorten(p netip.Prefix, bits int) netip.Prefix {
	return netip.PrefixFrom(p.Addr(), bits).Masked()
}

type device struct{ node, name string }

// resolver fills state with endpoints and bindings.
type resolver struct {
	state      *State
	interfaces map[device]EndpointKey
}

func (r *resolver) endpoint(e Endpoint) []Problem {
	n, ok := r.state.Networks[e.Network]
	if !ok {
		return []Problem{unknownNetwork(endpointRefOf(e.EndpointKey), e.Network)}
	}
	if p := r.claimsWhole(&e, &n); p != nil {
		return []Problem{*p}
	}
	kept, list := r.addresses(&e, &n)
	e.Addresses = kept
	ResolveEndpoint(&e, &n)
	if e.Interface != "" {
		r.interfaces[device{e.Node, e.Interface}] = e.EndpointKey
	}
	r.state.Endpoints[e.EndpointKey] = e
	fdb, neighbors := Bindings(&e)
	if fdb != nil {
		r.state.FDB[fdb.FDBKey] = *fdb
	}
	for _, nb := range neighbors {
		r.state.Neighbors[nb.NeighborKey] = nb
	}
	return list
}

// claimsWhole checks what an endpoint must hold to be there at all.
func (r *resolver) claimsWhole(e *Endpoint, n *Network) *Problem {
	self := endpointRefOf(e.EndpointKey)
	if h, ok := r.interfaces[device{e.Node, e.Interface}]; ok && e.Interface != "" {
		return &Problem{
			Object: self, Field: "spec.interface",
			Reason: fmt.Sprintf("%s on node %s is the device of %s", e.Interface, e.Node, endpointRefOf(h)),
			Mend:   "give each endpoint a device of its own",
			Is:     ErrDuplicate, Holder: endpointRefOf(h),
		}
	}
	if e.MAC.IsZero() {
		return nil
	}
	p := &Problem{Object: self, Field: "spec.mac", Mend: "give each endpoint of a network a MAC of its own", Is: ErrDuplicate}
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

// addresses returns those of e's addresses that e may have.
func (r *resolver) addresses(e *Endpoint, n *Network) (kept []netip.Addr, list []Problem) {
	self := endpointRefOf(e.EndpointKey)
	for i, a := range e.Addresses {
		field := fmt.Sprintf("spec.addresses[%d]", i)
		if p := AddressProblem(self, field, a, n); p != nil {
			list = append(list, *p)
			continue
		}
		if h, ok := r.state.Neighbors[NeighborKey{n.Name, a}]; ok {
			ref := endpointRefOf(h.Endpoint.EndpointKey)
			list = append(list, Problem{
				Object: self, Field: field,
				Reason: fmt.Sprintf("%s in network %s is an address of %s", a, n.Name, ref),
				Mend:   "give each endpoint of a network addresses of its own",
				Is:     ErrDuplicate, Holder: ref,
			})
			continue
		}
		kept = append(kept, a)
	}
	return kept, list
}

// fdb adds an explicit entry unless an endpoint has its key.
func (r *resolver) fdb(e FDBEntry) []Problem {
	self := Ref{Kind: v1alpha1.KindFDBEntry, Name: e.Name()}
	n, ok := r.state.Networks[e.Network]
	if !ok {
		return []Problem{unknownNetwork(self, e.Network)}
	}
	if e.MAC == n.Gateway.MAC {
		ref := Ref{Kind: v1alpha1.KindNetwork, Name: n.Name}
		return []Problem{{Object: self, Field: "spec.mac", Reason: fmt.Sprintf("%s is the gateway's MAC of %s", e.MAC, ref),
			Mend: "leave the entry out", Is: ErrDuplicate, Holder: ref}}
	}
	h, ok := r.state.FDB[e.FDBKey]
	if !ok {
		r.state.FDB[e.FDBKey] = e
		return nil
	}
	return staticClash(self, &e.Owner, &h.Owner)
}

// neighbor adds an explicit neighbor unless an endpoint has its key.
func (r *resolver) neighbor(nb Neighbor) []Problem {
	self := Ref{Kind: v1alpha1.KindNeighbor, Name: nb.Name()}
	n, ok := r.state.Networks[nb.Network]
	if !ok {
		return []Problem{unknownNetwork(self, nb.Network)}
	}
	if p := AddressProblem(self, "spec.ip", nb.IP, &n); p != nil {
		return []Problem{*p}
	}
	h, ok := r.state.Neighbors[nb.NeighborKey]
	if !ok {
		r.state.Neighbors[nb.NeighborKey] = nb
		return nil
	}
	if nb.Router != RouterUnknown && nb.MAC == h.MAC { // what an endpoint cannot say
		h.Router = nb.Router
		r.state.Neighbors[nb.NeighborKey] = h
	}
	if nb.Static && nb.MAC != h.MAC {
		return []Problem{{Object: self, Field: "status.mac",
			Reason: fmt.Sprintf("%s has the MAC %s of %s", nb.IP, h.MAC, endpointRefOf(h.Endpoint.EndpointKey)),
			Mend:   "leave the object out: it follows from the endpoint", Is: ErrDuplicate, Holder: endpointRefOf(h.Endpoint.EndpointKey)}}
	}
	return staticClash(self, &nb.Owner, &h.Owner)
}

// staticClash is the problem of a static binding whose key an endpoint on
// another node has. A learned one just gives way.
func staticClash(self Ref, e, holder *Owner) []Problem {
	if !e.Static || e.Node == holder.Node {
		return nil
	}
	ref := endpointRefOf(holder.Endpoint.EndpointKey)
	return []Problem{{Object: self, Field: "status.managingNode",
		Reason: fmt.Sprintf("%s on node %s holds this key", ref, holder.Node),
		Mend:   "leave the object out: it follows from the endpoint", Is: ErrDuplicate, Holder: ref}}
}

func (r *resolver) linkLocals() {
	for _, e := range r.state.FDB {
		n := r.state.Networks[e.Network]
		nb, ok := LinkLocal(&n, &e)
		if !ok {
			continue
		}
		if _, taken := r.state.Neighbors[nb.NeighborKey]; !taken {
			r.state.Neighbors[nb.NeighborKey] = nb
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
	if e.MAC == (packet.MAC{}) {
		return nil, nil
	}
	owner := Owner{Static: true, Node: e.Node, Endpoint: e.EndpointRef}
	fdb := &FDBEntry{FDBKey: FDBKey{e.Network, e.MAC}, Owner: owner, Segment: e.Segment}
	neighbors := make([]Neighbor, 0, len(e.Addresses))
	for _, a := range e.Addresses {
		neighbors = append(neighbors, Neighbor{NeighborKey: NeighborKey{e.Network, a}, Owner: owner, MAC: e.MAC})
	}
	return fdb, neighbors
}

func endpointRefOf(k EndpointKey) Ref {
	return Ref{Kind: v1alpha1.KindNetworkEndpoint, Namespace: k.Namespace, Name: k.Name}
}

func unknownNetwork(object Ref, network string) Problem {
	return Problem{Object: object, Field: "spec.network", Reason: fmt.Sprintf("there is no Network %s", network),
		Mend: "add the Network, or name one that is there", Is: ErrUnknown}
}

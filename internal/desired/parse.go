package desired

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/k8s/api/v1alpha1"
)

// ParseNetwork validates a Network by itself. With any Problem the value is of
// no use.
func ParseNetwork(o *v1alpha1.Network) (Network, []Problem) {
	p := problems{object: Ref{Kind: v1alpha1.KindNetwork, Name: o.Name}}
	s := &o.Spec
	n := Network{
		Name:         p.networkName("metadata.name", o.Name),
		ID:           uint32(p.rangeOf("spec.id", s.ID, 1, v1alpha1.MaxID)),
		PortSecurity: p.security("spec.portSecurity", s.PortSecurity),
	}
	if n.PortSecurity == SecurityUnset {
		n.PortSecurity = SecurityOff
	}
	for i, x := range s.Prefixes {
		field := fmt.Sprintf("spec.prefixes[%d]", i)
		if px := p.prefix(field, string(x)); slices.Contains(n.Prefixes, px) {
			p.invalid(field, "write it once", "%s is there twice", px)
		} else if px.IsValid() {
			n.Prefixes = append(n.Prefixes, px)
		}
	}
	n.LinkLocal = n.Has6() && (s.LinkLocal == nil || *s.LinkLocal)
	if s.MTU != 0 {
		n.MTU = p.rangeOf("spec.mtu", s.MTU, minMTU, maxMTU)
		if n.MTU > 0 && n.MTU < minMTU6 && n.Has6() {
			p.invalid("spec.mtu", "give at least 1280 (RFC 8200 section 5)", "%d is too small for the network's IPv6 prefixes", s.MTU)
		}
	}
	n.Gateway = p.gateway(s.Gateway, &n)
	n.Learning = p.learning(s.Learning)
	n.Isolation = p.isolation(s.Isolation)
	return n, p.list
}

func (p *problems) gateway(g *v1alpha1.Gateway, n *Network) Gateway {
	if g == nil {
		return Gateway{}
	}
	out := Gateway{MAC: p.mac("spec.gateway.mac", string(g.MAC))}
	if len(g.Addresses) == 0 {
		p.invalid("spec.gateway.addresses", "give one, or leave the gateway out", "a gateway without addresses answers nothing")
	}
	for i, s := range g.Addresses {
		field := fmt.Sprintf("spec.gateway.addresses[%d]", i)
		a := p.ip(field, string(s))
		if a.IsValid() && !n.Contains(a) {
			p.invalid(field, "give an address within spec.prefixes", "%s is outside the network", a)
		}
		out.Addresses = append(out.Addresses, a)
	}
	return out
}

func (p *problems) learning(l *v1alpha1.Learning) Learning {
	out := Learning{Enabled: true}
	if l == nil {
		return out
	}
	if l.Enabled != nil {
		out.Enabled = *l.Enabled
	}
	if m := l.Limits; m != nil {
		out.MACs = p.limit("macs", m.MACs, 65535)
		out.AddressesPerMAC = p.limit("addressesPerMAC", m.AddressesPerMAC, 65535)
		out.ObservationsPerSecond = p.limit("observationsPerSecond", m.ObservationsPerSecond, 1000000)
	}
	return out
}

func (p *problems) limit(name string, v, hi int32) int {
	if v == 0 {
		return 0
	}
	return p.rangeOf("spec.learning.limits."+name, v, 1, hi)
}

func (p *problems) isolation(i *v1alpha1.Isolation) Isolation {
	if i == nil {
		return Isolation{}
	}
	var out Isolation
	switch i.Default {
	case v1alpha1.IsolationDeny:
		out.DefaultDeny = true
	case v1alpha1.IsolationAllow:
	default:
		p.invalid("spec.isolation.default", "write allow or deny", "%q is no default", i.Default)
	}
	for n, r := range i.Rules {
		field := fmt.Sprintf("spec.isolation.rules[%d]", n)
		out.Rules = append(out.Rules, IsolationRule{
			From: p.segments(field+".from", r.From),
			To:   p.segments(field+".to", r.To),
		})
	}
	return out
}

func (p *problems) segments(field string, in []v1alpha1.Segment) []uint32 {
	if len(in) == 0 {
		p.invalid(field, "name at least one segment, or drop the rule", "a rule without segments means nothing")
	}
	out := make([]uint32, 0, len(in))
	for i, s := range in {
		out = append(out, p.segment(fmt.Sprintf("%s[%d]", field, i), s))
	}
	return out
}

// ParseEndpoint validates a NetworkEndpoint by itself. PortSecurity is the
// endpoint's own; [ResolveEndpoint] fills in the network's where it is unset.
func ParseEndpoint(o *v1alpha1.NetworkEndpoint) (Endpoint, []Problem) {
	p := problems{object: Ref{Kind: v1alpha1.KindNetworkEndpoint, Namespace: o.Namespace, Name: o.Name}}
	s := &o.Spec
	e := Endpoint{
		EndpointRef: EndpointRef{
			EndpointKey: EndpointKey{Namespace: p.namespace(o.Namespace), Name: p.subdomain("metadata.name", o.Name)},
			UID:         string(o.UID),
		},
		Network:   p.networkName("spec.network", string(s.Network)),
		Node:      p.subdomain("spec.nodeName", s.NodeName),
		Segment:   p.segment("spec.segment", s.Segment),
		Interface: p.device("spec.interface", s.Interface),

		PortSecurity: p.security("spec.portSecurity", s.PortSecurity),
	}
	if s.MAC != "" {
		e.MAC = p.mac("spec.mac", string(s.MAC))
	} else if len(s.Addresses) > 0 {
		p.invalid("spec.mac", "give the MAC, or no addresses", "addresses need a MAC to be bound to")
	}
	for i, x := range s.Addresses {
		field := fmt.Sprintf("spec.addresses[%d]", i)
		if a := p.ip(field, string(x)); slices.Contains(e.Addresses, a) {
			p.invalid(field, "write it once", "%s is there twice", a)
		} else if a.IsValid() {
			e.Addresses = append(e.Addresses, a)
		}
	}
	return e, p.list
}

func (p *problems) namespace(s string) string {
	if !dnsLabel.MatchString(s) {
		p.invalid("metadata.namespace", "write a DNS label: at most 63 of a-z, 0-9 and -", "%q is not a namespace", s)
	}
	return s
}

// ParseNode validates an SRv6Node by itself.
func ParseNode(o *v1alpha1.SRv6Node) (Node, []Problem) {
	p := problems{object: Ref{Kind: v1alpha1.KindSRv6Node, Name: o.Name}}
	n := Node{
		Name:        p.subdomain("metadata.name", o.Name),
		Locator:     p.locator("spec.locator", o.Spec.Locator),
		UnderlayMTU: int(max(o.Status.UnderlayMTU, 0)),
		Dead:        meta.IsStatusConditionFalse(o.Status.Conditions, v1alpha1.ConditionAlive),
	}
	if h := o.Spec.NextHop; h != "" {
		n.NextHop = p.ip("spec.nextHop", string(h))
	}
	for i, v := range o.Spec.Via {
		field := fmt.Sprintf("spec.via[%d]", i)
		a := p.ip(field, string(v))
		if a.Is4() {
			p.invalid(field, "give a SID, which is an IPv6 address", "%s is not IPv6", a)
		}
		n.Via = append(n.Via, a)
	}
	return n, p.list
}

// ParseFDB validates an FDBEntry by itself. ok is false, without a Problem, for
// an entry that names no managing node yet: it binds nothing.
func ParseFDB(o *v1alpha1.FDBEntry) (e FDBEntry, ok bool, list []Problem) {
	p := problems{object: Ref{Kind: v1alpha1.KindFDBEntry, Name: o.Name}}
	e.Network = p.networkName("spec.network", string(o.Spec.Network))
	e.MAC = p.mac("spec.mac", string(o.Spec.MAC))
	e.Static = p.source("spec.source", o.Spec.Source)
	e.Version = version(&o.ObjectMeta)
	p.name(o.Name, e.Name)
	st := o.Status
	if st == nil || st.ManagingNode == "" {
		return e, false, p.list
	}
	e.Node = p.subdomain("status.managingNode", st.ManagingNode)
	e.Endpoint = endpointRef(st.Endpoint)
	e.Segment = p.segment("status.segment", st.Segment)
	e.LastObserved, e.Moves = micro(st.LastObserved), int(st.Moves)
	e.MovesSince, e.FrozenUntil = micro(st.MovesSince), micro(st.FrozenUntil)
	return e, len(p.list) == 0, p.list
}

// ParseNeighbor validates a Neighbor by itself. ok is false, without a Problem,
// for one that names no MAC or no managing node yet.
func ParseNeighbor(o *v1alpha1.Neighbor) (n Neighbor, ok bool, list []Problem) {
	p := problems{object: Ref{Kind: v1alpha1.KindNeighbor, Name: o.Name}}
	n.Network = p.networkName("spec.network", string(o.Spec.Network))
	n.IP = p.ip("spec.ip", string(o.Spec.IP))
	if n.IP.IsValid() && n.IP.String() != string(o.Spec.IP) {
		p.invalid("spec.ip", "write "+n.IP.String(), "%q is not the canonical form", o.Spec.IP)
	}
	n.Static = p.source("spec.source", o.Spec.Source)
	n.Version = version(&o.ObjectMeta)
	p.name(o.Name, n.Name)
	st := o.Status
	if st == nil || st.ManagingNode == "" || st.MAC == "" {
		return n, false, p.list
	}
	n.MAC = p.mac("status.mac", string(st.MAC))
	n.Node = p.subdomain("status.managingNode", st.ManagingNode)
	n.Endpoint = endpointRef(st.Endpoint)
	if st.Router != nil {
		n.Router = RouterNo
		if *st.Router {
			n.Router = RouterYes
		}
	}
	n.LastObserved, n.Moves = micro(st.LastObserved), int(st.Moves)
	n.MovesSince, n.FrozenUntil = micro(st.MovesSince), micro(st.FrozenUntil)
	return n, len(p.list) == 0, p.list
}

// name checks that a binding's name is the one its key gives, unless the key
// is wrong already.
func (p *problems) name(got string, want func() string) {
	if len(p.list) > 0 {
		return
	}
	if w := want(); got != w {
		p.invalid("metadata.name", "write "+w, "%q is not the name of this key", got)
	}
}

func endpointRef(r *v1alpha1.EndpointReference) EndpointRef {
	if r == nil {
		return EndpointRef{}
	}
	return EndpointRef{EndpointKey: EndpointKey{Namespace: r.Namespace, Name: r.Name}, UID: r.UID}
}

func version(m *metav1.ObjectMeta) Version {
	return Version{UID: string(m.UID), ResourceVersion: m.ResourceVersion}
}

func micro(t *metav1.MicroTime) int64 {
	if t == nil || t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

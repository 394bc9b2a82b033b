package agent

import (
	"maps"

	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/learning"
)

// onDesired tells the learner what changed of what is desired, and the networks
// whose bindings have been listed; open: everything was said once. The bindings
// themselves come by onStored, before their network is listed.
func (l *learner) onDesired(d desired.Delta, listed map[string]bool, open bool) {
	l.tell(func() {
		changed := map[string]bool{}
		for name, n := range d.Networks {
			changed[name] = true
			if n == nil {
				delete(l.networks, name)
				continue
			}
			l.networks[name] = *n
		}
		l.setNetworks(changed, listed)
		for key, e := range d.Endpoints {
			l.setEndpoint(key, e)
		}
		for name, n := range d.Nodes {
			if n == nil {
				delete(l.nodes, name)
			} else {
				l.nodes[name] = true
			}
			l.core.NodeAlive(name, n == nil || !n.Dead, l.now)
		}
		if len(d.Nodes) > 0 {
			l.core.SetNodes(len(l.nodes))
		}
		l.replay()
		l.gate.source = l.gate.source || open
		l.setGate()
	})
}

// setNetworks tells the core of the networks whose bindings are known. Without
// them it would create what others have.
func (l *learner) setNetworks(changed, listed map[string]bool) {
	for name := range maps.Clone(l.hosted) {
		if _, known := l.networks[name]; !known || !listed[name] {
			delete(l.hosted, name)
			l.core.NetworkGone(name, l.now)
		}
	}
	for name := range listed {
		n, known := l.networks[name]
		if known && (changed[name] || !l.hosted[name]) {
			l.hosted[name] = true
			l.core.SetNetwork(learningNetwork(&n), l.now)
		}
	}
}

func (l *learner) setEndpoint(key desired.EndpointKey, e *desired.Endpoint) {
	if e == nil || e.Node != l.node {
		if _, ok := l.endpoints[key]; ok {
			delete(l.endpoints, key)
			l.core.EndpointGone(learning.EndpointKey(key), l.now)
		}
		return
	}
	l.endpoints[key] = *e
	ep := learning.Endpoint{
		EndpointRef: learningRef(e.EndpointRef), Network: e.Network, MAC: e.MAC, Segment: e.Segment,
	}
	for _, a := range e.Addresses {
		ep.Addresses = append(ep.Addresses, packet.IPFromAddr(a))
	}
	l.core.SetEndpoint(ep, l.now)
}

func learningNetwork(n *desired.Network) learning.Network {
	out := learning.Network{
		Name: n.Name, Prefixes: n.Prefixes, LinkLocal: n.LinkLocal, GatewayMAC: n.Gateway.MAC,
		Learning: n.Learning.Enabled, MaxMACs: n.Learning.MACs, MaxAddresses: n.Learning.AddressesPerMAC,
	}
	for _, a := range n.Gateway.Addresses {
		out.Gateway = append(out.Gateway, packet.IPFromAddr(a))
	}
	return out
}

func learningRef(r desired.EndpointRef) learning.EndpointRef {
	return learning.EndpointRef{EndpointKey: learning.EndpointKey(r.EndpointKey), UID: r.UID}
}

// onPorts tells which ports there are. all: they are all there is.
func (l *learner) onPorts(ports map[table.PortID]learning.Port, all bool) {
	l.tell(func() {
		for id, p := range ports {
			if had, ok := l.ports[id]; !ok || had != p {
				l.ports[id] = p
				l.core.SetPort(p, l.now)
			}
		}
		// An endpoint's new port first: what was learned behind the old one stays.
		for id := range maps.Clone(l.ports) {
			if _, ok := ports[id]; !ok {
				delete(l.ports, id)
				delete(l.limited, id)
				l.core.PortGone(id, l.now)
			}
		}
		l.replay()
		l.gate.ports = l.gate.ports || all
		l.setGate()
	})
}

// onLimited tells how many frames the ports' observation limits held back.
func (l *learner) onLimited(counts map[table.PortID]uint64) {
	l.tell(func() {
		for id, n := range counts {
			p, ok := l.ports[id]
			if !ok || n <= l.limited[id] {
				continue
			}
			l.limited[id] = n
			l.core.ObservationsDropped(id, l.rate(p), l.now)
		}
	})
}

// rate is the observation limit of a port, a second.
func (l *learner) rate(p learning.Port) int {
	e := l.endpoints[desired.EndpointKey(p.Endpoint)]
	if n := l.networks[e.Network].Learning.ObservationsPerSecond; n > 0 {
		return n
	}
	return l.times.Observations
}

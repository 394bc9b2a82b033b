package agent

import (
	"maps"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/learning"
)

// The loop's part of learning: it alone talks to the workers.

// learned is a channel that gets a token when the learner wants something of the
// loop. Without a learner it never does.
func (a *Agent) learned() <-chan struct{} {
	if a.learner == nil {
		return nil
	}
	return a.learner.orders
}

// obeyLearner does what the learner asked for.
func (a *Agent) obeyLearner() {
	l := a.learner
	l.mu.Lock()
	asks, probes, counts := l.asks, l.probes, l.counts
	l.asks, l.probes, l.counts = nil, nil, false
	l.mu.Unlock()
	a.askWorkers(asks)
	for _, p := range probes {
		a.probe(p)
	}
	if counts {
		l.onLimited(a.engine.Limited())
	}
}

// askWorkers asks when claims were last seen.
func (a *Agent) askWorkers(asks []learning.Ask) {
	if len(asks) == 0 {
		return
	}
	l := a.learner
	questions := make([]fastpath.Sighting, len(asks))
	for i, q := range asks {
		questions[i] = fastpath.Sighting{Port: q.Port, MAC: q.MAC, IP: q.IP}
	}
	a.engine.LastSeen(questions)
	l.tell(func() {
		for i, q := range questions {
			l.core.LastSeen(asks[i].Key, q.At+l.skew, q.OK, l.now)
		}
	})
}

// probe asks a silent host whether it lives, out of its own port only. A frame
// the port cannot take is asked again later anyway.
func (a *Agent) probe(p learning.Probe) {
	for _, port := range a.ports.attached {
		if port.entry.ID != p.Port {
			continue
		}
		n := a.tables.state.Networks[a.tables.state.Endpoints[port.key].Network]
		from := arpnd.Prober{MAC: n.Gateway.MAC}
		if from.MAC.IsZero() {
			from.MAC = arpnd.ProbeMAC()
		}
		for _, g := range n.Gateway.Addresses {
			if g.Is4() == p.IP.Is4() {
				from.IP = packet.IPFromAddr(g)
				break
			}
		}
		from.Tags = p.Tags
		var frame [arpnd.ProbeLen + 2*packet.VLANLen]byte
		size := arpnd.BuildProbe(frame[:], from, p.IP, p.MAC)
		if err := a.engine.Send(p.Port.Index(), frame[:size]); err != nil {
			a.learner.log.Debug("probe not sent", "device", port.link.Name, "address", p.IP.String(), "error", err)
		}
		return
	}
}

// observePorts has the workers observe the ports of networks that learn, and
// tells the learner which ports there are. The loop calls it after an apply.
func (a *Agent) observePorts() {
	if a.learner == nil {
		return
	}
	now := map[table.PortID]learning.Port{}
	for device, p := range a.ports.attached {
		if p.entry.ID == 0 || !p.sockets {
			continue
		}
		now[p.entry.ID] = learning.Port{ID: p.entry.ID, Endpoint: learning.EndpointKey(p.key), Up: !p.entry.Down}
		if err := a.engine.Observe(p.entry.ID, a.suppression(p)); err != nil {
			a.learner.log.Error("port is not observed", "device", device, "error", err)
		}
	}
	if l := a.learner; !maps.Equal(now, l.told) || a.desiredIn && !l.toldAll {
		l.told, l.toldAll = now, a.desiredIn
		l.onPorts(now, a.desiredIn)
	}
}

// suppression is how a port's claims are told.
func (a *Agent) suppression(p *port) learning.SuppressorOptions {
	n := a.tables.state.Networks[a.tables.state.Endpoints[p.key].Network]
	t := &a.config.Learning
	o := learning.SuppressorOptions{ReReport: t.ReReport.Nanoseconds(), ShortSlot: t.ShortSlot.Nanoseconds(), Rate: t.Observations}
	if n.Learning.ObservationsPerSecond > 0 {
		o.Rate = n.Learning.ObservationsPerSecond
	}
	return o
}

package agent

import (
	"cmp"
	"slices"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/device"
	"picot.dev/picot/internal/status"
)

func traffic(c fastpath.Counters) status.Traffic {
	t := status.Traffic{
		RX: c.RX, RXBytes: c.RXBytes, TX: c.TX, TXBytes: c.TXBytes, TXBusy: c.TXBusy,
		Local: c.Verdicts[fastpath.Local], Remote: c.Verdicts[fastpath.Remote],
		Answered: c.Verdicts[fastpath.Answered], Dropped: c.Verdicts[fastpath.Dropped],
		ICMPErrors: c.Errors, Bogus: c.Bogus, Drops: map[string]uint64{},
	}
	for r, n := range c.Drops {
		if n > 0 {
			t.Drops[fastpath.DropReason(r).String()] = n
		}
	}
	return t
}

func addKernel(t *status.Traffic, p device.Program, sockets []fastpath.SocketInfo, mine func(fastpath.SocketInfo) bool) {
	if p != nil {
		if c, err := p.Counters(); err == nil {
			t.XDP = &status.XDP{Redirected: c.Redirected, DroppedEmpty: c.DroppedEmpty, Passed: c.Passed, Errors: c.Errors, Tags: c.VLANReinserted}
		}
	}
	for _, s := range sockets {
		if mine(s) {
			t.Socket.RXDropped += s.Stats.RXDropped
			t.Socket.RingFull += s.Stats.RXRingFull
			t.Socket.FillEmpty += s.Stats.RXFillEmpty
			t.Socket.RXInvalid += s.Stats.RXInvalid
			t.Socket.TXInvalid += s.Stats.TXInvalid
		}
	}
}

// status gathers everything. In the loop's goroutine only. Counting the frames
// stops the workers for a moment, so that is only done when asked for.
func (a *Agent) status(countFrames bool) status.Status {
	s := status.Status{
		Node: a.config.NodeName, Snapshot: a.published, Applies: a.applies, Repairs: a.ports.repairs + a.ups.repairs, Problems: slices.Clone(a.problems),
		FDBSize: len(a.tables.state.FDB), Neighbors: len(a.tables.state.Neighbors),
		Ports: []status.Port{}, Uplinks: []status.Uplink{}, Nodes: []status.Node{},
	}
	if n, ok := a.tables.state.Nodes[a.config.NodeName]; ok {
		s.Locator = n.Locator.String()
	}
	sockets, _ := a.engine.Sockets()
	perWorker := map[int]int{}
	for _, k := range sockets {
		perWorker[k.Worker]++
	}
	handed := a.engine.Handoffs()
	for i, n := range a.engine.Beats() {
		s.Workers = append(s.Workers, status.Worker{Worker: i, Rounds: n, Sockets: perWorker[i], HandedOver: handed[i]})
	}
	if countFrames {
		s.Frames = frames(a.engine.Audit())
	}
	a.portStatus(&s, sockets)
	a.uplinkStatus(&s, sockets)
	a.nodeStatus(&s)
	for _, err := range a.tables.failures {
		s.Problems = append(s.Problems, err.Error())
	}
	for _, text := range a.nodes.narrow {
		s.Problems = append(s.Problems, text)
	}
	s.Waiting = a.waiting()
	s.Ready = len(s.Waiting) == 0
	if a.kube != nil {
		s.API = a.kube.status()
	}
	a.gatewayStatus(&s)
	slices.Sort(s.Problems)
	return s
}

func frames(c fastpath.Census) status.Frames {
	return status.Frames{Total: c.Total(), Free: c.Free, Fill: c.Fill, Batch: c.Batch, TX: c.TX, Handoff: c.Handoff}
}

func (a *Agent) portStatus(s *status.Status, sockets []fastpath.SocketInfo) {
	for name, p := range a.ports.attached {
		index := p.entry.ID.Index()
		st := status.Port{
			Port: index, Device: name, Endpoint: p.key.String(), Network: a.tables.state.Endpoints[p.key].Network,
			MAC: p.entry.MAC.String(), Up: p.link.Up, MTU: p.link.MTU, Worker: p.entry.Worker,
		}
		if p.entry.ID != 0 {
			st.Traffic = traffic(a.engine.Counters(index))
			for _, k := range sockets {
				if k.Uplink < 0 && k.Port == index {
					st.Sockets = append(st.Sockets, socketStatus(k))
				}
			}
			addKernel(&st.Traffic, p.program, sockets, func(k fastpath.SocketInfo) bool { return k.Uplink < 0 && k.Port == index })
		}
		if p.program != nil {
			st.Mode = p.program.Mode().String()
		}
		if b := a.ports.retry[name]; b != nil {
			st.Error = b.err.Error()
		}
		s.Ports = append(s.Ports, st)
	}
	for device, endpoint := range a.ports.missing {
		err := a.ports.missingError(device).Error()
		s.Ports = append(s.Ports, status.Port{Device: device, Endpoint: endpoint.String(), Error: err})
		s.Problems = append(s.Problems, err)
	}
	slices.SortFunc(s.Ports, func(x, y status.Port) int {
		return cmp.Or(cmp.Compare(x.Port, y.Port), cmp.Compare(x.Device, y.Device))
	})
}

func (a *Agent) uplinkStatus(s *status.Status, sockets []fastpath.SocketInfo) {
	for _, u := range a.ups.all {
		l := a.ports.links[u.name]
		st := status.Uplink{Device: u.name, Up: l.Up, MTU: l.MTU, Traffic: traffic(a.engine.UplinkCounters(u.number))}
		addKernel(&st.Traffic, u.program, sockets, func(k fastpath.SocketInfo) bool { return k.Uplink == u.number })
		for _, k := range sockets {
			if k.Uplink == u.number {
				st.Queues++
				st.Sockets = append(st.Sockets, socketStatus(k))
			}
		}
		if u.program != nil {
			st.Mode = u.program.Mode().String()
		}
		if u.backoff.err != nil {
			st.Error = u.backoff.err.Error()
		}
		s.Uplinks = append(s.Uplinks, st)
	}
}

func (a *Agent) nodeStatus(s *status.Status) {
	for name, n := range a.tables.state.Nodes {
		if name == a.config.NodeName {
			continue
		}
		st := status.Node{Node: name, Locator: n.Locator.String(), Alive: !n.Dead, NextHops: []string{}, PathMTU: a.tables.hops[name].pathMTU}
		for _, h := range a.tables.hops[name].hops {
			_, dst := h.Encap.MACs()
			st.NextHops = append(st.NextHops, a.ups.all[h.Uplink].name+" "+dst.String())
		}
		if len(st.NextHops) == 0 {
			st.Error = a.nodes.said["node "+name]
		}
		s.Nodes = append(s.Nodes, st)
	}
	slices.SortFunc(s.Nodes, func(x, y status.Node) int { return cmp.Compare(x.Node, y.Node) })
}

func fdbStatus(s *table.Snapshot) []status.FDBEntry {
	out := []status.FDBEntry{}
	for place, t := range s.AllFDB() {
		st := status.FDBEntry{
			Network: s.Networks[place.Net].Name, MAC: place.MAC.String(), Kind: t.Kind().String(),
			Segment: uint32(t.Segment()), Static: t.Static(),
		}
		switch t.Kind() {
		case table.KindLocal:
			st.Where = s.Ports[t.Index()].Name
		case table.KindRemote:
			st.Where = s.Nodes[t.Index()].Name
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b status.FDBEntry) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), cmp.Compare(a.MAC, b.MAC))
	})
	return out
}

func neighborStatus(s *table.Snapshot) []status.Neighbor {
	out := []status.Neighbor{}
	for place, n := range s.AllNeighbors() {
		out = append(out, status.Neighbor{
			Network: s.Networks[place.Net].Name, IP: place.IP.String(), MAC: n.MAC().String(),
			Router: n.Router(), Static: n.Static(), Gateway: n.Gateway(),
		})
	}
	slices.SortFunc(out, func(a, b status.Neighbor) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), cmp.Compare(a.IP, b.IP))
	})
	return out
}

func socketStatus(k fastpath.SocketInfo) status.Socket {
	return status.Socket{
		Queue: k.Queue, Worker: k.Worker, State: k.State.String(), ZeroCopy: k.ZeroCopy,
		Received: k.Received, Sent: k.Sent, Filled: k.Filled, Outstanding: k.Outstanding,
	}
}

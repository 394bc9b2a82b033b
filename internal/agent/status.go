package agent

import (
	"cmp"
	"slices"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/xsk/xdp"
)

// Status is what "picot show" and the health endpoints print. Its JSON form is
// stable: fields are only added.
type Status struct {
	Node      string         `json:"node"`
	Locator   string         `json:"locator,omitempty"`
	Ready     bool           `json:"ready"`
	Waiting   []string       `json:"waiting,omitempty"` // what keeps it from being ready
	Problems  []string       `json:"problems,omitempty"`
	Snapshot  uint64         `json:"snapshot"`
	Applies   uint64         `json:"applies"`
	Ports     []PortStatus   `json:"ports"`
	Uplinks   []UplinkStatus `json:"uplinks"`
	Nodes     []NodeStatus   `json:"nodes"`
	Workers   []WorkerStatus `json:"workers"`
	Frames    FrameStatus    `json:"frames"`
	FDBSize   int            `json:"fdbSize"`
	Neighbors int            `json:"neighbors"`
}

// Traffic is the counters of a port.
type Traffic struct {
	RX         uint64            `json:"rx"`
	RXBytes    uint64            `json:"rxBytes"`
	TX         uint64            `json:"tx"`
	TXBytes    uint64            `json:"txBytes"`
	TXBusy     uint64            `json:"txBusy"`
	Local      uint64            `json:"local"`
	Remote     uint64            `json:"remote"`
	Answered   uint64            `json:"answered"`
	Dropped    uint64            `json:"dropped"`
	ICMPErrors uint64            `json:"icmpErrors"`
	Bogus      uint64            `json:"bogus"`
	Drops      map[string]uint64 `json:"drops,omitempty"` // by reason
	XDP        *XDPTraffic       `json:"xdp,omitempty"`
	Socket     SocketTraffic     `json:"socket"`
}

// XDPTraffic is what the XDP program counted.
type XDPTraffic struct {
	Redirected   uint64 `json:"redirected"`
	DroppedEmpty uint64 `json:"droppedEmpty"`
	Passed       uint64 `json:"passed"`
	Errors       uint64 `json:"errors"`
	Tags         uint64 `json:"tagsReinserted"`
}

// SocketTraffic is what the kernel counted at the sockets (XDP_STATISTICS).
type SocketTraffic struct {
	RXDropped uint64 `json:"rxDropped"`
	RingFull  uint64 `json:"ringFull"`
	FillEmpty uint64 `json:"fillEmpty"`
	RXInvalid uint64 `json:"rxInvalid"`
	TXInvalid uint64 `json:"txInvalid"`
}

// PortStatus is one workload port.
type PortStatus struct {
	Port     int    `json:"port"`
	Device   string `json:"device"`
	Endpoint string `json:"endpoint"`
	Network  string `json:"network"`
	MAC      string `json:"mac"`
	Up       bool   `json:"up"`
	MTU      int    `json:"mtu"`
	Worker   int    `json:"worker"`
	Mode     string `json:"mode"`
	Error    string `json:"error,omitempty"`
	Traffic  `json:"traffic"`
}

// UplinkStatus is one uplink.
type UplinkStatus struct {
	Device  string `json:"device"`
	Up      bool   `json:"up"`
	MTU     int    `json:"mtu"`
	Queues  int    `json:"queues"`
	Mode    string `json:"mode,omitempty"`
	Error   string `json:"error,omitempty"`
	Traffic `json:"traffic"`
	// PerQueue is frames sent and received by each queue's socket.
	Sockets []fastpath.SocketInfo `json:"sockets,omitempty"`
}

// NodeStatus is another node.
type NodeStatus struct {
	Node     string   `json:"node"`
	Locator  string   `json:"locator"`
	Alive    bool     `json:"alive"`
	NextHops []string `json:"nextHops"` // device and MAC
	PathMTU  int      `json:"pathMTU,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// WorkerStatus is one worker.
type WorkerStatus struct {
	Worker  int    `json:"worker"`
	Rounds  uint64 `json:"rounds"`
	Sockets int    `json:"sockets"`
}

// FrameStatus is where the pool's frames are.
type FrameStatus struct {
	Total, Free, Fill, Batch, TX, Handoff int
}

func traffic(c fastpath.Counters) Traffic {
	t := Traffic{
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

func (t *Traffic) addKernel(p *xdp.Program, sockets []fastpath.SocketInfo, mine func(fastpath.SocketInfo) bool) {
	if p != nil {
		if c, err := p.Counters(); err == nil {
			t.XDP = &XDPTraffic{c.Redirected, c.DroppedEmpty, c.Passed, c.Errors, c.VLANReinserted}
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

// status gathers everything. In the loop's goroutine only.
func (a *Agent) status() Status {
	s := Status{
		Node: a.config.NodeName, Snapshot: a.published, Applies: a.applies, Problems: slices.Clone(a.problems),
		FDBSize: len(a.tables.state.FDB), Neighbors: len(a.tables.state.Neighbors),
		Ports: []PortStatus{}, Uplinks: []UplinkStatus{}, Nodes: []NodeStatus{},
	}
	if n, ok := a.tables.state.Nodes[a.config.NodeName]; ok {
		s.Locator = n.Locator.String()
	}
	sockets, _ := a.engine.Sockets()
	perWorker := map[int]int{}
	for _, k := range sockets {
		perWorker[k.Worker]++
	}
	for i, n := range a.engine.Beats() {
		s.Workers = append(s.Workers, WorkerStatus{Worker: i, Rounds: n, Sockets: perWorker[i]})
	}
	c := a.engine.Audit()
	s.Frames = FrameStatus{c.Total(), c.Free, c.Fill, c.Batch, c.TX, c.Handoff}
	a.portStatus(&s, sockets)
	a.uplinkStatus(&s, sockets)
	a.nodeStatus(&s)
	for _, err := range a.tables.failures {
		s.Problems = append(s.Problems, err.Error())
	}
	slices.Sort(s.Problems)
	s.Waiting = a.waiting()
	s.Ready = len(s.Waiting) == 0
	return s
}

func (a *Agent) portStatus(s *Status, sockets []fastpath.SocketInfo) {
	for name, p := range a.ports.attached {
		index := p.entry.ID.Index()
		st := PortStatus{
			Port: index, Device: name, Endpoint: p.key.String(), Network: a.tables.state.Endpoints[p.key].Network,
			MAC: p.entry.MAC.String(), Up: p.link.Up, MTU: p.link.MTU, Worker: p.entry.Worker,
		}
		if p.entry.ID != 0 {
			st.Traffic = traffic(a.engine.Counters(index))
			st.addKernel(p.program, sockets, func(k fastpath.SocketInfo) bool { return k.Uplink < 0 && k.Port == index })
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
		s.Ports = append(s.Ports, PortStatus{Device: device, Endpoint: endpoint, Error: "no such device: waiting for it"})
	}
	slices.SortFunc(s.Ports, func(x, y PortStatus) int {
		return cmp.Or(cmp.Compare(x.Port, y.Port), cmp.Compare(x.Device, y.Device))
	})
}

func (a *Agent) uplinkStatus(s *Status, sockets []fastpath.SocketInfo) {
	for _, u := range a.ups.all {
		l := a.ports.links[u.name]
		st := UplinkStatus{Device: u.name, Up: l.Up, MTU: l.MTU, Traffic: traffic(a.engine.UplinkCounters(u.number))}
		st.addKernel(u.program, sockets, func(k fastpath.SocketInfo) bool { return k.Uplink == u.number })
		for _, k := range sockets {
			if k.Uplink == u.number {
				st.Queues++
				st.Sockets = append(st.Sockets, k)
			}
		}
		if u.program != nil {
			st.Mode = u.program.Mode().String()
		} else if u.backoff.err != nil {
			st.Error = u.backoff.err.Error()
		}
		s.Uplinks = append(s.Uplinks, st)
	}
}

func (a *Agent) nodeStatus(s *Status) {
	for name, n := range a.tables.state.Nodes {
		if name == a.config.NodeName {
			continue
		}
		st := NodeStatus{Node: name, Locator: n.Locator.String(), Alive: !n.Dead, NextHops: []string{}, PathMTU: a.tables.hops[name].pathMTU}
		for _, h := range a.tables.hops[name].hops {
			_, dst := h.Encap.MACs()
			st.NextHops = append(st.NextHops, a.ups.all[h.Uplink].name+" "+dst.String())
		}
		if len(st.NextHops) == 0 {
			st.Error = a.nodes.said["node "+name]
		}
		s.Nodes = append(s.Nodes, st)
	}
	slices.SortFunc(s.Nodes, func(x, y NodeStatus) int { return cmp.Compare(x.Node, y.Node) })
}

// waiting names what keeps the agent from being ready.
func (a *Agent) waiting() []string {
	var w []string
	if !a.linksIn {
		w = append(w, "kernel links: not listed yet")
	}
	if !a.desiredIn {
		w = append(w, "manifests: not read yet")
	}
	for _, u := range a.ups.all {
		if u.program == nil && u.backoff.err != nil {
			w = append(w, "uplink "+u.name+": "+u.backoff.err.Error())
		}
	}
	for name, b := range a.ports.retry {
		w = append(w, "port "+name+": "+b.err.Error())
	}
	slices.Sort(w)
	return w
}

// FDBStatus is one FDB entry as the data path has it.
type FDBStatus struct {
	Network string `json:"network"`
	MAC     string `json:"mac"`
	Kind    string `json:"kind"`
	Where   string `json:"where"` // port's device or node
	Segment uint32 `json:"segment"`
	Static  bool   `json:"static"`
}

// NeighborStatus is one neighbour as the data path has it.
type NeighborStatus struct {
	Network string `json:"network"`
	IP      string `json:"ip"`
	MAC     string `json:"mac"`
	Router  bool   `json:"router"`
	Static  bool   `json:"static"`
	Gateway bool   `json:"gateway"`
}

func fdbStatus(s *table.Snapshot) []FDBStatus {
	out := []FDBStatus{}
	for place, t := range s.AllFDB() {
		st := FDBStatus{
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
	slices.SortFunc(out, func(a, b FDBStatus) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), cmp.Compare(a.MAC, b.MAC))
	})
	return out
}

func neighborStatus(s *table.Snapshot) []NeighborStatus {
	out := []NeighborStatus{}
	for place, n := range s.AllNeighbors() {
		out = append(out, NeighborStatus{
			Network: s.Networks[place.Net].Name, IP: place.IP.String(), MAC: n.MAC().String(),
			Router: n.Router(), Static: n.Static(), Gateway: n.Gateway(),
		})
	}
	slices.SortFunc(out, func(a, b NeighborStatus) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), cmp.Compare(a.IP, b.IP))
	})
	return out
}

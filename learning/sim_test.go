package learning

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// sim is a cluster: nodes with a Core and Suppressors each, an API server that
// holds preconditions, a watch per node, and hosts that answer probes. It checks
// the rules that hold for every write, whatever the scenario.
type sim struct {
	t     testing.TB
	mono  int64
	nodes []*simNode
	store map[Key]Binding
	rv    int
	opt   Options

	hosts   map[host]bool
	events  map[EventKind]int
	ops     [numOps]int
	told    []Event
	fail    func(*simNode, Write) Outcome // Stored: no failure
	verbose bool
	unknown bool         // conflicts do not say what there is
	jitter  func() int64 // nil, or what a write's answer and each kind's news take longer
	dead    map[string]bool
	skewed  bool // the clocks differ, frozenUntil means little
}

// host is a station that answers probes at a port.
type host struct {
	node, ep string
	mac      packet.MAC
	ip       packet.IP
}

type simNode struct {
	name    string
	index   int
	core    *Core
	skew    int64 // us
	queue   []simEvent
	delay   int64
	cut     bool
	ports   map[string]table.PortID
	supp    map[table.PortID]*Suppressor
	version uint64
	nextID  int
	nets    []Network
	eps     map[string]Endpoint
	up      map[string]bool
	latest  [2]int64 // of the news of FDB entries and Neighbors, which come in order each
	held    []Write  // not answered yet
	lag     int64    // until the API answers a write
	sent    []int64
}

type simEvent struct {
	at   int64
	key  Key
	b    Binding
	gone bool
}

const simWall = 1_700_000_000_000_000

func newSim(t testing.TB, o Options, names ...string) *sim {
	s := &sim{t: t, mono: 1000 * second, store: map[Key]Binding{}, opt: o, hosts: map[host]bool{}, dead: map[string]bool{}, events: map[EventKind]int{}}
	for i, name := range names {
		n := &simNode{name: name, index: i}
		s.nodes = append(s.nodes, n)
		s.start(n)
	}
	for _, n := range s.nodes {
		n.core.SetNodes(len(s.nodes))
	}
	return s
}

// start makes a fresh process on a node: no memory but the cluster's.
func (s *sim) start(n *simNode) {
	core, err := NewCore(n.name, s.opt)
	if err != nil {
		s.t.Fatal(err)
	}
	n.core, n.queue, n.held, n.sent = core, nil, nil, nil
	n.ports, n.supp = map[string]table.PortID{}, map[table.PortID]*Suppressor{}
	core.SetNodes(len(s.nodes))
	for name := range s.dead {
		core.NodeAlive(name, false, s.now(n))
	}
	for _, net := range n.nets {
		core.SetNetwork(net, s.now(n))
	}
	if n.eps == nil {
		n.eps, n.up = map[string]Endpoint{}, map[string]bool{}
	}
	for _, name := range sortedNames(n.eps) {
		core.SetEndpoint(n.eps[name], s.now(n))
		if n.up[name] {
			s.setPort(n, name, true)
		}
	}
	for _, k := range sortedKeys(s.store) {
		core.Set(k, s.store[k], s.now(n))
	}
	core.Gate(true, s.now(n))
	s.pump()
}

// setAlive is the cluster's judgement of a node, which may be wrong.
func (s *sim) setAlive(name string, alive bool) {
	if alive {
		delete(s.dead, name)
	} else {
		s.dead[name] = true
	}
	for _, n := range s.nodes {
		n.core.NodeAlive(name, alive, s.now(n))
	}
	s.pump()
}

func (s *sim) now(n *simNode) Now {
	return Now{Mono: s.mono, Wall: simWall + s.mono/1000 + n.skew}
}

func (s *sim) node(name string) *simNode {
	for _, n := range s.nodes {
		if n.name == name {
			return n
		}
	}
	s.t.Fatalf("no node %q", name)
	return nil
}

func (s *sim) setNetwork(n Network) {
	for _, node := range s.nodes {
		node.nets = append(node.nets, n)
		node.core.SetNetwork(n, s.now(node))
	}
	s.pump()
}

func (s *sim) setEndpoint(n *simNode, ep Endpoint) {
	if ep.UID == "" {
		s.rv++
		ep.UID = "ep" + strconv.Itoa(s.rv)
	}
	n.eps[ep.Name] = ep
	n.core.SetEndpoint(ep, s.now(n))
	s.pump()
}

func (s *sim) endpointGone(n *simNode, name string) {
	k := n.eps[name].EndpointKey
	delete(n.eps, name)
	n.core.EndpointGone(k, s.now(n))
	s.pump()
}

func (s *sim) setPort(n *simNode, ep string, up bool) {
	id, ok := n.ports[ep]
	if !ok {
		n.nextID++
		id = table.NewPortID(n.nextID, uint16(n.index))
		n.ports[ep] = id
		supp, err := NewSuppressor(SuppressorOptions{ReReport: s.opt.WithDefaults().ReReport.Nanoseconds()})
		if err != nil {
			s.t.Fatal(err)
		}
		n.supp[id] = supp
	}
	n.up[ep] = up
	n.core.SetPort(Port{ID: id, Endpoint: EndpointKey{"default", ep}, Up: up}, s.now(n))
	s.pump()
}

func (s *sim) portGone(n *simNode, ep string) {
	id := n.ports[ep]
	delete(n.ports, ep)
	delete(n.up, ep)
	n.core.PortGone(id, s.now(n))
	s.pump()
}

// observe is an observation, past suppression.
func (s *sim) observe(n *simNode, ep string, mac packet.MAC, ip packet.IP, class arpnd.Class, flags Flags) {
	n.core.Observe(Observation{Port: n.ports[ep], MAC: mac, IP: ip, Class: class, Flags: flags, Time: s.mono}, s.now(n))
	s.pump()
}

// frame is what a worker does with one.
func (s *sim) frame(n *simNode, ep string, mac packet.MAC, ip packet.IP, class arpnd.Class, flags Flags) {
	id, ok := n.ports[ep]
	if !ok {
		return
	}
	net := n.core.networks[n.eps[ep].Network]
	if net == nil || !net.contains(ip) {
		ip = packet.IP{}
	}
	supp := n.supp[id]
	if supp.Quiet(mac.Uint64(), ip, class, flags, n.version, s.mono) {
		return
	}
	due := supp.Due(n.here(ep, mac, ip), n.version, s.mono)
	s.logf("%s %s sees %s %s: due %v under snapshot %d", n.name, ep, mac, ip, due, n.version)
	if due {
		supp.Arm(s.mono)
		s.observe(n, ep, mac, ip, class, flags)
	}
}

// here is what the node's snapshot would say.
func (n *simNode) here(ep string, mac packet.MAC, ip packet.IP) bool {
	network := n.eps[ep].Network
	f, ok := n.core.Holds(FDB(network, mac))
	nb, bound := n.core.Holds(Neighbor(network, ip))
	return ok && f.Node == n.name && f.Endpoint.Name == ep && (ip == packet.IP{} || bound && nb.MAC == mac)
}

// advance lets time pass, in steps, each node ticking when it asked for it.
func (s *sim) advance(d time.Duration) {
	for end := s.mono + d.Nanoseconds(); ; {
		next := end
		for _, n := range s.nodes {
			if at := n.core.Next(); at != 0 && at < next {
				next = at
			}
			if len(n.queue) > 0 && !n.cut {
				next = min(next, n.queue[0].at)
			}
			for _, at := range n.sent {
				next = min(next, at)
			}
		}
		s.mono = max(next, s.mono)
		for _, n := range s.nodes {
			if at := n.core.Next(); at != 0 && at <= s.mono {
				n.core.Tick(s.now(n))
				if again := n.core.Next(); again != 0 && again <= s.mono && len(n.core.refresh) == 0 {
					s.t.Fatalf("node %s asks for %d at %d, just after its tick: it would spin", n.name, again, s.mono)
				}
			}
		}
		s.pump()
		if s.mono >= end {
			return
		}
	}
}

// pump carries out intents and delivers watch events until nothing is left to do
// at this time.
func (s *sim) pump() {
	rounds := 0
	for again := true; again; {
		again = false
		if rounds++; rounds > 10_000 {
			s.t.Fatalf("the nodes do not come to rest: %v writes, %v events", s.ops, s.events)
		}
		for _, n := range s.nodes {
			again = s.carryOut(n) || again
			again = s.answer(n) || again
			for len(n.queue) > 0 && n.queue[0].at <= s.mono && !n.cut {
				e := n.queue[0]
				n.queue = n.queue[1:]
				n.version++
				if e.gone {
					n.core.Gone(e.key, e.b.Version.UID, s.now(n))
				} else {
					n.core.Set(e.key, e.b, s.now(n))
				}
				s.carryOut(n)
				s.answer(n)
				again = true
			}
		}
	}
}

func (s *sim) carryOut(n *simNode) bool {
	out := n.core.Take()
	if *n.core.idle != (part{}) {
		s.t.Fatalf("%s writes to the part of entries it has nothing to do with: %+v", n.name, *n.core.idle)
	}
	for _, e := range out.Events {
		s.events[e.Kind]++
		s.told = append(s.told, e)
	}
	for _, w := range out.Writes {
		s.logf("%s writes %s %v %s/%s from %v", n.name, w.Op, w.Key, w.New.Node, w.New.Endpoint.Name, w.From)
		s.ops[w.Op]++
		at := s.mono + n.lag
		if s.jitter != nil {
			at += s.jitter()
		}
		i := len(n.sent)
		for i > 0 && n.sent[i-1] > at {
			i--
		}
		n.held, n.sent = slices.Insert(n.held, i, w), slices.Insert(n.sent, i, at)
	}
	for _, a := range out.Asks {
		at, ok := n.supp[a.Port].LastSeen(a.MAC.Uint64(), a.IP)
		n.core.LastSeen(a.Key, at, ok, s.now(n))
	}
	for _, p := range out.Probes {
		s.logf("%s probes %v", n.name, p)
		for h := range s.hosts {
			if h.node == n.name && n.ports[h.ep] == p.Port && h.mac == p.MAC && h.ip == p.IP {
				class := arpnd.Weak // Linux: a unicast NS is answered with O=0
				if p.IP.Is4() {
					class = arpnd.Strong
				}
				s.frame(n, h.ep, h.mac, h.ip, class, Announce)
			}
		}
	}
	return len(out.Writes)+len(out.Asks)+len(out.Probes) > 0
}

// answer lets the API server work off what n sent.
func (s *sim) answer(n *simNode) bool {
	did := false
	for len(n.held) > 0 && n.sent[0] <= s.mono {
		w := n.held[0]
		n.held, n.sent = n.held[1:], n.sent[1:]
		r := Result{Outcome: Failed}
		if !n.cut {
			r = s.serve(n, w)
		}
		s.logf("%s %v: outcome %d", n.name, w.Key, r.Outcome)
		n.core.Done(w.Key, w.Seq, r, s.now(n))
		did = true
	}
	return did
}

// serve is the API server.
func (s *sim) serve(n *simNode, w Write) Result {
	outcome := Stored
	if s.fail != nil {
		if outcome = s.fail(n, w); outcome == Conflict {
			return Result{Outcome: Conflict}
		}
	}
	have, ok := s.store[w.Key]
	if ok != (w.Op != OpCreate) || ok && have.Version != w.From {
		r := Result{Outcome: Conflict, Known: !s.unknown}
		if ok {
			r.Current = &have
		}
		return r
	}
	s.admit(n, w, have, ok)
	s.rv++
	rv := strconv.Itoa(s.rv)
	if w.Op == OpDelete {
		delete(s.store, w.Key)
		s.notify(simEvent{key: w.Key, b: have, gone: true})
		return Result{Outcome: outcome}
	}
	b := w.New
	b.Version = Version{UID: have.Version.UID, ResourceVersion: rv}
	if !ok {
		b.Version.UID = "u" + rv
	}
	s.store[w.Key] = b
	s.notify(simEvent{key: w.Key, b: b})
	return Result{Outcome: outcome, Version: b.Version}
}

// admit holds what is true of every write.
func (s *sim) admit(n *simNode, w Write, have Binding, ok bool) {
	bad := func(format string, args ...any) {
		s.t.Helper()
		s.t.Fatalf("%s at %v: %s %v over %+v: %s", n.name, time.Duration(s.mono), w.Op, w.Key, have, fmt.Sprintf(format, args...))
	}
	if w.Op != OpDelete && w.New.Node != n.name {
		bad("writes for %q", w.New.Node)
	}
	switch w.Op {
	case OpDelete, OpRefresh, OpUpdate, OpRelease:
		if have.Node != n.name {
			bad("touches another node's binding")
		}
	}
	if w.Op == OpRefresh {
		same := have
		same.LastObserved = w.New.LastObserved
		same.Version = Version{}
		if same != w.New {
			bad("a refresh changes more than lastObserved: %+v", w.New)
		}
		if w.New.LastObserved <= have.LastObserved && !s.skewed {
			bad("a refresh says nothing new")
		}
	}
	if ok && have.Static {
		_, known := n.eps[have.Endpoint.Name]
		switch {
		case w.Op != OpDelete && !w.New.Static:
			bad("a static binding becomes learned")
		case w.Op == OpDelete && known && contains(staticKeys(ptr(n.eps[have.Endpoint.Name])), w.Key):
			bad("deletes what its endpoint claims")
		case w.Op != OpDelete && w.New.Endpoint.EndpointKey != have.Endpoint.EndpointKey && have.Node != n.name:
			bad("takes another's static binding")
		}
	}
	if frozen := have.FrozenUntil > simWall+s.mono/1000; w.Op == OpTakeOver && frozen && !s.skewed && (have.Node == n.name || !s.dead[have.Node]) {
		bad("moves while frozen")
	}
}

func (s *sim) logf(format string, args ...any) {
	if s.verbose {
		s.t.Logf("%v "+format, append([]any{time.Duration(s.mono)}, args...)...)
	}
}

func ptr[T any](v T) *T { return &v }

func (s *sim) notify(e simEvent) {
	for _, n := range s.nodes {
		e.at = s.mono + n.delay
		kind := 0
		if e.key.IsNeighbor() {
			kind = 1
		}
		if s.jitter != nil {
			e.at += s.jitter()
		}
		e.at = max(e.at, n.latest[kind])
		n.latest[kind] = e.at
		i := len(n.queue)
		for s.jitter != nil && i > 0 && n.queue[i-1].at > e.at {
			i--
		}
		n.queue = slices.Insert(n.queue, i, e)
	}
}

// put is what somebody else writes, and remove what he deletes.
func (s *sim) put(k Key, b Binding) {
	s.rv++
	uid := "x" + strconv.Itoa(s.rv)
	if old, ok := s.store[k]; ok {
		uid = old.Version.UID
	}
	b.Version = Version{UID: uid, ResourceVersion: strconv.Itoa(s.rv)}
	s.store[k] = b
	s.notify(simEvent{key: k, b: b})
	s.pump()
}

func (s *sim) remove(k Key) {
	b, ok := s.store[k]
	if !ok {
		return
	}
	s.rv++
	delete(s.store, k)
	s.notify(simEvent{key: k, b: b, gone: true})
	s.pump()
}

func sortedKeys(m map[Key]Binding) []Key {
	var all []*entry
	for k := range m {
		all = append(all, &entry{key: k})
	}
	sortEntries(all)
	keys := make([]Key, len(all))
	for i, e := range all {
		keys[i] = e.key
	}
	return keys
}

func mustMAC(t testing.TB, s string) packet.MAC {
	t.Helper()
	m, err := packet.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustIP(t testing.TB, s string) packet.IP {
	t.Helper()
	a, err := netip.ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return packet.IPFromAddr(a)
}

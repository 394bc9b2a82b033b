package learning

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/internal/packet"
)

// The model is the contract, read slowly: one truth for the whole cluster, no
// messages, no caches, every rule a loop over everything. It is written from the
// rules and shares no code with the Core.

type truth struct {
	static      bool
	node, ep    string
	mac         packet.MAC
	segment     uint32
	router      Router
	seen        int64 // s
	moves       int
	movesSince  int64
	frozenUntil int64
	since       int64 // when the node and MAC came to be these
}

type modelEndpoint struct {
	node, name string
	mac        packet.MAC
	ips        []packet.IP
	segment    uint32
	up         bool
}

type model struct {
	now       int64 // s
	learning  bool
	maxMACs   int
	maxIPs    int
	nodes     []string
	endpoints []*modelEndpoint // in the order they came
	truth     map[Key]*truth
	restarted map[string]int64 // when a node began to know anything
	dead      map[string]bool  // nodes that others think are not alive
}

// frozen: it stays where it is, unless that is a node others think is dead.
func (m *model) frozen(t *truth, node string) bool {
	return m.now < t.frozenUntil && (t.node == node || !m.dead[t.node])
}

const modelNet = "red"

var modelPrefixes = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00:10::/64")}

func (m *model) endpoint(node, name string) *modelEndpoint {
	for _, e := range m.endpoints {
		if e.node == node && e.name == name {
			return e
		}
	}
	return nil
}

// belongs: the address is in a prefix, or link-local.
func belongs(ip packet.IP) bool {
	a := ip.Addr()
	for _, p := range modelPrefixes {
		if p.Contains(a) {
			return true
		}
	}
	return a.Is6() && a.IsLinkLocalUnicast()
}

func (m *model) observe(node, name string, mac packet.MAC, ip packet.IP, strong bool, router Router) {
	ep := m.endpoint(node, name)
	if ep == nil || !ep.up || !m.learning {
		return
	}
	at := func(t *truth) bool { return t.node == node && t.ep == name }
	f := m.truth[FDB(modelNet, mac)]
	switch {
	case f != nil && f.static:
		if !at(f) {
			return // a static entry is never touched, nor the station believed
		}
	case f != nil && at(f):
		f.seen = m.now
	default:
		if f != nil && (!strong || m.frozen(f, node)) {
			return // weak never moves; frozen stays
		}
		learned := 0
		for k, t := range m.truth {
			if !k.IsNeighbor() && !t.static && at(t) {
				learned++
			}
		}
		if learned >= m.maxMACs {
			return
		}
		m.give(FDB(modelNet, mac), node, name, packet.MAC{}, RouterUnknown)
		m.truth[FDB(modelNet, mac)].segment = ep.segment
		if strong {
			for k, t := range m.truth { // addresses come along
				if k.IsNeighbor() && !t.static && t.mac == mac && !at(t) && !m.frozen(t, node) {
					m.give(k, node, name, mac, t.router)
				}
			}
		}
	}
	if ip == (packet.IP{}) || !belongs(ip) {
		return
	}
	k := Neighbor(modelNet, ip)
	n := m.truth[k]
	switch {
	case n != nil && n.static:
		return
	case n != nil && at(n) && n.mac == mac:
		n.seen = m.now
		if router != RouterUnknown {
			n.router = router
		}
		return
	case !strong, n != nil && m.frozen(n, node):
		return
	}
	if f := m.truth[FDB(modelNet, mac)]; f.static && ip == packet.IPFromAddr(slowEUI64(mac)) {
		return // derived everywhere
	}
	learned := 0
	for k, t := range m.truth {
		if k.IsNeighbor() && !t.static && at(t) && t.mac == mac {
			learned++
		}
	}
	if learned >= m.maxIPs {
		return
	}
	if router == RouterUnknown && n != nil && n.mac == mac {
		router = n.router
	}
	m.give(k, node, name, mac, router)
}

// give creates or moves a learned binding.
func (m *model) give(k Key, node, ep string, mac packet.MAC, router Router) {
	t := &truth{node: node, ep: ep, mac: mac, router: router, seen: m.now}
	if old := m.truth[k]; old != nil {
		t.moves, t.movesSince = 1, m.now
		if old.moves > 0 && old.frozenUntil == 0 && m.now-old.movesSince <= 180 {
			t.moves, t.movesSince = old.moves+1, old.movesSince
		}
		if t.moves > 5 {
			t.frozenUntil = m.now + 540
		}
	}
	t.since = m.now
	if old := m.truth[k]; old != nil && old.node == node && old.mac == mac {
		t.since = old.since
	}
	m.truth[k] = t
}

// adopt brings addresses to where their MAC has been for a re-report.
func (m *model) adopt() {
	for k, t := range m.truth {
		f := m.truth[FDB(modelNet, t.mac)]
		if !k.IsNeighbor() || t.static || f == nil || f.static || f.node == t.node || m.frozen(t, f.node) || m.now < max(t.since, f.since, m.restarted[f.node])+30 {
			continue
		}
		seen := max(f.seen, m.restarted[f.node])
		m.give(k, f.node, f.ep, t.mac, t.router)
		m.truth[k].seen = seen
	}
}

func slowEUI64(mac packet.MAC) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("fe80::%02x%02x:%02xff:fe%02x:%02x%02x", mac[0]^2, mac[1], mac[2], mac[3], mac[4], mac[5]))
}

// second lets one pass.
func (m *model) second() {
	m.now++
	for k, t := range m.truth {
		if t.static {
			continue
		}
		if t.frozenUntil != 0 && m.now >= t.frozenUntil {
			t.frozenUntil, t.moves, t.movesSince = 0, 0, 0
		}
		if k.IsNeighbor() && k.IP.Addr().IsLinkLocalUnicast() && k.IP.Addr().Is6() {
			if f := m.truth[FDB(modelNet, t.mac)]; f != nil && f.static && f.node == t.node && f.ep == t.ep {
				continue // written once, lives with its port
			}
		}
		if m.now-t.seen >= 300 {
			delete(m.truth, k)
		}
	}
	m.adopt()
}

func (m *model) flush(node, ep string) {
	for k, t := range m.truth {
		if !t.static && t.node == node && t.ep == ep {
			delete(m.truth, k)
		}
	}
}

func (m *model) claims(e *modelEndpoint) []Key {
	if e.mac.IsZero() {
		return nil
	}
	keys := []Key{FDB(modelNet, e.mac)}
	for _, ip := range e.ips {
		keys = append(keys, Neighbor(modelNet, ip))
	}
	return keys
}

func (m *model) add(e *modelEndpoint) {
	m.endpoints = append(m.endpoints, e)
	for _, k := range m.claims(e) {
		m.claim(e, k)
	}
}

func (m *model) claim(e *modelEndpoint, k Key) {
	if t := m.truth[k]; t != nil && t.static {
		return // the holder stays
	}
	t := &truth{static: true, node: e.node, ep: e.name}
	if k.IsNeighbor() {
		t.mac = e.mac
		if old := m.truth[k]; old != nil {
			t.router = old.router
		}
	} else {
		t.segment = e.segment
	}
	m.truth[k] = t
}

func (m *model) remove(e *modelEndpoint) {
	m.flush(e.node, e.name)
	m.endpoints = slices.DeleteFunc(m.endpoints, func(o *modelEndpoint) bool { return o == e })
	for _, k := range m.claims(e) {
		if t := m.truth[k]; t.static && t.node == e.node && t.ep == e.name {
			m.free(k, e.node)
		}
	}
}

// free deletes a static binding; who was refused is tried again, first on the
// node that freed it, then on those behind it, as the sim's news goes round.
func (m *model) free(k Key, first string) {
	delete(m.truth, k)
	at := slices.Index(m.nodes, first)
	for _, node := range slices.Concat(m.nodes[at:], m.nodes[:at]) {
		for _, e := range m.endpoints {
			if e.node == node && slices.Contains(m.claims(e), k) {
				m.claim(e, k)
				return
			}
		}
	}
}

// walk drives a sim and the model with the same random events.
type walk struct {
	t    *testing.T
	rnd  *rand.Rand
	sim  *sim
	m    *model
	macs []packet.MAC
	ips  []packet.IP
	log  []string
	op   map[Key]bool // the operator's
}

func newWalk(t *testing.T, seed uint64) *walk {
	w := &walk{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), op: map[Key]bool{}}
	names := []string{"A", "B", "C"}
	w.sim = newSim(t, Options{}, names...)
	w.m = &model{now: w.sim.mono / second, learning: true, maxMACs: 2, maxIPs: 2, nodes: names, truth: map[Key]*truth{}, restarted: map[string]int64{}, dead: map[string]bool{}}
	w.sim.setNetwork(w.network())
	for i := range 4 {
		mac := packet.MAC{2, 0, 0, 0, 0, byte(i + 1)}
		w.macs = append(w.macs, mac)
		w.ips = append(w.ips, packet.IPFrom4(10<<24|uint32(i+1)))
	}
	w.ips = append(w.ips, packet.IP{}, mustIP(t, "192.0.2.1"), mustIP(t, "fd00:10::1"), mustIP(t, "fe80::77"),
		eui64(w.macs[0]), eui64(w.macs[1]))
	for _, node := range names {
		for _, ep := range []string{"p", "q"} {
			w.attach(node, node+ep)
		}
	}
	return w
}

func (w *walk) network() Network {
	return Network{Name: modelNet, Prefixes: modelPrefixes, LinkLocal: true, Learning: w.m.learning, MaxMACs: w.m.maxMACs, MaxAddresses: w.m.maxIPs}
}

func (w *walk) attach(node, name string) {
	e := &modelEndpoint{node: node, name: name, up: true, segment: uint32(w.rnd.IntN(3))}
	if w.rnd.IntN(4) == 0 {
		e.mac = w.mac()
		for range w.rnd.IntN(3) {
			if ip := w.ip(); belongs(ip) && !slices.Contains(e.ips, ip) {
				e.ips = append(e.ips, ip)
			}
		}
	}
	w.note("attach %s/%s %v %v", node, name, e.mac, e.ips)
	w.m.add(e)
	w.sim.setEndpoint(w.sim.node(node), Endpoint{
		EndpointRef: EndpointRef{EndpointKey: EndpointKey{"default", name}},
		Network:     modelNet, MAC: e.mac, Addresses: e.ips, Segment: e.segment,
	})
	w.sim.setPort(w.sim.node(node), name, true)
}

func (w *walk) mac() packet.MAC { return w.macs[w.rnd.IntN(len(w.macs))] }
func (w *walk) ip() packet.IP   { return w.ips[w.rnd.IntN(len(w.ips))] }

func (w *walk) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%d ", w.m.now)+fmt.Sprintf(format, args...))
}

func (w *walk) step() {
	node := w.sim.nodes[w.rnd.IntN(3)]
	name := node.name + []string{"p", "q"}[w.rnd.IntN(2)]
	ep := w.m.endpoint(node.name, name)
	switch n := w.rnd.IntN(100); {
	case n < 60:
		w.observe(node, name)
	case n < 80:
		w.pass(node)
	case n < 84:
		if ep != nil {
			ep.up = !ep.up
			w.note("port %s/%s up %v", node.name, name, ep.up)
			if !ep.up {
				w.m.flush(node.name, name)
			}
			w.sim.setPort(node, name, ep.up)
		}
	case n < 89:
		w.replace(node, name, ep)
	case n < 91:
		if ep != nil {
			w.segment(node, ep)
		}
	case n < 94:
		w.release(node)
	case n < 95:
		dead := !w.m.dead[node.name] && w.rnd.IntN(2) == 0
		w.note("%s judged dead %v", node.name, dead)
		w.m.dead[node.name] = dead
		w.sim.setAlive(node.name, !dead)
	case n < 96:
		w.note("restart %s", node.name)
		w.m.restarted[node.name] = w.m.now
		for _, t := range w.m.truth {
			if t.node == node.name {
				t.seen = w.m.now
			}
		}
		w.sim.start(node)
	case n < 98:
		w.operator()
	default:
		w.m.learning = !w.m.learning || w.rnd.IntN(4) != 0
		w.note("learning %v", w.m.learning)
		for k, t := range w.m.truth {
			if !w.m.learning && !t.static {
				delete(w.m.truth, k)
			}
		}
		for _, node := range w.sim.nodes {
			node.nets = []Network{w.network()}
			node.core.SetNetwork(w.network(), w.sim.now(node))
		}
		w.sim.pump()
	}
}

func (w *walk) observe(node *simNode, name string) {
	mac, ip, class := w.mac(), w.ip(), arpnd.Strong
	if w.rnd.IntN(4) == 0 {
		class = arpnd.Weak
	}
	router, flags := RouterUnknown, Flags(0)
	switch w.rnd.IntN(6) {
	case 0:
		router, flags = RouterNo, Advert|Announce
	case 1:
		router, flags = RouterYes, Advert|AdvertRouter|Announce
	}
	w.note("%s %s/%s %v %v router %d", class, node.name, name, mac, ip, router)
	w.m.observe(node.name, name, mac, ip, class == arpnd.Strong, router)
	if _, ok := node.ports[name]; ok {
		w.sim.observe(node, name, mac, ip, class, flags)
	}
}

func (w *walk) pass(*simNode) {
	s := 1 + w.rnd.IntN(30)
	switch w.rnd.IntN(12) {
	case 0:
		s = w.rnd.IntN(330)
	case 1:
		s = 600
	}
	for range s {
		w.m.second()
	}
	w.sim.advance(time.Duration(s) * time.Second)
	w.note("+%d s", s)
}

func (w *walk) replace(node *simNode, name string, ep *modelEndpoint) {
	if ep == nil {
		w.attach(node.name, name)
		return
	}
	w.note("gone %s/%s", node.name, name)
	w.m.remove(ep)
	if w.rnd.IntN(2) == 0 {
		w.sim.portGone(node, name)
		w.sim.endpointGone(node, name)
		return
	}
	w.sim.endpointGone(node, name)
	w.sim.portGone(node, name)
}

func (w *walk) segment(node *simNode, ep *modelEndpoint) {
	ep.segment++
	w.note("segment %s/%s %d", node.name, ep.name, ep.segment)
	for k, t := range w.m.truth {
		if !k.IsNeighbor() && t.node == ep.node && t.ep == ep.name {
			t.segment = ep.segment
		}
	}
	e := node.eps[ep.name]
	e.Segment = ep.segment
	w.sim.setEndpoint(node, e)
}

func (w *walk) release(node *simNode) {
	k := FDB(modelNet, w.mac())
	if w.rnd.IntN(2) == 0 {
		k = Neighbor(modelNet, w.ip())
	}
	w.note("release %s %v", node.name, k)
	if t := w.m.truth[k]; t != nil && !t.static && t.node == node.name {
		t.moves, t.movesSince, t.frozenUntil = 0, 0, 0
	}
	node.core.Release(k, w.sim.now(node))
	w.sim.pump()
}

// operator adds a static entry of his own where nothing is, or takes one away.
func (w *walk) operator() {
	k := FDB(modelNet, w.mac())
	if w.op[k] && w.m.truth[k] != nil && w.m.truth[k].ep == "" {
		w.note("operator removes %v", k)
		delete(w.op, k)
		w.m.free(k, w.m.nodes[0])
		w.sim.remove(k)
		return
	}
	if w.m.truth[k] == nil {
		w.note("operator adds %v", k)
		w.op[k] = true
		w.m.truth[k] = &truth{static: true, node: "A"}
		w.sim.put(k, Binding{Static: true, Node: "A"})
	}
}

func (w *walk) compare() bool {
	w.t.Helper()
	ok := true
	bad := func(format string, args ...any) {
		ok = false
		w.t.Errorf(format, args...)
	}
	for k, t := range w.m.truth {
		b, there := w.sim.store[k]
		if !there {
			bad("%v: missing, want %+v", k, *t)
			continue
		}
		got := truth{
			static: b.Static, node: b.Node, ep: b.Endpoint.Name, mac: b.MAC, segment: b.Segment, router: b.Router,
			moves: b.Moves, movesSince: sinceStart(b.MovesSince), frozenUntil: sinceStart(b.FrozenUntil), seen: t.seen, since: t.since,
		}
		if got != *t {
			bad("%v:\n got %+v\nwant %+v", k, got, *t)
		}
		if ep := w.m.endpoint(t.node, t.ep); ep != nil && b.Endpoint.UID != w.sim.node(t.node).eps[t.ep].UID {
			bad("%v: of another life of %s/%s", k, t.node, t.ep)
		}
	}
	for k, b := range w.sim.store {
		if w.m.truth[k] == nil {
			bad("%v: %+v, want none", k, b)
		}
	}
	for _, n := range w.sim.nodes {
		if len(n.held) > 0 {
			bad("%s has writes that were not answered", n.name)
		}
		checkCounts(bad, n.core)
	}
	return ok
}

// checkCounts counts again what the Core counts as it goes.
func checkCounts(bad func(string, ...any), c *Core) {
	macs, addresses := map[*port]int{}, map[*port]int{}
	for k, e := range c.entries {
		if !e.have && len(c.claims[k]) == 0 {
			bad("%s remembers %v for nothing", c.node, k)
		}
		if e.have && !e.b.Static && e.b.Node == c.node {
			p := c.portOf[e.b.Endpoint.EndpointKey]
			if k.IsNeighbor() {
				addresses[p]++
			} else {
				macs[p]++
			}
		}
	}
	for _, p := range c.ports {
		sum := 0
		for _, n := range p.addresses {
			sum += n
		}
		if p.macs != macs[p] || sum != addresses[p] {
			bad("%s port %v counts %d MACs and %d addresses, there are %d and %d", c.node, p.Endpoint, p.macs, sum, macs[p], addresses[p])
		}
	}
	if len(c.wanted) != 0 {
		bad("%s still wants %v", c.node, c.wanted)
	}
}

func sinceStart(wall int64) int64 {
	if wall == 0 {
		return 0
	}
	return (wall - simWall) / 1_000_000
}

var modelSeeds = flag.Int("seeds", 2000, "random walks of the model tests")

// Random events at quiescence: after each, the cluster holds what the model does.
func TestModel(t *testing.T) {
	seeds := *modelSeeds
	if testing.Short() {
		seeds = min(seeds, 200)
	}
	moves, frozen := 0, 0
	for seed := range seeds {
		w := newWalk(t, uint64(seed))
		for range 150 {
			w.step()
			w.m.adopt()
			if !w.compare() {
				for _, l := range w.log[max(0, len(w.log)-25):] {
					t.Log(l)
				}
				t.Fatalf("seed %d", seed)
			}
		}
		moves += w.sim.ops[OpTakeOver]
		frozen += w.sim.events[EventFrozen]
	}
	t.Logf("%d seeds: %d moves, %d freezes", seeds, moves, frozen)
	if moves < seeds || frozen < seeds/20 {
		t.Errorf("only %d moves and %d freezes: the walk does not go where the rules are", moves, frozen)
	}
}

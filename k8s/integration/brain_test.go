package integration

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/learned"
	"picot.dev/picot/k8s/source"
	"picot.dev/picot/learning"
)

// brain is a node that learns: the decision core, driven as an agent drives it,
// less the frames. Its data plane has seen a station just now if it is in present.
type brain struct {
	*node
	core  *learning.Core
	began time.Time
	wall  atomic.Int64 // microseconds its clock is wrong by

	mu      sync.Mutex
	inbox   []func()
	poke    chan struct{}
	present map[packet.MAC]bool
	ops     map[learning.Op]int
	stored  map[learning.Op]int // answered Stored
	done    chan struct{}
}

// startBrain runs a node that learns in a network, behind one port.
func startBrain(t *testing.T, s *apitest.Server, name, net string, o learning.Options, c config) *brain {
	t.Helper()
	o.ClaimsElsewhere = true
	core, err := learning.NewCore(name, o)
	must(t, err)
	core.SetNodes(2)
	b := &brain{core: core, began: time.Now(), poke: make(chan struct{}, 1), present: map[packet.MAC]bool{},
		ops: map[learning.Op]int{}, stored: map[learning.Op]int{}, done: make(chan struct{})}
	c.core = b
	ep := endpoint("port-"+name+"-"+net, net, name, "")
	must(t, create(s.Client(t), ep))
	b.node = startNode(t, s, name, c)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); <-b.done })
	go b.run(stop)
	apitest.Eventually(t, "the bindings of "+net, func() error {
		if !b.source.Hosted(net) {
			return errNotYet
		}
		return nil
	})
	key := learning.EndpointKey{Namespace: ep.Namespace, Name: ep.Name}
	b.tell(func() {
		now := b.now()
		core.SetNetwork(learning.Network{Name: net, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Learning: true, MaxMACs: 1 << 20}, now)
		core.SetEndpoint(learning.Endpoint{EndpointRef: learning.EndpointRef{EndpointKey: key, UID: string(ep.UID)}, Network: net, Segment: 7}, now)
		core.SetPort(learning.Port{ID: 1, Endpoint: key, Up: true}, now)
		core.Gate(true, now)
	})
	return b
}

func (b *brain) now() learning.Now {
	return learning.Now{Mono: time.Since(b.began).Nanoseconds() + 1, Wall: time.Now().UnixMicro() + b.wall.Load()}
}

func (b *brain) tell(f func()) {
	b.mu.Lock()
	b.inbox = append(b.inbox, f)
	b.mu.Unlock()
	select {
	case b.poke <- struct{}{}:
	default:
	}
}

func (b *brain) run(stop chan struct{}) {
	defer close(b.done)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			b.core.Tick(b.now())
		case <-b.poke:
		}
		b.mu.Lock()
		list := b.inbox
		b.inbox = nil
		b.mu.Unlock()
		for _, f := range list {
			f()
		}
		b.act(b.core.Take())
	}
}

func (b *brain) act(in learning.Intents) {
	for _, a := range in.Asks {
		b.mu.Lock()
		seen := b.present[a.MAC]
		b.mu.Unlock()
		b.core.LastSeen(a.Key, b.now().Mono, seen, b.now())
	}
	verbs := map[learning.Op]learned.Verb{learning.OpCreate: learned.Create, learning.OpRefresh: learned.Refresh, learning.OpDelete: learned.Delete}
	for _, w := range in.Writes {
		verb := verbs[w.Op]
		if verb == 0 {
			verb = learned.Update
		}
		b.mu.Lock()
		b.ops[w.Op]++
		b.mu.Unlock()
		b.learned.Write(learned.Write{Seq: w.Seq<<8 | uint64(w.Op), Verb: verb, Key: keyOf(w.Key), New: bindingOf(w.New), From: desired.Version(w.From)})
	}
}

// Set, Gone and Done implement learned.Core.
func (b *brain) Set(k source.Key, x learned.Binding) {
	b.tell(func() { b.core.Set(coreKey(k), coreBinding(x), b.now()) })
}

func (b *brain) Gone(k source.Key, uid string) {
	b.tell(func() { b.core.Gone(coreKey(k), uid, b.now()) })
}

func (b *brain) Done(k source.Key, seq uint64, r learned.Result) {
	out := learning.Result{Outcome: map[learned.Outcome]learning.Outcome{learned.Stored: learning.Stored, learned.Conflict: learning.Conflict,
		learned.Failed: learning.Failed}[r.Outcome], Version: learning.Version(r.Version), Known: r.Known}
	if r.Current != nil {
		c := coreBinding(*r.Current)
		out.Current = &c
	}
	if r.Outcome == learned.Stored {
		b.mu.Lock()
		b.stored[learning.Op(seq&0xff)]++
		b.mu.Unlock()
	}
	b.tell(func() { b.core.Done(coreKey(k), seq>>8, out, b.now()) })
}

func (b *brain) count(op learning.Op) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stored[op]
}

// issued returns how many writes the core asked for.
func (b *brain) issued(op learning.Op) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ops[op]
}

// observe has a station say something at the port.
func (b *brain) observe(mac packet.MAC, ip packet.IP, class arpnd.Class) {
	b.tell(func() {
		b.core.Observe(learning.Observation{MAC: mac, IP: ip, Port: 1, Class: class, Time: b.now().Mono}, b.now())
	})
}

func (b *brain) isPresent(mac packet.MAC, present bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.present[mac] = present
}

func keyOf(k learning.Key) source.Key {
	if k.IsNeighbor() {
		return source.Key{Kind: v1alpha1.KindNeighbor, Network: k.Network, IP: k.IP.Addr()}
	}
	return source.Key{Kind: v1alpha1.KindFDBEntry, Network: k.Network, MAC: k.MAC}
}

func coreKey(k source.Key) learning.Key {
	if k.Kind == v1alpha1.KindNeighbor {
		return learning.Neighbor(k.Network, packet.IPFromAddr(k.IP))
	}
	return learning.FDB(k.Network, k.MAC)
}

func bindingOf(x learning.Binding) learned.Binding {
	return learned.Binding{Segment: x.Segment, MAC: x.MAC, Router: desired.Router(x.Router), Owner: desired.Owner{
		Static: x.Static, Node: x.Node, Endpoint: desired.EndpointRef{EndpointKey: desired.EndpointKey(x.Endpoint.EndpointKey), UID: x.Endpoint.UID},
		LastObserved: x.LastObserved, Moves: x.Moves, MovesSince: x.MovesSince, FrozenUntil: x.FrozenUntil}}
}

func coreBinding(x learned.Binding) learning.Binding {
	return learning.Binding{Static: x.Static, Node: x.Node, Segment: x.Segment, MAC: x.MAC, Router: learning.Router(x.Router),
		Endpoint:     learning.EndpointRef{EndpointKey: learning.EndpointKey(x.Endpoint.EndpointKey), UID: x.Endpoint.UID},
		LastObserved: x.LastObserved, Moves: x.Moves, MovesSince: x.MovesSince, FrozenUntil: x.FrozenUntil,
		Version: learning.Version(x.Version)}
}

// holds waits until a binding is stored and managed by a node.
func (r *rig) holds(t *testing.T, net, mac, node string) *v1alpha1.FDBEntry {
	t.Helper()
	var e *v1alpha1.FDBEntry
	apitest.Eventually(t, mac+" to be at "+node, func() error {
		if e = r.fdb(t, net, mac); e == nil || e.Status == nil || e.Status.ManagingNode != node {
			return fmt.Errorf("%+v", e)
		}
		return nil
	})
	return e
}

package integration

import (
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"sync"
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

func macOf(n int) packet.MAC { return packet.MACFromUint64(0x020000000000 + uint64(n)) }

func ipOf(n int) packet.IP { return packet.IPFrom4(10<<24 | uint32(n)) }

// TestLearnedPath has two nodes learn against a real API server.
func TestLearnedPath(t *testing.T) {
	r := &rig{s: server(t)}
	r.c = r.s.Client(t)
	t.Run("moves", r.moves)
	t.Run("preconditions", r.preconditions)
	t.Run("clocks", r.clocks)
	t.Run("budget", r.budget)
}

// moves: created, taken over at once with its address, deleted by its own node
// alone; what is static is not touched by any of it.
func (r *rig) moves(t *testing.T) {
	net := r.network(t, "10.0.0.0/8")
	a := startBrain(t, r.s, "node-a", net, learning.Options{}, config{})
	b := startBrain(t, r.s, "node-b", net, learning.Options{}, config{})
	a.observe(macOf(1), ipOf(1), arpnd.Strong)
	e := r.holds(t, net, mac(1), "node-a")
	if e.Spec.Source != v1alpha1.SourceLearned || e.Status.LastObserved == nil || e.Status.Segment != 7 || len(e.OwnerReferences) != 1 {
		t.Errorf("created as %+v %+v", e.ObjectMeta, e.Status)
	}
	apitest.Eventually(t, "its address", func() error {
		if n := r.neighbor(t, net, ipOf(1).String()); n == nil || n.Status.ManagingNode != "node-a" {
			return errNotYet
		}
		return nil
	})
	b.observe(macOf(1), packet.IP{}, arpnd.Weak) // a target that only chatters
	b.observe(macOf(1), packet.IP{}, arpnd.Strong)
	e = r.holds(t, net, mac(1), "node-b")
	if e.Status.Moves != 1 || e.Status.MovesSince == nil || e.Status.Endpoint.Name != "port-node-b-"+net {
		t.Errorf("taken over as %+v", e.Status)
	}
	apitest.Eventually(t, "its address to follow", func() error {
		if n := r.neighbor(t, net, ipOf(1).String()); n == nil || n.Status.ManagingNode != "node-b" || string(n.Status.MAC) != mac(1) {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	static := endpoint(unique("ep"), net, "node-a", mac(2), "10.0.0.2")
	must(t, create(r.c, static))
	r.untilReady(t, static)
	before := r.fdb(t, net, mac(2))
	for range 20 {
		b.observe(macOf(2), ipOf(2), arpnd.Strong)
	}
	b.observe(macOf(3), ipOf(3), arpnd.Strong) // behind them in every queue
	r.holds(t, net, mac(3), "node-b")
	if after := r.fdb(t, net, mac(2)); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("a static entry was written: %+v, then %+v", before.Status, after.Status)
	}
	// A claim makes a learned entry static, wherever it is (and it stays so when
	// its old node has the last word).
	claim := endpoint(unique("ep"), net, "node-a", mac(3), "10.0.0.3")
	must(t, create(r.c, claim))
	r.untilReady(t, claim)
	b.observe(macOf(3), ipOf(3), arpnd.Strong)
	b.tell(func() { b.core.PortGone(1, b.now()) })
	apitest.Eventually(t, "the learned entry of a port that went to go", func() error {
		if e := r.fdb(t, net, mac(1)); e != nil {
			return errNotYet
		}
		return nil
	})
	if e := r.fdb(t, net, mac(3)); e == nil || e.Spec.Source != v1alpha1.SourceStatic || e.Status.ManagingNode != "node-a" {
		t.Errorf("the claimed entry is %+v", e)
	}
}

// heard is a core that only notes the answers.
type heard struct {
	deaf
	results chan learned.Result
}

func (h heard) Done(_ source.Key, _ uint64, r learned.Result) { h.results <- r }

// preconditions: a delete or takeover decided on a state that changed meanwhile does
// nothing, and is answered with what there is.
func (r *rig) preconditions(t *testing.T) {
	net := r.network(t, "10.0.0.0/8")
	h := heard{results: make(chan learned.Result, 1)}
	ep := endpoint(unique("ep"), net, "node-a", "")
	must(t, create(r.c, ep))
	n := startNode(t, r.s, "node-a", config{core: h})
	key := source.Key{Kind: v1alpha1.KindFDBEntry, Network: net, MAC: macOf(1)}
	own := learned.Binding{Owner: desired.Owner{Node: "node-a", Endpoint: desired.EndpointRef{
		EndpointKey: desired.EndpointKey{Namespace: "default", Name: ep.Name}, UID: string(ep.UID)}, LastObserved: 1000}}
	seq := uint64(0)
	do := func(w learned.Write) learned.Result {
		t.Helper()
		seq++
		w.Seq, w.Key = seq, key
		n.learned.Write(w)
		select {
		case res := <-h.results:
			return res
		case <-time.After(time.Minute):
			t.Fatal("no answer")
			return learned.Result{}
		}
	}
	made := do(learned.Write{Verb: learned.Create, New: own})
	if made.Outcome != learned.Stored || made.Version.UID == "" {
		t.Fatalf("create: %+v", made)
	}
	own.LastObserved = 2000
	if res := do(learned.Write{Verb: learned.Refresh, New: own, From: made.Version}); res.Outcome != learned.Stored {
		t.Fatalf("refresh: %+v", res)
	}
	for _, verb := range []learned.Verb{learned.Delete, learned.Update, learned.Create} {
		w := learned.Write{Verb: verb, New: own, From: made.Version} // of before the refresh
		if verb == learned.Create {
			w.From = desired.Version{}
		}
		res := do(w)
		if res.Outcome != learned.Conflict || !res.Known || res.Current == nil || res.Current.LastObserved != 2000 {
			t.Errorf("verb %d on an old state: %+v", verb, res)
		}
	}
	e := r.fdb(t, net, mac(1))
	if e == nil || e.Status.LastObserved.UnixMicro() != 2000 {
		t.Fatalf("the entry that was refreshed meanwhile: %+v", e)
	}
	now := desired.Version{UID: string(e.UID), ResourceVersion: e.ResourceVersion}
	if res := do(learned.Write{Verb: learned.Delete, From: now}); res.Outcome != learned.Stored {
		t.Errorf("delete: %+v", res)
	}
	if res := do(learned.Write{Verb: learned.Update, New: own, From: now}); res.Outcome != learned.Conflict || !res.Known || res.Current != nil {
		t.Errorf("update of what is gone: %+v", res)
	}
}

// clocks: nodes 30 s ahead and behind, of which one steps back an hour, expire
// nothing that lives, write lastObserved once an interval, and expire what is dead.
func (r *rig) clocks(t *testing.T) {
	net := r.network(t, "10.0.0.0/8")
	o := learning.Options{ReReport: 200 * time.Millisecond, Refresh: 500 * time.Millisecond, Probe: 800 * time.Millisecond, Expiry: 3 * time.Second,
		ProbeEvery: 200 * time.Millisecond, BackoffMax: time.Second, ClockSkew: 500 * time.Millisecond, AskTimeout: time.Second, ProbeQuiet: time.Second}
	a := startBrain(t, r.s, "node-a", net, o, config{})
	b := startBrain(t, r.s, "node-b", net, o, config{})
	a.wall.Store(30e6)
	b.wall.Store(-30e6)
	a.isPresent(macOf(1), true)
	b.isPresent(macOf(2), true)
	began := time.Now()
	for i := 0; time.Since(began) < 3*o.Expiry; i++ {
		a.observe(macOf(1), ipOf(1), arpnd.Strong)
		b.observe(macOf(2), ipOf(2), arpnd.Strong)
		if i == 20 {
			a.wall.Add(-3600e6)
		}
		time.Sleep(o.ReReport)
	}
	for _, x := range []*brain{a, b} {
		most := 2 * (int(time.Since(began)/o.Refresh) + 1) // of two bindings
		if d, n := x.count(learning.OpDelete), x.count(learning.OpRefresh); d != 0 || n == 0 || n > most {
			t.Errorf("%s: %d deletes, %d refreshes of at most %d", x.name, d, n, most)
		}
	}
	r.holds(t, net, mac(1), "node-a")
	r.holds(t, net, mac(2), "node-b")
	a.isPresent(macOf(1), false)
	apitest.Eventually(t, "a dead station to go", func() error {
		if r.fdb(t, net, mac(1)) != nil {
			return errNotYet
		}
		return nil
	})
}

// eachNode is small enough for every run and far more than the budget refreshes;
// the acceptance is 5000.
var eachNode = flag.Int("bindings", 1000, "how many bindings each of two nodes refreshes")

// budget: two nodes with that many bindings each refresh within the cluster's budget;
// and while more refreshes wait than ten seconds of writes carry, nothing else waits
// behind them.
func (r *rig) budget(t *testing.T) {
	net := r.network(t, "10.0.0.0/8")
	const perSecond = 100
	each := *eachNode
	o := learning.Options{ReReport: time.Minute, Refresh: time.Second, Probe: 2 * time.Minute, Expiry: time.Hour, RefreshBudget: perSecond, MaxMACs: 2 * each}
	a := startBrain(t, r.s, "node-a", net, o, config{})
	b := startBrain(t, r.s, "node-b", net, o, config{})
	for i := range each {
		a.observe(macOf(0x10000+i), packet.IP{}, arpnd.Strong)
		b.observe(macOf(0x20000+i), packet.IP{}, arpnd.Strong)
	}
	apitest.EventuallyWithin(t, 5*time.Minute, "the bindings", func() error {
		if n, m := a.count(learning.OpCreate), b.count(learning.OpCreate); n != each || m != each {
			return fmt.Errorf("%d and %d", n, m)
		}
		return nil
	})
	for i := range each { // all are seen anew
		a.observe(macOf(0x10000+i), packet.IP{}, arpnd.Strong)
		b.observe(macOf(0x20000+i), packet.IP{}, arpnd.Strong)
	}
	began := time.Now()
	before := a.issued(learning.OpRefresh) + b.issued(learning.OpRefresh)
	time.Sleep(5 * time.Second)
	done := a.issued(learning.OpRefresh) + b.issued(learning.OpRefresh) - before
	took := time.Since(began)
	most := int(1.1*took.Seconds()*perSecond) + 2*10 // a pause is made up for by a burst of 8 a node
	if done == 0 || done > most {
		t.Errorf("%d refreshes in %v, the budget has %d", done, took, most)
	}
	t.Logf("%d refreshes of %d bindings in %v", done, 2*each, took)

	// Much more in line than may be: a create still is among the next writes.
	a.tell(func() { a.core.Gate(false, a.now()) })
	seen := &order{}
	c := startNode(t, r.s, "node-a", config{core: seen, rate: 400})
	for i := range each {
		key := source.Key{Kind: v1alpha1.KindFDBEntry, Network: net, MAC: macOf(0x10000 + i)}
		e, _, ok := a.source.Stored(key)
		if !ok {
			t.Fatal("a binding went")
		}
		e.LastObserved++
		c.learned.Write(learned.Write{Seq: uint64(i + 2), Verb: learned.Refresh, From: e.Version, New: e, Key: key})
	}
	ref := desired.EndpointRef{EndpointKey: desired.EndpointKey{Namespace: "default", Name: "x"}, UID: "x"}
	asked := seen.len()
	c.learned.Write(learned.Write{Seq: 1, Verb: learned.Create,
		Key: source.Key{Kind: v1alpha1.KindNeighbor, Network: net, IP: netip.MustParseAddr("10.7.7.7")},
		New: learned.Binding{MAC: macOf(1), Owner: desired.Owner{Node: "node-a", Endpoint: ref}}})
	apitest.Eventually(t, "the create", func() error {
		if seen.place(1) < 0 {
			return fmt.Errorf("not among the first %d of %d", seen.len(), each+1)
		}
		return nil
	})
	at := seen.place(1)
	t.Logf("%d refreshes were written before a create was asked for, %d before it was written, %d after", asked, at, each-at)
	if at-asked > each/10 {
		t.Errorf("the create waited behind %d refreshes", at-asked)
	}
}

// order is a core that notes in which order writes were answered.
type order struct {
	deaf
	mu   sync.Mutex
	seqs []uint64
}

func (o *order) Done(_ source.Key, seq uint64, _ learned.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seqs = append(o.seqs, seq)
}

func (o *order) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.seqs)
}

func (o *order) place(seq uint64) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Index(o.seqs, seq)
}

package e2ek8s

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
)

// mortal are Leases of which a dozen renewals may be late before a node is dead.
// Of two nodes one may be: the share that may be silent never rounds to nobody.
var mortal = []string{"--lease-interval=250ms", "--lease-stale=3s", "--election-lease=3s"}

// cutOff cuts a node's network: the way to the API server, and the underlay in
// both directions. Its device stays up, as behind a switch that died.
func (c *cluster) cutOff(n *lab.Node) (restore func()) {
	c.t.Helper()
	way := c.way[1+slices.Index(c.Nodes(), n)]
	rules := func(verb string) {
		c.t.Helper()
		must(c.t, c.DoUnderlay(func() error {
			for _, of := range [][]string{{"iif", n.RouterIf}, {"to", n.Locator.String()}} {
				args := slices.Concat([]string{"-6", "rule", verb, "pref", "1"}, of, []string{"blackhole"})
				if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
					return fmt.Errorf("ip %v: %w: %s", args, err, out)
				}
			}
			return nil
		}))
	}
	rules("add")
	way.Cut()
	return func() {
		c.t.Helper()
		rules("del")
		way.Restore()
	}
}

// wantAlive waits until the condition Alive of a node is as said, and another node
// has heard.
func (c *cluster) wantAlive(n, at *lab.Node, alive bool) {
	c.t.Helper()
	c.eventually(30*time.Second, fmt.Sprintf("Alive of %s to be %t", n.Name, alive), func() error {
		var o v1alpha1.SRv6Node
		if err := c.api.Get(within(c.t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceSRv6Nodes}, n.Name, &o); err != nil {
			return err
		}
		if meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionAlive) != alive {
			return fmt.Errorf("conditions %+v", o.Status.Conditions)
		}
		s, err := at.Status(within(c.t, 10*time.Second))
		if err != nil {
			return err
		}
		for _, x := range s.Nodes {
			if x.Node == n.Name && x.Alive != alive {
				return fmt.Errorf("%s says %+v", at.Name, x)
			}
		}
		return nil
	})
}

// asker asks for addresses on a wire in every way there is, and counts who
// answers.
type asker struct {
	station
	w *wire

	mu      sync.Mutex
	answers map[string]int // guarded by mu; by "ARP", "NS" or "DAD", and the address
}

func newAsker(w *wire, s station) *asker {
	a := &asker{station: s, w: w, answers: map[string]int{}}
	w.onFrame(func(b []byte) {
		var key string
		switch {
		case len(b) >= 42 && b[12] == 8 && b[13] == 6 && b[21] == 2:
			key = "ARP " + netip.AddrFrom4([4]byte(b[28:32])).String()
		case len(b) >= 78 && b[12] == 0x86 && b[13] == 0xdd && b[20] == 58 && b[54] == 136 && b[0] == 0x33:
			key = "DAD " + netip.AddrFrom16([16]byte(b[62:78])).String()
		case len(b) >= 78 && b[12] == 0x86 && b[13] == 0xdd && b[20] == 58 && b[54] == 136:
			key = "NS " + netip.AddrFrom16([16]byte(b[62:78])).String()
		default:
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.answers[key]++
	})
	return a
}

// ask asks once for a station's addresses.
func (a *asker) ask(t *testing.T, who station) {
	t.Helper()
	a.w.send(a.arp(t, a.v4, who.v4))
	a.w.send(a.ns(t, who.v6))
	a.w.send(station{mac: a.mac, v6: who.v6}.dad(t))
}

// take returns how often a station was answered for since the last take, by each
// way of asking.
func (a *asker) take(who station) (n [3]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, key := range []string{"ARP " + who.v4.String(), "NS " + who.v6.String(), "DAD " + who.v6.String()} {
		n[i] = a.answers[key]
		delete(a.answers, key)
	}
	return n
}

// wantAnswers waits until a station is answered for in every way.
func (l *learnLab) wantAnswers(a *asker, who station) {
	l.t.Helper()
	a.take(who)
	var got [3]int
	l.eventually(20*time.Second, "answers for "+who.mac.String(), func() error {
		a.ask(l.t, who)
		time.Sleep(50 * time.Millisecond)
		for i, n := range a.take(who) {
			got[i] += n
		}
		if slices.Min(got[:]) == 0 {
			return fmt.Errorf("to ARP, NS and DAD NS: %v", got)
		}
		return nil
	})
}

// wantSilence asks for stations for a while, and for one that is there as often:
// that one alone is answered for.
func (l *learnLab) wantSilence(a *asker, there station, gone ...station) {
	l.t.Helper()
	for _, s := range append(gone, there) {
		a.take(s)
	}
	asked := 0
	l.eventually(20*time.Second, "answers for "+there.mac.String(), func() error {
		for range 10 {
			asked++
			for _, s := range append(gone, there) {
				a.ask(l.t, s)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if got := a.take(there); slices.Min(got[:]) == 0 {
			return fmt.Errorf("to ARP, NS and DAD NS: %v", got)
		}
		return nil
	})
	for _, s := range gone {
		if got := a.take(s); got != [3]int{} {
			l.t.Errorf("%s of a dead node was answered for, to ARP, NS and DAD NS, %v times of %d", s.mac, got, asked)
		}
	}
}

// leavesFor waits until a frame of c for a station leaves node1 for node2.
func (l *learnLab) leavesFor(s station) {
	l.t.Helper()
	underlay, from := l.newWireAt(l.DoUnderlay, l.n1.RouterIf), l.newWire(l.c)
	came := make(chan struct{}, 1)
	to := l.n2.Locator.Addr().As16()
	underlay.onFrame(func(b []byte) {
		if len(b) > 60 && bytes.Equal(b[38:46], to[:8]) && bytes.Equal(b[54:60], s.mac) {
			select {
			case came <- struct{}{}:
			default:
			}
		}
	})
	c := l.asStation(l.c)
	l.eventually(20*time.Second, "a frame for "+s.mac.String()+" on its way to node2", func() error {
		from.send(c.udp(l.t, s.mac.String(), s.v4))
		select {
		case <-came:
			return nil
		case <-time.After(200 * time.Millisecond):
			return errors.New("nothing came")
		}
	})
}

// asStation is a pod as a station.
func (l *learnLab) asStation(p *lab.Pod) station {
	l.t.Helper()
	mac, err := net.ParseMAC(p.MAC)
	must(l.t, err)
	return station{mac: mac, v4: p.IP4(), v6: p.IP6()}
}

// silentHost gives vm2's own stack addresses: it speaks once, then only answers.
func (l *learnLab) silentHost() station {
	l.t.Helper()
	s := station{mac: l.deviceMAC(l.vm2), v4: netip.MustParseAddr("10.0.0.90"), v6: netip.MustParseAddr("fd00:10::90")}
	for _, a := range []string{"10.0.0.90/24", "fd00:10::90/64"} {
		_, err := l.vm2.Run(within(l.t, 10*time.Second), "ip", "addr", "add", a, "dev", lab.PodDevice, "nodad")
		must(l.t, err)
	}
	stop := l.w2.repeat(200*time.Millisecond, s.garp(l.t), s.na(l.t, 0x20))
	defer stop()
	l.wantHolder(s, "node2", s.v4, s.v6)
	return s
}

// wantReachable waits until c reaches a station by both its addresses.
func (l *learnLab) wantReachable(s station) {
	l.t.Helper()
	for _, a := range []netip.Addr{s.v4, s.v6} {
		l.eventually(30*time.Second, fmt.Sprintf("c reaches %s", a), func() error {
			_, err := l.c.Run(within(l.t, 10*time.Second), "ping", "-c", "1", "-W", "1", a.String())
			return err
		})
	}
}

// freeze keeps a station where it is for as long as that may be, as too many moves
// would.
func (l *learnLab) freeze(s station) {
	l.t.Helper()
	patch := []byte(fmt.Sprintf(`{"status":{"frozenUntil":%q}}`, time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05.000000Z")))
	must(l.t, l.api.Patch(within(l.t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceFDBEntries}, name("red", s.mac.String()), "", patch, &v1alpha1.FDBEntry{}))
	for _, ip := range []netip.Addr{s.v4, s.v6} {
		must(l.t, l.api.Patch(within(l.t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceNeighbors}, name("red", ip.String()), "", patch, &v1alpha1.Neighbor{}))
	}
}

// TestDeadNode: the network of a node is cut. Its stations go on being forwarded
// to but are neither answered for nor defended, and one that shows up elsewhere is
// taken over at once, were it frozen. The node comes back, and with it whoever is
// still there.
func TestDeadNode(t *testing.T) {
	l := newLearnLab(t, mortal...)
	silent, moving := l.silentHost(), stationN(31)
	stop := l.w2.repeat(200*time.Millisecond, moving.garp(t), moving.na(t, 0x20))
	l.wantHolder(moving, "node2", moving.v4, moving.v6)
	l.wantAlive(l.n2, l.n1, true)
	a, c := newAsker(l.w1, stationN(30)), l.asStation(l.c)
	for _, s := range []station{silent, moving, c} {
		l.wantAnswers(a, s)
	}

	l.freeze(moving)
	l.eventually(20*time.Second, "node1 to refuse a frozen station", func() error {
		l.w1.send(moving.garp(t))
		s, err := l.n1.Status(within(t, 10*time.Second))
		if err != nil || s.Learning == nil || s.Learning.Refused["frozen"] == 0 {
			return fmt.Errorf("learning %+v, %w", s.Learning, cmp.Or(err, errThere))
		}
		return nil
	})

	restore := l.cutOff(l.n2)
	stop()
	began := time.Now()
	l.wantAlive(l.n2, l.n1, false)
	t.Logf("Alive went false %v after the cut, a Lease is stale after 3 s", time.Since(began).Round(10*time.Millisecond))
	l.wantSilence(a, c, silent, moving)
	for _, s := range []station{silent, moving} {
		must(t, l.forwards(l.n1, s.mac, "node2"))
		l.leavesFor(s)
	}
	if got := []string{l.holder(silent.mac), l.holder(moving.mac)}; !slices.Equal(got, []string{"node2", "node2"}) {
		t.Errorf("the bindings of a node that is merely silent went to %q", got)
	}

	began = time.Now()
	stop = l.w1.repeat(200*time.Millisecond, moving.garp(t), moving.na(t, 0x20))
	defer stop()
	l.eventually(20*time.Second, "node1 to have the station that came", func() error {
		if got := l.holder(moving.mac); got != "node1" {
			return fmt.Errorf("%q has it", got)
		}
		return l.forwards(l.n1, moving.mac, "node1")
	})
	t.Logf("taken over %v after its first word, which it repeats every 200 ms", time.Since(began).Round(time.Millisecond))

	restore()
	l.wantAlive(l.n2, l.n1, true)
	l.wantAnswers(a, silent)
	l.wantReachable(silent)
	l.wantHolder(silent, "node2", silent.v4, silent.v6)
	l.wantHolder(moving, "node1", moving.v4, moving.v6)
	l.wantEvent("vm1", "Moved")
}

// TestNodeDeleted: of a silent node whose Node object is deleted all bindings and
// finalizers go, and nothing of the others'. When it comes back after all, its
// silent hosts and its endpoints are reachable as before.
func TestNodeDeleted(t *testing.T) {
	l := newLearnLab(t, mortal...)
	silent, d := l.silentHost(), l.addPod(l.n2, "d")
	l.wantReady(d)
	l.wantAlive(l.n2, l.n1, true)
	l.reaches(l.c, d)
	of := func(node string) (all []string) {
		for _, b := range l.stored() {
			if b.Node == node {
				all = append(all, fmt.Sprintf("%s %s", b.Source, b.Name))
			}
		}
		return all
	}
	kept := func(node string) (all []string) {
		endpoints, _, _ := l.lists()
		for _, e := range endpoints {
			if e.Spec.NodeName == node && slices.Contains(e.Finalizers, v1alpha1.EndpointFinalizer) {
				all = append(all, e.Name)
			}
		}
		return all
	}
	others := of("node1")
	if got := of("node2"); len(got) < 6 || !slices.Equal(kept("node2"), []string{"d", "vm2"}) {
		t.Fatalf("node2 has %q, finalizers of %q", got, kept("node2"))
	}

	restore := l.cutOff(l.n2)
	l.server.Delete(t, "/api/v1/nodes/node2")
	l.eventually(30*time.Second, "all that was node2's to go", func() error {
		if b, f := of("node2"), kept("node2"); len(b)+len(f) > 0 {
			return fmt.Errorf("there are %q, finalizers of %q", b, f)
		}
		return errors.Join(l.knows(l.n1, silent.mac.String(), false), l.knows(l.n1, d.MAC, false))
	})
	l.wantAlive(l.n2, l.n1, false)
	for _, x := range others {
		if !strings.HasPrefix(x, string(v1alpha1.SourceStatic)) {
			continue // what was learned there may have fallen silent
		}
		if !slices.Contains(of("node1"), x) {
			t.Errorf("node1 lost %s", x)
		}
	}

	l.server.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: node2}\n")
	restore()
	l.wantAlive(l.n2, l.n1, true)
	l.wantHolder(silent, "node2", silent.v4, silent.v6)
	l.wantReachable(silent)
	l.wantReady(d)
	l.reaches(l.c, d)
}

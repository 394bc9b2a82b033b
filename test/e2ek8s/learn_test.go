package e2ek8s

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"picot.dev/picot/internal/control"
	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
)

// The times of the learning tests: fortieths of the defaults or so, and long
// enough for a busy machine.
var quick = []string{
	"--learn-report=400ms", "--learn-short=100ms", "--learn-refresh=1s", "--learn-probe=1500ms", "--learn-probe-every=700ms", "--learn-expiry=6s",
	"--learn-backoff=500ms", "--learn-skew=500ms", "--learn-ask-timeout=500ms", "--learn-probe-quiet=200ms",
}

const quickExpiry, quickRefresh = 6 * time.Second, time.Second

// learnLab is a cluster whose pods vm1 and vm2 have no MAC of their own: what is
// behind them is learned. c, on node1, is a static third.
type learnLab struct {
	*cluster
	vm1, vm2, c *lab.Pod
	w1, w2      *wire
}

func newLearnLab(t *testing.T, args ...string) *learnLab {
	t.Helper()
	l := &learnLab{cluster: newClusterWith(t, apitest.Options{}, append(slices.Clone(quick), args...)...)}
	l.addRed()
	open := func(o *lab.PodOptions) { o.MAC, o.Addresses = "", nil }
	l.vm1, l.vm2 = l.addPod(l.n1, "vm1", open), l.addPod(l.n2, "vm2", open)
	l.c = l.addPod(l.n1, "c")
	for i, n := range []*lab.Node{l.n1, l.n2} {
		must(t, n.Start(within(t, 20*time.Second)))
		must(t, n.WaitReady(within(t, time.Minute), 2-i))
	}
	l.wantReady(l.c)
	for _, n := range l.Nodes() {
		_, err := n.WaitStatus(within(t, time.Minute), func(s status.Status) error {
			if s.Learning == nil || !s.Learning.Open {
				return fmt.Errorf("learning %+v", s.Learning)
			}
			return nil
		})
		must(t, err)
	}
	l.w1, l.w2 = l.newWire(l.vm1), l.newWire(l.vm2)
	return l
}

// fdbEntry and neighbor are objects of red, nil if there are none.
func (c *cluster) fdbEntry(mac net.HardwareAddr) *v1alpha1.FDBEntry {
	c.t.Helper()
	var o v1alpha1.FDBEntry
	err := c.api.Get(within(c.t, time.Minute), client.Resource{Name: v1alpha1.ResourceFDBEntries}, name("red", mac.String()), &o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(c.t, err)
	return &o
}

func (c *cluster) neighbor(ip netip.Addr) *v1alpha1.Neighbor {
	c.t.Helper()
	var o v1alpha1.Neighbor
	err := c.api.Get(within(c.t, time.Minute), client.Resource{Name: v1alpha1.ResourceNeighbors}, name("red", ip.String()), &o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(c.t, err)
	return &o
}

// holder is the managing node of a learned MAC, "" if nobody has it.
func (c *cluster) holder(mac net.HardwareAddr) string {
	c.t.Helper()
	if f := c.fdbEntry(mac); f != nil && f.Status != nil {
		return f.Status.ManagingNode
	}
	return ""
}

// wantHolder waits until a station's MAC and the addresses named are learned on
// node, and every node's table says so.
func (c *cluster) wantHolder(s station, node string, ips ...netip.Addr) {
	c.t.Helper()
	c.eventually(20*time.Second, fmt.Sprintf("%s %v on %s", s.mac, ips, node), func() error {
		f := c.fdbEntry(s.mac)
		if f == nil || f.Spec.Source != "learned" || f.Status == nil || f.Status.ManagingNode != node {
			return fmt.Errorf("FDBEntry %+v", f)
		}
		for _, ip := range ips {
			n := c.neighbor(ip)
			if n == nil || n.Spec.Source != "learned" || n.Status == nil || n.Status.ManagingNode != node || string(n.Status.MAC) != s.mac.String() {
				return fmt.Errorf("Neighbor %+v", n)
			}
		}
		for _, n := range c.Nodes() {
			if err := c.forwards(n, s.mac, node); err != nil {
				return err
			}
		}
		return nil
	})
}

// forwards says that a node's table has a MAC at node.
func (c *cluster) forwards(n *lab.Node, mac net.HardwareAddr, node string) error {
	got, err := c.tables(n)
	if err != nil {
		return err
	}
	for _, e := range got.FDB {
		if e.MAC == mac.String() {
			if (e.Kind == "local") == (n.Name == node) && (n.Name == node || e.Where == node) {
				return nil
			}
			return fmt.Errorf("%s has it at %+v", n.Name, e)
		}
	}
	return fmt.Errorf("%s does not know %s", n.Name, mac)
}

// wantNobody waits until nothing is left of a station.
func (c *cluster) wantNobody(limit time.Duration, s station) {
	c.t.Helper()
	c.eventually(limit, s.mac.String()+" to be forgotten", func() error {
		if c.fdbEntry(s.mac) != nil || c.neighbor(s.v4) != nil || c.neighbor(s.v6) != nil {
			return errThere
		}
		return nil
	})
}

// percentiles are p50 and p99.
func percentiles(all []time.Duration) string {
	slices.Sort(all)
	at := func(p int) time.Duration { return all[min(len(all)-1, len(all)*p/100)].Round(100 * time.Microsecond) }
	return fmt.Sprintf("p50 %v, p99 %v of %d", at(50), at(99), len(all))
}

// TestMoves: stations move from node1 to node2 and say so by GARP, RARP or
// unsolicited NA. What a third pod sends follows; the time is printed.
func TestMoves(t *testing.T) {
	l := newLearnLab(t)
	var round []time.Duration
	for range 50 {
		began := time.Now()
		must(t, l.api.Get(within(t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceNetworks}, "red", &v1alpha1.Network{}))
		round = append(round, time.Since(began))
	}
	t.Logf("API round trip: %s", percentiles(round))
	number := 0
	for _, kind := range []struct {
		name     string
		announce func(station) []byte
		v6       bool
	}{
		{"GARP", func(s station) []byte { return s.garp(t) }, false},
		{"RARP", func(s station) []byte { return s.rarp(t) }, false},
		{"NA", func(s station) []byte { return s.na(t, 0x20) }, true},
	} {
		var took []time.Duration
		for range 8 {
			s := stationN(number)
			number++
			to := s.v4
			l.w1.send(s.garp(t))
			if kind.v6 {
				to = s.v6
				l.w1.send(s.na(t, 0x20))
			}
			l.wantHolder(s, "node1", to)
			took = append(took, l.timeMove(s, to, kind.announce(s)))
			l.wantHolder(s, "node2", to)
		}
		t.Logf("%s: from the announcement to the third pod's first datagram on the new node: %s", kind.name, percentiles(took))
	}
	var moves []status.Move
	body, err := control.Get(within(t, 10*time.Second), l.n2.RunDir(), "/moves")
	must(t, err)
	must(t, json.Unmarshal(body, &moves))
	if len(moves) < 2*number || moves[0].Node != "node2" || moves[0].FromNode != "node1" || moves[0].Network != "red" {
		t.Errorf("picot show moves: %d, the newest %+v", len(moves), moves[0])
	}
}

// timeMove has c send to a station all the while and returns how long after the
// announcement on w2 the first datagram is there.
func (l *learnLab) timeMove(s station, to netip.Addr, announcement []byte) time.Duration {
	l.t.Helper()
	heard := func(w *wire) chan time.Time {
		first := make(chan time.Time, 1)
		w.onFrame(func(b []byte) {
			if len(b) > 14 && net.HardwareAddr(b[:6]).String() == s.mac.String() && isUDP(b) {
				select {
				case first <- time.Now():
				default:
				}
			}
		})
		return first
	}
	before, after := heard(l.w1), heard(l.w2)
	var conn net.Conn
	must(l.t, l.c.Do(func() (err error) {
		conn, err = net.Dial("udp", netip.AddrPortFrom(to, 9).String())
		return err
	}))
	defer conn.Close()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_, _ = conn.Write([]byte("x")) // refused while the address resolves
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	wait := func(c chan time.Time, what string) time.Time {
		select {
		case at := <-c:
			return at
		case <-time.After(20 * time.Second):
			l.t.Fatalf("no datagram for %s %s the move", s.mac, what)
			return time.Time{}
		}
	}
	wait(before, "before")
	began := time.Now()
	l.w2.send(announcement)
	return wait(after, "after").Sub(began)
}

// isUDP says that a frame carries UDP over IPv4 or IPv6.
func isUDP(b []byte) bool {
	switch {
	case len(b) > 34 && b[12] == 8 && b[13] == 0:
		return b[23] == 17
	case len(b) > 54 && b[12] == 0x86 && b[13] == 0xdd:
		return b[20] == 17
	}
	return false
}

// TestLivesAndEnds: for three times the expiry one station sends one way and two
// others only answer, one of them behind a VLAN tag. They stay, with few writes; one
// that is dead goes, and a static binding is not touched.
func TestLivesAndEnds(t *testing.T) {
	l := newLearnLab(t)
	// A real stack that nobody has speak after its first word: it answers.
	silent := station{mac: l.deviceMAC(l.vm2), v4: netip.MustParseAddr("10.0.0.90"), v6: netip.MustParseAddr("fd00:10::90")}
	for _, a := range []string{"10.0.0.90/24", "fd00:10::90/64"} {
		_, err := l.vm2.Run(within(t, 10*time.Second), "ip", "addr", "add", a, "dev", lab.PodDevice, "nodad")
		must(t, err)
	}
	l.w2.send(silent.garp(t))
	l.w2.send(silent.na(t, 0x20))
	steady, dead, tagged := stationN(1), stationN(2), stationN(5)
	tag := []byte{0x81, 0, 0, 100}
	l.w1.answers(tagged, tag...)
	l.w1.send(slices.Concat(tagged.garp(t)[:12], tag, tagged.garp(t)[12:]))
	l.w1.send(dead.garp(t))
	l.w1.send(dead.na(t, 0x20))
	diedAt := time.Now()
	stop := l.w1.repeat(20*time.Millisecond, steady.udp(t, l.c.MAC, l.c.IP4()))
	defer stop()
	l.wantHolder(steady, "node1", steady.v4)
	l.wantHolder(dead, "node1", dead.v4, dead.v6)
	l.wantHolder(silent, "node2", silent.v4, silent.v6)
	l.wantHolder(tagged, "node1", tagged.v4)
	began, written := time.Now(), len(l.writes())
	l.wantNobody(20*time.Second, dead)
	t.Logf("the dead station went %v after its last frame; the expiry is %v", time.Since(diedAt).Round(10*time.Millisecond), quickExpiry)
	time.Sleep(time.Until(began.Add(3 * quickExpiry))) // the span is the test
	l.wantHolder(steady, "node1", steady.v4)
	l.wantHolder(silent, "node2", silent.v4, silent.v6)
	l.wantHolder(tagged, "node1", tagged.v4)
	span := time.Since(began)
	most := int(span/quickRefresh) + 2
	for object, what := range map[string]string{
		name("red", steady.mac.String()): "fdbentries", name("red", steady.v4.String()): "neighbors",
		name("red", tagged.mac.String()): "fdbentries", name("red", tagged.v4.String()): "neighbors",
		name("red", silent.mac.String()): "fdbentries", name("red", silent.v4.String()): "neighbors", name("red", silent.v6.String()): "neighbors",
	} {
		got := countWrites(l.writes()[written:], object)
		if got["delete "+what] > 0 || got["create "+what] > 0 || got["patch "+what] > most || got["patch "+what] == 0 {
			t.Errorf("writes of %s in %v: %v, want 1 to %d patches and nothing else", object, span.Round(time.Millisecond), got, most)
		}
		t.Logf("%s: %v in %v", object, got, span.Round(time.Millisecond))
	}
	if got := countWrites(l.writes()[written:], name("red", l.c.MAC)); len(got) > 0 {
		t.Errorf("the static binding of c was written: %v", got)
	}
	for _, a := range []netip.Addr{silent.v4, silent.v6} {
		_, err := l.c.Run(within(t, 20*time.Second), "ping", "-c", "3", "-W", "2", a.String())
		must(t, err)
	}
}

// deviceMAC is the MAC of a pod's device.
func (c *cluster) deviceMAC(p *lab.Pod) (mac net.HardwareAddr) {
	c.t.Helper()
	must(c.t, p.Do(func() error {
		dev, err := net.InterfaceByName(lab.PodDevice)
		if err == nil {
			mac = dev.HardwareAddr
		}
		return err
	}))
	return mac
}

// reasons are those of the Events of an endpoint.
func (c *cluster) reasons(endpoint string) (all []string) {
	c.t.Helper()
	scheme := runtime.NewScheme()
	must(c.t, corev1.AddToScheme(scheme))
	config := c.server.Config()
	config.GroupVersion, config.APIPath = &corev1.SchemeGroupVersion, "/api"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	r, err := rest.RESTClientFor(config)
	must(c.t, err)
	var list corev1.EventList
	must(c.t, r.Get().Resource("events").Do(within(c.t, 10*time.Second)).Into(&list))
	for _, e := range list.Items {
		if e.InvolvedObject.Name == endpoint {
			all = append(all, e.Reason)
		}
	}
	return all
}

// wantEvent waits for an Event of an endpoint.
func (c *cluster) wantEvent(endpoint, reason string) {
	c.t.Helper()
	c.eventually(20*time.Second, "an Event "+reason+" of "+endpoint, func() error {
		if got := c.reasons(endpoint); !slices.Contains(got, reason) {
			return fmt.Errorf("there are %v", got)
		}
		return nil
	})
}

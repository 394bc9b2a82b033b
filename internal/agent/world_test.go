package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/device/devicetest"
	"picot.dev/picot/internal/linkmon"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/routes"
	"picot.dev/picot/internal/routes/routestest"
)

// world is a node whose kernel is in memory, and agents on it, one after another.
// It lives in a synctest bubble: time passes only when everybody waits.
type world struct {
	t       *testing.T
	devices *devicetest.Kernel
	routes  *routestest.Kernel
	links   []linkmon.Event
	log     *logLines
	config  Config

	agent  *Agent
	cancel context.CancelFunc
	end    chan error // what loop returned
}

const (
	uplinkIndex = 10
	uplinkName  = "up0"
	workloads   = 3 // devices v1, v2, v3 with the indexes 101, 102, 103
)

// inWorld runs a test in a world with an uplink and the workload devices, which
// is a good node of a small cluster once its sources say so.
func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, devices: devicetest.New(), routes: routestest.New(), log: &logLines{}}
		w.plug(uplinkIndex, uplinkName)
		for i := 1; i <= workloads; i++ {
			w.plug(100+i, fmt.Sprintf("v%d", i))
		}
		w.routes.SetLink(uplinkIndex, routes.Link{Name: uplinkName, MAC: packet.MAC{2, 0, 0, 0, 1, 0}, MTU: 1600})
		gateway := netip.MustParseAddr("fd00::fe")
		w.routes.SetNeighbor(routes.Neighbor{
			NeighborKey: routes.NeighborKey{Link: uplinkIndex, IP: gateway}, MAC: packet.MAC{2, 0, 0, 0, 9, 9}, Usable: true,
		})
		for _, n := range good().Nodes {
			l, err := srv6.LocatorFrom(n.Locator)
			if err != nil {
				t.Fatal(err)
			}
			w.routes.SetHops(srv6.NewSID(l, srv6.DefaultFunction, 0, 0).Addr(), routes.Hop{Link: uplinkIndex, Gateway: gateway, Weight: 1})
		}
		w.config = Config{
			NodeName: "node1", Uplinks: []string{uplinkName}, Manifests: t.TempDir(), RunDir: t.TempDir(), BPFFS: t.TempDir(),
			MaxPorts: 16, Log: slog.New(slog.NewTextHandler(w.log, nil)),
		}
		if err := w.config.Validate(); err != nil {
			t.Fatal(err)
		}
		defer w.die()
		test(w)
	})
}

func (w *world) plug(index int, name string) {
	w.devices.AddDevice(index, name, 1)
	w.links = append(w.links, linkmon.Event{Kind: linkmon.Added, Link: linkmon.Link{
		Index: index, Name: name, MTU: 1500, Admin: true, Carrier: true, Up: true,
	}})
}

// good is the desired state: one network of both families, an endpoint on each
// workload device, another node with an endpoint of its own.
func good() desired.State {
	c := desired.Candidates{
		Networks: []desired.Network{{
			Name: "red", ID: 100, LinkLocal: true,
			Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00:10::/64")},
		}},
		Nodes: []desired.Node{
			{Name: "node1", Locator: netip.MustParsePrefix("2001:db8:0:1::/64")},
			{Name: "node2", Locator: netip.MustParsePrefix("2001:db8:0:2::/64"), NextHop: netip.MustParseAddr("fd00::fe")},
		},
	}
	for i := 1; i <= workloads+1; i++ {
		e := endpoint(i)
		if i > workloads {
			e.Node = "node2"
		}
		c.Endpoints = append(c.Endpoints, e)
	}
	s, problems := desired.Resolve(c, nil)
	if len(problems) > 0 {
		panic(fmt.Sprint(problems))
	}
	return s
}

// families are the address families, with endpoint i's address. Whatever a test
// holds of endpoints it holds of both; the underlay is IPv6 only, by SRv6.
var families = []struct {
	name string
	of   func(i int) netip.Addr
}{
	{"v4", func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + i)}) }},
	{"v6", func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00:10::%d", 10+i)) }},
}

func endpoint(i int) desired.Endpoint {
	return desired.Endpoint{
		EndpointRef: desired.EndpointRef{EndpointKey: desired.EndpointKey{Namespace: "default", Name: fmt.Sprintf("p%d", i)}},
		Network:     "red", Node: "node1", MAC: packet.MAC{2, 0, 0, 0, 0, byte(i)}, Interface: fmt.Sprintf("v%d", i),
		Addresses: []netip.Addr{families[0].of(i), families[1].of(i)},
	}
}

// all turns nothing into s.
func all(s desired.State) desired.Delta { return desired.Diff(desired.NewState(), s) }

// start starts an agent that knows nothing yet.
func (w *world) start() {
	w.t.Helper()
	a, err := assembleOn(platform{devices: w.devices, routes: w.routes, close: func() {}}, w.config, []int{1}, packet.HashKey{1, 2})
	if err != nil {
		w.t.Fatal(err)
	}
	engine, err := fastpath.New(a.engineConfig()) // never started: no sockets in it
	if err != nil {
		w.t.Fatal(err)
	}
	a.setEngine(engine)
	a.ports.sockets, a.ups.sockets, a.repair.engine = w.devices, w.devices, noFrames{}
	w.agent = a
	w.run()
}

// run runs the loop of the agent.
func (w *world) run() {
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	w.end = make(chan error, 1)
	go func() { w.end <- w.agent.loop(ctx) }()
}

// noFrames takes every frame of a repair.
type noFrames struct{}

func (noFrames) Send(int, []byte) error { return nil }

// die ends the agent as SIGKILL does.
func (w *world) die() {
	if w.agent == nil {
		return
	}
	w.cancel()
	synctest.Wait()
	if err := w.agent.engine.Stop(); err != nil {
		w.t.Error(err)
	}
	w.agent = nil
	w.devices.Die()
}

func (w *world) listLinks()             { w.agent.links <- w.links }
func (w *world) say(d desired.Delta)    { w.agent.desired <- update{delta: d, open: true} }
func (w *world) sayNot(d desired.Delta) { w.agent.desired <- update{delta: d} }

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// started is start with both sources in sync and everything done.
func (w *world) started() {
	w.t.Helper()
	w.start()
	w.listLinks()
	w.say(all(good()))
	w.pass(time.Second)
	if waiting := w.waiting(); len(waiting) > 0 {
		w.t.Fatalf("not ready: %q", waiting)
	}
	w.bound("once ready", good())
	w.mutations()
}

func (w *world) waiting() (list []string) {
	w.t.Helper()
	w.ask(func() { list = w.agent.waiting() })
	return list
}

func (w *world) ask(f func()) {
	w.t.Helper()
	if err := w.agent.ask(context.Background(), f); err != nil {
		w.t.Fatal(err)
	}
}

// mutations are those of both kernels since the last call, sorted.
func (w *world) mutations() []string {
	m := append(w.devices.Mutations(), w.routes.Mutations()...)
	slices.Sort(m)
	return m
}

// want wants exactly these mutations since the last call, in any order.
func (w *world) want(what string, want ...string) {
	w.t.Helper()
	got := w.mutations()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: mutations\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// bound wants of the workers' tables that the addresses of those endpoints that are
// in s lead to their MACs, and those of no other to any: of both families.
func (w *world) bound(what string, s desired.State) {
	w.t.Helper()
	w.ask(func() {
		snapshot := w.agent.tables.last
		net, _ := snapshot.NetworkByID(100) // the zero one has nothing
		for i := 1; i <= workloads+1; i++ {
			e, want := s.Endpoints[endpoint(i).EndpointKey]
			for _, f := range families {
				n, ok := snapshot.Neighbor(net, packet.IPFromAddr(f.of(i)))
				if ok != want || ok && n.MAC48() != e.MAC.Uint64() {
					w.t.Errorf("%s, %s: endpoint %d known: %t, want %t", what, f.name, i, ok, want)
				}
			}
		}
	})
}

// closed wants no workload device open to the host's stack.
func (w *world) closed(what string) {
	w.t.Helper()
	if open := w.devices.Open("v"); len(open) > 0 {
		w.t.Errorf("%s: %v are open", what, open)
	}
}

// ended is the error the loop ended with, if it has.
func (w *world) ended() (err error, ended bool) {
	select {
	case err = <-w.end:
		w.end <- err
		return err, true
	default:
		return nil, false
	}
}

// logLines counts and keeps what is logged.
type logLines struct {
	mu   sync.Mutex
	text []string
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, string(b))
	return len(b), nil
}

func (l *logLines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.text)
}

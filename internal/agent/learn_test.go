package agent

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/learning"
)

// recorder is a sink that keeps what it gets.
type recorder struct {
	writes []learning.Write
	events []learning.Event
}

func (r *recorder) Write(w learning.Write) { r.writes = append(r.writes, w) }
func (r *recorder) Event(e learning.Event) { r.events = append(r.events, e) }

// bench is a learner whose steps the test makes, in network red with the
// endpoint vm on port 1. Its stations speak one family.
type learnBench struct {
	*learner
	t    *testing.T
	sink *recorder
	of   func(n int) netip.Addr // the station's address
}

const benchPort = table.PortID(1<<16 | 1)

var benchEndpoint = desired.EndpointKey{Namespace: "default", Name: "vm"}

// learnInBoth runs a test with stations of IPv4, and with stations of IPv6.
func learnInBoth(t *testing.T, test func(*testing.T, func() *learnBench)) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			test(t, func() *learnBench {
				b := newLearnBench(t)
				b.of = f.of
				return b
			})
		})
	}
}

func newLearnBench(t *testing.T) *learnBench {
	t.Helper()
	c := Config{NodeName: "node1", Uplinks: []string{"up0"}, Manifests: "x"}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	l, err := newLearner(&c, r)
	if err != nil {
		t.Fatal(err)
	}
	e, err := fastpath.New(fastpath.Config{Workers: 1, MaxPorts: 2, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	l.source = e.Observations()
	l.skew = l.mono() - l.source.Now()
	return &learnBench{learner: l, t: t, sink: r}
}

// all steps until nothing waits.
func (b *learnBench) all() {
	for b.step() {
	}
}

func (b *learnBench) red(listed bool) {
	n := desired.Network{Name: "red", ID: 1, Learning: desired.Learning{Enabled: true},
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00:10::/64")}}
	hosted := map[string]bool{}
	if listed {
		hosted["red"] = true
	}
	b.onDesired(desired.Delta{Networks: map[string]*desired.Network{"red": &n}}, hosted, true)
}

func (b *learnBench) endpoint() {
	e := desired.Endpoint{Network: "red", Node: "node1"}
	e.EndpointKey = benchEndpoint
	b.onDesired(desired.Delta{Endpoints: map[desired.EndpointKey]*desired.Endpoint{benchEndpoint: &e}}, map[string]bool{"red": true}, true)
}

func (b *learnBench) port(id table.PortID, up bool) {
	b.onPorts(map[table.PortID]learning.Port{id: {ID: id, Endpoint: learning.EndpointKey(benchEndpoint), Up: up}}, true)
}

// frame has the port's worker report a frame of the station with that number.
func (b *learnBench) frame(n int) {
	b.tell(func() {
		b.observe(learning.Observation{
			IP: packet.IPFromAddr(b.of(n)), MAC: packet.MACFromUint64(2<<40 | uint64(n)), Time: b.source.Now(), Port: benchPort, Class: arpnd.Strong,
		})
	})
}

// both are the lines of a station's two bindings.
func (b *learnBench) both(op string, n int) []string {
	return []string{fmt.Sprintf("%s red %v", op, packet.MACFromUint64(2<<40|uint64(n))), fmt.Sprintf("%s red %v", op, b.of(n))}
}

// wrote takes the writes so far as text.
func (b *learnBench) wrote() (all []string) {
	b.all()
	for _, w := range b.sink.writes {
		all = append(all, w.Op.String()+" "+w.Key.String())
	}
	b.sink.writes = nil
	return all
}

func (b *learnBench) want(what string, want ...string) {
	b.t.Helper()
	got := b.wrote()
	if len(got) != len(want) {
		b.t.Fatalf("%s: wrote %q, want %q", what, got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			b.t.Fatalf("%s: wrote %q, want %q", what, got, want)
		}
	}
}

// TestNothingIsWrittenBeforeTheGates: whichever of sources, ports and the right to
// write comes last, the claims made before are written then.
func TestNothingIsWrittenBeforeTheGates(t *testing.T) {
	steps := []func(*learnBench){
		func(b *learnBench) { b.red(true); b.endpoint() },
		func(b *learnBench) { b.port(benchPort, true) },
		func(b *learnBench) { b.mayWrite(true) },
	}
	learnInBoth(t, func(t *testing.T, bench func() *learnBench) {
		for last := range steps {
			b := bench()
			for i, f := range steps {
				if i != last {
					f(b)
				}
			}
			b.frame(7)
			b.want("before the last gate")
			steps[last](b)
			b.want("after it", b.both("create", 7)...)
		}
	})
}

// TestFirstFramesOfAPortAreKept: a station that speaks once, before its port is
// known to be up or its network's bindings are listed, is learned.
func TestFirstFramesOfAPortAreKept(t *testing.T) {
	learnInBoth(t, func(t *testing.T, bench func() *learnBench) { firstFrames(t, bench()) })
}

func firstFrames(t *testing.T, b *learnBench) {
	b.mayWrite(true)
	b.red(false)
	b.port(benchPort, false)
	b.frame(7)
	b.want("port down, network not listed")
	b.red(true)
	b.endpoint()
	b.want("port down")
	b.port(benchPort, true)
	b.want("port up", b.both("create", 7)...)
	for i := range uint64(2 * earlyMost) {
		b.tell(func() {
			b.observe(learning.Observation{Port: benchPort + 1, MAC: packet.MACFromUint64(i), Class: arpnd.Strong})
		})
	}
	b.all()
	if len(b.early) != earlyMost {
		t.Errorf("%d observations kept of a port nobody knows", len(b.early))
	}
	b.tell(func() { b.now.Mono += earlyFor + b.skew; b.replay() })
	b.all()
	if len(b.early) != 0 {
		t.Errorf("%d observations kept for ever", len(b.early))
	}
}

// store is what the cluster makes of a write; it returns what it has then.
func (b *learnBench) store(w learning.Write) learning.Binding {
	w.New.Version = learning.Version{UID: w.Key.String(), ResourceVersion: "5"}
	b.onStored(w.Key, w.New)
	b.onDone(w.Key, w.Seq, learning.Result{Version: w.New.Version})
	return w.New
}

// oneStation lets everything in, and a first frame come.
func (b *learnBench) oneStation() {
	b.red(true)
	b.endpoint()
	b.port(benchPort, true)
	b.mayWrite(true)
	b.frame(7)
	b.all()
}

// TestPortMadeAnewKeepsItsBindings: sockets that had to be made anew are another
// port; what was learned stays. A port that goes takes it along.
func TestPortMadeAnewKeepsItsBindings(t *testing.T) {
	learnInBoth(t, func(t *testing.T, bench func() *learnBench) {
		b := bench()
		b.oneStation()
		for _, w := range b.sink.writes {
			b.store(w)
		}
		b.wrote()
		b.port(benchPort+1<<16, true)
		b.want("made anew")
		b.onPorts(nil, true)
		b.want("gone", b.both("delete", 7)...)
	})
}

// TestLearningSettings: times that cannot be are refused at the start, and named.
func TestLearningSettings(t *testing.T) {
	for _, l := range []Learning{
		{Options: learning.Options{Expiry: time.Minute}},
		{ShortSlot: time.Hour},
		{Observations: -1},
	} {
		c := Config{NodeName: "node1", Manifests: "x", Learning: l}
		if err := c.Validate(); err == nil {
			t.Errorf("%+v was taken", l)
		}
	}
	ms := time.Millisecond
	c := Config{NodeName: "node1", Manifests: "x", Learning: Learning{Options: learning.Options{
		ReReport: 30 * ms, Refresh: 60 * ms, Probe: 100 * ms, Expiry: 300 * ms, BackoffMin: ms, BackoffMax: 30 * ms, ClockSkew: 30 * ms,
		AskTimeout: 10 * ms, ProbeQuiet: 10 * ms}}}
	if err := c.Validate(); err != nil {
		t.Errorf("milliseconds: %v", err)
	}
	if c.Learning.ShortSlot != 30*ms {
		t.Errorf("short slot %v", c.Learning.ShortSlot)
	}
}

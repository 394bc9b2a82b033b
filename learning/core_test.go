package learning

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/internal/packet"
)

func TestOptionsInequality(t *testing.T) {
	if err := (Options{}).Validate(); err != nil {
		t.Fatalf("the defaults: %v", err)
	}
	ms := time.Millisecond
	small := Options{ReReport: 30 * ms, Refresh: 60 * ms, Probe: 100 * ms, Expiry: 300 * ms, BackoffMin: ms, BackoffMax: 30 * ms,
		ClockSkew: 30 * ms, AskTimeout: 10 * ms, ProbeQuiet: 10 * ms, MoveWindow: 180 * ms, Freeze: 540 * ms}
	if err := small.Validate(); err != nil {
		t.Fatalf("a thousandth of the defaults: %v", err)
	}
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Expiry: 150 * time.Second}, "is not below the expiry of 2m30s"},
		{Options{Refresh: 250 * time.Second}, "refresh 4m10s"},
		{Options{BackoffMax: 200 * time.Second}, "worst write backoff 3m20s"},
		{Options{Probe: 20 * time.Second}, "raise the probe time"},
		{Options{Probe: 299500 * ms}, "lower the probe time"},
		{Options{BackoffMin: time.Minute}, "least write backoff"},
		{Options{Freeze: -1}, "times are positive"},
		{Options{MaxMACs: -1}, "limits are positive"},
	} {
		err := tt.o.Validate()
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
		if _, err := NewCore("A", tt.o); !errors.Is(err, ErrOptions) {
			t.Errorf("NewCore with %+v: %v", tt.o, err)
		}
	}
}

// lab is a sim with one network and one port on each node.
func lab(t testing.TB, o Options, nodes ...string) *sim {
	s := newSim(t, o, nodes...)
	s.setNetwork(Network{Name: modelNet, Prefixes: modelPrefixes, LinkLocal: true, Learning: true})
	for _, n := range s.nodes {
		addPort(s, n, "vm")
	}
	return s
}

func addPort(s *sim, n *simNode, name string) {
	s.setEndpoint(n, Endpoint{EndpointRef: EndpointRef{EndpointKey: EndpointKey{"default", name}}, Network: modelNet})
	s.setPort(n, name, true)
}

func macN(i int) packet.MAC { return packet.MACFromUint64(0x020000000000 + uint64(i)) }
func ipN(i int) packet.IP   { return packet.IPFrom4(10<<24 + uint32(i&0xff)) }

func TestLimitsOfAPort(t *testing.T) {
	s := lab(t, Options{MaxMACs: 10, MaxAddresses: 3}, "A")
	a := s.nodes[0]
	for i := range 1000 {
		s.observe(a, "vm", macN(i+1), packet.IP{}, arpnd.Strong, 0)
	}
	if len(s.store) != 10 || len(a.core.entries) != 10 {
		t.Errorf("%d bindings, %d entries in memory, want 10", len(s.store), len(a.core.entries))
	}
	if got := a.core.Stats().MACLimit; got != 990 || s.events[EventMACLimit] != 1 {
		t.Errorf("%d refused with %d events, want 990 with 1", got, s.events[EventMACLimit])
	}
	for i := range 100 {
		s.observe(a, "vm", macN(1), ipN(i+1), arpnd.Strong, 0)
	}
	if got := a.core.Stats().AddressLimit; got != 97 || s.events[EventAddressLimit] != 1 || len(s.store) != 13 {
		t.Errorf("%d addresses refused with %d events, %d bindings, want 97 with 1, 13", got, s.events[EventAddressLimit], len(s.store))
	}
	// Another port has limits of its own.
	addPort(s, a, "other")
	s.observe(a, "other", macN(5000), ipN(200), arpnd.Strong, 0)
	if len(s.store) != 15 {
		t.Errorf("the other port learned nothing")
	}
	// Room again, told again.
	s.setPort(a, "vm", false)
	s.setPort(a, "vm", true)
	for i := range 20 {
		s.observe(a, "vm", macN(100+i), packet.IP{}, arpnd.Strong, 0)
	}
	if s.events[EventMACLimit] != 2 {
		t.Errorf("%d events after the port had room again, want 2", s.events[EventMACLimit])
	}
	id := a.ports["vm"]
	for range 5 {
		a.core.ObservationsDropped(id, 1000, s.now(a))
		s.pump()
	}
	if s.events[EventRateLimit] != 1 {
		t.Errorf("%d events for the observation limit, want 1", s.events[EventRateLimit])
	}
}

// 10,000 bindings on two nodes: refreshes stay within 100 a second together, the
// interval stretches, nothing expires, and creates and takeovers do not wait.
func TestRefreshBudget(t *testing.T) {
	s := lab(t, Options{MaxMACs: 10_000}, "A", "B")
	const each = 5000
	speak := func() {
		for i := range each {
			for k, n := range s.nodes {
				n.core.Observe(Observation{Port: n.ports["vm"], MAC: macN(1 + 2*i + k), Class: arpnd.Strong, Time: s.mono}, s.now(n))
			}
		}
		s.pump()
	}
	speak()
	if s.ops[OpCreate] != 2*each {
		t.Fatalf("%d creates at once, want %d", s.ops[OpCreate], 2*each)
	}
	for round := range 20 { // 600 s: each is seen every 30 s
		before := s.ops[OpRefresh]
		s.advance(15 * time.Second)
		if round > 4 {
			created, moved := s.ops[OpCreate], s.ops[OpTakeOver]
			s.observe(s.nodes[0], "vm", macN(100_000+round), packet.IP{}, arpnd.Strong, 0)
			s.observe(s.nodes[0], "vm", macN(2+2*round), packet.IP{}, arpnd.Strong, 0)
			if s.ops[OpCreate] != created+1 || s.ops[OpTakeOver] != moved+1 {
				t.Fatalf("a create or a takeover waits behind %d refreshes", s.nodes[0].core.Stats().RefreshesQueue)
			}
		}
		s.advance(15 * time.Second)
		if got := s.ops[OpRefresh] - before; got > 30*100+2*9 {
			t.Errorf("%d refreshes in 30 s, the budget is 3000", got)
		}
		speak()
	}
	if got := s.ops[OpRefresh]; got < 50_000 {
		t.Errorf("%d refreshes in 600 s, the budget of 60,000 is not used", got)
	}
	for i := range 2 * each {
		if _, ok := s.store[FDB(modelNet, macN(1+i))]; !ok {
			t.Fatalf("station %d is gone", i)
		}
	}
}

// The entry is refreshed between the decision to delete it and the delete.
func TestSweepOfAnEntryRefreshedMeanwhile(t *testing.T) {
	s := lab(t, Options{}, "A")
	a := s.nodes[0]
	k := FDB(modelNet, macN(1))
	s.observe(a, "vm", macN(1), packet.IP{}, arpnd.Strong, 0)
	s.fail = func(_ *simNode, w Write) Outcome {
		if w.Op == OpDelete {
			s.fail = nil
			b := s.store[k]
			b.LastObserved++
			s.put(k, b)
			a.core.Observe(Observation{Port: a.ports["vm"], MAC: macN(1), Class: arpnd.Strong, Time: s.mono}, s.now(a))
		}
		return Stored
	}
	s.advance(301 * time.Second)
	if s.ops[OpDelete] != 1 {
		t.Fatalf("%d deletes tried, want 1", s.ops[OpDelete])
	}
	s.advance(200 * time.Second)
	if _, ok := s.store[k]; !ok || s.ops[OpDelete] != 1 {
		t.Errorf("the entry is there: %v, %d deletes tried", ok, s.ops[OpDelete])
	}
}

// The data plane saw what its ring had no room to tell.
func TestSweepAsksTheDataPlane(t *testing.T) {
	s := lab(t, Options{}, "A")
	a := s.nodes[0]
	s.observe(a, "vm", macN(1), ipN(1), arpnd.Strong, 0)
	supp := a.supp[a.ports["vm"]]
	s.verbose = testing.Verbose()
	s.advance(200 * time.Second)
	see(supp, macN(1).Uint64(), ipN(1), arpnd.Strong, 0, true, 1, s.mono) // told to nobody
	s.advance(299 * time.Second)
	if s.ops[OpDelete] != 0 || len(s.store) != 2 {
		t.Fatalf("%d deletes, %d left", s.ops[OpDelete], len(s.store))
	}
	s.advance(2 * time.Second)
	if s.ops[OpDelete] != 2 || len(s.store) != 0 {
		t.Errorf("%d deletes, %d left", s.ops[OpDelete], len(s.store))
	}
}

func TestNoDeleteWithoutAnAnswer(t *testing.T) {
	c, _ := NewCore("A", Options{})
	now := Now{Mono: second, Wall: simWall}
	c.SetNetwork(Network{Name: modelNet, Learning: true}, now)
	ref := EndpointRef{EndpointKey{"default", "vm"}, "u"}
	c.SetEndpoint(Endpoint{EndpointRef: ref, Network: modelNet}, now)
	c.SetPort(Port{ID: 7, Endpoint: ref.EndpointKey, Up: true}, now)
	k := FDB(modelNet, macN(1))
	c.Set(k, Binding{Node: "A", Endpoint: ref, Version: Version{"x", "1"}}, now)
	c.Gate(true, now)
	asks := 0
	for range 700 {
		now.Mono += second
		c.Tick(now)
		out := c.Take()
		asks += len(out.Asks)
		if len(out.Writes) != 0 {
			t.Fatalf("at %d s: %+v", now.Mono/second, out.Writes)
		}
	}
	if asks < 300 {
		t.Errorf("asked %d times in 400 s", asks)
	}
	c.LastSeen(k, 0, false, now)
	if out := c.Take(); len(out.Writes) != 1 || out.Writes[0].Op != OpDelete || out.Writes[0].From != (Version{"x", "1"}) {
		t.Errorf("after the answer: %+v", out)
	}
}

// Nothing happens before everything is known.
func TestShutGate(t *testing.T) {
	c, _ := NewCore("A", Options{})
	now := Now{Mono: second, Wall: simWall}
	ref := EndpointRef{EndpointKey{"default", "gone"}, "u"}
	c.Set(FDB(modelNet, macN(1)), Binding{Node: "A", Endpoint: ref, Version: Version{"x", "1"}}, now)
	c.Set(FDB(modelNet, macN(2)), Binding{Static: true, Node: "A", Endpoint: ref, Version: Version{"y", "2"}}, now)
	now.Mono += 1000 * second
	c.Tick(now)
	if out := c.Take(); len(out.Writes)+len(out.Asks)+len(out.Probes) > 0 || c.Next() != 0 {
		t.Fatalf("behind a shut gate: %+v, next %d", out, c.Next())
	}
	c.Gate(true, now)
	if out := c.Take(); len(out.Writes) != 2 || out.Writes[0].Op != OpDelete || out.Writes[1].Op != OpDelete {
		t.Errorf("orphans when the gate opens: %+v", out.Writes)
	}
}

func TestGatewayIsNotLearned(t *testing.T) {
	s := newSim(t, Options{}, "A")
	gw, gwMAC := ipN(254), macN(0xfe)
	s.setNetwork(Network{Name: modelNet, Prefixes: modelPrefixes, Learning: true, Gateway: []packet.IP{gw}, GatewayMAC: gwMAC})
	a := s.nodes[0]
	addPort(s, a, "vm")
	s.observe(a, "vm", gwMAC, ipN(1), arpnd.Strong, 0)
	s.observe(a, "vm", arpnd.ProbeMAC(), ipN(2), arpnd.Strong, 0)
	s.observe(a, "vm", packet.Broadcast, ipN(3), arpnd.Strong, 0)
	s.observe(a, "vm", packet.MAC{}, ipN(3), arpnd.Strong, 0)
	if len(s.store) != 0 {
		t.Fatalf("learned %v", s.store)
	}
	s.observe(a, "vm", macN(1), gw, arpnd.Strong, 0)
	if _, ok := s.store[Neighbor(modelNet, gw)]; ok || len(s.store) != 1 {
		t.Errorf("learned %v, want the station's MAC alone", s.store)
	}
}

func TestServes(t *testing.T) {
	if forward, answer := Serves(true); !forward || !answer {
		t.Error("an owner that lives is answered for")
	}
	if forward, answer := Serves(false); !forward || answer {
		t.Error("a dead node's bindings forward and are neither answered nor defended")
	}
}

func TestRefreshDirtiesNothing(t *testing.T) {
	a := Binding{Node: "A", MAC: macN(1), Segment: 3}
	b := a
	b.LastObserved, b.Moves, b.MovesSince, b.FrozenUntil, b.Version = 1, 2, 3, 4, Version{"u", "9"}
	if !a.Same(b) {
		t.Error("bookkeeping makes a difference")
	}
	for _, c := range []Binding{{}, {Node: "B", MAC: a.MAC, Segment: 3}, {Node: "A", MAC: a.MAC}, {Node: "A", Segment: 3}} {
		if a.Same(c) {
			t.Errorf("%+v makes no difference", c)
		}
	}
}

func TestBackoffIsBounded(t *testing.T) {
	s := lab(t, Options{}, "A")
	a := s.nodes[0]
	tried := []int64{}
	s.fail = func(_ *simNode, w Write) Outcome {
		tried = append(tried, s.mono)
		return Failed
	}
	a.cut = true
	for range 300 {
		s.observe(a, "vm", macN(1), packet.IP{}, arpnd.Strong, 0)
		s.advance(time.Second)
	}
	if n := s.ops[OpCreate]; n < 15 || n > 30 {
		t.Errorf("%d tries in 300 s with a backoff from 100 ms to 30 s", n)
	}
}

func TestMovesAreRemembered(t *testing.T) {
	s := lab(t, Options{}, "A", "B")
	for i := range 300 {
		s.observe(s.nodes[i&1], "vm", macN(i/4+1), packet.IP{}, arpnd.Strong, 0)
	}
	moves := s.nodes[0].core.Moves()
	if len(moves) != 225 || moves[0].Key != FDB(modelNet, macN(75)) || moves[0].From.Node != "A" || moves[0].To.Node != "B" {
		t.Errorf("%d moves, the last %+v", len(moves), moves[0])
	}
}

// Random events with everything that goes wrong between nodes: late watches, slow
// and failing writes, conflicts, cuts, clocks. The sim holds the rules of every
// write; here, that it all comes to rest where the stations are.
func TestChaosConverges(t *testing.T) {
	seeds := min(*modelSeeds, 500)
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(uint64(seed), 2))
		s := lab(t, Options{MaxMoves: 1000}, "A", "B", "C")
		s.unknown, s.skewed = rnd.IntN(2) == 0, true
		for _, n := range s.nodes {
			n.delay, n.lag = rnd.Int64N(500_000_000), rnd.Int64N(300_000_000)
			n.skew = rnd.Int64N(60_000_000) - 30_000_000
		}
		s.fail = func(*simNode, Write) Outcome {
			return []Outcome{Stored, Stored, Stored, Stored, Stored, Failed, Conflict}[rnd.IntN(7)]
		}
		at := map[int]*simNode{}
		for range 300 {
			i, n := 1+rnd.IntN(3), s.nodes[rnd.IntN(3)]
			switch r := rnd.IntN(40); {
			case r == 0:
				n.cut = !n.cut
			case r == 1:
				n.skew -= 3_600_000_000
			case r == 2:
				s.setPort(n, "vm", rnd.IntN(3) != 0)
			default:
				at[i] = n
				s.frame(n, "vm", macN(i), ipN(i), arpnd.Strong, Flags(rnd.IntN(2))&Announce)
			}
			s.advance(time.Duration(rnd.Int64N(400)) * time.Millisecond)
		}
		// Quiet: the network heals, each station goes on talking where it is.
		s.fail = nil
		for _, n := range s.nodes {
			n.cut = false
			s.setPort(n, "vm", true)
		}
		for range 100 {
			for i, n := range at {
				s.frame(n, "vm", macN(i), ipN(i), arpnd.Strong, 0)
			}
			s.advance(time.Second)
		}
		deletes, moves := s.ops[OpDelete], s.ops[OpTakeOver]
		for range 100 {
			for i, n := range at {
				s.frame(n, "vm", macN(i), ipN(i), arpnd.Strong, 0)
			}
			s.advance(time.Second)
		}
		for i, n := range at {
			f, nb := s.store[FDB(modelNet, macN(i))], s.store[Neighbor(modelNet, ipN(i))]
			if f.Node != n.name || nb.Node != n.name || nb.MAC != macN(i) {
				t.Fatalf("seed %d: station %d is at %s, its entry at %q, its neighbor at %q %v", seed, i, n.name, f.Node, nb.Node, nb.MAC)
			}
		}
		if s.ops[OpDelete] != deletes || s.ops[OpTakeOver] != moves {
			t.Fatalf("seed %d: at rest, %d deletes and %d moves", seed, s.ops[OpDelete]-deletes, s.ops[OpTakeOver]-moves)
		}
	}
}

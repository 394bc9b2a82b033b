package mirror

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

const (
	macA = "02:00:00:00:00:0a"
	macB = "02:00:00:00:00:0b"
)

// fake is the table as the database would have it: the ops' other side.
type fake struct {
	rows   map[string]Row // by UUID
	next   int
	refuse map[string]bool // "port ip" the database refuses
}

func (f *fake) run(m *Mirror, at time.Time, ops []Op) {
	for _, op := range ops {
		switch k := op.Port + " " + op.IP.String(); {
		case f.refuse[k]:
			m.Done(at, op, Result{Err: errors.New("constraint violation")})
		case op.Kind == Insert:
			f.next++
			id := fmt.Sprint("u", f.next)
			f.rows[id] = Row{id, op.Port, op.IP.String(), op.MAC, op.Datapath, op.Timestamp}
			m.Done(at, op, Result{UUID: id})
		default:
			r, ok := f.rows[op.UUID]
			if !ok {
				m.Done(at, op, Result{})
				continue
			}
			r.Timestamp = op.Timestamp
			if op.Kind == Change {
				r.MAC, r.Datapath = op.MAC, op.Datapath
			}
			f.rows[op.UUID] = r
			m.Done(at, op, Result{Count: 1})
		}
	}
}

func (f *fake) get(port, ip string) (Row, bool) {
	for _, r := range f.rows {
		if r.Port == port && r.IP == ip {
			return r, true
		}
	}
	return Row{}, false
}

var t0 = time.UnixMilli(1_700_000_000_000)

func newFake() *fake { return &fake{rows: map[string]Row{}, refuse: map[string]bool{}} }

func one(followers ...string) []Group { return []Group{{Source: "src", Followers: followers}} }

func input(at time.Time, groups []Group, rows ...Row) Input {
	return Input{Now: at, Groups: groups, Sources: rows, Datapath: func(p string) string { return "dp-" + p }, Skip: func(netip.Addr) bool { return false }}
}

func src(ip, mac string, at time.Time) Row {
	return Row{"s-" + ip, "src", ip, mac, "dp-src", at.UnixMilli()}
}

// settle plans and runs until nothing is left, and gives the kinds of all ops.
func settle(t *testing.T, m *Mirror, f *fake, in Input) map[Kind]int {
	t.Helper()
	kinds := map[Kind]int{}
	for range 5 {
		ops := m.Plan(in)
		if len(ops) == 0 {
			return kinds
		}
		for _, op := range ops {
			kinds[op.Kind]++
		}
		f.run(m, in.Now, ops)
	}
	t.Fatal("does not settle")
	return nil
}

func want(t *testing.T, got map[Kind]int, w map[Kind]int) {
	t.Helper()
	for k := Insert; k <= Refresh; k++ {
		if got[k] != w[k] {
			t.Fatalf("%v: %d ops, want %d (all: %v)", k, got[k], w[k], got)
		}
	}
}

func fresh(ports ...string) (*Mirror, *fake) {
	m := New(150 * time.Second)
	m.Load(ports, nil)
	return m, newFake()
}

func TestMirrorAddReachesEveryFollower(t *testing.T) {
	m, f := fresh("f1", "f2", "f3")
	in := input(t0, one("f1", "f2", "f3"), src("10.0.0.1", macA, t0), src("fd00::1", macB, t0))
	want(t, settle(t, m, f, in), map[Kind]int{Insert: 6})
	for _, p := range []string{"f1", "f2", "f3"} {
		if r, ok := f.get(p, "fd00::1"); !ok || r.MAC != macB || r.Datapath != "dp-"+p || r.Timestamp != t0.UnixMilli() {
			t.Errorf("%s: %+v", p, r)
		}
	}
	if tt := m.Totals(); tt.Bindings != 2 || tt.Desired != 6 || tt.Followers != 3 {
		t.Errorf("%+v", tt)
	}
}

func TestMirrorReplayOfSameMACIsIdempotent(t *testing.T) {
	m, f := fresh("f1")
	in := input(t0, one("f1"), src("10.0.0.1", macA, t0))
	settle(t, m, f, in)
	want(t, settle(t, m, f, in), nil)
	// the same row with another UUID: deleted and learned again
	again := src("10.0.0.1", "02:00:00:00:00:0A", t0.Add(time.Second))
	again.UUID = "other"
	want(t, settle(t, m, f, input(t0.Add(time.Second), one("f1"), again)), nil)
}

func TestMirrorMACChangeIsImmediate(t *testing.T) {
	m, f := fresh("f1", "f2")
	settle(t, m, f, input(t0, one("f1", "f2"), src("10.0.0.1", macA, t0)))
	at := t0.Add(time.Second) // well within the cooldown
	want(t, settle(t, m, f, input(at, one("f1", "f2"), src("10.0.0.1", macB, at))), map[Kind]int{Change: 2})
	if r, _ := f.get("f2", "10.0.0.1"); r.MAC != macB || r.Timestamp != at.UnixMilli() {
		t.Errorf("%+v", r)
	}
}

func TestMirrorDeleteIsNoAction(t *testing.T) {
	m, f := fresh("f1")
	settle(t, m, f, input(t0, one("f1"), src("10.0.0.1", macA, t0)))
	want(t, settle(t, m, f, input(t0.Add(time.Hour), one("f1"))), nil)
	if _, ok := f.get("f1", "10.0.0.1"); !ok {
		t.Error("the follower's row must age by itself")
	}
}

func TestMirrorAddOverExistingRowUpdates(t *testing.T) {
	m := New(150 * time.Second)
	f := newFake()
	f.rows["u"] = Row{"u", "f1", "10.0.0.1", macA, "dp-f1", 5}
	m.Load([]string{"f1"}, []Row{f.rows["u"]})
	want(t, settle(t, m, f, input(t0, one("f1"), src("10.0.0.1", macB, t0))), map[Kind]int{Change: 1})
	if r := f.rows["u"]; r.MAC != macB {
		t.Errorf("%+v", r)
	}
}

func TestMirrorUpdateThatHitsNoRowInserts(t *testing.T) {
	m, f := fresh("f1")
	settle(t, m, f, input(t0, one("f1"), src("10.0.0.1", macA, t0)))
	clear(f.rows) // aged out behind our back
	want(t, settle(t, m, f, input(t0, one("f1"), src("10.0.0.1", macB, t0))), map[Kind]int{Change: 1, Insert: 1})
	if r, ok := f.get("f1", "10.0.0.1"); !ok || r.MAC != macB {
		t.Errorf("%+v", r)
	}
}

// The source's row aged out and was learned again, and the followers' rows had aged out too: the
// new row must reach them although nobody told of their deletes.
func TestMirrorReAddUpsertsFollowersThatExpiredAlone(t *testing.T) {
	m, f := fresh("f1", "f2")
	in := input(t0, one("f1", "f2"), src("10.0.0.1", macA, t0))
	if got := m.Appeared(in); len(got) != 0 {
		t.Fatal("the first call after a reset:", got)
	}
	settle(t, m, f, in)
	if got := m.Appeared(in); len(got) != 0 {
		t.Fatal("nothing new:", got)
	}
	m.Appeared(input(t0, one("f1", "f2")))
	for id, r := range f.rows {
		if r.Port == "f2" {
			delete(f.rows, id)
		}
	}
	again := src("10.0.0.1", macA, t0.Add(300*time.Second))
	again.UUID = "learned again"
	in = input(t0.Add(300*time.Second), one("f1", "f2"), again)
	got := m.Appeared(in)
	if len(got) != 1 {
		t.Fatal(got)
	}
	var left []Row
	for _, r := range f.rows {
		left = append(left, r)
	}
	m.LoadAddresses(got, left)
	want(t, settle(t, m, f, in), map[Kind]int{Insert: 1, Refresh: 1})
	if got := m.Appeared(in); len(got) != 0 {
		t.Fatal(got)
	}
}

func TestMirrorSkips(t *testing.T) {
	m, f := fresh("f1")
	in := input(t0, one("f1"),
		src("172.18.0.2", macA, t0),      // own node
		src("172.18.0.3", macA, t0),      // another node
		src("169.254.0.4", macA, t0),     // masquerade
		src("fd00::5", macA, t0),         // family off
		src("nonsense", macA, t0),        // bad IP
		src("10.0.0.300", macA, t0),      // bad IP
		src("::ffff:10.0.0.1", macA, t0), // IPv4 inside IPv6
		src("fe80::1%eth0", macA, t0),    // zone
		src("224.0.0.1", macA, t0),       // group
		src("10.0.0.1", "nonsense", t0),  // bad MAC
		src("10.0.0.2", "01:00:5e:00:00:01", t0),
		src("10.0.0.3", "00:00:00:00:00:00", t0),
		Row{"x", "stranger", "10.0.0.4", macA, "d", 1},
		src("10.0.0.5", macA, t0))
	skip := map[string]bool{"172.18.0.2": true, "172.18.0.3": true, "169.254.0.4": true, "fd00::5": true}
	in.Skip = func(ip netip.Addr) bool { return skip[ip.String()] }
	want(t, settle(t, m, f, in), map[Kind]int{Insert: 1})
	if _, ok := f.get("f1", "10.0.0.5"); !ok {
		t.Error("the one good row is missing")
	}
	if m.Totals().Skipped != 12 {
		t.Errorf("skipped %d", m.Totals().Skipped)
	}
}

func TestMirrorIPv6TextIsNormalised(t *testing.T) {
	m := New(150 * time.Second)
	f := newFake()
	f.rows["u"] = Row{"u", "f1", "FD00:0:0:0::1", macA, "dp-f1", t0.UnixMilli()}
	m.Load([]string{"f1", "f2"}, []Row{f.rows["u"]})
	want(t, settle(t, m, f, input(t0, one("f1", "f2"), src("fd00:0::0:1", macA, t0))), map[Kind]int{Insert: 1})
	if _, ok := f.get("f2", "fd00::1"); !ok {
		t.Error("not written in the usual spelling")
	}
}

func TestMirrorTwoSpellingsOfOneAddressAreOneBinding(t *testing.T) {
	m, f := fresh("f1")
	in := input(t0, one("f1"), src("fd00:0::1", macA, t0.Add(-time.Minute)), src("fd00::1", macB, t0))
	want(t, settle(t, m, f, in), map[Kind]int{Insert: 1})
	if r, _ := f.get("f1", "fd00::1"); r.MAC != macB {
		t.Error("the newer row counts")
	}
	want(t, settle(t, m, f, in), nil)
}

func TestMirrorTimestampNeverZeroNeverBackwards(t *testing.T) {
	m, f := fresh("f1")
	settle(t, m, f, input(time.UnixMilli(0), one("f1"), src("10.0.0.1", macA, t0)))
	if r, _ := f.get("f1", "10.0.0.1"); r.Timestamp <= 0 {
		t.Fatalf("timestamp %d", r.Timestamp)
	}
	later := t0.Add(time.Hour)
	settle(t, m, f, input(later, one("f1"), src("10.0.0.1", macB, later)))
	// the clock was set back
	settle(t, m, f, input(t0, one("f1"), src("10.0.0.1", macA, t0)))
	if r, _ := f.get("f1", "10.0.0.1"); r.MAC != macA || r.Timestamp != later.UnixMilli() {
		t.Fatalf("%+v, want timestamp %d", r, later.UnixMilli())
	}
}

func TestMirrorNewFollowerGetsAllRows(t *testing.T) {
	m, f := fresh("f1")
	rows := []Row{src("10.0.0.1", macA, t0), src("10.0.0.2", macA, t0), src("fd00::1", macA, t0)}
	settle(t, m, f, input(t0, one("f1"), rows...))
	in := input(t0, one("f1", "f2"), rows...)
	if ops := m.Plan(in); len(ops) != 0 {
		t.Fatal("rows of a port that was not read must not be guessed")
	}
	if m.Known("f2") {
		t.Fatal("f2 was never loaded")
	}
	m.Load([]string{"f2"}, nil)
	want(t, settle(t, m, f, in), map[Kind]int{Insert: 3})
}

func TestMirrorFollowerWithoutPortBindingWaits(t *testing.T) {
	m, f := fresh("f1", "f2")
	in := input(t0, one("f1", "f2"), src("10.0.0.1", macA, t0))
	dp := map[string]string{"f1": "d1"}
	in.Datapath = func(p string) string { return dp[p] }
	want(t, settle(t, m, f, in), map[Kind]int{Insert: 1})
	if m.Totals().Waiting != 1 {
		t.Errorf("waiting %d", m.Totals().Waiting)
	}
	dp["f2"] = "d2"
	want(t, settle(t, m, f, in), map[Kind]int{Insert: 1})
}

func TestMirrorRecreatedRouterIsRefilled(t *testing.T) {
	m, f := fresh("f1")
	in := input(t0, one("f1"), src("10.0.0.1", macA, t0), src("10.0.0.2", macA, t0))
	settle(t, m, f, in)
	clear(f.rows) // northd removes a datapath's rows with it
	in.Datapath = func(string) string { return "new" }
	want(t, settle(t, m, f, in), map[Kind]int{Change: 2, Insert: 2})
	if r, _ := f.get("f1", "10.0.0.2"); r.Datapath != "new" {
		t.Errorf("%+v", r)
	}
	// and when the old rows outlive it, they move
	in.Datapath = func(string) string { return "newer" }
	want(t, settle(t, m, f, in), map[Kind]int{Change: 2})
	if len(f.rows) != 2 {
		t.Errorf("%d rows", len(f.rows))
	}
}

func TestMirrorCooldown(t *testing.T) {
	m, f := fresh("f1")
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	settle(t, m, f, input(t0, one("f1"), src("10.0.0.1", macA, t0)))
	want(t, settle(t, m, f, input(at(149), one("f1"), src("10.0.0.1", macA, at(140)))), nil)
	want(t, settle(t, m, f, input(at(150), one("f1"), src("10.0.0.1", macA, at(140)))), map[Kind]int{Refresh: 1})
	want(t, settle(t, m, f, input(at(299), one("f1"), src("10.0.0.1", macA, at(298)))), nil)
	// a change bypasses it
	want(t, settle(t, m, f, input(at(299), one("f1"), src("10.0.0.1", macB, at(299)))), map[Kind]int{Change: 1})
	// a source that was not seen again refreshes nothing: the follower's row may age
	want(t, settle(t, m, f, input(at(900), one("f1"), src("10.0.0.1", macB, at(299)))), nil)
}

// With the source refreshed now and then, and a sweep every 10 s, no follower's row ever gets as
// old as the threshold.
func TestMirrorCooldownNeverReachesExpiry(t *testing.T) {
	const threshold, sweep, cooldown = 300, 10, 150
	for _, every := range []int{1, 7, 60, 149, 151, 225} {
		m, f := fresh("f1")
		last, refreshes := 0, 0
		for s := 0; s < 7200; s += sweep {
			last = s - s%every
			now := t0.Add(time.Duration(s) * time.Second)
			refreshes += settle(t, m, f, input(now, one("f1"), src("10.0.0.1", macA, t0.Add(time.Duration(last)*time.Second))))[Refresh]
			if r, _ := f.get("f1", "10.0.0.1"); now.UnixMilli()-r.Timestamp >= threshold*1000 {
				t.Fatalf("source every %d s: the row is %d ms old at %d s", every, now.UnixMilli()-r.Timestamp, s)
			}
		}
		if refreshes > 7200/cooldown {
			t.Errorf("source every %d s: %d refreshes in two hours", every, refreshes)
		}
	}
}

func TestMirrorRefusedRowBacksOffAndOthersGo(t *testing.T) {
	m, f := fresh("f1", "f2", "f3")
	f.refuse["f2 10.0.0.1"] = true
	in := input(t0, one("f1", "f2", "f3"), src("10.0.0.1", macA, t0))
	want(t, settle(t, m, f, in), map[Kind]int{Insert: 3})
	if len(f.rows) != 2 {
		t.Fatal("the others must have their rows")
	}
	tries := []int{}
	for s := 1; s <= 300; s++ {
		in.Now = t0.Add(time.Duration(s) * time.Second)
		if ops := m.Plan(in); len(ops) > 0 {
			tries = append(tries, s)
			f.run(m, in.Now, ops)
		}
	}
	if len(tries) < 5 || len(tries) > 10 || tries[1]-tries[0] >= tries[4]-tries[3] {
		t.Fatalf("tried at %v", tries)
	}
	f.refuse = nil
	in.Now = t0.Add(400 * time.Second)
	want(t, settle(t, m, f, in), map[Kind]int{Insert: 1})
	if m.Totals().Retrying != 0 {
		t.Error("still retrying")
	}
}

func TestMirrorRefusedInsertFindsTheRowAfterReading(t *testing.T) {
	m, f := fresh("f1")
	f.refuse["f1 10.0.0.1"] = true
	in := input(t0, one("f1"), src("10.0.0.1", macA, t0))
	settle(t, m, f, in)
	// the router had learned it by itself meanwhile
	f.refuse = nil
	f.rows["own"] = Row{"own", "f1", "10.0.0.1", macB, "dp-f1", 7}
	m.Load([]string{"f1"}, []Row{f.rows["own"]})
	want(t, settle(t, m, f, in), map[Kind]int{Change: 1})
}

func TestMirrorGroupsNeverMix(t *testing.T) {
	m, f := fresh("f1", "g1")
	groups := []Group{{"src", []string{"f1"}}, {"up", []string{"g1"}}}
	in := input(t0, groups, src("10.0.0.1", macA, t0), Row{"x", "up", "10.0.0.1", macB, "dp-up", t0.UnixMilli()}, Row{"y", "up", "10.0.0.2", macB, "dp-up", t0.UnixMilli()})
	want(t, settle(t, m, f, in), map[Kind]int{Insert: 3})
	a, _ := f.get("f1", "10.0.0.1")
	b, _ := f.get("g1", "10.0.0.1")
	if _, leaked := f.get("f1", "10.0.0.2"); a.MAC != macA || b.MAC != macB || leaked {
		t.Errorf("%+v %+v leaked %v", a, b, leaked)
	}
}

func TestMirrorRedesignation(t *testing.T) {
	m, f := fresh("u2", "u3")
	f.rows["x"] = Row{"x", "u1", "10.0.0.1", macA, "dp-u1", 1}
	settle(t, m, f, input(t0, []Group{{"u1", []string{"u2", "u3"}}}, Row{"x", "u1", "10.0.0.1", macA, "d", 1}))
	// u3 is the source now and has what it was given; u1 follows
	m.Retain(map[string]bool{"u1": true, "u2": true})
	m.Load([]string{"u1"}, []Row{{"x", "u1", "10.0.0.1", macA, "dp-u1", 1}})
	r, _ := f.get("u3", "10.0.0.1")
	in := input(t0.Add(time.Second), []Group{{"u3", []string{"u1", "u2"}}}, r, Row{"z", "u3", "10.0.0.9", macB, "dp-u3", t0.UnixMilli()})
	got := settle(t, m, f, in)
	if got[Insert] != 2 {
		t.Errorf("%v: the new source's row goes to the rest", got)
	}
	if m.Known("u3") {
		t.Error("the source is not a follower")
	}
}

func TestMirrorOpsOfOneBindingStandTogether(t *testing.T) {
	var ports []string
	for i := range 500 {
		ports = append(ports, fmt.Sprintf("f%03d", i))
	}
	m, f := fresh(ports...)
	rows := []Row{src("10.0.0.1", macA, t0), src("10.0.0.2", macA, t0)}
	settle(t, m, f, input(t0, one(ports...), rows...))
	rows[1].MAC = macB
	ops := m.Plan(input(t0, one(ports...), rows...))
	if len(ops) != 500 {
		t.Fatal(len(ops))
	}
	for _, op := range ops {
		if op.Kind != Change || op.UUID == "" {
			t.Fatalf("%+v: an update must be by UUID", op)
		}
	}
}

func BenchmarkPlanUnchanged(b *testing.B) {
	var ports []string
	for i := range 500 {
		ports = append(ports, fmt.Sprintf("f%03d", i))
	}
	m, f := fresh(ports...)
	var rows []Row
	for i := range 100 {
		rows = append(rows, src(fmt.Sprintf("10.0.0.%d", i+1), macA, t0))
	}
	in := input(t0, one(ports...), rows...)
	f.run(m, t0, m.Plan(in))
	b.ReportAllocs()
	for b.Loop() {
		if len(m.Plan(in)) != 0 {
			b.Fatal("not settled")
		}
	}
}

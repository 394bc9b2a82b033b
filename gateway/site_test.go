package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"picot.dev/picot/gateway/flows"
	"picot.dev/picot/gateway/gwbench/site"
	db "picot.dev/picot/gateway/ovsdb"
	"picot.dev/picot/gateway/static"
	"picot.dev/picot/gateway/topology"
)

// These tests run the whole controller on three real ovsdb-servers with hand-made rows, without
// northd and without a switch: the flows half reports that it has no switch, and goes on.

const (
	macA = "02:00:00:00:00:0a"
	macB = "02:00:00:00:00:0b"
	macC = "02:00:00:00:00:0c"
)

type rig struct {
	*site.Site
	t    *testing.T
	cfg  Config
	c    *Controller
	stop func()
}

func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	for _, p := range []string{"ovsdb-server", "ovsdb-tool"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Fatalf("no %s on this machine: scripts/install-deps installs it", p)
		}
	}
	s, err := site.New("n1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r := &rig{Site: s, t: t, cfg: Config{Node: "n1", DisableUDNARPNDPFlood: true, NetworkSegmentation: true, IPv4: true, IPv6: true, Static: StaticAlways,
		OVS: remote(t, s.OVS.Remote()), NB: remote(t, s.NB.Remote()), SB: remote(t, s.SB.Remote()), RunDir: s.Dir(), Sweep: 200 * time.Millisecond}}
	for _, f := range change {
		f(&r.cfg)
	}
	return r
}

func remote(t *testing.T, s string) db.Remote {
	t.Helper()
	rem, err := db.ParseRemote(s, db.Files{})
	if err != nil {
		t.Fatal(err)
	}
	return rem
}

// start runs a controller until the test ends or stop.
func (r *rig) start(in ...Inputs) {
	r.t.Helper()
	c, err := New(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, i := range in {
		c.SetInputs(i)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	once := false
	r.c, r.stop = c, func() {
		if !once {
			once = true
			cancel()
			<-done
		}
	}
	r.t.Cleanup(r.stop)
}

func (r *rig) do(errs ...error) {
	r.t.Helper()
	for _, err := range errs {
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// network makes a network of the default bridge with the addresses of the node.
func (r *rig) network(names ...string) {
	r.t.Helper()
	for _, n := range names {
		r.do(r.AddNetwork("br-ex", n, "172.18.0.2/16", "fd00:18::2/64", "169.254.0.11/32"))
	}
}

// base makes br-ex with the default network and more.
func (r *rig) base(names ...string) {
	r.t.Helper()
	r.do(r.AddBridge("br-ex", "eth0"), r.Map("physnet:br-ex,fast:br-up1"))
	r.network(append([]string{""}, names...)...)
}

func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: never: %v", what, err)
}

// has waits until a table holds exactly these MACs, by "network ip".
func (r *rig) has(what string, table func() (map[string]site.Binding, error), want map[string]string) map[string]site.Binding {
	r.t.Helper()
	var rows map[string]site.Binding
	eventually(r.t, what, func() error {
		got, err := table()
		if err != nil {
			return err
		}
		rows = got
		have := map[string]string{}
		for k, v := range got {
			have[k] = v.MAC
		}
		if !maps.Equal(have, want) {
			return fmt.Errorf("have %v, want %v", have, want)
		}
		return nil
	})
	return rows
}

// quiet checks that nothing is written for a while: two sweeps and a nudge.
func (r *rig) quiet(what string) {
	r.t.Helper()
	eventually(r.t, "settled", func() error {
		a := r.writes()
		time.Sleep(3 * r.cfg.Sweep)
		if b := r.writes(); a != b {
			return fmt.Errorf("%d writes, then %d", a, b)
		}
		return nil
	})
	before := r.writes()
	r.c.SetInputs(*r.c.inputs.Load())
	time.Sleep(3 * r.cfg.Sweep)
	if after := r.writes(); after != before {
		r.t.Fatalf("%s: %d rows written for unchanged input", what, after-before)
	}
}

func (r *rig) writes() (n uint64) {
	for i := range r.c.counters.MirrorWrites {
		n += r.c.counters.MirrorWrites[i].Load()
	}
	for i := range r.c.counters.StaticWrites {
		n += r.c.counters.StaticWrites[i].Load()
	}
	return n + r.c.counters.Refused.Load()
}

func annotated(name, mac string, ips ...string) static.Node {
	n := static.Node{Name: name}
	for i, ip := range ips {
		p := netip.MustParsePrefix(ip)
		n.InternalIPs = append(n.InternalIPs, p.Addr())
		ips[i] = `"` + ip + `"`
	}
	n.L3Gateway = fmt.Sprintf(`{"default":{"mode":"shared","mac-address":%q,"ip-addresses":[%s],"vlan-id":"0"}}`, mac, strings.Join(ips, ","))
	return n
}

func nodes(more ...static.Node) Inputs {
	return Inputs{Synced: true, Nodes: append([]static.Node{annotated("n1", site.MAC, "172.18.0.2/16")}, more...)}
}

func TestMirroringThroughTheDatabase(t *testing.T) {
	r := newRig(t)
	r.base("a", "b")
	r.do(r.Learn("", "172.18.0.1", macA, time.Now()), r.Learn("", "172.18.0.2", site.MAC, time.Now()), r.Learn("", "169.254.0.4", macC, time.Now()),
		r.Learn("a", "172.18.0.9", macC, time.Now())) // a row of a's own
	r.start(nodes())
	rest := map[string]string{"default 172.18.0.1": macA, "default 172.18.0.2": site.MAC, "default 169.254.0.4": macC, "a 172.18.0.9": macC}
	with := func(more map[string]string) map[string]string {
		m := maps.Clone(rest)
		maps.Copy(m, more)
		return m
	}
	r.has("rows there before", r.Dynamic, with(map[string]string{"a 172.18.0.1": macA, "b 172.18.0.1": macA}))
	r.quiet("initial")

	r.do(r.Learn("", "fd00:18::1", macB, time.Now()))
	rest["default fd00:18::1"] = macB
	r.has("ADD", r.Dynamic, with(map[string]string{"a 172.18.0.1": macA, "b 172.18.0.1": macA, "a fd00:18::1": macB, "b fd00:18::1": macB}))

	r.do(r.Learn("", "172.18.0.1", macC, time.Now()))
	rest["default 172.18.0.1"] = macC
	now := map[string]string{"a 172.18.0.1": macC, "b 172.18.0.1": macC, "a fd00:18::1": macB, "b fd00:18::1": macB}
	r.has("MAC change", r.Dynamic, with(now))

	// ADD over an existing row that the mirror did not write
	r.do(r.Learn("", "172.18.0.9", macA, time.Now()))
	rest["default 172.18.0.9"] = macA
	delete(rest, "a 172.18.0.9")
	maps.Copy(now, map[string]string{"a 172.18.0.9": macA, "b 172.18.0.9": macA})
	r.has("ADD over an existing row", r.Dynamic, with(now))

	if _, err := r.Delete(db.Southbound, db.TableMACBinding, "ip", "169.254.0.4"); err != nil {
		t.Fatal(err)
	}
	delete(rest, "default 169.254.0.4")
	r.quiet("DELETE of a skipped row")
	rows := r.has("unchanged", r.Dynamic, with(now))
	for k, v := range rows {
		if d := time.Since(time.UnixMilli(v.Timestamp)); d < -time.Second || d > time.Minute {
			t.Errorf("%s: timestamp %v ago", k, d)
		}
	}
	st := r.c.Status()
	if len(st.Groups) != 1 || st.Groups[0].Source != "default" || len(st.Groups[0].Followers) != 2 || st.Groups[0].Bindings != 3 || st.Groups[0].Lacking != 0 {
		t.Errorf("%+v", st.Groups)
	}
	if _, err := json.Marshal(st); err != nil {
		t.Error(err)
	}
}

func TestMirroringTimestampRefreshAndCooldown(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Cooldown = 2 * time.Second; c.AgeThreshold = 10 * time.Second })
	r.base("a")
	r.do(r.Learn("", "172.18.0.1", macA, time.Now()))
	r.start(nodes())
	want := map[string]string{"default 172.18.0.1": macA, "a 172.18.0.1": macA}
	first := r.has("mirrored", r.Dynamic, want)["a 172.18.0.1"]
	r.do(r.Learn("", "172.18.0.1", macA, time.Now())) // OVN refreshes the source
	if now := r.has("within the cooldown", r.Dynamic, want)["a 172.18.0.1"]; now != first {
		t.Fatalf("written within the cooldown: %+v", now)
	}
	eventually(t, "refresh", func() error {
		now := r.has("row", r.Dynamic, want)["a 172.18.0.1"]
		if now.Timestamp == first.Timestamp {
			return fmt.Errorf("still %d", now.Timestamp)
		}
		if now.UUID != first.UUID || now.Timestamp < first.Timestamp+2000 {
			return fmt.Errorf("%+v after %+v", now, first)
		}
		return nil
	})
	r.quiet("refreshed once")
	if n := r.c.counters.MirrorWrites[2].Load(); n != 1 {
		t.Errorf("%d refreshes", n)
	}
}

func TestMirroringNewFollowerWaitsForItsPortBindingAndGetsAllRows(t *testing.T) {
	r := newRig(t)
	r.base("a")
	r.do(r.Learn("", "172.18.0.1", macA, time.Now()), r.Learn("", "172.18.0.7", macB, time.Now()))
	r.start(nodes())
	want := map[string]string{"default 172.18.0.1": macA, "default 172.18.0.7": macB, "a 172.18.0.1": macA, "a 172.18.0.7": macB}
	r.has("before", r.Dynamic, want)
	r.do(r.AddRouter("late", 300, "172.18.0.2/16"), r.AddPatch("br-ex", topology.LocalnetPort("br-ex", "late", "n1"), 77))
	eventually(t, "late follows", func() error {
		if g := r.c.Status().Groups; len(g) != 1 || len(g[0].Followers) != 2 {
			return fmt.Errorf("%+v", g)
		}
		return nil
	})
	r.has("late waits", r.Dynamic, want)
	r.do(r.Bind("late"))
	want["late 172.18.0.1"], want["late 172.18.0.7"] = macA, macB
	r.has("late has all", r.Dynamic, want)
	// re-created with a new datapath
	r.do(r.Unbind("late"), r.Bind("late"))
	r.has("refilled", r.Dynamic, want)
}

func TestMirroringConvergesAfterOutageWithRowsDeletedMeanwhile(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Audit = 500 * time.Millisecond })
	r.base("a", "b")
	r.do(r.Learn("", "172.18.0.1", macA, time.Now()), r.Learn("", "172.18.0.7", macB, time.Now()))
	r.start(nodes())
	want := map[string]string{"default 172.18.0.1": macA, "a 172.18.0.1": macA, "b 172.18.0.1": macA, "default 172.18.0.7": macB, "a 172.18.0.7": macB, "b 172.18.0.7": macB}
	before := r.has("before", r.Dynamic, want)
	r.SB.Kill()
	eventually(t, "health names the database", func() error {
		for _, h := range r.c.Health() {
			if h.Object == db.Southbound && h.Err != nil {
				return nil
			}
		}
		return fmt.Errorf("%v", r.c.Health())
	})
	r.do(r.SB.Start())
	if _, err := r.Delete(db.Southbound, db.TableMACBinding, "logical_port", topology.RouterPort("b", "n1")); err != nil {
		t.Fatal(err)
	}
	after := r.has("after the outage", r.Dynamic, want)
	if after["a 172.18.0.1"] != before["a 172.18.0.1"] {
		t.Error("a right row was rewritten")
	}
	// behind our back, with the session alive: the audit finds it
	if _, err := r.Delete(db.Southbound, db.TableMACBinding, "logical_port", topology.RouterPort("a", "n1")); err != nil {
		t.Fatal(err)
	}
	r.has("after rows went behind our back", r.Dynamic, want)
	r.quiet("after all")
}

func TestDeadDatabaseBlocksNoOther(t *testing.T) {
	r := newRig(t)
	r.base("a")
	r.start(nodes(annotated("n2", macB, "172.18.0.3/16")))
	r.do(r.Learn("", "172.18.0.1", macA, time.Now()))
	r.has("static", r.Static, map[string]string{"a 172.18.0.3": macB})
	r.has("mirrored", r.Dynamic, map[string]string{"default 172.18.0.1": macA, "a 172.18.0.1": macA})
	// SB hangs: NB goes on
	if err := syscall.Kill(r.SB.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.c.SetInputs(nodes(annotated("n2", macC, "172.18.0.3/16")))
	r.has("static while SB hangs", r.Static, map[string]string{"a 172.18.0.3": macC})
	if err := syscall.Kill(r.SB.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// NB dead: SB goes on
	r.NB.Kill()
	r.do(r.Learn("", "172.18.0.1", macB, time.Now()))
	r.has("mirror while NB is dead", r.Dynamic, map[string]string{"default 172.18.0.1": macB, "a 172.18.0.1": macB})
	// OVS dead: both go on
	r.do(r.NB.Start())
	r.OVS.Kill()
	r.do(r.Learn("", "172.18.0.1", macC, time.Now()))
	r.has("mirror while OVS is dead", r.Dynamic, map[string]string{"default 172.18.0.1": macC, "a 172.18.0.1": macC})
	r.c.SetInputs(nodes())
	r.has("static while OVS is dead", r.Static, map[string]string{})
}

func TestStaticThroughTheDatabase(t *testing.T) {
	r := newRig(t)
	r.base("a", "b")
	gr := func(n string) string { return topology.RouterPort(n, "n1") }
	r.do(r.PutStatic(gr("a"), "169.254.0.4", macC, true), r.PutStatic(gr(""), "169.254.0.4", macC, true), // masquerade
		r.PutStatic(gr("a"), "172.18.0.66", macC, true),                                                              // foreign on a router port
		r.PutStatic("rtoj-GR_n1", "100.64.0.9", macC, false), r.PutStatic("rtoe-GR_a_n2", "172.18.0.66", macC, true), // other ports
		r.PutStatic(gr("dead"), "172.18.0.3", macC, true)) // a leftover
	r.start(Inputs{}) // not synced: only what is gone goes
	base := map[string]string{"a 169.254.0.4": macC, "default 169.254.0.4": macC, "rtoj-GR 100.64.0.9": macC, "a_n2 172.18.0.66": macC}
	with := func(more map[string]string) map[string]string {
		m := maps.Clone(base)
		maps.Copy(m, more)
		return m
	}
	r.has("start-up removes leftovers", r.Static, with(map[string]string{"a 172.18.0.66": macC}))
	r.c.SetInputs(nodes(annotated("n2", macA, "172.18.0.3/16", "fd00:18::3/64"), annotated("far", macB, "10.0.0.3/24")))
	want := with(map[string]string{"a 172.18.0.3": macA, "a fd00:18::3": macA, "b 172.18.0.3": macA, "b fd00:18::3": macA})
	rows := r.has("on-link node addresses", r.Static, want)
	for k, v := range rows {
		if !v.Override && k != "rtoj-GR 100.64.0.9" {
			t.Errorf("%s: no override", k)
		}
	}
	r.quiet("static")
	before := r.c.nb.Stats().Transactions.Load()
	r.c.SetInputs(nodes(annotated("n2", macA, "172.18.0.3/16", "fd00:18::3/64"), annotated("far", macB, "10.0.0.3/24")))
	r.quiet("unchanged input")
	if n := r.c.nb.Stats().Transactions.Load(); n != before {
		t.Errorf("%d transactions for unchanged input", n-before)
	}
	// node deleted
	r.c.SetInputs(nodes())
	r.has("node gone", r.Static, with(nil))
}

func TestStaticUDNDeletion(t *testing.T) {
	for _, routerFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("router first %v", routerFirst), func(t *testing.T) {
			r := newRig(t)
			r.base("a", "b")
			r.do(r.PutStatic(topology.RouterPort("a", "n1"), "169.254.0.4", macC, true))
			in := nodes(annotated("n2", macA, "172.18.0.3/16"))
			r.start(in)
			r.has("before", r.Static, map[string]string{"a 169.254.0.4": macC, "a 172.18.0.3": macA, "b 172.18.0.3": macA})
			if routerFirst {
				r.do(r.RemoveRouter("a"))
				r.has("rows go at once", r.Static, map[string]string{"b 172.18.0.3": macA})
				return
			}
			in.Deleting = []string{"a"}
			r.c.SetInputs(in)
			r.has("rows go before the router", r.Static, map[string]string{"a 169.254.0.4": macC, "b 172.18.0.3": macA})
		})
	}
}

// ovn-kubernetes removes its masquerade rows right before a router: our rows go then, not after.
func TestStaticRowsGoWithTheMasqueradeRows(t *testing.T) {
	r := newRig(t)
	r.base("a", "b")
	r.do(r.PutStatic(topology.RouterPort("a", "n1"), "169.254.0.4", macC, true))
	r.start(nodes(annotated("n2", macA, "172.18.0.3/16")))
	r.has("before", r.Static, map[string]string{"a 169.254.0.4": macC, "a 172.18.0.3": macA, "b 172.18.0.3": macA})
	if _, err := r.Delete(db.Northbound, db.TableStaticMACBinding, "ip", "169.254.0.4"); err != nil {
		t.Fatal(err)
	}
	r.has("gone before the router", r.Static, map[string]string{"b 172.18.0.3": macA})
}

// The source's row ages out and is learned again with another UUID; followers' rows aged out too,
// unseen. Without traffic of their own they must have it back at once, not at the next audit.
func TestMirroringReAddReachesFollowersWhoseRowsAgedOut(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Audit = time.Hour })
	r.base("a", "b")
	r.do(r.Learn("", "172.18.0.1", macA, time.Now()))
	r.start(nodes())
	want := map[string]string{"default 172.18.0.1": macA, "a 172.18.0.1": macA, "b 172.18.0.1": macA}
	r.has("before", r.Dynamic, want)
	for _, n := range []string{"", "a"} {
		if _, err := r.Delete(db.Southbound, db.TableMACBinding, "logical_port", topology.RouterPort(n, "n1")); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2 * r.cfg.Sweep)
	r.has("aged out", r.Dynamic, map[string]string{"b 172.18.0.1": macA})
	r.do(r.Learn("", "172.18.0.1", macA, time.Now()))
	r.has("learned again", r.Dynamic, want)
}

func TestStaticConvergesAfterRowsGoBehindOurBack(t *testing.T) {
	r := newRig(t)
	r.base("a", "b")
	r.start(nodes(annotated("n2", macA, "172.18.0.3/16")))
	want := map[string]string{"a 172.18.0.3": macA, "b 172.18.0.3": macA}
	before := r.has("before", r.Static, want)
	if _, err := r.Delete(db.Northbound, db.TableStaticMACBinding, "logical_port", topology.RouterPort("a", "n1")); err != nil {
		t.Fatal(err)
	}
	after := r.has("put back", r.Static, want)
	if before["b 172.18.0.3"] != after["b 172.18.0.3"] {
		t.Error("a right row was rewritten")
	}
	r.NB.Kill()
	r.do(r.NB.Start())
	if _, err := r.Delete(db.Northbound, db.TableStaticMACBinding, "logical_port", topology.RouterPort("b", "n1")); err != nil {
		t.Fatal(err)
	}
	r.has("after an outage", r.Static, want)
}

func TestGateOffAgainSweepsOverrideRowsOnce(t *testing.T) {
	r := newRig(t)
	r.base("a")
	r.do(r.PutStatic(topology.RouterPort("a", "n1"), "169.254.0.4", macC, true))
	in := nodes(annotated("n2", macA, "172.18.0.3/16"))
	r.start(in)
	r.has("gate on", r.Static, map[string]string{"a 169.254.0.4": macC, "a 172.18.0.3": macA})
	r.stop()
	r.cfg.DisableUDNARPNDPFlood = false
	r.start(in)
	r.has("swept", r.Static, map[string]string{"a 169.254.0.4": macC})
	r.do(r.PutStatic(topology.RouterPort("a", "n1"), "172.18.0.9", macB, true))
	time.Sleep(time.Second)
	r.has("later rows are somebody's own", r.Static, map[string]string{"a 169.254.0.4": macC, "a 172.18.0.9": macB})
	if r.c.sb != nil {
		t.Error("gate off opens an SB client")
	}
}

// Before 25.03 node addresses are mirrored like any other, but never the node's own.
func TestOldOVNMirrorsNodeAddresses(t *testing.T) {
	for version, static := range map[string]bool{"23.03.1-20.27.0-70.6": false, "24.09.9-x": false, "25.03.0-20.41.0-78.8": true, "26.03.0-x": true, "": false, "garbage": false} {
		if useStatic(StaticAuto, version) != static {
			t.Errorf("%q", version)
		}
	}
	r := newRig(t, func(c *Config) { c.Static = StaticAuto })
	r.base("a")
	r.do(r.PutStatic(topology.RouterPort("a", "n1"), "172.18.0.3", macC, true)) // of a life with static rows
	r.do(r.Learn("", "172.18.0.3", macA, time.Now()), r.Learn("", "172.18.0.2", site.MAC, time.Now()))
	r.start(nodes(annotated("n2", macA, "172.18.0.3/16")))
	r.has("mirrored", r.Dynamic, map[string]string{"default 172.18.0.3": macA, "default 172.18.0.2": site.MAC, "a 172.18.0.3": macA})
	r.has("not static", r.Static, map[string]string{})
}

func (r *rig) uplink(names ...string) {
	r.t.Helper()
	r.do(r.AddBridge("br-up1", "eth1"))
	for _, n := range names {
		r.do(r.AddNetwork("br-up1", n, "172.19.0.2/16"))
	}
}

func uplinked(in Inputs) Inputs {
	in.Uplinks = []static.Uplink{{Name: "fast", Node: "n1", Bridge: "br-up1", MAC: site.MAC, Addresses: []netip.Prefix{netip.MustParsePrefix("172.19.0.2/16")}},
		{Name: "fast", Node: "n2", Bridge: "br-up1", MAC: macB, Addresses: []netip.Prefix{netip.MustParsePrefix("172.19.0.3/16")}}}
	return in
}

func TestRedesignationSwitchesMirrorAndStaticTogether(t *testing.T) {
	r := newRig(t)
	r.base("a")
	r.uplink("u1", "u2", "u3")
	in := uplinked(nodes(annotated("n2", macA, "172.18.0.3/16")))
	r.start(in)
	stat := map[string]string{"a 172.18.0.3": macA, "u2 172.19.0.3": macB, "u3 172.19.0.3": macB}
	r.has("no row for the designated source", r.Static, stat)
	r.do(r.Learn("u1", "172.19.0.1", macA, time.Now()), r.Learn("", "172.19.0.1", macC, time.Now()))
	dyn := map[string]string{"u1 172.19.0.1": macA, "u2 172.19.0.1": macA, "u3 172.19.0.1": macA, "default 172.19.0.1": macC, "a 172.19.0.1": macC}
	r.has("groups never mix", r.Dynamic, dyn)

	in.Deleting = []string{"u1"}
	r.c.SetInputs(in)
	eventually(t, "u2 is the source", func() error {
		for _, g := range r.c.Status().Groups {
			if g.Bridge == "br-up1" && g.Source == "u2" {
				return nil
			}
		}
		return fmt.Errorf("%+v", r.c.Status().Groups)
	})
	r.do(r.Learn("u2", "172.19.0.7", macC, time.Now()))
	dyn["u2 172.19.0.7"], dyn["u3 172.19.0.7"] = macC, macC
	r.has("the new source's rows go to the rest", r.Dynamic, dyn)
	// the old source goes
	r.do(r.RemoveRouter("u1"), r.Unbind("u1"), r.RemovePatch("br-up1", topology.LocalnetPort("br-up1", "u1", "n1")))
	delete(dyn, "u1 172.19.0.1")
	r.has("the old source is gone", r.Dynamic, dyn)
	// u2 was a follower: the row it has is corrected and removed, not added
	r.has("u2 keeps its row", r.Static, stat)
	in.Uplinks = in.Uplinks[:1]
	r.c.SetInputs(in)
	r.has("removed from the designated source too", r.Static, map[string]string{"a 172.18.0.3": macA})
	if r.c.counters.Redesignated.Load() != 1 {
		t.Errorf("%d re-designations", r.c.counters.Redesignated.Load())
	}
}

func TestUplinkRepointedToAnotherBridge(t *testing.T) {
	r := newRig(t)
	r.base("a", "m")
	r.uplink("u1")
	r.start(uplinked(nodes(annotated("n2", macA, "172.18.0.3/16"))))
	r.do(r.Learn("u1", "172.19.0.1", macB, time.Now()))
	r.has("static before", r.Static, map[string]string{"a 172.18.0.3": macA, "m 172.18.0.3": macA})
	// m moves from br-ex to br-up1, with the addresses it has there
	r.do(r.RemovePatch("br-ex", topology.LocalnetPort("br-ex", "m", "n1")), r.RemoveRouter("m"), r.Unbind("m"),
		r.AddNetwork("br-up1", "m", "172.19.0.2/16"))
	r.has("static after", r.Static, map[string]string{"a 172.18.0.3": macA, "m 172.19.0.3": macB})
	r.has("dynamic after", r.Dynamic, map[string]string{"u1 172.19.0.1": macB, "m 172.19.0.1": macB})
}

// ofport may come later, and again after a port was made anew.
func TestOFPortComesLater(t *testing.T) {
	r := newRig(t)
	r.base("a")
	r.do(r.SetOFPort(topology.LocalnetPort("br-ex", "", "n1"), 0))
	r.start(nodes())
	steering := func() (n int) {
		set, err := r.c.Flows("br-ex", true)
		if err != nil {
			return -1
		}
		for _, f := range set {
			if f.Priority == 52 {
				n++
			}
			if strings.Contains(f.Actions, "output:,") || strings.HasPrefix(f.Actions, "output:N") {
				t.Errorf("empty output: %s", f)
			}
		}
		return n
	}
	expect := func(what string, want int) {
		t.Helper()
		eventually(t, what, func() error {
			if n := steering(); n != want {
				return fmt.Errorf("%d steering flows", n)
			}
			return nil
		})
	}
	expect("no source port, no steering", 0)
	r.do(r.SetOFPort(topology.LocalnetPort("br-ex", "", "n1"), 5))
	expect("uplink only", 4)
	r.do(r.AddPatch("br-ex", "lnet_ovn_localnet_port", 0))
	time.Sleep(100 * time.Millisecond)
	expect("localnet not numbered yet", 4)
	r.do(r.SetOFPort("lnet_ovn_localnet_port", 9))
	expect("uplink and localnet", 8)
	r.do(r.RemovePatch("br-ex", "lnet_ovn_localnet_port"))
	expect("localnet gone", 4)
}

func TestValidate(t *testing.T) {
	ok := newRigConfig(t)
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"good":                    {func(*Config) {}, ""},
		"gate needs segmentation": {func(c *Config) { c.NetworkSegmentation = false }, "network segmentation"},
		"cooldown + sweep":        {func(c *Config) { c.Cooldown, c.Sweep = 290*time.Second, 10*time.Second }, "age threshold"},
		"no node":                 {func(c *Config) { c.Node = "" }, "node name"},
		"no family":               {func(c *Config) { c.IPv4, c.IPv6 = false, false }, "IPv4"},
		"no SB":                   {func(c *Config) { c.SB = db.Remote{} }, "OVN_Southbound"},
		"VLAN":                    {func(c *Config) { c.VLAN = 5000 }, "VLAN"},
		"DPU without representor": {func(c *Config) { c.Role = 1 }, "representor"},
		"dpu-host opens nothing":  {func(c *Config) { *c = Config{Role: 2} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := ok
			c.change(&cfg)
			_, err := New(cfg)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
		})
	}
}

func newRigConfig(t *testing.T) Config {
	t.Helper()
	r := remote(t, "unix:/nonexistent/x.sock")
	return Config{Node: "n1", DisableUDNARPNDPFlood: true, NetworkSegmentation: true, IPv4: true, IPv6: true, OVS: r, NB: r, SB: r}
}

func TestDPUHostOpensNoClient(t *testing.T) {
	cfg := newRigConfig(t)
	cfg.Role = 2
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if c.nb != nil || c.sb != nil || c.ovs != nil {
		t.Fatal("a client was made")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c.Run(ctx)
	if !c.Ready() || len(c.Samples()) == 0 {
		t.Error("not ready")
	}
}

func TestMinAge(t *testing.T) {
	for option, want := range map[string]int{"": 0, "0": 0, "300": 300, "192.168.0.0/16:300;fd00::/8:60;900": 60, "10.0.0.0/8:0;120": 120, "x": 0} {
		if got := minAge(option); got != time.Duration(want)*time.Second {
			t.Errorf("%q: %v", option, got)
		}
	}
}

func TestCleanupRemovesStaticRowsAndNothingElse(t *testing.T) {
	r := newRig(t)
	r.base("a")
	r.do(r.PutStatic(topology.RouterPort("a", "n1"), "169.254.0.4", macC, true), r.PutStatic("rtoj-GR_n1", "100.64.0.9", macC, false),
		r.PutStatic(topology.RouterPort("a", "n1"), "172.18.0.3", macA, true), r.Learn("", "172.18.0.1", macA, time.Now()))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	// there is no switch here, and that must be said, but not stop the rest
	if err := Cleanup(ctx, r.cfg); err == nil || !strings.Contains(err.Error(), "br-ex") {
		t.Error(err)
	}
	r.has("only ours went", r.Static, map[string]string{"a 169.254.0.4": macC, "rtoj-GR 100.64.0.9": macC})
	r.has("SB untouched", r.Dynamic, map[string]string{"default 172.18.0.1": macA})
}

func TestExplainReadsAndWritesNothing(t *testing.T) {
	r := newRig(t)
	r.base("a", "b")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, gate := range []bool{false, true} {
		set, err := Explain(ctx, r.cfg, "br-ex", gate)
		if err != nil {
			t.Fatal(err)
		}
		steer := slices.ContainsFunc(set, func(f flows.Flow) bool { return f.Priority == 52 })
		if steer != gate {
			t.Errorf("gate %v:\n%s", gate, set)
		}
	}
	if _, err := Explain(ctx, r.cfg, "br-none", true); err == nil {
		t.Error("no such bridge")
	}
}

package routes_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"picot.dev/picot/internal/routes"
	"picot.dev/picot/internal/routes/routestest"
	"picot.dev/picot/internal/testnet"
)

func TestMain(m *testing.M) { os.Exit(testnet.Main(m)) }

var (
	now   = time.Unix(1000, 0)
	owner = routes.DefaultOwner()
	self  = netip.MustParsePrefix("2001:db8:0:1::/64")
)

// wanted has a node with a configured next hop and one that FRR leads to. Routes,
// rules, next hops and neighbours are IPv6 here and everywhere: SRv6 has no other
// underlay, whichever family the workloads speak (RFC 8986).
func wanted() routes.Desired {
	return routes.Desired{Self: self, Nodes: []routes.NodeRoute{
		{Locator: netip.MustParsePrefix("2001:db8:0:2::/64"), NextHop: netip.MustParseAddr("fd00::fe")},
		{Locator: netip.MustParsePrefix("2001:db8:30::/44")},
	}}
}

// mutations of wanted from nothing: two for self, two guards, one route, 3 rules.
const fromNothing = 8

func apply(t *testing.T, d *routes.Driver, at time.Time) routes.Report {
	t.Helper()
	r, err := d.Apply(at)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustSet(t *testing.T, d *routes.Driver, want routes.Desired) {
	t.Helper()
	if err := d.Set(want); err != nil {
		t.Fatal(err)
	}
}

func TestDriverFromScratchAndRestart(t *testing.T) {
	k := routestest.New()
	d := routes.NewDriver(k, owner)
	mustSet(t, d, wanted())
	if r := apply(t, d, now); r.Mutations != fromNothing || !d.InSync() {
		t.Fatalf("from nothing: %+v, in sync %v\n%s", r, d.InSync(), strings.Join(k.Mutations(), "\n"))
	}
	k.Mutations()
	for _, again := range []*routes.Driver{d, routes.NewDriver(k, owner)} {
		mustSet(t, again, wanted())
		again.Resync()
		apply(t, again, now)
		if m := k.Mutations(); len(m) != 0 {
			t.Errorf("same state, yet: %q", m)
		}
	}
}

// Before anything is wanted nothing is swept: whoever is not in sync does not call
// Set; and a kernel that cannot be read is not written.
func TestDriverUnreadableKernelIsNotWritten(t *testing.T) {
	for _, op := range []routestest.Op{routestest.Routes, routestest.Rules} {
		k := routestest.New()
		d := routes.NewDriver(k, owner)
		mustSet(t, d, wanted())
		k.FailNext(op, 1)
		if _, err := d.Apply(now); !errors.Is(err, routestest.ErrInjected) {
			t.Fatalf("%s fails: %v", op, err)
		}
		if m := k.Mutations(); len(m) != 0 {
			t.Fatalf("%s failed, yet: %q", op, m)
		}
		if r := apply(t, d, now); r.Mutations != fromNothing {
			t.Fatalf("then: %+v", r)
		}
	}
}

// k of n resources wrong: exactly k mutations; foreign ones untouched; what an
// old locator or a changed rule left is swept.
func TestDriverRepairsExactlyWhatIsWrong(t *testing.T) {
	old := routes.Route{Table: owner.GuardTable, Prefix: netip.MustParsePrefix("2001:db8:dead::/64"),
		Metric: owner.Metric, Protocol: owner.Protocol, Unreachable: true}
	foreign := routes.Route{Table: owner.Table, Prefix: netip.MustParsePrefix("2001:db8:f::/64"),
		Metric: 1024, Protocol: 4, Gateway: netip.MustParseAddr("fd00::1"), Link: 3}
	node2 := routes.Route{Table: owner.Table, Prefix: netip.MustParsePrefix("2001:db8:0:2::/64"),
		Metric: owner.Metric, Protocol: owner.Protocol, Gateway: netip.MustParseAddr("fd00::fe")}
	wrong := node2
	wrong.Gateway = netip.MustParseAddr("fd00::bad")
	guard := routes.Rule{Priority: owner.Priority, Protocol: owner.Protocol, Mark: owner.Mark, Not: true, Table: owner.GuardTable}
	oldRule := guard
	oldRule.Priority = 42
	foreignRule := routes.Rule{Priority: owner.Priority, Protocol: 3, Mark: owner.Mark, Table: 254}

	for _, c := range []struct {
		name   string
		damage func(*routestest.Kernel)
		want   []string
	}{
		{"a lost route", func(k *routestest.Kernel) { k.LoseRoute(node2) }, []string{"add-route 2001:db8:0:2::/64 table 28777"}},
		{"a wrong gateway", func(k *routestest.Kernel) { k.PlantRoute(wrong) }, []string{"add-route 2001:db8:0:2::/64 table 28777"}},
		{"a lost guard", func(k *routestest.Kernel) { k.LoseRule(guard) }, []string{"add-rule 70 table 28778"}},
		{"an old locator", func(k *routestest.Kernel) { k.PlantRoute(old) }, []string{"delete-route 2001:db8:dead::/64 table 28778"}},
		{"an old rule", func(k *routestest.Kernel) { k.PlantRule(oldRule) }, []string{"delete-rule 42 table 28778"}},
		{"foreign ones", func(k *routestest.Kernel) { k.PlantRoute(foreign); k.PlantRule(foreignRule) }, nil},
		{"all of it, made before broken", func(k *routestest.Kernel) {
			k.LoseRoute(node2)
			k.PlantRoute(old)
			k.PlantRoute(foreign)
			k.LoseRule(guard)
		}, []string{"add-route 2001:db8:0:2::/64 table 28777", "add-rule 70 table 28778", "delete-route 2001:db8:dead::/64 table 28778"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := routestest.New()
			d := routes.NewDriver(k, owner)
			mustSet(t, d, wanted())
			apply(t, d, now)
			k.Mutations()
			c.damage(k)
			d.Resync()
			apply(t, d, now)
			if got := k.Mutations(); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// Another mark, other tables, metric and priorities: what the earlier
// configuration made is recognised and goes, after the new is there.
func TestDriverSweepsAnEarlierConfiguration(t *testing.T) {
	k := routestest.New()
	d := routes.NewDriver(k, owner)
	mustSet(t, d, wanted())
	apply(t, d, now)
	k.Mutations()
	moved := owner
	moved.Mark, moved.Table, moved.GuardTable, moved.Priority, moved.Metric = 7, 501, 502, 300, 9
	d = routes.NewDriver(k, moved)
	mustSet(t, d, wanted())
	if r := apply(t, d, now); r.Mutations != 2*fromNothing {
		t.Errorf("%+v", r)
	}
	log := k.Mutations()
	for i, m := range log {
		if strings.HasPrefix(m, "delete") != (i >= fromNothing) {
			t.Errorf("not made before broken: %q", log)
			break
		}
	}
	if left, _ := k.Routes(owner.Table, owner.GuardTable); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

// Fail operation i, once and for ever, for every i: the rest lands in the same
// apply, i stays dirty and is named, and it heals.
func TestDriverFailEveryOperation(t *testing.T) {
	for _, op := range []routestest.Op{routestest.AddRoute, routestest.AddRule} {
		for _, n := range []int{1, 2, 3, -1} {
			t.Run(fmt.Sprintf("%s %d", op, n), func(t *testing.T) {
				k := routestest.New()
				d := routes.NewDriver(k, owner)
				mustSet(t, d, wanted())
				k.FailNext(op, n)
				r := apply(t, d, now)
				if r.Mutations+r.Failed != fromNothing || r.Failed == 0 || len(d.Failures()) != r.Failed || d.InSync() {
					t.Fatalf("%+v, named %v", r, d.Failures())
				}
				for _, err := range d.Failures() {
					if !errors.Is(err, routestest.ErrInjected) {
						t.Errorf("named as %v", err)
					}
				}
				// Not tried again before it is due.
				due, ok := d.NextRetry()
				if early := apply(t, d, due.Add(-1)); !ok || early.Failed != 0 || early.Waiting != r.Failed {
					t.Errorf("before %v: %+v", due, early)
				}
				k.FailNext(op, 0)
				if healed := apply(t, d, due); healed.Mutations != r.Failed || !d.InSync() {
					t.Errorf("healed: %+v", healed)
				}
			})
		}
	}
	for _, op := range []routestest.Op{routestest.DeleteRoute, routestest.DeleteRule} {
		k := routestest.New()
		d := routes.NewDriver(k, owner)
		mustSet(t, d, wanted())
		apply(t, d, now)
		d.Clear()
		k.FailNext(op, 1)
		if r := apply(t, d, now); r.Failed != 1 || r.Mutations != fromNothing-1 {
			t.Errorf("%s: %+v", op, r)
		}
		due, _ := d.NextRetry()
		if r := apply(t, d, due); r.Mutations != 1 || !d.InSync() {
			t.Errorf("%s healed: %+v", op, r)
		}
	}
}

// A foreign route in the exact place of ours is not replaced; the error names the
// mend and nothing else stops.
func TestDriverDoesNotReplaceForeignRoute(t *testing.T) {
	k := routestest.New()
	planted := routes.Route{Table: owner.Table, Prefix: netip.MustParsePrefix("2001:db8:0:2::/64"),
		Metric: owner.Metric, Protocol: 186, Gateway: netip.MustParseAddr("fd00::1"), Link: 3}
	k.PlantRoute(planted)
	d := routes.NewDriver(k, owner)
	mustSet(t, d, wanted())
	if r := apply(t, d, now); r.Failed != 1 || r.Mutations != fromNothing-1 {
		t.Fatalf("%+v", r)
	}
	if errs := d.Failures(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "protocol 186") {
		t.Errorf("named as %v", errs)
	}
	if all, _ := k.Routes(owner.Table); !slices.Contains(all, planted) {
		t.Errorf("the foreign route is gone: %v", all)
	}
}

func TestDriverRefusesBadInputAndKeepsTheRest(t *testing.T) {
	loc := netip.MustParsePrefix("2001:db8:0:2::/64")
	for _, c := range []struct {
		name, want string
		bad        routes.NodeRoute
	}{
		{"v4 locator", "IPv6 prefix", routes.NodeRoute{Locator: netip.MustParsePrefix("10.0.0.0/8")}},
		{"host bits", "host bits", routes.NodeRoute{Locator: netip.MustParsePrefix("2001:db8::1/64")}},
		{"no locator", "IPv6 prefix", routes.NodeRoute{}},
		{"v4 next hop", "IPv6 unicast", routes.NodeRoute{Locator: loc, NextHop: netip.MustParseAddr("10.0.0.1")}},
		{"group next hop", "IPv6 unicast", routes.NodeRoute{Locator: loc, NextHop: netip.MustParseAddr("ff02::1")}},
		{"link-local without uplink", "exactly one uplink", routes.NodeRoute{Locator: loc, NextHop: netip.MustParseAddr("fe80::1")}},
		{"next hop inside", "within the locator", routes.NodeRoute{Locator: loc, NextHop: netip.MustParseAddr("2001:db8:0:2::1")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := routestest.New()
			d := routes.NewDriver(k, owner)
			good := routes.NodeRoute{Locator: netip.MustParsePrefix("2001:db8:0:7::/64"), NextHop: netip.MustParseAddr("fd00::7")}
			err := d.Set(routes.Desired{Self: self, Nodes: []routes.NodeRoute{c.bad, good}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
			apply(t, d, now)
			if m := strings.Join(k.Mutations(), "\n"); !strings.Contains(m, "2001:db8:0:7::/64 table 28777") {
				t.Errorf("the good node is missing:\n%s", m)
			}
		})
	}
	d := routes.NewDriver(routestest.New(), owner)
	twice := routes.NodeRoute{Locator: loc, NextHop: netip.MustParseAddr("fd00::1")}
	if err := d.Set(routes.Desired{Nodes: []routes.NodeRoute{twice, twice}}); err == nil {
		t.Error("two nodes with one locator were taken")
	}
}

func TestCheckUplink(t *testing.T) {
	attrs := netlink.LinkAttrs{Name: "eth0", EncapType: "ether", ParentIndex: 7}
	bond := &netlink.Bond{LinkAttrs: netlink.LinkAttrs{Name: "bond0", EncapType: "ether"}}
	for _, c := range []struct {
		name, mend string
		link       netlink.Link
		master     netlink.Link
	}{
		{"plain", "", &netlink.Device{LinkAttrs: attrs}, nil},
		{"veth", "", &netlink.Veth{LinkAttrs: attrs}, nil},
		{"in a bridge", "", &netlink.Veth{LinkAttrs: attrs}, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}},
		{"vlan", "use its parent (link 7)", &netlink.Vlan{LinkAttrs: attrs}, nil},
		{"bond", "take it out of the bond", bond, nil},
		{"bond member", "take it out of the bond", &netlink.Device{LinkAttrs: attrs}, bond},
		{"bridge", "physical device", &netlink.Bridge{LinkAttrs: attrs}, nil},
		{"loopback", "Ethernet device", &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo", EncapType: "loopback"}}, nil},
		{"tunnel", "Ethernet device", &netlink.Ip6tnl{LinkAttrs: netlink.LinkAttrs{Name: "t", EncapType: "tunnel6"}}, nil},
	} {
		err := routes.CheckUplink(c.link, c.master)
		if c.mend == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		} else if !errors.Is(err, routes.ErrUplink) || !strings.Contains(err.Error(), c.mend) {
			t.Errorf("%s: %v, want %q in it", c.name, err, c.mend)
		}
	}
}

package static

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

const (
	macA = "0a:58:ac:12:00:03"
	macB = "0a:58:ac:12:00:04"
)

var (
	nets = []netip.Prefix{netip.MustParsePrefix("172.18.0.2/16"), netip.MustParsePrefix("fd00:18::2/64"),
		netip.MustParsePrefix("169.254.0.11/32"), netip.MustParsePrefix("fd69::b/128")}
	masq = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/17"), netip.MustParsePrefix("fd69::/112")}
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func follower(name string, as ...Address) Port {
	return Port{Name: name, Role: Follower, Networks: nets, Addresses: as}
}

func in(rows []Row, ports ...Port) Input {
	return Input{Ports: ports, Rows: rows, Masquerade: masq, IPv4: true, IPv6: true}
}

// apply gives the table after ops.
func apply(rows []Row, ops []Op) []Row {
	rows = slices.Clone(rows)
	for i, op := range ops {
		if op.Kind == Insert {
			rows = append(rows, Row{fmt.Sprint("n", i, len(rows)), op.Port, op.IP, op.MAC, true})
			continue
		}
		at := slices.IndexFunc(rows, func(r Row) bool { return r.UUID == op.UUID })
		switch op.Kind {
		case Update:
			rows[at].MAC, rows[at].Override = op.MAC, true
		case Delete:
			rows = slices.Delete(rows, at, at+1)
		}
	}
	return rows
}

func kinds(ops []Op) (d, u, i int) {
	for _, op := range ops {
		switch op.Kind {
		case Delete:
			d++
		case Update:
			u++
		case Insert:
			i++
		}
	}
	return
}

func wantKinds(t *testing.T, ops []Op, d, u, i int) {
	t.Helper()
	if gd, gu, gi := kinds(ops); gd != d || gu != u || gi != i {
		t.Fatalf("deletes %d updates %d inserts %d, want %d %d %d: %+v", gd, gu, gi, d, u, i, ops)
	}
}

var two = []Address{{addr("172.18.0.3"), macA}, {addr("fd00:18::3"), macA}}

func TestStaticNodeIPsOnEveryFollowerWithOverride(t *testing.T) {
	ops := Plan(in(nil, follower("f1", two...), follower("f2", two...)))
	wantKinds(t, ops, 0, 0, 4)
	rows := apply(nil, ops)
	for _, r := range rows {
		if !r.Override || r.MAC != macA {
			t.Errorf("%+v", r)
		}
	}
	wantKinds(t, Plan(in(rows, follower("f1", two...), follower("f2", two...))), 0, 0, 0)
}

func TestStaticMACOrIPChange(t *testing.T) {
	rows := apply(nil, Plan(in(nil, follower("f1", two...))))
	ops := Plan(in(rows, follower("f1", Address{two[0].IP, macB}, Address{two[1].IP, macB})))
	wantKinds(t, ops, 0, 2, 0)
	for _, op := range ops {
		if op.UUID == "" {
			t.Error("an update must be by UUID")
		}
	}
	rows = apply(rows, ops)
	ops = Plan(in(rows, follower("f1", Address{addr("172.18.0.9"), macB}, Address{two[1].IP, macB})))
	wantKinds(t, ops, 1, 0, 1)
	if ops[0].Kind != Delete {
		t.Error("deletes come first")
	}
}

func TestStaticNodeDeleteRemovesItsRows(t *testing.T) {
	rows := apply(nil, Plan(in(nil, follower("f1", two...))))
	wantKinds(t, Plan(in(rows, follower("f1"))), 2, 0, 0)
}

func TestStaticOffLinkIsSkipped(t *testing.T) {
	wantKinds(t, Plan(in(nil, follower("f1", Address{addr("10.9.9.9"), macA}, Address{addr("fd00:99::1"), macA}, two[0]))), 0, 0, 1)
}

func TestStaticFamilySwitchedOff(t *testing.T) {
	i := in(nil, follower("f1", two...))
	i.IPv6 = false
	ops := Plan(i)
	wantKinds(t, ops, 0, 0, 1)
	if ops[0].IP != "172.18.0.3" {
		t.Error(ops)
	}
}

func TestStaticNeverOnTheDefaultRouter(t *testing.T) {
	p := Port{Name: "rtoe-GR_n", Role: Empty, Networks: nets, Addresses: two}
	wantKinds(t, Plan(in(nil, p)), 0, 0, 0)
}

func TestStaticDesignatedSourceOnlyUpdatesAndRemoves(t *testing.T) {
	src := Port{Name: "u1", Role: Source, Networks: nets, Addresses: two}
	wantKinds(t, Plan(in(nil, src)), 0, 0, 0)
	rows := []Row{{"a", "u1", "172.18.0.3", macB, true}, {"b", "u1", "172.18.0.99", macB, true}}
	wantKinds(t, Plan(in(rows, src)), 1, 1, 0)
}

func TestStaticMasqueradeRowsUntouched(t *testing.T) {
	rows := []Row{{"a", "f1", "169.254.0.4", macA, true}, {"b", "f1", "fd69:0::2", macA, false}, {"c", "gr", "169.254.0.2", macB, true}, {"d", "left", "169.254.0.1", macB, true}}
	wantKinds(t, Plan(in(rows, follower("f1"), Port{Name: "gr", Role: Empty}, Port{Name: "left", Role: Leftover})), 0, 0, 0)
}

func TestStaticForeignRowsOnRouterPortsRemoved(t *testing.T) {
	rows := []Row{{"a", "f1", "8.8.8.8", macA, true}, {"b", "f1", "not an address", macA, true}, {"c", "gr", "172.18.0.50", macA, false}}
	wantKinds(t, Plan(in(rows, follower("f1"), Port{Name: "gr", Role: Empty})), 3, 0, 0)
}

func TestStaticOtherPortsUntouched(t *testing.T) {
	rows := []Row{{"a", "rtoj-GR_x", "100.64.0.2", macA, true}, {"b", "whatever", "172.18.0.3", macA, false}}
	wantKinds(t, Plan(in(rows, follower("f1"))), 0, 0, 0)
}

func TestStaticRowWithoutOverrideIsCorrected(t *testing.T) {
	rows := []Row{{"a", "f1", "172.18.0.3", macA, false}}
	wantKinds(t, Plan(in(rows, follower("f1", two[0]))), 0, 1, 0)
}

func TestStaticOneAddressInTwoSpellings(t *testing.T) {
	rows := []Row{{"a", "f1", "FD00:18:0::3", macA, true}, {"b", "f1", "fd00:18::3", macA, true}}
	ops := Plan(in(rows, follower("f1", two[1])))
	wantKinds(t, ops, 1, 0, 0)
	if ops[0].UUID != "a" {
		t.Error("the usual spelling stays")
	}
}

func TestStaticGoneRouterLosesAllItsRowsFirst(t *testing.T) {
	rows := []Row{{"a", "gone", "172.18.0.3", macA, true}, {"m", "gone", "169.254.0.4", macA, true}, {"x", "f1", "8.8.8.8", macA, true}}
	ops := Plan(in(rows, follower("f1"), Port{Name: "gone", Role: Gone}))
	wantKinds(t, ops, 3, 0, 0)
	if ops[0].Port != "gone" || ops[1].Port != "gone" {
		t.Error("the rows that wedge northd go first:", ops)
	}
}

func TestStaticStartupRemovesLeftovers(t *testing.T) {
	rows := []Row{{"a", "left", "172.18.0.3", macA, true}, {"m", "left", "169.254.0.4", macA, true}}
	wantKinds(t, Plan(in(rows, Port{Name: "left", Role: Leftover})), 1, 0, 0)
}

func annotation(mode, mac, ips string) string {
	return fmt.Sprintf(`{"default":{"mode":%q,"bridge-id":"br-ex","interface-id":"br-ex_n","mac-address":%q,"ip-addresses":[%s],"next-hops":["172.18.0.1"],"node-port-enable":"true","vlan-id":"0"}}`, mode, mac, ips)
}

func node(name, mac, ip string) Node {
	return Node{Name: name, InternalIPs: []netip.Addr{addr(ip)}, L3Gateway: annotation("shared", mac, `"`+ip+`/16"`)}
}

func TestStaticAnnotationMissingOrMalformedKeepsLastGoodState(t *testing.T) {
	b := NewBook("n1")
	good := []Node{node("n1", macB, "172.18.0.2"), node("n2", macA, "172.18.0.3")}
	if errs := b.SetNodes(good); len(errs) > 0 {
		t.Fatal(errs)
	}
	want := b.Others()
	if !slices.Equal(want, []Address{{addr("172.18.0.3"), macA}}) {
		t.Fatal(want)
	}
	for _, bad := range []string{"", "{", `{"other":{}}`, `{"default":{"mode":"shared","mac-address":"zz"}}`, annotation("shared", macA, `"172.18.0.3"`), annotation("shared", "01:00:5e:00:00:01", `"172.18.0.3/16"`)} {
		n2 := good[1]
		n2.L3Gateway = bad
		errs := b.SetNodes([]Node{good[0], n2})
		if (len(errs) == 1) != (bad != "") || (bad != "" && !errors.Is(errs[0], ErrAnnotation)) {
			t.Errorf("%q: %v", bad, errs)
		}
		if got := b.Others(); !slices.Equal(got, want) {
			t.Errorf("%q: %v", bad, got)
		}
	}
	b.SetNodes(good[:1])
	if got := b.Others(); len(got) != 0 {
		t.Error("a deleted node is forgotten:", got)
	}
	// and does not come back with its old annotation
	b.SetNodes([]Node{good[0], {Name: "n2", InternalIPs: good[1].InternalIPs}})
	if got := b.Others(); len(got) != 0 {
		t.Error(got)
	}
}

func TestStaticGatewaySwitchedOffHasNoMAC(t *testing.T) {
	b := NewBook("n1")
	off := Node{Name: "n2", InternalIPs: []netip.Addr{addr("172.18.0.3")}, L3Gateway: `{"default":{"mode":""}}`}
	if errs := b.SetNodes([]Node{node("n1", macB, "172.18.0.2"), off}); len(errs) > 0 {
		t.Fatal(errs)
	}
	if got := b.Others(); len(got) != 0 {
		t.Error(got)
	}
}

func TestStaticOldFormOfTheAnnotation(t *testing.T) {
	g, err := ParseGateway(`{"default":{"mode":"local","mac-address":"0A:58:AC:12:00:03","ip-address":"172.18.0.3/16","vlan-id":"100"}}`)
	if err != nil || g.MAC != macA || len(g.Addresses) != 1 || g.VLAN != 100 || g.Mode != "local" {
		t.Fatal(g, err)
	}
}

func TestStaticNeverTheLocalNodesOwnAddresses(t *testing.T) {
	b := NewBook("n1")
	twin := node("n2", macA, "172.18.0.2") // claims ours
	b.SetNodes([]Node{node("n1", macB, "172.18.0.2"), twin})
	if got := b.Others(); len(got) != 0 {
		t.Error(got)
	}
	if !b.Own()[addr("172.18.0.2")] {
		t.Error("own addresses unknown")
	}
}

func TestStaticUplinkStates(t *testing.T) {
	p := func(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
	states := []Uplink{
		{"fast", "n1", "br-up1", macB, p("172.19.0.2/16")}, {"fast", "n2", "br-upX", macA, p("172.19.0.3/16")},
		{"slow", "n2", "br-up1", macA, p("172.20.0.3/16")}, {"fast", "n3", "br-up1", "", p("172.19.0.4/16")},
		{"fast", "n4", "br-up1", macA, p("172.19.0.2/16")},
	}
	if got := Uplinked("n1", "br-up1", states); !slices.Equal(got, []Address{{addr("172.19.0.3"), macA}}) {
		t.Error(got)
	}
	if got := Uplinked("n1", "br-up2", states); len(got) != 0 {
		t.Error(got)
	}
}

func FuzzParseGateway(f *testing.F) {
	f.Add(annotation("shared", macA, `"172.18.0.3/16"`))
	f.Add(`{"default":{"mode":""}}`)
	f.Add(`{"default":{"vlan-id":"9x"}}`)
	f.Fuzz(func(t *testing.T, s string) {
		g, err := ParseGateway(s)
		if err != nil && !errors.Is(err, ErrAnnotation) {
			t.Fatal(err)
		}
		if err == nil && g.Enabled && len(g.MAC) != 17 {
			t.Fatal(g)
		}
	})
}

func BenchmarkPlanUnchanged250k(b *testing.B) {
	var as []Address
	for i := range 500 {
		as = append(as, Address{netip.AddrFrom4([4]byte{172, 18, byte(1 + i/250), byte(i % 250)}), macA})
	}
	var ports []Port
	for i := range 500 {
		ports = append(ports, follower(fmt.Sprintf("rtoe-GR_net%d_node1", i), as...))
	}
	rows := apply(nil, Plan(in(nil, ports...)))
	b.ReportAllocs()
	for b.Loop() {
		if len(Plan(in(rows, ports...))) != 0 {
			b.Fatal("not settled")
		}
	}
}

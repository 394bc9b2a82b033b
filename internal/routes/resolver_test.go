package routes_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/routes"
	"picot.dev/picot/internal/routes/routestest"
)

var (
	sid2 = netip.MustParseAddr("2001:db8:0:2:d20::")
	gwA  = netip.MustParseAddr("fd00:a::fe")
	gwB  = netip.MustParseAddr("fd00:b::fe")
)

func neighbor(link int, ip netip.Addr, last byte) routes.Neighbor {
	return routes.Neighbor{NeighborKey: routes.NeighborKey{Link: link, IP: ip}, MAC: packet.MAC{2, 0, 0, 0, 0, last}, Usable: true}
}

func ecmpKernel() *routestest.Kernel {
	k := routestest.New()
	k.SetLink(3, routes.Link{Name: "eth0", MAC: packet.MAC{2, 0, 0, 0, 1, 3}, MTU: 1500})
	k.SetLink(4, routes.Link{Name: "eth1", MAC: packet.MAC{2, 0, 0, 0, 1, 4}, MTU: 9000})
	k.SetHops(sid2, routes.Hop{Link: 4, Gateway: gwB, Weight: 2, MTU: 1400}, routes.Hop{Link: 3, Gateway: gwA, Weight: 1})
	return k
}

func resolve(t *testing.T, r *routes.Resolver, at time.Time, targets ...netip.Addr) map[netip.Addr]routes.Result {
	t.Helper()
	out, err := r.Resolve(at, targets)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestResolverNeighborsComeOneByOne(t *testing.T) {
	k := ecmpKernel()
	r := routes.NewResolver(k, owner)
	res := resolve(t, r, now, sid2)[sid2]
	if !errors.Is(res.Err, routes.ErrUnresolved) || res.Missing != 2 {
		t.Fatalf("nothing resolved: %+v", res)
	}
	if m := k.Mutations(); !slices.Equal(m, []string{"manage {3 fd00:a::fe}", "manage {4 fd00:b::fe}"}) {
		t.Fatalf("resolution started by %q", m)
	}
	b := neighbor(4, gwB, 0xb)
	b.Managed, b.Protocol = true, owner.Protocol
	k.SetNeighbor(b)
	res = resolve(t, r, now, sid2)[sid2]
	wantB := routes.NextHop{LinkIndex: 4, Gateway: gwB, DstMAC: b.MAC, SrcMAC: packet.MAC{2, 0, 0, 0, 1, 4}, MTU: 1400, Weight: 2}
	if res.Err != nil || res.Missing != 1 || !slices.Equal(res.NextHops, []routes.NextHop{wantB}) {
		t.Fatalf("one resolved: %+v", res)
	}
	a := neighbor(3, gwA, 0xa)
	a.Managed, a.Protocol = true, owner.Protocol
	k.SetNeighbor(a)
	res = resolve(t, r, now, sid2)[sid2]
	wantA := routes.NextHop{LinkIndex: 3, Gateway: gwA, DstMAC: a.MAC, SrcMAC: packet.MAC{2, 0, 0, 0, 1, 3}, MTU: 1500, Weight: 1}
	if res.Missing != 0 || !slices.Equal(res.NextHops, []routes.NextHop{wantA, wantB}) {
		t.Fatalf("both resolved: %+v", res)
	}
	if m := k.Mutations(); len(m) != 0 {
		t.Errorf("nothing left to do, yet: %q", m)
	}
	if !r.Relevant(a.NeighborKey) || r.Relevant(routes.NeighborKey{Link: 3, IP: gwB}) {
		t.Error("Relevant does not know the gateways in use")
	}
	// A fresh process with the same targets changes nothing.
	resolve(t, routes.NewResolver(k, owner), now, sid2)
	if m := k.Mutations(); len(m) != 0 {
		t.Errorf("restart: %q", m)
	}
	// One that no longer answers is asked for at once, and once.
	mute := a
	mute.Usable = false
	k.SetNeighbor(mute)
	resolve(t, r, now, sid2)
	if m := k.Mutations(); !slices.Equal(m, []string{"manage {3 fd00:a::fe}"}) {
		t.Errorf("a next hop that no longer answers: %q", m)
	}
	resolve(t, r, now, sid2)
	if m := k.Mutations(); len(m) != 0 {
		t.Errorf("asked for again: %q", m)
	}
	k.SetNeighbor(a)
	resolve(t, r, now, sid2)
	// A target that goes takes our flags with it.
	resolve(t, r, now)
	if m := k.Mutations(); !slices.Equal(m, []string{"unmanage {3 fd00:a::fe}", "unmanage {4 fd00:b::fe}"}) {
		t.Errorf("released by %q", m)
	}
}

// Static entries, and entries somebody else manages, are used but not touched.
func TestResolverLeavesForeignNeighborsAlone(t *testing.T) {
	static, theirs := neighbor(3, gwA, 0xa), neighbor(4, gwB, 0xb)
	static.Fixed = true
	theirs.Managed, theirs.Protocol = true, 42
	k := ecmpKernel()
	k.SetNeighbor(static)
	k.SetNeighbor(theirs)
	r := routes.NewResolver(k, owner)
	if res := resolve(t, r, now, sid2)[sid2]; len(res.NextHops) != 2 {
		t.Errorf("%+v", res)
	}
	if err := r.Release(now); err != nil {
		t.Error(err)
	}
	if m := k.Mutations(); len(m) != 0 {
		t.Errorf("touched: %q", m)
	}
}

func TestResolverFaults(t *testing.T) {
	k := ecmpKernel()
	lost := netip.MustParseAddr("2001:db8:0:9::")
	r := routes.NewResolver(k, owner)

	k.FailNext(routestest.Neighbors, 1)
	if _, err := r.Resolve(now, []netip.Addr{sid2}); !errors.Is(err, routestest.ErrInjected) {
		t.Fatalf("unreadable table: %v", err)
	}
	if m := k.Mutations(); len(m) != 0 {
		t.Fatalf("unreadable table, yet: %q", m)
	}

	k.FailNext(routestest.Manage, 1)
	k.SetNeighbor(neighbor(4, gwB, 0xb))
	res := resolve(t, r, now, sid2, lost)
	if len(res[sid2].NextHops) != 1 {
		t.Errorf("one neighbour failing stopped the other: %+v", res[sid2])
	}
	if res[lost].Err == nil || !strings.Contains(res[lost].Err.Error(), "unreachable") {
		t.Errorf("no route: %+v", res[lost])
	}
	if f := r.Failures(); len(f) != 1 || f[0].Key.IP != gwA {
		t.Errorf("named %+v", f)
	}
	due, ok := r.NextRetry()
	if !ok {
		t.Fatal("no retry due")
	}
	k.Mutations()
	resolve(t, r, due, sid2)
	if m := k.Mutations(); !slices.Equal(m, []string{"manage {3 fd00:a::fe}"}) {
		t.Errorf("retried by %q", m)
	}

	k.FailNext(routestest.Link, -1)
	if res := resolve(t, r, due, sid2)[sid2]; !errors.Is(res.Err, routestest.ErrInjected) {
		t.Errorf("links unreadable: %+v", res)
	}
}

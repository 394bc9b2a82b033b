package routes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/routes"
	"picot.dev/picot/internal/testnet"
)

const patience = 20 * time.Second

// lab is two nodes joined by a router, the first one over two links; IPv6 only:
//
//	node1 eth0 fd00:a::1 ---- fd00:a::fe ra  router  rc fd00:c::fe ---- fd00:c::2 eth0 node2
//	node1 eth1 fd00:b::1 ---- fd00:b::fe rb
type lab struct {
	node1, router, node2 *testnet.NS
	kernel               *routes.Netlink // of node1
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{node1: testnet.New(t, "node1"), router: testnet.New(t, "router"), node2: testnet.New(t, "node2")}
	testnet.Veth(t,
		testnet.End{NS: l.node1, Name: "eth0", MAC: "02:00:00:00:01:00", MTU: 1600, Addrs: []string{"fd00:a::1/64"}},
		testnet.End{NS: l.router, Name: "ra", MAC: "02:00:00:00:00:0a", MTU: 1600, Addrs: []string{"fd00:a::fe/64"}})
	testnet.Veth(t,
		testnet.End{NS: l.node1, Name: "eth1", MAC: "02:00:00:00:01:01", Addrs: []string{"fd00:b::1/64"}},
		testnet.End{NS: l.router, Name: "rb", MAC: "02:00:00:00:00:0b", Addrs: []string{"fd00:b::fe/64"}})
	testnet.Veth(t,
		testnet.End{NS: l.router, Name: "rc", Addrs: []string{"fd00:c::fe/64"}},
		testnet.End{NS: l.node2, Name: "eth0", Addrs: []string{"fd00:c::2/64"}})
	l.router.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	l.node2.IP(t, "-6 route add default via fd00:c::fe")
	ns := netns.NsHandle(l.node1.FD())
	var err error
	if l.kernel, err = routes.Open(&ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.kernel.Close)
	return l
}

func (l *lab) index(t *testing.T, name string) int {
	t.Helper()
	return l.node1.Link(t, name).Attrs().Index
}

// resolved polls until sid2 has n next hops.
func (l *lab) resolved(t *testing.T, r *routes.Resolver, n int) []routes.NextHop {
	t.Helper()
	var res routes.Result
	testnet.Eventually(t, patience, fmt.Sprintf("%d next hops", n), func() error {
		res = resolve(t, r, time.Now(), sid2)[sid2]
		if len(res.NextHops) != n {
			return fmt.Errorf("%d next hops, %d missing, error %w", len(res.NextHops), res.Missing, res.Err)
		}
		return nil
	})
	return res.NextHops
}

func TestKernelECMPResolvesAndFollows(t *testing.T) {
	l := newLab(t)
	l.node1.IP(t, "-6 route add 2001:db8:0:2::/64 mtu 1450 nexthop via fd00:a::fe dev eth0 weight 1 nexthop via fd00:b::fe dev eth1 weight 2")
	r := routes.NewResolver(l.kernel, owner)
	got := l.resolved(t, r, 2)
	a := routes.NextHop{LinkIndex: l.index(t, "eth0"), Gateway: gwA, DstMAC: packet.MAC{2, 0, 0, 0, 0, 0x0a}, SrcMAC: packet.MAC{2, 0, 0, 0, 1, 0}, MTU: 1450, Weight: 1}
	b := routes.NextHop{LinkIndex: l.index(t, "eth1"), Gateway: gwB, DstMAC: packet.MAC{2, 0, 0, 0, 0, 0x0b}, SrcMAC: packet.MAC{2, 0, 0, 0, 1, 1}, MTU: 1450, Weight: 2}
	for _, want := range []routes.NextHop{a, b} {
		if got[0] != want && got[1] != want {
			t.Errorf("missing %+v in %+v", want, got)
		}
	}
	if show := l.node1.IP(t, "neigh show"); strings.Count(show, "managed") != 2 {
		t.Errorf("want both gateways managed:\n%s", show)
	}

	// The other side is gone: its carrier, so the kernel's next hop.
	l.router.Down(t, "rb")
	if got := l.resolved(t, r, 1); got[0] != a {
		t.Errorf("after eth1 lost its carrier: %+v", got)
	}
	l.router.Up(t, "rb")
	l.router.Addr(t, "rb", "fd00:b::fe/64") // lost with the link
	l.node1.IP(t, "-6 route replace 2001:db8:0:2::/64 mtu 1450 nexthop via fd00:a::fe dev eth0 weight 1 nexthop via fd00:b::fe dev eth1 weight 2")
	l.resolved(t, r, 2)

	// Deleted behind our back: made again.
	l.node1.IP(t, "neigh del fd00:a::fe dev eth0")
	l.resolved(t, r, 2)
	if show := l.node1.IP(t, "neigh show"); strings.Count(show, "managed") != 2 {
		t.Errorf("want both gateways managed again:\n%s", show)
	}
	if err := r.Release(time.Now()); err != nil {
		t.Fatal(err)
	}
	if show := l.node1.IP(t, "neigh show"); strings.Contains(show, "managed") {
		t.Errorf("left managed:\n%s", show)
	}
}

// One next hop on link and a plain gateway; a neighbour that does not answer is
// unresolved until it does, without anybody sending traffic.
func TestKernelNeighborGoesAndComes(t *testing.T) {
	l := newLab(t)
	for name, ms := range map[string]string{"base_reachable_time_ms": "500", "retrans_time_ms": "100", "interval_probe_time_ms": "200"} {
		l.node1.Sysctl(t, "net.ipv6.neigh.eth0."+name, ms)
		l.node1.Sysctl(t, "net.ipv6.neigh.eth1."+name, ms)
	}
	l.node1.Sysctl(t, "net.ipv6.neigh.eth0.delay_first_probe_time", "1")
	l.router.IP(t, "addr del fd00:a::fe/64 dev ra")
	l.node1.IP(t, "-6 route add 2001:db8:0:2::/64 via fd00:a::fe dev eth0")
	r := routes.NewResolver(l.kernel, owner)
	res := resolve(t, r, time.Now(), sid2)[sid2]
	if !errors.Is(res.Err, routes.ErrUnresolved) {
		t.Fatalf("nobody answers, yet %+v", res)
	}
	l.router.Addr(t, "ra", "fd00:a::fe/64")
	l.resolved(t, r, 1)

	// The router's card is replaced and says nothing: the kernel's own probing, not
	// our traffic, finds the new one. The control is a neighbour nobody manages.
	l.node1.Exec(t, "ping", "-c1", "-W5", "fd00:b::fe")
	l.router.IP(t, "link set rb address 02:00:00:00:00:78")
	l.router.IP(t, "link set ra address 02:00:00:00:00:77")
	testnet.Eventually(t, patience, "new MAC", func() error {
		hops := resolve(t, r, time.Now(), sid2)[sid2].NextHops
		if len(hops) != 1 || hops[0].DstMAC != (packet.MAC{2, 0, 0, 0, 0, 0x77}) {
			return fmt.Errorf("%+v", hops)
		}
		return nil
	})
	if show := l.node1.IP(t, "neigh show fd00:b::fe"); strings.Contains(show, "02:00:00:00:00:78") {
		t.Errorf("control: the unmanaged neighbour's new MAC was found too: %s", show)
	}
	// On link: the target is its own gateway.
	onLink := netip.MustParseAddr("fd00:a::fe")
	if hops := resolve(t, r, time.Now(), sid2, onLink)[onLink].NextHops; len(hops) != 1 || hops[0].Gateway != onLink {
		t.Errorf("on link: %+v", hops)
	}
	// A permanent entry stays permanent.
	l.node1.IP(t, "neigh replace fd00:b::9 dev eth1 lladdr 02:00:00:00:00:99 nud permanent")
	static := netip.MustParseAddr("fd00:b::9")
	if hops := resolve(t, r, time.Now(), sid2, static)[static].NextHops; len(hops) != 1 {
		t.Errorf("permanent: %+v", hops)
	}
	if show := l.node1.IP(t, "neigh show fd00:b::9"); !strings.Contains(show, "PERMANENT") || strings.Contains(show, "managed") {
		t.Errorf("the permanent entry became: %s", show)
	}
}

func TestKernelRouteErrorsAreNamed(t *testing.T) {
	l := newLab(t)
	r := routes.NewResolver(l.kernel, owner)
	for _, setup := range []string{"", "-6 route add unreachable 2001:db8:0:2::/64", "-6 route replace blackhole 2001:db8:0:2::/64"} {
		if setup != "" {
			l.node1.IP(t, setup)
		}
		if res := resolve(t, r, time.Now(), sid2)[sid2]; res.Err == nil || errors.Is(res.Err, routes.ErrUnresolved) || len(res.NextHops) != 0 {
			t.Errorf("after %q: %+v", setup, res)
		}
	}
	local := netip.MustParseAddr("fd00:a::1")
	if res := resolve(t, r, time.Now(), local)[local]; res.Err == nil {
		t.Errorf("own address: %+v", res)
	}
}

// addPod gives node1 a pod that it routes for.
func (l *lab) addPod(t *testing.T) *testnet.NS {
	t.Helper()
	pod := testnet.New(t, "pod")
	testnet.Veth(t,
		testnet.End{NS: l.node1, Name: "cali0", Addrs: []string{"fd00:dd::1/64"}},
		testnet.End{NS: pod, Name: "eth0", Addrs: []string{"fd00:dd::2/64"}})
	pod.IP(t, "-6 route add default via fd00:dd::1")
	l.node1.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	l.router.IP(t, "-6 route add fd00:dd::/64 via fd00:a::1")
	return pod
}

// send says what the kernel of n does with a UDP packet to dst under the mark.
func send(t *testing.T, n *testnet.NS, dst netip.Addr, mark uint32) error {
	t.Helper()
	return n.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet6{Port: 9, Addr: dst.As16()})
	})
}

func TestKernelGuardAndLocatorRoutes(t *testing.T) {
	l := newLab(t)
	frr := netip.MustParseAddr("2001:db8:30::1") // within the /44 of wanted()
	l.node1.IP(t, "-6 route add 2001:db8:30::/44 via fd00:b::fe dev eth1")
	l.node1.IP(t, "-6 route add 2001:db8:0:2::/64 via fd00:a::fe dev eth0")
	l.router.IP(t, "-6 route add 2001:db8::/32 via fd00:c::2")
	l.node2.Addr(t, "lo", sid2.String()+"/128", frr.String()+"/128")
	// Foreign ones that must survive everything below.
	l.node1.IP(t, "-6 route add 2001:db8:f::/64 via fd00:a::fe dev eth0 table 28777")
	l.node1.IP(t, "-6 rule add pref 70 to 2001:db8:f::/64 lookup 28777")
	foreign := func() string {
		return l.node1.IP(t, "-6 route show table 28777 2001:db8:f::/64") + l.node1.IP(t, "-6 rule show pref 70 to 2001:db8:f::/64")
	}
	before := foreign()

	want := wanted()
	want.Nodes[0].NextHop = gwA
	pod := l.addPod(t)
	// The control: without the guard the host and a pod do reach locators.
	for _, n := range []*testnet.NS{l.node1, pod} {
		for _, dst := range []netip.Addr{sid2, frr} {
			n.Exec(t, "ping", "-c1", "-W5", dst.String())
		}
	}
	d := routes.NewDriver(l.kernel, owner)
	mustSet(t, d, want)
	if r := apply(t, d, time.Now()); r.Mutations != fromNothing || r.Failed != 0 {
		t.Fatalf("%+v, %v", r, d.Failures())
	}

	t.Run("same state is no mutation", func(t *testing.T) {
		fresh := routes.NewDriver(l.kernel, owner)
		mustSet(t, fresh, want)
		if r := apply(t, fresh, time.Now()); r != (routes.Report{}) {
			t.Errorf("restart: %+v\n%s%s", r, l.node1.IP(t, "-6 route show table all"), l.node1.IP(t, "-6 rule"))
		}
	})
	t.Run("who may send where", func(t *testing.T) {
		own := netip.MustParseAddr("2001:db8:0:1:d20::")
		for _, c := range []struct {
			what string
			dst  netip.Addr
			mark uint32
			ok   bool
		}{
			{"host to a node with a next hop", sid2, 0, false},
			{"host to a node FRR leads to", frr, 0, false},
			{"host to our own locator", own, 0, false},
			{"host with another mark", sid2, owner.Mark + 1, false},
			{"we to a node with a next hop", sid2, owner.Mark, true},
			{"we to a node FRR leads to", frr, owner.Mark, true},
			{"we to our own locator", own, owner.Mark, false},
			{"host elsewhere", gwA, 0, true},
			{"we elsewhere", gwA, owner.Mark, true},
		} {
			if err := send(t, l.node1, c.dst, c.mark); (err == nil) != c.ok {
				t.Errorf("%s: %v", c.what, err)
			} else if !c.ok && !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH) {
				t.Errorf("%s: %v, want unreachable", c.what, err)
			}
		}
	})
	t.Run("a routed pod may not either", func(t *testing.T) {
		for _, dst := range []netip.Addr{sid2, frr, netip.MustParseAddr("2001:db8:0:1:d20::")} {
			if out, err := pod.Try("ping", "-c1", "-W2", dst.String()); err == nil || !strings.Contains(out, "nreachable") {
				t.Errorf("ping %s from a pod: %v: %s", dst, err, out)
			}
		}
	})
	t.Run("the resolver follows our own route", func(t *testing.T) {
		r := routes.NewResolver(l.kernel, owner)
		if hops := l.resolved(t, r, 1); hops[0].Gateway != gwA || hops[0].LinkIndex != l.index(t, "eth0") {
			t.Errorf("%+v", hops)
		}
		if err := r.Release(time.Now()); err != nil {
			t.Error(err)
		}
	})
	t.Run("removed behind our back", func(t *testing.T) {
		l.node1.IP(t, "-6 route del 2001:db8:0:2::/64 table 28777")
		l.node1.IP(t, "-6 rule del pref 70 not fwmark 0x7069636f/0xffffffff lookup 28778")
		d.Resync()
		if r := apply(t, d, time.Now()); r.Mutations != 2 || r.Failed != 0 {
			t.Errorf("%+v, %v", r, d.Failures())
		}
	})
	t.Run("another next hop, and a node gone", func(t *testing.T) {
		want.Nodes = want.Nodes[:1]
		want.Nodes[0].NextHop = gwB
		mustSet(t, d, want)
		if r := apply(t, d, time.Now()); r.Mutations != 2 || r.Failed != 0 {
			t.Errorf("%+v, %v", r, d.Failures())
		}
		if show := l.node1.IP(t, "-6 route show table 28777 2001:db8:0:2::/64"); strings.Count(show, "via") != 1 || !strings.Contains(show, "fd00:b::fe") {
			t.Errorf("route is now:\n%s", show)
		}
	})
	t.Run("an unusable next hop stops nothing else", func(t *testing.T) {
		bad := want
		bad.Nodes = append([]routes.NodeRoute{{
			Locator: netip.MustParsePrefix("2001:db8:0:8::/64"), NextHop: netip.MustParseAddr("fd99::1"), Uplink: 9999,
		}}, want.Nodes...)
		mustSet(t, d, bad)
		if r := apply(t, d, time.Now()); r.Mutations != 1 || r.Failed != 1 || len(d.Failures()) != 1 { // its guard lands
			t.Errorf("%+v, %v", r, d.Failures())
		}
	})
	d.Clear()
	if r := apply(t, d, time.Now().Add(time.Hour)); r.Failed != 0 || !d.InSync() {
		t.Errorf("clear: %+v, %v", r, d.Failures())
	}
	if left := l.node1.IP(t, "-6 route show table all proto 112"); left != "" {
		t.Errorf("routes left behind:\n%s", left)
	}
	rules, err := l.kernel.Rules()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if r.Protocol == owner.Protocol {
			t.Errorf("rule left behind: %+v", r)
		}
	}
	if after := foreign(); after != before || before == "" {
		t.Errorf("foreign entries were\n%snow\n%s", before, after)
	}
}

func TestWatchSignals(t *testing.T) {
	l := newLab(t)
	ns := netns.NsHandle(l.node1.FD())
	ctx, cancel := context.WithCancel(context.Background())
	changed := make(chan struct{}, 1)
	ended := make(chan error, 1)
	only := netip.MustParseAddr("fd00:a::77")
	go func() {
		ended <- routes.Watch(ctx, &ns, func(k routes.NeighborKey) bool { return k.IP == only }, changed)
	}()
	signalled := func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(patience):
			t.Fatalf("%s: no signal", what)
		}
	}
	signalled("start")
	quiet := func() { // until nothing of the set-up is on its way
		for {
			select {
			case <-changed:
			case <-time.After(300 * time.Millisecond):
				return
			}
		}
	}
	quiet()
	l.node1.IP(t, "neigh replace fd00:a::78 dev eth0 lladdr 02:00:00:00:00:78 nud permanent")
	select {
	case <-changed:
		t.Error("somebody else's neighbour signalled")
	case <-time.After(300 * time.Millisecond):
	}
	for _, change := range []string{
		"neigh replace fd00:a::77 dev eth0 lladdr 02:00:00:00:00:77 nud permanent",
		"-6 route add 2001:db8:0:5::/64 via fd00:a::fe dev eth0",
		"-6 rule add pref 99 lookup 99",
		"link set eth0 mtu 1500",
		"link set eth1 down",
	} {
		l.node1.IP(t, change)
		signalled(change)
		quiet()
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch ended with %v", err)
	}
}

// The refusals on devices the kernel made; of a kind it has no module for, on what
// netlink would say of one.
func TestCheckUplinkOnRealDevices(t *testing.T) {
	l := newLab(t)
	if err := routes.CheckUplink(l.node1.Link(t, "eth0"), nil); err != nil {
		t.Errorf("veth: %v", err)
	}
	if err := routes.CheckUplink(l.node1.Link(t, "lo"), nil); !errors.Is(err, routes.ErrUplink) {
		t.Errorf("lo: %v", err)
	}
	up0 := netlink.LinkAttrs{Name: "up0", EncapType: "ether"}
	for _, c := range []struct {
		add  string
		told netlink.Link
	}{
		{"link add link eth0 name up0 type vlan id 7", &netlink.Vlan{LinkAttrs: up0, VlanId: 7}},
		{"link add up0 type bond", &netlink.Bond{LinkAttrs: up0}},
		{"link add up0 type bridge", nil},
		{"link add link eth0 name up0 type macvlan", nil},
	} {
		t.Run(c.add, func(t *testing.T) {
			device := c.told
			out, err := l.node1.Try("ip", strings.Fields(c.add)...)
			switch {
			case err == nil:
				defer l.node1.IP(t, "link del up0")
				device = l.node1.Link(t, "up0")
			case c.told == nil || !strings.Contains(out, "Unknown device type"):
				t.Fatalf("%v: %s", err, out)
			}
			if err := routes.CheckUplink(device, nil); !errors.Is(err, routes.ErrUplink) {
				t.Errorf("%v", err)
			}
		})
	}
}

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/internal/lab"
)

// The Linux kernel's own SRv6 is the other node, with no picot there:
//
//	pod1 ── node1 (picot) ── router ── linux ── veth ── station
//
//	picot  -> kernel   End.DX2 takes our encapsulation off and sends the frame out
//	                   of the veth
//	kernel -> picot    a route with l2encap puts the station's frame, as it came,
//	                   behind an SRH; its source is in the node's locator
//
// The l2encap keeps the Ethernet header a frame was received with
// (net/ipv6/seg6_iptunnel.c): its destination is the kernel router's own MAC on
// that veth. It is the pod's MAC here, so that the pod's stack takes the frame.
type kernelPeer struct {
	*cluster
	pod, station *lab.Pod
	linux        *lab.Node
}

func newKernelPeer(t *testing.T) *kernelPeer {
	t.Helper()
	c := newCluster(t, lab.Routed)
	k := &kernelPeer{cluster: c}
	picot := c.node(lab.NodeOptions{})
	k.linux = c.node(lab.NodeOptions{Name: "linux", NoAgent: true})
	k.pod = c.pod(picot, 1)
	k.station = c.pod(k.linux, 5)
	c.on(k.linux,
		"sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0",
		fmt.Sprintf("ip link set %s address %s up", k.station.Device, k.pod.MAC),
		fmt.Sprintf("sysctl -qw net.ipv4.conf.%s.rp_filter=0", k.station.Device),
		// A checksum the station left to the device stays undone on a chain of
		// veths. On a wire it does not: the last device before it fills it in.
		"ethtool -K "+lab.UplinkDevice+" tx off")
	c.start(1)
	return k
}

// sid is where a frame of network red from a segment goes on a node.
func (c *cluster) sid(n *lab.Node, segment uint32) netip.Addr {
	c.t.Helper()
	l, err := srv6.LocatorFrom(n.Locator)
	c.must(err)
	return srv6.NewSID(l, srv6.DefaultFunction, 100, segment).Addr()
}

// decapsulate has the kernel take off what picot sends for segment 7.
func (k *kernelPeer) decapsulate() {
	k.t.Helper()
	k.on(k.linux, fmt.Sprintf("ip -6 route add %s/128 encap seg6local action End.DX2 oif %s dev %s",
		k.sid(k.linux, 7), k.station.Device, lab.UplinkDevice))
}

// encapsulate has the kernel send what the station has for the pod to picot.
func (k *kernelPeer) encapsulate(mode string, source netip.Addr) {
	k.t.Helper()
	via := fmt.Sprintf("encap seg6 mode %s segs %s dev %s", mode, k.sid(k.pod.Node, 7), lab.UplinkDevice)
	k.on(k.linux,
		fmt.Sprintf("ip sr tunsrc set %s", source),
		fmt.Sprintf("ip route add %s/32 %s", k.pod.IP4(), via),
		fmt.Sprintf("ip -6 route add %s/128 %s", k.pod.IP6(), via))
	// Nobody answers ARP or ND for the pod here.
	for _, a := range k.pod.Addresses {
		k.on(k.station, fmt.Sprintf("ip neigh add %s lladdr %s dev %s", a, k.pod.MAC, lab.PodDevice))
	}
}

// on runs commands on a node or in a pod.
func (c *cluster) on(where lab.Commander, lines ...string) {
	c.t.Helper()
	for _, l := range lines {
		if out, err := where.Command(c.ctx, "sh", "-c", l).CombinedOutput(); err != nil {
			c.t.Fatalf("%s: %v: %s", l, err, out)
		}
	}
}

// Both of the kernel's encapsulations: with an SRH, and without one for the one
// segment (RFC 8986 sections 5.3 and 5.4).
func TestKernelSRv6BothWays(t *testing.T) {
	for mode, segmentsLeft := range map[string]string{"l2encap": "0", "l2encap.red": ""} {
		t.Run(mode, func(t *testing.T) { kernelBothWays(t, mode, segmentsLeft) })
	}
}

func kernelBothWays(t *testing.T, mode, segmentsLeft string) {
	k := newKernelPeer(t)
	k.decapsulate()
	source := k.linux.Locator.Addr().Next()
	k.encapsulate(mode, source)

	wire := k.dump(k.underlay(), k.linux.RouterIf, "ip6")
	for _, a := range k.station.Addresses {
		k.ping(k.pod, 20, "-i", "0.01", a.String())
	}
	// The other way a flow begins, with all sizes that fit.
	for _, size := range []string{"0", "56", "1300"} {
		for _, a := range k.pod.Addresses {
			k.ping(k.station, 5, "-i", "0.01", "-s", size, a.String())
		}
	}
	wire.stop()
	for _, a := range k.pod.Addresses {
		k.iperf(k.station, k.pod, a.String(), true)
	}
	ours := wire.tshark(fmt.Sprintf("ipv6.dst == %s", k.sid(k.linux, 7)), "ipv6.nxt")
	theirs := wire.tshark(fmt.Sprintf("ipv6.src == %s", source), "ipv6.routing.segleft")
	if len(ours) < 70 || len(theirs) < 70 {
		t.Errorf("on the wire: %d frames of ours, %d of the kernel's; want 70 of each", len(ours), len(theirs))
	}
	for _, r := range theirs {
		if r[0] != segmentsLeft {
			t.Fatalf("the kernel's Segments Left is %q, want %q", r[0], segmentsLeft)
		}
	}
	for name, n := range k.checksumErrors(k.pod) {
		if n != 0 {
			t.Errorf("%s: %d", name, n)
		}
	}
	k.account()
}

// A source outside of every known locator is refused, whoever sends.
func TestKernelSRv6FromUnknownSourceIsRefused(t *testing.T) {
	k := newKernelPeer(t)
	k.decapsulate()
	k.encapsulate("l2encap", netip.MustParseAddr("2001:db8:ff::1"))
	k.must(inBoth(func(f family) error {
		out, err := k.station.Run(k.ctx, "ping", "-q", "-c", "3", "-i", "0.05", "-W", "1", f.of(k.pod).String())
		if err == nil || !strings.Contains(out, "100% packet loss") {
			return fmt.Errorf("it got through:\n%s", out)
		}
		return nil
	}))
	if n := k.status(k.pod.Node).Uplinks[0].Drops["outer_source_unknown"]; n < 6 {
		t.Errorf("%d drops for the source, want 6", n)
	}
	k.account()
}

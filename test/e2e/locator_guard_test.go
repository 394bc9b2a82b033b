package e2e

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/routes"
)

// refused pings a SID and wants the kernel to say at once that it is not to be
// reached.
func (c *cluster) refused(who string, from lab.Commander, sid netip.Addr, args ...string) {
	c.t.Helper()
	out, err := from.Command(c.ctx, "ping", append(append([]string{"-c", "2", "-i", "0.1", "-W", "2"}, args...), sid.String())...).CombinedOutput()
	if err == nil || !strings.Contains(strings.ToLower(string(out)), "unreachable") && !strings.Contains(string(out), "No route to host") {
		c.t.Errorf("%s -> %s: want unreachable: %v\n%s", who, sid, err, out)
	}
}

// Nobody but picot gets into a locator: not the host, not a pod the host routes
// for, neither the others' nor the node's own. The SIDs themselves answer an
// echo request that comes over the underlay (RFC 9259). A locator is IPv6, so is
// what the guard keeps out; what goes between the pods is of both families.
func TestGuardKeepsOthersOutOfLocators(t *testing.T) {
	c := newCluster(t, lab.Routed)
	for i := range 2 {
		c.pod(c.node(lab.NodeOptions{}), i+1)
	}
	node, peer := c.Nodes()[0], c.Nodes()[1]
	// A pod whose packets the host routes.
	routed, err := c.AddPod(lab.PodOptions{Name: "routed", Node: node, Addresses: []string{"fd77::2"}, NoEndpoint: true})
	c.must(err)
	c.on(node, "sysctl -qw net.ipv6.conf.all.forwarding=1",
		fmt.Sprintf("ip link set %s up", routed.Device), fmt.Sprintf("ip addr add fd77::1/64 dev %s nodad", routed.Device))
	c.on(routed, "ip -6 route add default via fd77::1")
	c.on(c.underlay(), fmt.Sprintf("ip -6 route add fd77::/64 via %s", node.Address))
	c.on(peer, fmt.Sprintf("ip -6 route add fd77::/64 via %s", peer.Router))
	// With a default route the node's own locator would leave it, and come back.
	c.on(node, fmt.Sprintf("ip -6 route add default via %s", node.Router))
	// Before there is an agent the underlay carries it: what is refused below is
	// refused by the guard.
	before := c.dump(c.underlay(), node.RouterIf, "ip6 dst net "+peer.Locator.String())
	_, _ = routed.Run(c.ctx, "ping", "-c", "1", "-W", "1", c.sid(peer, 7).String())
	_, _ = node.Run(c.ctx, "ping", "-c", "1", "-W", "1", c.sid(peer, 7).String())
	if n := len(before.tshark("", "ipv6.src")); n < 2 {
		t.Fatalf("without a guard %d frames reach the underlay, want 2: the rest would show nothing", n)
	}
	c.start(1)

	wire := c.dump(c.underlay(), node.RouterIf, fmt.Sprintf("ip6 dst net %s or ip6 dst net %s", peer.Locator, node.Locator))
	for _, sid := range []netip.Addr{c.sid(peer, 7), c.sid(peer, 0), peer.Locator.Addr().Next()} {
		c.refused("host", node, sid)
		c.refused("routed pod", routed, sid)
	}
	for _, sid := range []netip.Addr{c.sid(node, 7), node.Locator.Addr().Next()} {
		c.refused("host, its own", node, sid)
		c.refused("routed pod, its node's own", routed, sid)
	}
	if rows := wire.tshark("", "ipv6.src", "ipv6.dst"); len(rows) != 0 {
		t.Errorf("on the underlay nevertheless: %v", rows)
	}
	// Everything else goes on.
	c.ping(routed, 2, "-i", "0.1", peer.Address.String())

	// With picot's mark a ping goes out, to the others' SIDs only.
	mark := strconv.Itoa(int(routes.DefaultOwner().Mark))
	c.ping(node, 3, "-m", mark, "-i", "0.1", c.sid(peer, 7).String())
	c.refused("host, its own, marked", node, c.sid(node, 7), "-m", mark)
	for _, n := range c.Nodes() {
		for _, segment := range []uint32{0, 7, 0xffffff} {
			c.ping(c.underlay(), 3, "-i", "0.1", c.sid(n, segment).String())
		}
	}
	for _, a := range c.Pods()[1].Addresses {
		c.ping(c.Pods()[0], 3, "-i", "0.1", a.String())
	}
	c.account()
}

package e2e

import (
	"testing"

	"picot.dev/picot/internal/lab"
)

// A node with a segment list is reached over it: the kernel of the router, an
// End of RFC 8986 section 4.1, takes our SRH on its way, and the node behind it
// takes the frame out of an SRH whose segments are used up.
func TestViaKernelEnd(t *testing.T) {
	const end = "2001:db8:aa::1"
	c := newCluster(t, lab.Routed)
	c.pod(c.node(lab.NodeOptions{}), 1)
	c.pod(c.node(lab.NodeOptions{Spec: "via: [\"" + end + "\"]"}), 2)
	node, peer := c.Nodes()[0], c.Nodes()[1]
	c.on(c.underlay(), "sysctl -qw net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf."+node.RouterIf+".seg6_enabled=1",
		"ip -6 route add "+end+"/128 encap seg6local action End dev "+node.RouterIf)
	c.on(node, "ip -6 route add "+end+"/128 via "+node.Router.String())
	c.start(1)
	pods := c.Pods()
	first := c.dump(c.underlay(), node.RouterIf, "ip6")
	last := c.dump(c.underlay(), peer.RouterIf, "ip6")
	for _, a := range pods[1].Addresses {
		c.ping(pods[0], 10, "-i", "0.01", a.String())
	}
	for where, k := range map[string]*dump{"0": last, "1": first} {
		rows := k.tshark("ipv6.routing.type == 4", "ipv6.routing.segleft", "ipv6.routing.srh.last_entry", "_ws.malformed")
		if len(rows) < 20 {
			t.Errorf("%d frames with an SRH where Segments Left is %s, want 20", len(rows), where)
		}
		for _, r := range rows {
			if r[0] != where || r[1] != "1" || r[2] != "" {
				t.Errorf("Segments Left %s, last entry %s, %s; want %s and 1", r[0], r[1], r[2], where)
			}
		}
	}
	c.account()
}

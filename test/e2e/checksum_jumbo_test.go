package e2e

import (
	"fmt"
	"testing"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/testnet"
)

// Frames of several buffers, on two workers and four queues: whole, with
// checksums that hold, on a node and between nodes.
func TestChecksumsOfJumboFrames(t *testing.T) {
	testnet.RequireTool(t, "iperf3", "nstat")
	c := newCluster(t, lab.Routed)
	c.must(c.AddNetwork("jumbo", 200, []string{"10.9.0.0/24", "fd00:9::/64"}, "mtu: 8900"))
	for range 2 {
		n := c.node(lab.NodeOptions{MTU: 9000, Workers: 2, Queues: 4})
		for range 2 {
			number := len(c.Pods()) + 1
			o := podOptions(n, number)
			o.Network, o.MTU = "jumbo", 8900
			o.Addresses = []string{fmt.Sprintf("10.9.0.1%d", number), fmt.Sprintf("fd00:9::1%d", number)}
			_, err := c.AddPod(o)
			c.must(err)
		}
	}
	c.start(2)
	pods := c.Pods()
	for _, to := range []*lab.Pod{pods[1], pods[2]} {
		for i, a := range to.Addresses {
			// Exactly what the network's MTU takes.
			c.ping(pods[0], 5, "-i", "0.01", "-M", "do", "-s", fmt.Sprint(8900-28-20*i), a.String())
			c.iperf(pods[0], to, a.String(), false)
		}
	}
	for _, p := range pods[:3] {
		for name, n := range c.checksumErrors(p) {
			if n != 0 {
				t.Errorf("%s: %s is %d", p.Name, name, n)
			}
		}
	}
	c.account()
}

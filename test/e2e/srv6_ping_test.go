package e2e

import (
	"testing"

	"picot.dev/picot/internal/lab"
)

// Between all four pods, both families, nothing is lost; between nodes it goes
// over SRv6, each frame, and on a node none does.
func TestPingBetweenAllPods(t *testing.T) {
	c := fourPods(t)
	pods := c.Pods()
	const count = 20
	for _, from := range pods {
		for _, to := range pods {
			if from == to {
				continue
			}
			before := c.remote(from)
			for _, a := range to.Addresses {
				c.ping(from, 20, "-i", "0.002", a.String())
			}
			got := c.remote(from) - before
			if from.Node == to.Node && got != 0 {
				t.Errorf("%s -> %s on one node: %d frames left it", from.Name, to.Name, got)
			}
			// Unicast ND of a stack that probes its neighbour may come on top.
			if from.Node != to.Node && got < 2*count {
				t.Errorf("%s -> %s: %d frames over SRv6, want %d", from.Name, to.Name, got, 2*count)
			}
		}
	}
	c.account()
}

// remote is how many frames of a pod went to another node. Those are the frames
// its uplink sent for it.
func (c *cluster) remote(p *lab.Pod) uint64 {
	c.t.Helper()
	return portOf(c.t, c.status(p.Node), p.Device).Remote
}

// Ten thousand echoes, as fast as the answers come.
func TestFloodPing(t *testing.T) {
	c := fourPods(t)
	pods := c.Pods()
	const count = 10_000
	for _, to := range []*lab.Pod{pods[1], pods[2]} {
		for _, a := range to.Addresses {
			c.ping(pods[0], count, "-A", "-w", "60", a.String())
		}
	}
	for _, n := range c.Nodes() {
		u := c.status(n).Uplinks[0].Traffic
		if u.TX < 2*count || u.Local < 2*count {
			t.Errorf("%s: the uplink sent %d and brought %d, want %d each", n.Name, u.TX, u.Local, 2*count)
		}
		if u.TX > 2*count+200 {
			t.Errorf("%s: the uplink sent %d frames: the pings on one node left it", n.Name, u.TX)
		}
	}
	c.account()
}

package e2ek8s

import (
	"testing"
	"time"
)

// TestTakeoverWritesNothing: newer agents take both nodes' places under floods.
// Nothing is lost, nothing is written anew, and what changes afterwards is carried
// by the newer ones.
func TestTakeoverWritesNothing(t *testing.T) {
	c := newCluster(t)
	pods := c.fourPods()
	for _, p := range pods {
		c.wantReady(p)
	}
	c.wantImplied(20 * time.Second)
	c.reaches(pods[0], pods[2])
	floods := c.floods(pods[0], pods[2])
	written := len(c.writes())
	for _, n := range c.Nodes() {
		must(t, n.TakeOver(within(t, time.Minute)))
		must(t, n.WaitReady(within(t, time.Minute), 2))
	}
	c.wantImplied(20 * time.Second)
	e := c.addPod(c.n1, "e")
	c.wantReady(e)
	c.reaches(e, pods[3])
	for _, f := range floods {
		f.end(t)
	}
	wantWrites(t, "two takeovers and one more endpoint", countWrites(c.writes()[written:], ""), map[string]int{
		"patch networkendpoints": 1, "patch networkendpoints/status": 1, "create fdbentries": 1, "create neighbors": 2,
	})
}

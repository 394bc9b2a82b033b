package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
)

var (
	chaosFor  = flag.Duration("chaos", 60*time.Second, "how long TestChaosSettles breaks things")
	chaosSeed = flag.Uint64("chaos-seed", 1, "seed of what it breaks")
)

// chaos is a site somebody breaks at random.
type chaos struct {
	*site
	r       *rand.Rand
	extra   []*lab.Pod
	number  int
	removed map[*lab.Pod]bool // without their endpoint
	done    map[string]int
}

// TestChaosSettles plugs, unplugs, flaps, kills, restarts and edits manifests at
// random under traffic. When it is over all pods reach each other, every frame is
// accounted for and nothing is left behind. The choices follow from -chaos-seed
// alone; their timing does not.
func TestChaosSettles(t *testing.T) {
	length := *chaosFor
	if testing.Short() {
		length = min(length, 15*time.Second)
	}
	t.Logf("-chaos-seed %d -chaos %v", *chaosSeed, length)
	s := newSite(t)
	s.ctx = within(t, length+5*time.Minute)
	s.reachAll()
	totals, before := map[*lab.Node]int{}, map[*lab.Node]held{}
	for _, n := range s.Nodes() {
		totals[n], before[n] = s.status(n).Frames.Total, s.held(n)
	}
	stop := s.everywhere()
	c := &chaos{site: s, r: rand.New(rand.NewPCG(*chaosSeed, 0)), number: 10, removed: map[*lab.Pod]bool{}, done: map[string]int{}}
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		c.step()
		time.Sleep(time.Duration(c.r.IntN(200)) * time.Millisecond)
	}
	t.Logf("done: %v", c.done)
	stop()
	c.settle()
	s.ready()
	for _, from := range s.Pods() {
		for _, to := range s.Pods() {
			if from != to {
				s.reach(from, to)
			}
		}
	}
	for _, p := range c.extra {
		s.must(s.DeletePod(s.ctx, p))
	}
	for _, n := range s.Nodes() {
		s.at(n, "only the first pods are left", func(st status.Status) error {
			if want := map[*lab.Node]int{s.n1: 2, s.n2: 1}[n]; len(st.Ports) != want || len(s.pinNames(n)) != want+1 {
				return fmt.Errorf("%d ports, pins %v", len(st.Ports), s.pinNames(n))
			}
			if st.Frames.Total != totals[n] {
				return fmt.Errorf("%d frames, the first life had %d", st.Frames.Total, totals[n])
			}
			if len(st.Problems) > 0 {
				return fmt.Errorf("problems: %v", st.Problems)
			}
			return nil
		})
		s.base[n] = s.still(n)
		s.holdsNoMore(n, before[n])
		if now := s.held(n); now.rss > before[n].rss+32<<10 {
			t.Errorf("%s: %d KiB resident, were %d", n.Name, now.rss, before[n].rss)
		}
	}
	s.reachAll()
	s.books()
}

// still samples until nothing moves any more, and no frame is under way.
func (s *site) still(n *lab.Node) lab.Sample {
	s.t.Helper()
	var last, now lab.Sample
	testnet.Eventually(s.t, patience, n.Name+" is still", func() (err error) {
		last = now
		if now, err = n.Sample(s.ctx); err != nil {
			return err
		}
		f := now.Status.Frames
		if !reflect.DeepEqual(last.Status.Ports, now.Status.Ports) || !reflect.DeepEqual(last.Status.Uplinks, now.Status.Uplinks) ||
			!reflect.DeepEqual(last.Devices, now.Devices) || f.Batch+f.TX+f.Handoff > 0 {
			return fmt.Errorf("counters move; frames %+v", f)
		}
		for _, p := range now.Status.Ports {
			if p.RX != p.Local+p.Remote+p.Answered+p.Dropped {
				return fmt.Errorf("%s: received is not the sum of the verdicts: %+v", p.Device, p.Traffic)
			}
		}
		return nil
	})
	return now
}

func (c *chaos) step() {
	c.t.Helper()
	// Whatever the network is like it is not for long: there must be traffic to break.
	if c.r.IntN(3) == 0 {
		c.mend()
	}
	steps := []struct {
		name string
		do   func()
	}{
		{"plug", c.plug}, {"unplug", c.unplug}, {"flap", c.flap}, {"flap", c.flap}, {"kill", c.kill},
		{"restart", c.restart}, {"delete device", c.deleteDevice}, {"endpoint", c.endpoint}, {"bad manifest", c.badManifest},
		{"edit network", c.editNetwork},
	}
	s := steps[c.r.IntN(len(steps))]
	c.done[s.name]++
	s.do()
}

func (c *chaos) anyNode() *lab.Node { return c.Nodes()[c.r.IntN(len(c.Nodes()))] }
func (c *chaos) anyPod() *lab.Pod   { return c.Pods()[c.r.IntN(len(c.Pods()))] }

func (c *chaos) plug() {
	c.t.Helper()
	if len(c.extra) < 4 {
		c.number++
		c.extra = append(c.extra, c.addPod(c.anyNode(), c.number))
	}
}

func (c *chaos) unplug() {
	c.t.Helper()
	if len(c.extra) > 0 {
		i := c.r.IntN(len(c.extra))
		c.must(c.DeletePod(c.ctx, c.extra[i]))
		delete(c.removed, c.extra[i])
		c.extra = append(c.extra[:i], c.extra[i+1:]...)
	}
}

func (c *chaos) flap() {
	c.t.Helper()
	n, p := c.anyNode(), c.anyPod()
	at := [][2]string{
		{n.Netns(), lab.UplinkDevice}, {c.UnderlayNetns(), n.RouterIf}, {p.Netns(), lab.PodDevice}, {p.Node.Netns(), p.Device},
	}[c.r.IntN(4)]
	c.ip(at[0], "link set "+at[1]+" down")
	time.Sleep(time.Duration(c.r.IntN(30)) * time.Millisecond)
	// A workload device comes up by its agent only: nobody else brings it up.
	if p.Node.Running() && !c.removed[p] || at[1] != p.Device {
		c.ip(at[0], "link set "+at[1]+" up")
	}
}

func (c *chaos) kill() {
	c.t.Helper()
	for _, n := range c.Nodes() {
		if !n.Running() { // dead since an earlier step: other things happened meanwhile
			c.must(n.Start(c.ctx))
			return
		}
	}
	c.must(c.anyNode().Kill())
}

func (c *chaos) restart() {
	c.t.Helper()
	n := c.anyNode()
	if n.Running() {
		// One that has only just begun may end before it can end in order.
		if err := n.Stop(c.ctx); err != nil && !strings.Contains(err.Error(), "signal: terminated") {
			c.t.Error(err)
		}
	}
	c.must(n.Start(c.ctx))
}

func (c *chaos) deleteDevice() {
	c.t.Helper()
	p := c.anyPod()
	c.must(p.DelDevice(c.ctx))
	time.Sleep(time.Duration(c.r.IntN(50)) * time.Millisecond)
	c.remake(p)
}

func (c *chaos) endpoint() {
	c.t.Helper()
	for p := range c.removed { // one at a time, or nobody could talk
		c.must(p.WriteEndpoint())
		delete(c.removed, p)
		return
	}
	p := c.anyPod()
	c.must(p.RemoveEndpoint())
	c.removed[p] = true
}

func (c *chaos) badManifest() {
	c.t.Helper()
	bad := []string{"kind: [", manifest("Network", "red", "{id: 9}"), manifest("NetworkEndpoint", "x", `{nodeName: node1, network: red, mac: "02:00:00:00:00:01", interface: v-p1}`)}
	c.must(c.WriteManifest("chaos", bad[c.r.IntN(len(bad))]))
}

func (c *chaos) editNetwork() {
	c.t.Helper()
	extra := []string{"mtu: 1446", "mtu: 1400", "portSecurity: mac"}
	c.must(c.AddNetwork("red", 100+c.r.IntN(2), []string{"10.0.0.0/24", "fd00:10::/64"}, extra[c.r.IntN(len(extra))]))
}

// mend puts the network's manifest right.
func (c *chaos) mend() {
	c.t.Helper()
	c.must(c.RemoveManifest("chaos"))
	c.must(c.AddNetwork("red", 100, []string{"10.0.0.0/24", "fd00:10::/64"}, "mtu: 1446"))
}

// settle undoes what is broken, as whoever runs a cluster would.
func (c *chaos) settle() {
	c.t.Helper()
	c.mend()
	for p := range c.removed {
		c.must(p.WriteEndpoint())
	}
	for _, n := range c.Nodes() {
		if !n.Running() {
			c.must(n.Start(c.ctx))
		}
	}
}

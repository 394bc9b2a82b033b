package e2ek8s

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/k8s/api/v1alpha1"
)

// rounds is how many random orders are tried, after the worst one.
const rounds = 6

// TestOrderOfArrival: whatever order network, locators, endpoints and another
// node's bindings arrive in, both nodes end with the same tables.
func TestOrderOfArrival(t *testing.T) {
	c := newCluster(t)
	var pods []*lab.Pod
	for i, n := range []*lab.Node{c.n1, c.n1, c.n2, c.n2} {
		pods = append(pods, c.addPod(n, string(rune('a'+i)), func(o *lab.PodOptions) { o.NoEndpoint = true }))
	}
	for _, n := range []*lab.Node{c.n1, c.n2} {
		must(t, n.Start(within(t, 20*time.Second)))
	}
	// A plain one: there is a way to it.
	_, err := c.AddNode(lab.NodeOptions{Name: "node3", NoAgent: true})
	must(t, err)
	locator := func(name string, number int) func() error {
		return func() error {
			return c.WriteManifest("node-"+name, fmt.Sprintf("apiVersion: picot.dev/v1alpha1\nkind: SRv6Node\nmetadata: {name: %s}\nspec: {locator: \"2001:db8:0:%d::/64\"}\n", name, number))
		}
	}
	steps := []func() error{
		func() error { c.addRed(); return nil }, locator("node1", 1), locator("node2", 2), locator("node3", 3),
		func() error { c.plant(v1alpha1.SourceStatic, "node3", stranger, strangerIPs...); return nil },
		pods[0].WriteEndpoint, pods[1].WriteEndpoint, pods[2].WriteEndpoint, pods[3].WriteEndpoint,
	}
	backwards := make([]int, len(steps))
	for i := range backwards {
		backwards[i] = len(steps) - 1 - i
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var first [2]tables
	c.clear(pods) // the nodes' own locators are there since they were added
	for round := range rounds + 2 {
		order := r.Perm(len(steps))
		switch round {
		case 0:
			order = []int{0, 1, 2, 3, 4, 5, 6, 7, 8}
		case 1:
			order = backwards
		}
		for _, i := range order {
			must(t, steps[i]())
			time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond) // so that some arrive alone
		}
		for i, n := range []*lab.Node{c.n1, c.n2} {
			must(t, n.WaitReady(within(t, 30*time.Second), 2))
			c.eventually(20*time.Second, fmt.Sprintf("the tables of %s in the order %v", n.Name, order), func() error {
				got, err := c.tables(n)
				if err != nil {
					return err
				}
				if round > 0 {
					return errors.Join(differ(got.FDB, first[i].FDB), differ(got.Neighbors, first[i].Neighbors))
				}
				// 2 local, 2 of the other node, 1 planted; addresses: v4, v6 and the
				// link-local one of each.
				if len(got.FDB) != 5 || len(got.Neighbors) != 15 {
					return fmt.Errorf("%d FDB entries, %d neighbours", len(got.FDB), len(got.Neighbors))
				}
				first[i] = got
				return nil
			})
		}
		c.reaches(pods[0], pods[2])
		c.reaches(pods[3], pods[1])
		c.clear(pods)
	}
}

// clear deletes every object and waits until no node has anything of them.
func (c *cluster) clear(pods []*lab.Pod) {
	c.t.Helper()
	for _, p := range pods {
		must(c.t, p.RemoveEndpoint())
	}
	for _, p := range pods {
		c.wantGone(p.Name)
	}
	for _, m := range []string{"network-red", "node-node1", "node-node2", "node-node3"} {
		must(c.t, c.RemoveManifest(m))
	}
	must(c.t, c.uproot(stranger, strangerIPs...))
	for _, n := range []*lab.Node{c.n1, c.n2} {
		c.eventually(20*time.Second, n.Name+" to have no table", func() error {
			got, err := c.tables(n)
			if err == nil && len(got.FDB)+len(got.Neighbors) > 0 {
				err = fmt.Errorf("%+v", got)
			}
			if err != nil {
				return err
			}
			s, err := n.Status(within(c.t, 5*time.Second))
			if err == nil && (len(s.Ports) > 0 || s.Locator != "") {
				err = fmt.Errorf("%d ports, locator %s", len(s.Ports), s.Locator)
			}
			return err
		})
	}
}

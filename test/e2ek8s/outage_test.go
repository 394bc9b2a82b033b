package e2ek8s

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
)

// outage is how long the API server is away.
const outage = 60 * time.Second

// TestServerAway: the API server is killed under floods of pings and comes back.
// No ping is lost, no binding is lost, doubled or written again, and what changes
// afterwards is carried.
func TestServerAway(t *testing.T) {
	c := newCluster(t)
	pods := c.fourPods()
	a := pods[0]
	for _, p := range pods {
		c.wantReady(p)
	}
	c.wantImplied(20 * time.Second)
	for _, to := range pods[1:] {
		c.reaches(a, to)
	}
	floods := c.floods(a, pods[1], pods[2])
	before, written := c.stored(), len(c.writes())
	c.server.Kill(t)
	time.Sleep(outage) // the span is the test
	for _, n := range c.Nodes() {
		if s, err := n.Status(within(t, 10*time.Second)); err != nil || !s.Ready || len(s.Ports) != 2 {
			t.Errorf("%s while the server is away: ready %t, %d ports, %v", n.Name, s.Ready, len(s.Ports), err)
		}
	}
	c.server.Restart(t)
	if err := differ(c.stored(), before); err != nil {
		t.Errorf("bindings after the outage: %v", err)
	}
	e := c.addPod(c.n2, "e")
	must(t, c.DeletePod(within(t, 20*time.Second), pods[3]))
	c.wantReady(e)
	c.wantGone("d")
	c.wantImplied(time.Minute)
	c.reaches(a, e)
	c.reaches(e, pods[2])
	for _, f := range floods {
		f.end(t)
	}
	wantWrites(t, "the time after the outage", countWrites(c.writes()[written:], ""), map[string]int{
		"patch networkendpoints": 2, "patch networkendpoints/status": 1, "create fdbentries": 1, "create neighbors": 2,
		"delete fdbentries": 1, "delete neighbors": 2,
	})
}

// TestAgentsRestartWhileServerIsAway: one agent is stopped and one is killed
// while the API server is away. New ones forward from their checkpoints, sweep
// and write nothing, and go on with what changed when the server is back.
func TestAgentsRestartWhileServerIsAway(t *testing.T) {
	c := newCluster(t)
	pods := c.fourPods()
	for _, p := range pods {
		c.wantReady(p)
	}
	c.wantImplied(20 * time.Second)
	for _, to := range pods[1:] {
		c.reaches(pods[0], to)
	}
	var before [2]tables
	for i, n := range c.Nodes() {
		c.eventually(20*time.Second, "a checkpoint of "+n.Name+" with nothing newer to come", func() error {
			st, err := os.Stat(filepath.Join(n.RunDir(), "checkpoint"))
			if err != nil {
				return err
			}
			if age := time.Since(st.ModTime()); age < 5*time.Second {
				return fmt.Errorf("it is %v old", age)
			}
			return nil
		})
		var err error
		before[i], err = c.tables(n)
		must(t, err)
	}
	written := len(c.writes())
	c.server.Kill(t)
	must(t, c.n1.Stop(within(t, 20*time.Second)))
	must(t, c.n2.Kill())
	for i, n := range c.Nodes() {
		must(t, n.Start(within(t, 20*time.Second)))
		_, err := n.WaitStatus(within(t, 30*time.Second), func(s status.Status) error {
			if s.Ready {
				return errors.New("it says it is in sync with a server that is away")
			}
			for _, p := range s.Ports {
				if !p.Up || p.Error != "" || len(p.Sockets) == 0 {
					return fmt.Errorf("port %s: up %t, %s", p.Device, p.Up, p.Error)
				}
			}
			if len(s.Ports) != 2 || len(s.Uplinks) != 1 || s.Uplinks[0].Queues == 0 {
				return fmt.Errorf("%d ports, uplinks %+v", len(s.Ports), s.Uplinks)
			}
			return nil
		})
		must(t, err)
		c.eventually(20*time.Second, "the tables of "+n.Name+" as they were", func() error {
			now, err := c.tables(n)
			return errors.Join(err, differ(now.FDB, before[i].FDB), differ(now.Neighbors, before[i].Neighbors))
		})
	}
	for _, to := range pods[1:] {
		c.reaches(pods[0], to)
		c.reaches(to, pods[0])
	}
	for _, n := range []*lab.Node{c.n1, c.n2} {
		if strings.Contains(n.Log(), "left-over pin removed") || !strings.Contains(n.Log(), "forwarding from the checkpoint") {
			t.Errorf("%s swept, or did not start from its checkpoint:\n%s", n.Name, n.Log())
		}
	}
	floods := c.floods(pods[0], pods[2])
	c.server.Restart(t)
	for _, n := range c.Nodes() {
		must(t, n.WaitReady(within(t, time.Minute), 2))
	}
	c.wantImplied(time.Minute)
	wantWrites(t, "the restarts, after which nothing had changed", countWrites(c.writes()[written:], ""), map[string]int{})
	e := c.addPod(c.n1, "e")
	c.wantReady(e)
	c.reaches(e, pods[2])
	for _, f := range floods {
		f.end(t)
	}
}

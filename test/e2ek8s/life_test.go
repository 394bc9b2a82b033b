package e2ek8s

import (
	"maps"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
)

// TestLifeOfEndpoints: pods of API objects reach each other, their bindings are
// exactly what the objects imply, and a deleted one leaves nothing. Each write is
// made once: finalizer, status, 1 + n creates; 1 + n deletes, finalizer.
func TestLifeOfEndpoints(t *testing.T) {
	c := newCluster(t)
	pods := c.fourPods()
	for _, p := range pods {
		c.wantReady(p)
	}
	c.wantImplied(20 * time.Second)
	for _, to := range pods[1:] {
		c.reaches(pods[0], to)
		c.reaches(to, pods[0])
	}
	made := map[string]int{"patch networkendpoints": 4, "patch networkendpoints/status": 4, "create fdbentries": 4, "create neighbors": 8}
	wantWrites(t, "four endpoints", countWrites(c.writes(), ""), made)
	for _, p := range pods {
		wantWrites(t, "endpoint "+p.Name, countWrites(c.writes(), p.Name), map[string]int{"patch networkendpoints": 1, "patch networkendpoints/status": 1})
	}

	b := pods[1]
	must(t, c.DeletePod(within(t, 20*time.Second), b))
	c.wantGone("b")
	c.wantImplied(20 * time.Second)
	gone := map[string]int{"patch networkendpoints": 5, "delete fdbentries": 1, "delete neighbors": 2}
	maps.Copy(made, gone)
	wantWrites(t, "four endpoints, one of them deleted", countWrites(c.writes(), ""), made)
	for _, n := range []*lab.Node{c.n1, c.n2} {
		c.eventually(10*time.Second, n.Name+" to forget b", func() error {
			got, err := c.tables(n)
			if err != nil {
				return err
			}
			for _, f := range got.FDB {
				if f.MAC == b.MAC {
					return errThere
				}
			}
			for _, x := range got.Neighbors {
				if x.MAC == b.MAC {
					return errThere
				}
			}
			return nil
		})
	}
	c.reaches(pods[0], pods[2])
	for _, a := range b.Addresses {
		if out, err := pods[0].Run(within(t, 10*time.Second), "ping", "-c", "1", "-W", "1", a.String()); err == nil {
			t.Errorf("a deleted pod answers at %s:\n%s", a, out)
		}
	}
}

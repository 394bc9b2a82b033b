package e2ek8s

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
)

var errGone = errors.New("it is not there")

const (
	quota     = 16 << 20
	nearly    = 768 << 10        // of the quota, left for the endpoints
	fullFor   = 20 * time.Second // how long etcd stays full
	queueable = 20               // keys a node may have queued for an endpoint, at most: there are 4
)

// TestEtcdFull: etcd runs out of a quota of 16 MiB while endpoints are being
// bound, under floods of pings, and gets space again. No ping is lost, queues are
// no longer than what there is to write, no binding is lost or doubled, and in
// the end all is as it must be.
func TestEtcdFull(t *testing.T) {
	c := newClusterWith(t, apitest.Options{Quota: quota})
	must(t, c.AddNetwork("red", 100, []string{"10.0.0.0/24", "fd00:10::/64", "10.1.0.0/16", "fd00:11::/64"}, ""))
	var pods [4]*lab.Pod
	for i, n := range []*lab.Node{c.n1, c.n1, c.n2, c.n2} {
		pods[i] = c.addPod(n, string(rune('a'+i)))
	}
	c.start(2)
	for _, p := range pods {
		c.wantReady(p)
	}
	for _, to := range pods[1:] {
		c.reaches(pods[0], to)
	}
	floods := c.floods(pods[0], pods[1], pods[2])
	c.server.Fill(t, nearly)
	made := 0
	for resource := (client.Resource{Name: v1alpha1.ResourceNetworkEndpoints, Namespace: lab.EndpointNamespace}); ; made++ {
		err := c.api.Create(within(t, 30*time.Second), resource, manyEndpoint(made))
		if err != nil && strings.Contains(err.Error(), "space exceeded") {
			break
		}
		must(t, err)
		if made > 5000 {
			t.Fatal("etcd never gets full")
		}
	}
	if !c.server.EtcdStatus(t).NoSpace {
		t.Fatal("etcd is not full")
	}
	// Something that every agent wants to write down: a device goes.
	must(t, c.n2.DelDevice(within(t, 10*time.Second), pods[3].Device))
	for end := time.Now().Add(fullFor); time.Now().Before(end); time.Sleep(time.Second) {
		for _, n := range c.Nodes() {
			s, err := n.Status(within(t, 10*time.Second))
			switch {
			case err != nil || !n.Running() || s.API == nil:
				t.Fatalf("%s while etcd is full: %v", n.Name, err)
			case s.API.Queued["static"] > queueable*(made+4) || s.API.Queued["learned"] > 0:
				t.Errorf("%s: queues %v of %d endpoints", n.Name, s.API.Queued, made)
			}
		}
	}
	refused := c.unwritten()
	if refused == 0 {
		t.Error("no write of an agent was refused: the test tests nothing")
	}
	for _, n := range c.Nodes() {
		must(t, c.knows(n, pods[0].MAC, true))
		must(t, c.knows(n, pods[2].MAC, true))
	}
	c.server.Free(t)
	freed := time.Now()
	// etcd stores the first writes beyond its quota and refuses them all the
	// same: the last endpoint may be there, and whoever tries again finds it done.
	endpoints, _, _ := c.lists()
	all := len(endpoints)
	if all != made+4 && all != made+5 {
		t.Fatalf("%d endpoints, want %d", all, made+4)
	}

	c.wantImplied(settleWait)
	c.eventually(time.Minute, "d to say that its device is gone", func() error {
		e, err := c.endpoint("d")
		if err == nil && e.Status.Port != "" {
			err = fmt.Errorf("status %+v", e.Status)
		}
		return err
	})
	c.allTold(all)
	t.Logf("%d endpoints made before etcd was full, %d writes refused, converged %v after it had space", made, refused, time.Since(freed).Round(time.Second))
	for _, n := range c.Nodes() {
		c.eventually(time.Minute, "the tables of "+n.Name, func() error {
			got, err := c.tables(n)
			if err != nil {
				return err
			}
			want := c.computed(n.Name)
			return errors.Join(differ(ofMany(got.FDB, fdbMAC), ofMany(want.FDB, fdbMAC)),
				differ(ofMany(got.Neighbors, neighborMAC), ofMany(want.Neighbors, neighborMAC)))
		})
	}
	for _, f := range floods {
		f.end(t)
	}
	// No write was made twice.
	done := countWrites(c.writes(), "")
	for k, want := range map[string]int{
		"create fdbentries": all, "create neighbors": 2 * all,
		"patch networkendpoints": all, "patch networkendpoints/status": all + 1, // d's twice
	} {
		if failed := done["code 500: "+k]; done[k] > want || done[k]+failed < want {
			t.Errorf("%s: %d went through, %d were refused, want %d", k, done[k], failed, want)
		}
	}
	for _, k := range []string{"delete fdbentries", "delete neighbors"} {
		if done[k] > 0 {
			t.Errorf("%s: %d, and no endpoint went", k, done[k])
		}
	}
	t.Logf("writes: %v", done)
}

// unwritten counts the agents' writes that the server failed at.
func (c *cluster) unwritten() (n int) {
	for _, w := range c.writes() {
		if w.Code >= 500 {
			n++
		}
	}
	return n
}

// allTold waits until each of so many endpoints has a status.
func (c *cluster) allTold(endpoints int) {
	c.t.Helper()
	c.eventually(settleWait, "every endpoint to have its status", func() error {
		list, _, _ := c.lists()
		told := 0
		for _, e := range list {
			if len(e.Status.Conditions) > 0 {
				told++
			}
		}
		if told != endpoints || len(list) != endpoints {
			return fmt.Errorf("%d of %d, want %d", told, len(list), endpoints)
		}
		return nil
	})
}

func fdbMAC(f status.FDBEntry) string      { return f.MAC }
func neighborMAC(n status.Neighbor) string { return n.MAC }

// ofMany returns what is of manyEndpoint's endpoints: their devices are not
// there, so what a node has of them follows from the objects alone.
func ofMany[T any](in []T, mac func(T) string) (out []T) {
	for _, x := range in {
		if strings.HasPrefix(mac(x), "02:00:00:01:") {
			out = append(out, x)
		}
	}
	return out
}

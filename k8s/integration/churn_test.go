package integration

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
)

// TestChurn carries many endpoints on two nodes, then creates and deletes at a
// steady rate. In the end both nodes carry what the API says, nothing is left
// over, and the writes are those of the endpoints' lives and no more.
// PICOT_CHURN=full runs the sizes of the acceptance: 1,000 endpoints, 50 a
// second for 60 s.
func TestChurn(t *testing.T) {
	standing, perSecond, seconds := 200, 50, 8
	if os.Getenv("PICOT_CHURN") == "full" {
		standing, seconds = 1000, 60
	}
	r := &rig{s: server(t)}
	r.c = r.s.Client(t)
	r.a, r.b = startNode(t, r.s, "node-a", config{}), startNode(t, r.s, "node-b", config{})
	nets := []string{r.network(t, "10.0.0.0/16", "fd00::/64"), r.network(t, "10.0.0.0/16", "fd00::/64")}

	made := 0
	next := func() *v1alpha1.NetworkEndpoint {
		made++
		node := []string{"node-a", "node-b"}[made%2]
		e := endpoint(unique("ep"), nets[made/2%2], node, mac(made),
			v1alpha1.IPAddress(fmt.Sprintf("10.0.%d.%d", made>>8&255, made&255)), v1alpha1.IPAddress(fmt.Sprintf("fd00::%x:%x", 1+made>>16, made&0xffff)))
		e.Spec.Segment = v1alpha1.Segment(made % 16)
		return e
	}
	began := time.Now()
	var live []*v1alpha1.NetworkEndpoint
	for range standing {
		live = append(live, next())
	}
	parallel(t, live, func(e *v1alpha1.NetworkEndpoint) error { return create(r.c, e) })
	r.allReady(t, live)
	t.Logf("%d endpoints, %d bindings carried %.1f s after the first create", standing, 3*standing, time.Since(began).Seconds())

	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	deleted := 0
	for range perSecond * seconds {
		<-tick.C
		old := live[0]
		e := next()
		live = append(live[1:], e)
		go func() {
			if err := create(r.c, e); err != nil {
				t.Errorf("create %s: %v", e.Name, err)
			}
		}()
		// The oldest of the standing ones is long ready: its life is whole.
		r.remove(t, old)
		deleted++
	}
	r.allReady(t, live)
	r.bothAgree(t)

	counts := map[string]int{}
	for _, n := range []*node{r.a, r.b} {
		for k, v := range n.countedWrites() {
			counts[k] += v
		}
	}
	want := map[string]int{
		"create fdbentries ok": made, "create neighbors ok": 2 * made,
		"delete fdbentries ok": deleted, "delete neighbors ok": 2 * deleted,
		"patch networkendpoints ok": 2*made + deleted,
	}
	conflicts := 0
	for k, v := range counts {
		if strings.HasSuffix(k, " conflict") {
			conflicts += v
			continue
		}
		if v != want[k] {
			t.Errorf("%s: %d writes, want %d", k, v, want[k])
		}
	}
	t.Logf("%d created, %d deleted: writes %v, conflicts %d", made, deleted, counts, conflicts)
	r.nothingLeft(t, len(live))
}

// parallel calls f for each endpoint, 16 at a time.
func parallel(t *testing.T, list []*v1alpha1.NetworkEndpoint, f func(*v1alpha1.NetworkEndpoint) error) {
	t.Helper()
	work := make(chan *v1alpha1.NetworkEndpoint)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for e := range work {
				if err := f(e); err != nil {
					t.Errorf("%s: %v", e.Name, err)
				}
			}
		})
	}
	for _, e := range list {
		work <- e
	}
	close(work)
	wg.Wait()
}

// allReady waits until exactly these endpoints are there and ready.
func (r *rig) allReady(t *testing.T, live []*v1alpha1.NetworkEndpoint) {
	t.Helper()
	apitest.EventuallyWithin(t, 3*time.Minute, fmt.Sprintf("%d endpoints to be ready", len(live)), func() error {
		var list v1alpha1.NetworkEndpointList
		if err := r.c.List(ctx(), client.Resource{Name: v1alpha1.ResourceNetworkEndpoints}, metav1.ListOptions{}, &list); err != nil {
			return err
		}
		ready := 0
		for _, o := range list.Items {
			for _, c := range o.Status.Conditions {
				if c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionTrue && o.DeletionTimestamp == nil {
					ready++
				}
			}
		}
		if ready != len(live) || len(list.Items) != len(live) {
			return fmt.Errorf("%d of %d ready", ready, len(list.Items))
		}
		return nil
	})
}

// nothingLeft counts the stored bindings: one entry and two neighbors for each
// endpoint.
func (r *rig) nothingLeft(t *testing.T, endpoints int) {
	t.Helper()
	var fdb v1alpha1.FDBEntryList
	var neigh v1alpha1.NeighborList
	must(t, r.c.List(ctx(), client.Resource{Name: v1alpha1.ResourceFDBEntries}, metav1.ListOptions{}, &fdb))
	must(t, r.c.List(ctx(), client.Resource{Name: v1alpha1.ResourceNeighbors}, metav1.ListOptions{}, &neigh))
	if len(fdb.Items) != endpoints || len(neigh.Items) != 2*endpoints {
		t.Errorf("%d entries and %d neighbors of %d endpoints", len(fdb.Items), len(neigh.Items), endpoints)
	}
}

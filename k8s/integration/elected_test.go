package integration

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
	"picot.dev/picot/k8s/elected"
	"picot.dev/picot/k8s/lease"
	"picot.dev/picot/learning/reclaim"
)

// candidate is an agent that stands for election and judges while elected.
type candidate struct {
	stop context.CancelFunc
	done sync.WaitGroup
}

func (c *candidate) end() {
	c.stop()
	c.done.Wait()
}

func stand(t *testing.T, s *apitest.Server, node string, leaders *atomic.Int32, names *sync.Map) *candidate {
	t.Helper()
	rc := s.AgentConfig(t, node)
	cl, err := client.New(rc)
	must(t, err)
	e, err := lease.New(lease.Options{Config: rc, Namespace: "picot-system", Name: "picot-reclaimer", Identity: node,
		Times: lease.Times{Duration: 3 * time.Second, Renew: 2 * time.Second, Retry: 200 * time.Millisecond}})
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	c := &candidate{stop: stop}
	c.done.Go(func() {
		e.Run(ctx, func(term context.Context) {
			if leaders.Add(1) > 1 {
				t.Error("two agents are elected")
			}
			names.Store(node, true)
			_ = elected.Run(term, elected.Options{Client: cl, Rate: 1000,
				Nodes: &elected.NodeOptions{Config: rc, Namespace: "picot-nodes", Self: node, Times: reclaim.Options{Stale: stale}}})
			names.Delete(node)
			leaders.Add(-1)
		})
	})
	t.Cleanup(c.end)
	return c
}

// TestElectedJudgesNetworks elects one of two, sees the conditions it writes,
// ends it, and sees the other go on.
func TestElectedJudgesNetworks(t *testing.T) {
	s := server(t)
	c := s.Client(t)
	var leaders atomic.Int32
	var names sync.Map
	both := map[string]*candidate{"node-a": stand(t, s, "node-a", &leaders, &names), "node-b": stand(t, s, "node-b", &leaders, &names)}

	old := network(unique("net"), 5, "10.0.0.0/24")
	must(t, create(c, old))
	time.Sleep(1100 * time.Millisecond) // creation times are whole seconds
	young := network(unique("net"), 5, "10.1.0.0/24")
	must(t, create(c, young))
	condition := func(name, kind string, status metav1.ConditionStatus) {
		t.Helper()
		apitest.Eventually(t, fmt.Sprintf("%s of %s to be %s", kind, name, status), func() error {
			var n v1alpha1.Network
			must(t, c.Get(ctx(), client.Resource{Name: v1alpha1.ResourceNetworks}, name, &n))
			x := meta.FindStatusCondition(n.Status.Conditions, kind)
			if x == nil || x.Status != status || x.ObservedGeneration != n.Generation || x.Message == "" {
				return fmt.Errorf("conditions %+v", n.Status.Conditions)
			}
			return nil
		})
	}
	condition(old.Name, v1alpha1.ConditionReady, metav1.ConditionTrue)
	condition(old.Name, v1alpha1.ConditionDuplicateID, metav1.ConditionFalse)
	condition(young.Name, v1alpha1.ConditionDuplicateID, metav1.ConditionTrue)
	condition(young.Name, v1alpha1.ConditionReady, metav1.ConditionFalse)

	var first string
	names.Range(func(k, _ any) bool { first = k.(string); return true })
	both[first].end()
	handed := time.Now()
	apitest.Eventually(t, "the other to be elected", func() error {
		if leaders.Load() != 1 {
			return fmt.Errorf("%d elected", leaders.Load())
		}
		return nil
	})
	t.Logf("handed over in %v", time.Since(handed).Round(time.Millisecond))
	// The older one goes: the younger gets the id, and its conditions say so.
	must(t, c.Delete(ctx(), client.Resource{Name: v1alpha1.ResourceNetworks}, old.Name, "", ""))
	condition(young.Name, v1alpha1.ConditionDuplicateID, metav1.ConditionFalse)
	condition(young.Name, v1alpha1.ConditionReady, metav1.ConditionTrue)
}

// TestElectionSurvivesTheServer kills the server: the elected one steps down in
// time, and one is elected again after.
func TestElectionSurvivesTheServer(t *testing.T) {
	s := server(t)
	var leaders atomic.Int32
	var names sync.Map
	stand(t, s, "node-a", &leaders, &names)
	stand(t, s, "node-b", &leaders, &names)
	one := func(what string, want int32) {
		t.Helper()
		apitest.Eventually(t, what, func() error {
			if n := leaders.Load(); n != want {
				return fmt.Errorf("%d elected", n)
			}
			return nil
		})
	}
	one("one to be elected", 1)
	s.Kill(t)
	one("the elected one to step down", 0)
	s.Restart(t)
	one("one to be elected again", 1)
}

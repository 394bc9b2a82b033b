package integration

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/lease"
)

// process is one process of a node that keeps the node's Lease.
type process struct {
	writes atomic.Bool
	stop   context.CancelFunc
	done   sync.WaitGroup
}

func (p *process) end() {
	p.stop()
	p.done.Wait()
}

func startProcess(t *testing.T, rc *rest.Config, node, instance string, alone bool, now func() time.Time) *process {
	t.Helper()
	n, err := lease.NewNode(lease.NodeOptions{Config: rc, Namespace: "picot-nodes", Node: node, Instance: instance,
		Every: 100 * time.Millisecond, Duration: 2 * time.Second, Now: now})
	must(t, err)
	p := &process{}
	var run context.Context
	run, p.stop = context.WithCancel(ctx())
	p.done.Go(func() {
		n.Run(run, alone, func(term context.Context) {
			p.writes.Store(true)
			<-term.Done()
			p.writes.Store(false)
		})
	})
	t.Cleanup(p.end)
	return p
}

func untilWrites(t *testing.T, what string, p *process, want bool) {
	t.Helper()
	apitest.Eventually(t, what, func() error {
		if p.writes.Load() != want {
			return errNotYet
		}
		return nil
	})
}

// leases is an administrator's client of Leases.
func leases(t *testing.T, s *apitest.Server) *rest.RESTClient {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, coordinationv1.AddToScheme(scheme))
	c := s.Config()
	c.GroupVersion, c.APIPath = &coordinationv1.SchemeGroupVersion, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	r, err := rest.RESTClientFor(c)
	must(t, err)
	return r
}

func nodeLease(t *testing.T, s *apitest.Server, node string) *coordinationv1.Lease {
	t.Helper()
	var l coordinationv1.Lease
	must(t, leases(t, s).Get().Namespace("picot-nodes").Resource("leases").Name(node).Do(ctx()).Into(&l))
	return &l
}

// TestNodeLease holds that of the processes of one node one writes: a newer one
// only when the older let go, or after it fell silent.
func TestNodeLease(t *testing.T) {
	s := server(t)
	rc := s.AgentConfig(t, "node-a")
	first := startProcess(t, rc, "node-a", "1", true, nil)
	untilWrites(t, "a lone process to write", first, true)
	var before string
	apitest.Eventually(t, "the Lease", func() error {
		var l coordinationv1.Lease
		err := leases(t, s).Get().Namespace("picot-nodes").Resource("leases").Name("node-a").Do(ctx()).Into(&l)
		before = l.ResourceVersion
		return err
	})
	apitest.Eventually(t, "a renewal", func() error {
		if nodeLease(t, s, "node-a").ResourceVersion == before {
			return errNotYet
		}
		return nil
	})
	second := startProcess(t, rc, "node-a", "2", false, nil)
	for range 30 { // longer than a Lease lasts
		time.Sleep(100 * time.Millisecond)
		if second.writes.Load() {
			t.Fatal("two processes write")
		}
	}
	first.end()
	untilWrites(t, "the newer one to write", second, true)
	if h := *nodeLease(t, s, "node-a").Spec.HolderIdentity; h != "node-a/2" {
		t.Errorf("held by %s", h)
	}
	// Whoever knows that it is alone does not wait.
	third := startProcess(t, rc, "node-a", "3", true, nil)
	untilWrites(t, "a lone process to write", third, true)
	untilWrites(t, "the other to step down", second, false)
	second.end()
	if h := *nodeLease(t, s, "node-a").Spec.HolderIdentity; h != "node-a/3" {
		t.Errorf("the one that ended let another's Lease go: %q", h)
	}
	// One that dies without a word is waited for.
	s.Kill(t)
	third.end()
	s.Restart(t)
	fourth := startProcess(t, rc, "node-a", "4", false, nil)
	untilWrites(t, "the Lease to run out", fourth, true)
}

// TestNodeLeaseIsTheNodesOwn tries what the admission policy refuses.
func TestNodeLeaseIsTheNodesOwn(t *testing.T) {
	s := server(t)
	own := startProcess(t, s.AgentConfig(t, "node-a"), "node-a", "1", true, nil)
	apitest.Eventually(t, "the Lease", func() error {
		return leases(t, s).Get().Namespace("picot-nodes").Resource("leases").Name("node-a").Do(ctx()).Error()
	})
	own.end()
	other := startProcess(t, s.AgentConfig(t, "node-b"), "node-a", "1", false, nil)
	apitest.Eventually(t, "another node's agent to be refused", func() error {
		l := nodeLease(t, s, "node-a")
		if h := *l.Spec.HolderIdentity; h != "" {
			t.Fatalf("taken by another node's agent: %q", h)
		}
		time.Sleep(500 * time.Millisecond)
		if other.writes.Load() {
			return fmt.Errorf("it writes")
		}
		return nil
	})
}

package integration

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
	"picot.dev/picot/k8s/elected"
	"picot.dev/picot/k8s/lease"
	"picot.dev/picot/learning/reclaim"
)

// stale is when a Lease of these tests is: many renewals, so that a starved
// machine kills nobody. Whoever judges is deaf before anybody else is dead.
const stale = 3 * time.Second

// fleet is nodes that renew their Leases, and an elected agent that judges them.
type fleet struct {
	t     *testing.T
	s     *apitest.Server
	c     *client.Client
	names []string

	mu     sync.Mutex
	silent map[string]bool
}

// startFleet makes nodes of which the first is the elected agent's.
func startFleet(t *testing.T, s *apitest.Server, prefix string, count int, withNodes bool) *fleet {
	t.Helper()
	f := &fleet{t: t, s: s, c: s.Client(t), silent: map[string]bool{}}
	for i := range count {
		name := fmt.Sprintf("%s-%d", prefix, i)
		f.names = append(f.names, name)
		if withNodes {
			_ = s.TryApply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: "+name+"}\n")
		}
		must(t, create(f.c, &v1alpha1.SRv6Node{TypeMeta: typeMeta("SRv6Node"), ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.SRv6NodeSpec{Locator: fmt.Sprintf("2001:db8:%x:%x::/64", serial.Add(1), i)}}))
	}
	run, stop := context.WithCancel(ctx())
	var done sync.WaitGroup
	done.Go(func() { f.renew(run) })
	t.Cleanup(func() {
		stop()
		done.Wait()
		f.disband()
	})
	return f
}

// disband takes the nodes out of the cluster, so that their silence is no outage to
// the next fleet.
func (f *fleet) disband() {
	for _, name := range f.names {
		must(f.t, f.c.Delete(ctx(), client.Resource{Name: v1alpha1.ResourceSRv6Nodes}, name, "", ""))
		_ = leases(f.t, f.s).Delete().Namespace("picot-nodes").Resource("leases").Name(name).Do(ctx()).Error()
	}
}

// renew writes the Leases of those who are not silent, the first node's too: if
// this is starved, so is that.
func (f *fleet) renew(ctx context.Context) {
	api := leases(f.t, f.s)
	for beat := 0; ctx.Err() == nil; beat++ {
		for _, name := range f.names {
			f.mu.Lock()
			silent := f.silent[name]
			f.mu.Unlock()
			if silent {
				continue
			}
			patch := fmt.Sprintf(`{"spec":{"renewTime":"2026-01-01T00:%02d:%02d.000000Z"}}`, beat/60%60, beat%60)
			err := api.Patch(types.MergePatchType).Namespace("picot-nodes").Resource("leases").Name(name).Body([]byte(patch)).Do(ctx).Error()
			if err != nil {
				l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
				_ = api.Post().Namespace("picot-nodes").Resource("leases").Body(l).Do(ctx).Error()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (f *fleet) silence(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.silent)
	for _, n := range names {
		f.silent[n] = true
	}
}

// judge elects the agent of the first node, with these times, until the test's end
// or until it is told to.
func (f *fleet) judge(times reclaim.Options) (stop func()) {
	f.t.Helper()
	rc := f.s.AgentConfig(f.t, "judge")
	cl, err := client.New(rc)
	must(f.t, err)
	e, err := lease.New(lease.Options{Config: rc, Namespace: "picot-system", Name: "picot-reclaimer", Identity: "judge",
		Times: lease.Times{Duration: 3 * time.Second, Renew: 2 * time.Second, Retry: 200 * time.Millisecond}})
	must(f.t, err)
	run, cancel := context.WithCancel(ctx())
	var done sync.WaitGroup
	done.Go(func() {
		e.Run(run, func(term context.Context) {
			_ = elected.Run(term, elected.Options{Client: cl, Rate: 1000, Log: testLog(f.t),
				Nodes: &elected.NodeOptions{Config: rc, Namespace: "picot-nodes", Self: f.names[0], Times: times}})
		})
	})
	end := sync.OnceFunc(func() { cancel(); done.Wait() })
	f.t.Cleanup(end)
	return end
}

// testLog logs to the test.
func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// alive waits until the condition of exactly these is as said.
func (f *fleet) alive(status metav1.ConditionStatus, names ...string) {
	f.t.Helper()
	for _, name := range names {
		apitest.Eventually(f.t, fmt.Sprintf("Alive %s of %s", status, name), func() error {
			if got := f.condition(name); got != status {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
	}
}

func (f *fleet) condition(name string) metav1.ConditionStatus {
	f.t.Helper()
	var n v1alpha1.SRv6Node
	must(f.t, f.c.Get(ctx(), client.Resource{Name: v1alpha1.ResourceSRv6Nodes}, name, &n))
	if c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionAlive); c != nil {
		return c.Status
	}
	return ""
}

// bindings are what a node of a test has.
type bindings struct {
	node, network     string
	learned, neighbor string // names
	static, byHand    string
	endpoint          string
}

// settle gives a node bindings of every sort and an endpoint with a finalizer.
func (f *fleet) settle(node, net string) bindings {
	f.t.Helper()
	b := bindings{node: node, network: net, endpoint: unique("ep")}
	e := endpoint(b.endpoint, net, node, "")
	e.Finalizers = []string{v1alpha1.EndpointFinalizer}
	must(f.t, create(f.c, e))
	ref := &v1alpha1.EndpointReference{Namespace: "default", Name: b.endpoint, UID: string(e.UID)}
	b.learned = f.fdb(net, node, v1alpha1.SourceLearned, ref)
	b.static = f.fdb(net, node, v1alpha1.SourceStatic, ref)
	b.byHand = f.fdb(net, node, v1alpha1.SourceStatic, nil)
	ip := fmt.Sprintf("10.9.%d.%d", serial.Add(1)/250%250, serial.Add(1)%250+1)
	b.neighbor = net + "." + ip
	must(f.t, create(f.c, &v1alpha1.Neighbor{TypeMeta: typeMeta("Neighbor"),
		ObjectMeta: metav1.ObjectMeta{Name: b.neighbor, Labels: map[string]string{v1alpha1.NetworkLabel: net}},
		Spec:       v1alpha1.NeighborSpec{Network: v1alpha1.NetworkName(net), IP: v1alpha1.IPAddress(ip), Source: v1alpha1.SourceLearned},
		Status:     &v1alpha1.NeighborStatus{ManagingNode: node, MAC: "02:00:00:00:00:01", Endpoint: ref}}))
	return b
}

func (f *fleet) fdb(net, node string, source v1alpha1.Source, ref *v1alpha1.EndpointReference) string {
	f.t.Helper()
	var m [6]byte
	copy(m[:], []byte{2, 9, 0, 0, byte(serial.Load() >> 8), byte(serial.Add(1))})
	name := v1alpha1.FDBName(net, m)
	must(f.t, create(f.c, &v1alpha1.FDBEntry{TypeMeta: typeMeta("FDBEntry"),
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.NetworkLabel: net}},
		Spec: v1alpha1.FDBEntrySpec{Network: v1alpha1.NetworkName(net), MAC: v1alpha1.MACAddress(
			fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])), Source: source},
		Status: &v1alpha1.FDBEntryStatus{ManagingNode: node, Endpoint: ref}}))
	return name
}

// has returns which of a node's objects are there: l(earned), n(eighbor),
// s(tatic), h(and-made), f(inalizer), L(ease).
func (f *fleet) has(b bindings) (out string) {
	f.t.Helper()
	there := func(mark, resource, name string) {
		var o interface {
			metav1.Object
		}
		var err error
		switch resource {
		case v1alpha1.ResourceFDBEntries:
			x := &v1alpha1.FDBEntry{}
			o, err = x, f.c.Get(ctx(), client.Resource{Name: resource}, name, x)
		default:
			x := &v1alpha1.Neighbor{}
			o, err = x, f.c.Get(ctx(), client.Resource{Name: resource}, name, x)
		}
		if err == nil && o.GetName() != "" {
			out += mark
		}
	}
	there("l", v1alpha1.ResourceFDBEntries, b.learned)
	there("n", v1alpha1.ResourceNeighbors, b.neighbor)
	there("s", v1alpha1.ResourceFDBEntries, b.static)
	there("h", v1alpha1.ResourceFDBEntries, b.byHand)
	var e v1alpha1.NetworkEndpoint
	must(f.t, f.c.Get(ctx(), client.Resource{Name: v1alpha1.ResourceNetworkEndpoints, Namespace: "default"}, b.endpoint, &e))
	if len(e.Finalizers) > 0 {
		out += "f"
	}
	if leases(f.t, f.s).Get().Namespace("picot-nodes").Resource("leases").Name(b.node).Do(ctx()).Error() == nil {
		out += "L"
	}
	return out
}

func (f *fleet) untilHas(b bindings, want string) {
	f.t.Helper()
	apitest.Eventually(f.t, "what is left of "+b.node, func() error {
		if got := f.has(b); got != want {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
}

// still holds that nothing becomes of a node's objects, and that it stays alive or
// not, for longer than a Lease takes to be stale.
func (f *fleet) still(b bindings, want string, status metav1.ConditionStatus) {
	f.t.Helper()
	for end := time.Now().Add(stale * 3 / 2); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if got := f.has(b); got != want {
			f.t.Fatalf("%s has %q, want %q for good", b.node, got, want)
		}
		if got := f.condition(b.node); got != status {
			f.t.Fatalf("Alive of %s is %q, want %q for good", b.node, got, status)
		}
	}
}

// TestNodes judges nodes and clears up after them, by the API server's word alone.
func TestNodes(t *testing.T) {
	s := server(t)
	net := unique("net")
	must(t, create(s.Client(t), network(net, serial.Add(1), "10.9.0.0/16")))

	t.Run("gone", func(t *testing.T) { // TestNodeGone
		f := startFleet(t, s, "gone", 6, true)
		b := make([]bindings, len(f.names))
		for i, n := range f.names {
			b[i] = f.settle(n, net)
		}
		f.judge(reclaim.Options{Stale: stale})
		f.alive(metav1.ConditionTrue, f.names...)
		t.Run("silent", func(t *testing.T) {
			f.silence(f.names[1])
			f.alive(metav1.ConditionFalse, f.names[1])
			f.still(b[1], "lnshfL", metav1.ConditionFalse)
			f.silence()
			f.alive(metav1.ConditionTrue, f.names[1])
		})
		t.Run("half of all silent", func(t *testing.T) {
			f.silence(f.names[1], f.names[2], f.names[3])
			f.still(b[1], "lnshfL", metav1.ConditionTrue)
			f.still(b[3], "lnshfL", metav1.ConditionTrue)
			f.silence()
		})
		t.Run("out of service", func(t *testing.T) {
			f.taint(f.names[2], `[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]`)
			f.silence(f.names[2])
			f.alive(metav1.ConditionFalse, f.names[2])
			f.untilHas(b[2], "shfL")
			f.taint(f.names[2], `null`)
			f.silence()
			f.alive(metav1.ConditionTrue, f.names[2]) // a node that comes back
			f.still(b[2], "shfL", metav1.ConditionTrue)
		})
		t.Run("Node deleted", func(t *testing.T) {
			s.Delete(t, "/api/v1/nodes/"+f.names[4])
			f.still(b[4], "lnshfL", metav1.ConditionTrue) // its agent lives
			f.silence(f.names[4])
			f.untilHas(b[4], "h")
			f.alive(metav1.ConditionFalse, f.names[4])
		})
		for _, i := range []int{0, 1, 3, 5} {
			if got := f.has(b[i]); got != "lnshfL" {
				t.Errorf("%s, to which nothing happened, has %q", f.names[i], got)
			}
		}
	})
	t.Run("silent for long", func(t *testing.T) {
		f := startFleet(t, s, "long", 4, true)
		b := f.settle(f.names[1], net)
		end := f.judge(reclaim.Options{Stale: stale, Forget: time.Hour})
		f.alive(metav1.ConditionTrue, f.names...)
		f.silence(f.names[1])
		f.alive(metav1.ConditionFalse, f.names[1])
		f.still(b, "lnshfL", metav1.ConditionFalse)
		end() // what the next one does not see for itself does not count
		f.judge(reclaim.Options{Stale: stale, Forget: stale * 2})
		f.untilHas(b, "shfL")
		f.silence()
		f.alive(metav1.ConditionTrue, f.names[1])
	})
	t.Run("without Node objects", testWithoutNodeObjects(s, net))
	t.Run("named by bindings alone", func(t *testing.T) {
		f := startFleet(t, s, "named", 2, true)
		b := f.settle("long-forgotten", net)
		f.judge(reclaim.Options{Stale: stale})
		f.untilHas(b, "h")
	})
}

// testWithoutNodeObjects: TestWithoutNodeObjects. Nobody keeps Node objects, so that
// there is none says nothing.
func testWithoutNodeObjects(s *apitest.Server, net string) func(t *testing.T) {
	return func(t *testing.T) {
		f := startFleet(t, s, "bare", 4, false)
		b := f.settle(f.names[1], net)
		f.judge(reclaim.Options{Stale: stale})
		f.alive(metav1.ConditionTrue, f.names...)
		f.silence(f.names[1])
		f.alive(metav1.ConditionFalse, f.names[1])
		f.still(b, "lnshfL", metav1.ConditionFalse)
	}
}

func (f *fleet) taint(node, taints string) {
	f.t.Helper()
	f.s.Patch(f.t, "/api/v1/nodes/"+node, `{"spec":{"taints":`+taints+`}}`)
}

// TestDeafJudge: whoever does not see its own Lease renewed finds nobody dead.
func TestDeafJudge(t *testing.T) {
	s := server(t)
	f := startFleet(t, s, "deaf", 6, true)
	f.judge(reclaim.Options{Stale: stale})
	f.alive(metav1.ConditionTrue, f.names...)
	f.silence(f.names[0], f.names[1])
	for end := time.Now().Add(stale * 2); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if f.condition(f.names[1]) != metav1.ConditionTrue {
			t.Fatal("judged by one that hears nothing of itself")
		}
	}
	f.silence(f.names[1])
	f.alive(metav1.ConditionFalse, f.names[1])
}

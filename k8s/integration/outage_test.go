package integration

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/writer"
)

// TestAPIServerAway kills the API server under two nodes, lets the world change
// while it is gone, and brings it back: what is carried stands meanwhile, the
// queue is bounded, and everything converges.
func TestAPIServerAway(t *testing.T) {
	r := &rig{s: server(t)}
	r.c = r.s.Client(t)
	r.a, r.b = startNode(t, r.s, "node-a", config{}), startNode(t, r.s, "node-b", config{})
	net := r.network(t, "10.0.0.0/24")
	var eps []*v1alpha1.NetworkEndpoint
	for i := range 20 {
		eps = append(eps, endpoint(unique("ep"), net, []string{"node-a", "node-b"}[i%2], mac(i+1), v1alpha1.IPAddress(fmt.Sprintf("10.0.0.%d", i+1))))
		must(t, create(r.c, eps[i]))
	}
	for _, e := range eps {
		r.untilReady(t, e)
	}
	r.bothAgree(t)
	// Half of them are being removed as the server dies.
	for _, e := range eps[:10] {
		r.remove(t, e)
	}
	r.s.Kill(t)
	before := r.a.snapshot()
	time.Sleep(5 * time.Second)
	if after := r.a.snapshot(); len(after.FDB) == 0 || !reflect.DeepEqual(before.Networks, after.Networks) {
		t.Errorf("the state changed while the server was away: %+v", desired.Diff(before, after))
	}
	if n := r.a.writer.Len(writer.Static); n > 100 {
		t.Errorf("%d keys queued", n)
	}
	r.s.Restart(t)
	back := time.Now()
	for _, e := range eps[:10] {
		r.untilGone(t, e)
	}
	late := endpoint(unique("ep"), net, "node-a", mac(99), "10.0.0.99")
	must(t, create(r.c, late))
	r.untilReady(t, late)
	r.bothAgree(t)
	t.Logf("converged %.1f s after the server was back", time.Since(back).Seconds())
	if r.fdb(t, net, mac(1)) != nil || r.fdb(t, net, mac(20)) == nil {
		t.Error("the wrong bindings are left")
	}
}

// snapshot copies what a node carries.
func (n *node) snapshot() desired.State {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := desired.NewState()
	s.Apply(desired.Diff(desired.NewState(), n.state))
	return s
}

// TestStartWhileTheServerIsAway starts a node against nothing: its gates stay
// shut and it writes nothing, until the server comes.
func TestStartWhileTheServerIsAway(t *testing.T) {
	r := &rig{s: server(t)}
	r.c = r.s.Client(t)
	net := r.network(t, "10.0.0.0/24")
	e := endpoint(unique("ep"), net, "node-a", mac(1), "10.0.0.1")
	must(t, create(r.c, e))
	rc := r.s.AgentConfig(t, "node-a")
	r.s.Stop(t)
	n := newNode(t, rc, "node-a", config{})
	t.Cleanup(n.kill)
	time.Sleep(2 * time.Second)
	n.mu.Lock()
	if n.gates.Open() || n.gates.Endpoints || len(n.writes) > 0 {
		t.Errorf("gates %+v, writes %v", n.gates, n.writes)
	}
	n.mu.Unlock()
	r.s.Restart(t)
	r.untilReady(t, e)
	n.quiet(t)
	n.agrees(t, r.c)
}

// TestRefusedWritesDoNotStopTheRest takes the right to write neighbors away for
// a while.
func TestRefusedWritesDoNotStopTheRest(t *testing.T) {
	r := &rig{s: server(t)}
	r.c = r.s.Client(t)
	r.a = startNode(t, r.s, "node-a", config{})
	// A policy that refuses one address.
	r.s.Apply(t, `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse-one}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [picot.dev], apiVersions: ["*"], resources: [neighbors], operations: [CREATE]}]}
  validations: [{expression: "object.spec.ip != '10.0.0.66'", message: not today}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuse-one}
spec: {policyName: refuse-one, validationActions: [Deny]}
`)
	net := r.network(t, "10.0.0.0/24")
	probe := func() error {
		o := &v1alpha1.Neighbor{TypeMeta: typeMeta("Neighbor"), Spec: v1alpha1.NeighborSpec{Network: v1alpha1.NetworkName(net), IP: "10.0.0.66", Source: "learned"}}
		o.Name, o.Labels = net+".10.0.0.66", map[string]string{v1alpha1.NetworkLabel: net}
		if err := create(r.c, o); err == nil {
			must(t, r.c.Delete(ctx(), resource(o), o.Name, "", ""))
			return errNotYet
		}
		return nil
	}
	apitest.Eventually(t, "the policy to be in force", probe)
	bad := endpoint(unique("ep"), net, "node-a", mac(1), "10.0.0.66")
	must(t, create(r.c, bad))
	var good []*v1alpha1.NetworkEndpoint
	for i := range 20 {
		good = append(good, endpoint(unique("ep"), net, "node-a", mac(10+i), v1alpha1.IPAddress(fmt.Sprintf("10.0.0.%d", 10+i))))
		must(t, create(r.c, good[i]))
	}
	for _, e := range good {
		r.untilReady(t, e)
	}
	if n := r.a.writer.Len(writer.Static); n != 1 {
		t.Errorf("%d keys are still tried, want the one refused", n)
	}
	r.s.Delete(t, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/refuse-one")
	r.untilReady(t, bad)
	r.bothAgreeA(t)
}

func (r *rig) bothAgreeA(t *testing.T) {
	t.Helper()
	r.a.quiet(t)
	r.a.agrees(t, r.c)
}

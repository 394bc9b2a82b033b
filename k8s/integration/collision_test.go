package integration

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
)

func (r *rig) collisionMAC(t *testing.T) {
	net := r.network(t, "10.0.0.0/24")
	first := endpoint(unique("ep"), net, "node-a", mac(1), "10.0.0.1")
	must(t, create(r.c, first))
	r.untilReady(t, first)
	second := endpoint(unique("ep"), net, "node-b", mac(1), "10.0.0.2")
	must(t, create(r.c, second))
	r.untilCondition(t, second, v1alpha1.ConditionConflict, metav1.ConditionTrue, "Duplicate")
	r.untilCondition(t, second, v1alpha1.ConditionReady, metav1.ConditionFalse, "Duplicate")
	r.bothAgree(t)
	if f := r.fdb(t, net, mac(1)); f.Status.ManagingNode != "node-a" {
		t.Errorf("the holder lost it to %s", f.Status.ManagingNode)
	}
	if r.neighbor(t, net, "10.0.0.2") != nil {
		t.Error("the loser has a neighbor with the holder's MAC")
	}
	if list := r.b.refusal(second); len(list) != 1 || !errors.Is(&list[0], desired.ErrDuplicate) || !strings.Contains(list[0].Reason, first.Name) {
		t.Errorf("refusal %v", list)
	}
	r.b.mu.Lock()
	if _, ok := r.b.state.Endpoints[desired.EndpointKey{Namespace: "default", Name: second.Name}]; ok {
		t.Error("the loser is carried")
	}
	r.b.mu.Unlock()
	// The holder goes: the refused claim goes through.
	r.remove(t, first)
	r.untilGone(t, first)
	r.untilReady(t, second)
	r.bothAgree(t)
	if f := r.fdb(t, net, mac(1)); f == nil || f.Status.ManagingNode != "node-b" {
		t.Errorf("after the holder went: %+v", f)
	}
	r.remove(t, second)
	r.untilGone(t, second)
}

func (r *rig) collisionIP(t *testing.T) {
	net := r.network(t, "10.0.0.0/24")
	first := endpoint(unique("ep"), net, "node-a", mac(1), "10.0.0.1")
	must(t, create(r.c, first))
	r.untilReady(t, first)
	second := endpoint(unique("ep"), net, "node-b", mac(2), "10.0.0.2", "10.0.0.1")
	must(t, create(r.c, second))
	r.untilCondition(t, second, v1alpha1.ConditionConflict, metav1.ConditionTrue, "Duplicate")
	r.untilReady(t, second) // with the address it has
	r.bothAgree(t)
	if n := r.neighbor(t, net, "10.0.0.1"); string(n.Status.MAC) != mac(1) {
		t.Errorf("10.0.0.1 went to %s", n.Status.MAC)
	}
	r.b.mu.Lock()
	if x := r.b.state.Endpoints[desired.EndpointKey{Namespace: "default", Name: second.Name}]; len(x.Addresses) != 1 {
		t.Errorf("carried with %v", x.Addresses)
	}
	r.b.mu.Unlock()
	r.remove(t, first)
	r.untilGone(t, first)
	r.untilCondition(t, second, v1alpha1.ConditionConflict, metav1.ConditionFalse, "Held")
	if n := r.neighbor(t, net, "10.0.0.1"); n == nil || string(n.Status.MAC) != mac(2) {
		t.Errorf("after the holder went: %+v", n)
	}
	r.remove(t, second)
	r.untilGone(t, second)
}

func (r *rig) collisionHere(t *testing.T) {
	net := r.network(t, "10.0.0.0/24")
	first, second := endpoint(unique("ep"), net, "node-a", mac(1)), endpoint(unique("ep"), net, "node-a", mac(1))
	must(t, create(r.c, first))
	r.untilReady(t, first)
	must(t, create(r.c, second))
	r.untilCondition(t, second, v1alpha1.ConditionConflict, metav1.ConditionTrue, "Duplicate")
	r.remove(t, first)
	r.untilGone(t, first)
	r.untilReady(t, second)
	r.bothAgree(t)
	r.remove(t, second)
	r.untilGone(t, second)
}

package static

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/source"
	"picot.dev/picot/k8s/writer"
)

// endpoint decides on an endpoint's own object: its finalizer and its status.
func (p *Planner) endpoint(key desired.EndpointKey) writer.Op {
	e, ok := p.o.Source.Endpoint(key)
	if !ok {
		return writer.Op{}
	}
	k := source.Key{Kind: v1alpha1.KindNetworkEndpoint, Endpoint: key}
	if e.Deleting {
		return p.release(k, &e)
	}
	_, known := p.o.Source.Network(e.Network)
	if e.Claims() && known && !e.Finalized() {
		return finalizers(k, &e, append(slices.Clone(e.Finalizers), v1alpha1.EndpointFinalizer))
	}
	return p.status(k, &e)
}

// release takes the finalizer off once the port is shut and no binding is left.
func (p *Planner) release(k source.Key, e *source.Endpoint) writer.Op {
	if !e.Finalized() || !p.o.Closed(e.EndpointKey) || len(p.o.Source.OwnStatic(e.UID)) > 0 {
		return writer.Op{}
	}
	left := slices.DeleteFunc(slices.Clone(e.Finalizers), func(s string) bool { return s == v1alpha1.EndpointFinalizer })
	op := finalizers(k, e, left)
	op.Last = len(left) == 0
	return op
}

func finalizers(k source.Key, e *source.Endpoint, list []string) writer.Op {
	return patch(k, &e.Version, map[string]any{"metadata": map[string]any{"finalizers": list}})
}

// status writes what came of the endpoint, once that is settled.
func (p *Planner) status(k source.Key, e *source.Endpoint) writer.Op {
	if !p.settled(e) {
		return writer.Op{}
	}
	problems := p.o.Source.EndpointProblems(e.EndpointKey)
	port, why, settled := p.o.Port(e.EndpointKey)
	whole := p.refusedWhole(e, problems)
	if !settled && !whole {
		return writer.Op{}
	}
	next := *e.Status.DeepCopy()
	next.Port = port
	ready, conflict := conditions(problems, whole, why)
	now := metav1.NewTime(time.Now())
	for _, c := range []metav1.Condition{ready, conflict} {
		c.ObservedGeneration, c.LastTransitionTime = e.Generation, now
		meta.SetStatusCondition(&next.Conditions, c)
	}
	if equality.Semantic.DeepEqual(next, e.Status) {
		return writer.Op{}
	}
	op := patch(k, &e.Version, map[string]any{"status": map[string]any{"conditions": next.Conditions, "port": orNil(port)}})
	op.Subresource = "status"
	if len(problems) > 0 {
		op.Then = func() {
			p.o.Refused(desired.Ref{Kind: k.Kind, Namespace: k.Endpoint.Namespace, Name: k.Endpoint.Name}, problems)
		}
	}
	return op
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// refusedWhole reports whether the problems are not just of single addresses.
func (p *Planner) refusedWhole(e *source.Endpoint, problems []desired.Problem) bool {
	return len(e.Problems) > 0 || slices.ContainsFunc(problems, func(pr desired.Problem) bool {
		return !strings.HasPrefix(pr.Field, "spec.addresses")
	})
}

// settled reports whether every binding the endpoint may have is there, its own
// or another's: before that a status would be written twice.
func (p *Planner) settled(e *source.Endpoint) bool {
	n, ok := p.o.Source.Network(e.Network)
	if !e.Claims() || !ok || e.MAC.IsZero() || e.MAC == n.Gateway.MAC {
		return true
	}
	k := source.Key{Kind: v1alpha1.KindFDBEntry, Network: e.Network, MAC: e.MAC}
	f, ok := p.row(k)
	if !ok || !f.owner.Static {
		return false
	}
	if f.owner.Endpoint.UID != e.UID {
		return !p.given(&f.owner, p.o.Source.Claimants(k)) // refused whole
	}
	for _, a := range e.Addresses {
		if desired.AddressProblem(desired.Ref{}, "", a, &n) != nil {
			continue
		}
		k := source.Key{Kind: v1alpha1.KindNeighbor, Network: e.Network, IP: a}
		nb, ok := p.row(k)
		if !ok || !nb.owner.Static || nb.owner.Endpoint.UID != e.UID && p.given(&nb.owner, p.o.Source.Claimants(k)) {
			return false
		}
	}
	return true
}

// conditions says Ready and Conflict by what is wrong.
func conditions(problems []desired.Problem, whole bool, why string) (ready, conflict metav1.Condition) {
	ready = metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Carried", Message: "the endpoint is carried"}
	conflict = metav1.Condition{Type: v1alpha1.ConditionConflict, Status: metav1.ConditionFalse, Reason: "Held", Message: "the endpoint holds all it claims"}
	if why != "" {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "NoPort", why
	}
	if len(problems) == 0 {
		return ready, conflict
	}
	message := messageOf(problems)
	reason := reasonOf(problems[0].Is)
	if whole {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reason, message
	}
	switch reason {
	case "Duplicate", "Outside":
		conflict.Status, conflict.Reason, conflict.Message = metav1.ConditionTrue, reason, message
	}
	return ready, conflict
}

func reasonOf(is error) string {
	switch is {
	case desired.ErrDuplicate:
		return "Duplicate"
	case desired.ErrOutside:
		return "Outside"
	case desired.ErrUnknown:
		return "UnknownNetwork"
	}
	return "Invalid"
}

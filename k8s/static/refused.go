package static

import (
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
	"picot.dev/picot/k8s/source"
	"picot.dev/picot/k8s/writer"
)

// refused says on a binding of this node that is wrong in itself what is wrong,
// and takes that back once it is right.
//
// A binding has no status subresource, so this write, too, makes a new
// generation. It holds for one stored state only, so it is known which one.
func (p *Planner) refused(k source.Key) writer.Op {
	r, ok := p.o.Source.Refused(k)
	if !ok {
		return writer.Op{}
	}
	conditions := append([]metav1.Condition(nil), r.Conditions...)
	have := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	if len(r.Problems) == 0 {
		if !meta.RemoveStatusCondition(&conditions, v1alpha1.ConditionReady) {
			return writer.Op{}
		}
		return conditioned(k, &r, conditions)
	}
	want := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reasonOf(r.Problems[0].Is),
		Message: messageOf(r.Problems), ObservedGeneration: r.Generation + 1, LastTransitionTime: metav1.NewTime(time.Now())}
	if have != nil && have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message && have.ObservedGeneration == r.Generation {
		return writer.Op{}
	}
	meta.SetStatusCondition(&conditions, want)
	op := conditioned(k, &r, conditions)
	op.Then = func() { p.o.Refused(desired.Ref{Kind: k.Kind, Name: k.Name}, r.Problems) }
	return op
}

// conditioned makes the write of a refused binding's conditions.
func conditioned(k source.Key, r *source.Refused, conditions []metav1.Condition) writer.Op {
	var list any
	if len(conditions) > 0 {
		list = conditions
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": r.Version.UID, "resourceVersion": r.Version.ResourceVersion},
		"status":   map[string]any{"conditions": list},
	})
	if err != nil { // strings and conditions: cannot be
		return writer.Op{}
	}
	op := writer.Op{Verb: writer.Patch, Name: k.Name, Patch: raw, UID: r.Version.UID, Version: r.Version.ResourceVersion}
	op.Resource, op.Object = client.Resource{Name: v1alpha1.ResourceFDBEntries}, &v1alpha1.FDBEntry{}
	if k.Kind == v1alpha1.KindNeighbor {
		op.Resource, op.Object = client.Resource{Name: v1alpha1.ResourceNeighbors}, &v1alpha1.Neighbor{}
	}
	return op
}

// messageOf joins problems to a condition's message.
func messageOf(problems []desired.Problem) string {
	texts := make([]string, 0, len(problems))
	for _, pr := range problems {
		texts = append(texts, strings.TrimPrefix(pr.Error(), pr.Object.String()+": "))
	}
	message := strings.Join(texts, "; ")
	// A cut character would not be stored as it is, and be written for ever.
	return strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
}

// maxMessage is about how long a condition's message may be (32768 bytes by
// metav1.Condition); nobody reads more than this.
const maxMessage = 4096

package elected

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
	"picot.dev/picot/k8s/source"
	"picot.dev/picot/k8s/writer"
)

// Options of a term.
type Options struct {
	Client *client.Client
	Rate   float64 // writes a second; 20
	// Nodes says how to judge nodes; nil: they are not judged.
	Nodes *NodeOptions
	Log   *slog.Logger
}

// Run judges until ctx ends.
func Run(ctx context.Context, o Options) error {
	if o.Client == nil {
		return errors.New("elected: give a client")
	}
	if o.Rate == 0 {
		o.Rate = 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	n := &networks{}
	w, err := writer.New[string](n, writer.Options{API: o.Client, Rate: o.Rate, Burst: 100, Workers: 4, Log: o.Log})
	if err != nil {
		return err
	}
	n.view, err = source.NewNetworks(source.NetworksOptions{Client: o.Client, Log: o.Log,
		Changed: func(names []string) {
			for _, name := range names {
				w.Enqueue(name, writer.Static)
			}
		}})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	if o.Nodes != nil {
		nodes, err := newNodes(*o.Nodes, o.Client, o.Rate, o.Log)
		if err != nil {
			return err
		}
		wg.Go(func() { nodes.run(ctx) })
	}
	wg.Go(func() { n.view.Run(ctx) })
	wg.Go(func() { w.Run(ctx) })
	wg.Wait()
	return nil
}

// networks decides the conditions of Networks.
type networks struct {
	view *source.Networks
}

// Decide implements writer.Decider.
func (n *networks) Decide(name string) writer.Op {
	x, ok := n.view.Get(name)
	if !ok {
		return writer.Op{}
	}
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Carried", Message: "the network is carried"}
	duplicate := metav1.Condition{Type: v1alpha1.ConditionDuplicateID, Status: metav1.ConditionFalse, Reason: "Held", Message: "the network holds its id"}
	if len(x.Problems) > 0 {
		texts := make([]string, 0, len(x.Problems))
		for _, p := range x.Problems {
			texts = append(texts, strings.TrimPrefix(p.Error(), p.Object.String()+": "))
		}
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "Invalid", strings.Join(texts, "; ")
		if errors.Is(x.Problems[0].Is, desired.ErrDuplicate) {
			ready.Reason = v1alpha1.ConditionDuplicateID
			duplicate.Status, duplicate.Reason, duplicate.Message = metav1.ConditionTrue, "HeldByAnother", ready.Message
		}
	}
	conditions := append([]metav1.Condition(nil), x.Conditions...)
	now := metav1.NewTime(time.Now())
	for _, c := range []metav1.Condition{ready, duplicate} {
		c.ObservedGeneration, c.LastTransitionTime = x.Generation, now
		meta.SetStatusCondition(&conditions, c)
	}
	if equality.Semantic.DeepEqual(conditions, x.Conditions) {
		return writer.Op{}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": x.Version.UID, "resourceVersion": x.Version.ResourceVersion},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return writer.Op{}
	}
	return writer.Op{Verb: writer.Patch, Resource: client.Resource{Name: v1alpha1.ResourceNetworks}, Name: name, Subresource: "status",
		Patch: patch, Object: &v1alpha1.Network{}, UID: x.Version.UID, Version: x.Version.ResourceVersion}
}

// Shows implements writer.Decider.
func (n *networks) Shows(name string, r writer.Result) bool {
	x, ok := n.view.Get(name)
	return !ok || x.Version.UID != r.UID || source.NotOlder(x.Version.ResourceVersion, r.ResourceVersion)
}

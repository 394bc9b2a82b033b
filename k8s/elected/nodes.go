package elected

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
	"picot.dev/picot/k8s/source"
	"picot.dev/picot/k8s/writer"
	"picot.dev/picot/learning/reclaim"
)

// NodeOptions say how to judge nodes.
type NodeOptions struct {
	Config    *rest.Config
	Namespace string // of the nodes' Leases
	// Self is the node of the elected agent. While its own Lease is not seen to be
	// renewed it is the watch that is deaf. Empty: that is not looked at.
	Self  string
	Times reclaim.Options
	// Mono is a clock that never steps, in nanoseconds; nil: the process's own.
	Mono func() int64
}

// The watches, by number.
const (
	nodeObjects = iota
	nodeLeases
	srv6Nodes
	watches
)

// taint is what somebody who knows that a node is off puts on it.
const taint = corev1.TaintNodeOutOfService

// nodes judges nodes. The watches write what they see; run judges.
type nodes struct {
	o      NodeOptions
	log    *slog.Logger
	client *client.Client
	core   *rest.RESTClient
	leases *rest.RESTClient
	writer *writer.Writer[string]
	judge  *reclaim.Judge // run's

	mu       sync.Mutex
	whole    [watches]bool
	exists   map[string]bool // Node objects; true: out of service
	lease    map[string]string
	stored   map[string]srv6Node
	found    map[string]bool // named by a binding or an endpoint alone
	dirty    map[string]bool
	heard    int64 // mono: our own Lease was last seen to change
	kept     bool  // our own node has a Node object
	verdicts map[string]reclaim.Verdict
}

// srv6Node is the cached state of an SRv6Node.
type srv6Node struct {
	version    desired.Version
	generation int64
	conditions []metav1.Condition
}

func newNodes(o NodeOptions, c *client.Client, rate float64, log *slog.Logger) (*nodes, error) {
	n := &nodes{o: o, log: log, client: c, exists: map[string]bool{}, lease: map[string]string{}, stored: map[string]srv6Node{},
		found: map[string]bool{}, dirty: map[string]bool{}, verdicts: map[string]reclaim.Verdict{}}
	if n.o.Mono == nil {
		began := time.Now()
		n.o.Mono = func() int64 { return time.Since(began).Nanoseconds() }
	}
	n.o.Times, n.heard = n.o.Times.WithDefaults(), n.o.Mono()
	var err error
	if n.judge, err = reclaim.New(n.o.Times); err != nil {
		return nil, err
	}
	if n.core, err = restClient(o.Config, "/api", corev1.SchemeGroupVersion); err != nil {
		return nil, err
	}
	if n.leases, err = restClient(o.Config, "/apis", coordinationv1.SchemeGroupVersion); err != nil {
		return nil, err
	}
	n.writer, err = writer.New[string](n, writer.Options{API: c, Rate: rate, Burst: 100, Workers: 4, Log: log})
	return n, err
}

// run judges until ctx ends.
func (n *nodes) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { n.writer.Run(ctx) })
	wg.Go(func() { n.clearAll(ctx) })
	wg.Go(func() { n.followObjects(ctx) })
	wg.Go(func() { n.followLeases(ctx) })
	wg.Go(func() { n.followSRv6Nodes(ctx) })
	tick := time.NewTicker(n.every())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.look()
		}
	}
}

// every is the time between two looks.
func (n *nodes) every() time.Duration {
	return min(max(n.o.Times.Stale/20, 5*time.Millisecond), time.Second)
}

func (n *nodes) followObjects(ctx context.Context) {
	set := func(o *corev1.Node, gone bool) {
		if gone {
			delete(n.exists, o.Name)
		} else {
			out := false
			for _, t := range o.Spec.Taints {
				out = out || t.Key == taint
			}
			n.exists[o.Name] = out
		}
		n.dirty[o.Name] = true
	}
	follow(ctx, n.log, "nodes", listerOf(n.core, "", "nodes", func() runtime.Object { return &corev1.NodeList{} }), &corev1.Node{},
		feedOf(n, nodeObjects, set, func(there map[string]bool) {
			for name := range n.exists {
				if !there[name] {
					delete(n.exists, name)
					n.dirty[name] = true
				}
			}
		}))
}

func (n *nodes) followLeases(ctx context.Context) {
	set := func(o *coordinationv1.Lease, gone bool) {
		if o.Name == n.o.Self && n.lease[o.Name] != o.ResourceVersion {
			n.heard = n.o.Mono()
		}
		if gone {
			delete(n.lease, o.Name)
		} else {
			if n.lease[o.Name] == "" {
				n.writer.Enqueue(o.Name, writer.Static) // its first sign of life: now Alive is more than a guess
			}
			n.lease[o.Name] = o.ResourceVersion
		}
		n.dirty[o.Name] = true
	}
	follow(ctx, n.log, "leases", listerOf(n.leases, n.o.Namespace, "leases", func() runtime.Object { return &coordinationv1.LeaseList{} }), &coordinationv1.Lease{},
		feedOf(n, nodeLeases, set, func(there map[string]bool) {
			for name := range n.lease {
				if !there[name] {
					delete(n.lease, name)
					n.dirty[name] = true
				}
			}
		}))
}

func (n *nodes) followSRv6Nodes(ctx context.Context) {
	r := client.Resource{Name: v1alpha1.ResourceSRv6Nodes}
	from := lister{
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			l := &v1alpha1.SRv6NodeList{}
			return l, n.client.List(ctx, r, o, l)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return n.client.Watch(ctx, r, o)
		},
	}
	set := func(o *v1alpha1.SRv6Node, gone bool) {
		if gone {
			delete(n.stored, o.Name)
		} else {
			n.stored[o.Name] = srv6Node{desired.Version{UID: string(o.UID), ResourceVersion: o.ResourceVersion}, o.Generation, o.Status.DeepCopy().Conditions}
		}
		n.dirty[o.Name] = true
		n.writer.Enqueue(o.Name, writer.Static)
	}
	follow(ctx, n.log, "srv6nodes", from, &v1alpha1.SRv6Node{}, feedOf(n, srv6Nodes, set, func(there map[string]bool) {
		for name := range n.stored {
			if !there[name] {
				delete(n.stored, name)
				n.dirty[name] = true
			}
		}
	}))
}

// feedOf makes a feed of what set and missing do, both with the lock held.
func feedOf[T metav1.Object](n *nodes, watch int, set func(o T, gone bool), missing func(there map[string]bool)) *feed[T] {
	return &feed[T]{
		set: func(o T, gone bool) {
			n.mu.Lock()
			defer n.mu.Unlock()
			set(o, gone)
		},
		replace: func(list []T) {
			n.mu.Lock()
			defer n.mu.Unlock()
			there := make(map[string]bool, len(list))
			for _, o := range list {
				there[o.GetName()] = true
				set(o, false)
			}
			missing(there)
		},
		whole: func(whole bool) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.whole[watch] != whole {
				n.log.Info("watch of nodes", "number", watch, "whole", whole)
			}
			n.whole[watch] = whole
		},
	}
}

// look judges once by what was seen.
func (n *nodes) look() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.o.Mono()
	whole := n.whole == [watches]bool{true, true, true}
	if whole && n.o.Self != "" && time.Duration(now-n.heard) > n.o.Times.Stale/2 {
		whole = false // our own Lease is renewed: it is we who do not hear
	}
	n.judge.Watching(whole, now)
	if _, kept := n.exists[n.o.Self]; kept != n.kept {
		n.kept = kept
		n.allDirty()
	}
	for name := range n.dirty {
		delete(n.dirty, name)
		n.tell(name, now)
	}
	verdicts := n.judge.Verdicts(now)
	next := make(map[string]reclaim.Verdict, len(verdicts))
	for _, v := range verdicts {
		next[v.Node] = v
		if old, ok := n.verdicts[v.Node]; !ok || old.Alive != v.Alive || old.Goes != v.Goes {
			n.writer.Enqueue(v.Node, writer.Static)
			if ok || !v.Alive {
				n.log.Info("node judged", "node", v.Node, "alive", v.Alive, "goes", v.Goes.String(), "because", v.Why)
			}
		}
	}
	n.verdicts = next
}

func (n *nodes) allDirty() {
	for name := range n.stored {
		n.dirty[name] = true
	}
	for name := range n.lease {
		n.dirty[name] = true
	}
	for name := range n.found {
		n.dirty[name] = true
	}
}

// tell tells the judge of one node. Only nodes that are picot's count: with a
// Lease, an SRv6Node or bindings.
func (n *nodes) tell(name string, now int64) {
	x, has := n.stored[name]
	lease := n.lease[name]
	if !has && lease == "" && !n.found[name] {
		n.judge.Forget(name)
		return
	}
	out, exists := n.exists[name]
	if !n.kept && n.o.Self != "" {
		exists = true // nobody keeps Node objects here
	}
	alive := !meta.IsStatusConditionFalse(x.conditions, v1alpha1.ConditionAlive)
	n.judge.Set(reclaim.Node{Name: name, Exists: exists, OutOfService: out, Lease: lease}, alive, now)
}

// verdict returns what is true of a node; nothing while the watch is broken.
func (n *nodes) verdict(name string) reclaim.Verdict {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.verdicts[name]
}

// Decide implements writer.Decider: the condition Alive, when it changes.
func (n *nodes) Decide(name string) writer.Op {
	n.mu.Lock()
	defer n.mu.Unlock()
	x, ok := n.stored[name]
	v, judged := n.verdicts[name]
	if !ok || !judged || v.Alive && n.lease[name] == "" {
		return writer.Op{}
	}
	c := metav1.Condition{Type: v1alpha1.ConditionAlive, Status: metav1.ConditionTrue, Reason: "Renewed", Message: v.Why,
		ObservedGeneration: x.generation, LastTransitionTime: metav1.Now()}
	if !v.Alive {
		c.Status, c.Reason = metav1.ConditionFalse, "Silent"
	}
	if meta.IsStatusConditionPresentAndEqual(x.conditions, c.Type, c.Status) {
		return writer.Op{}
	}
	conditions := append([]metav1.Condition(nil), x.conditions...)
	meta.SetStatusCondition(&conditions, c)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": x.version.UID, "resourceVersion": x.version.ResourceVersion},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil { // conditions: cannot be
		return writer.Op{}
	}
	return writer.Op{Verb: writer.Patch, Resource: client.Resource{Name: v1alpha1.ResourceSRv6Nodes}, Name: name, Subresource: "status",
		Patch: patch, Object: &v1alpha1.SRv6Node{}, UID: x.version.UID, Version: x.version.ResourceVersion}
}

// Shows implements writer.Decider.
func (n *nodes) Shows(name string, r writer.Result) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	x, ok := n.stored[name]
	return !ok || x.version.UID != r.UID || source.NotOlder(x.version.ResourceVersion, r.ResourceVersion)
}

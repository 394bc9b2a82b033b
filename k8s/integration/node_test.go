package integration

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
	"picot.dev/picot/k8s/events"
	"picot.dev/picot/k8s/learned"
	"picot.dev/picot/k8s/source"
	"picot.dev/picot/k8s/static"
	"picot.dev/picot/k8s/writer"
)

// node is one node's Kubernetes side, wired as an agent wires it, less the
// ports.
type node struct {
	name    string
	source  *source.Source
	planner *static.Planner
	writer  *writer.Writer[source.Key]
	events  *events.Recorder
	learned *learned.Learned

	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	state   desired.State
	gates   source.Gates
	writes  map[string]int // "patch networkendpoints ok" -> count
	refused map[desired.Ref][]desired.Problem
}

// config of a node that differs from the usual.
type config struct {
	linger time.Duration
	log    *slog.Logger
	rival  *rival       // is quicker than the node's writer
	core   learned.Core // nil: nothing is learned
	rate   float64      // writes a second, and at once; 2000
}

// startNode runs a node with the token of its agent.
func startNode(t *testing.T, s *apitest.Server, name string, c config) *node {
	t.Helper()
	n := newNode(t, s.AgentConfig(t, name), name, c)
	t.Cleanup(n.kill)
	apitest.Eventually(t, "the gates of "+name, func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.gates.Open() {
			return fmt.Errorf("gates %+v", n.gates)
		}
		return nil
	})
	return n
}

func newNode(t *testing.T, rc *rest.Config, name string, c config) *node {
	t.Helper()
	cl, err := client.New(rc)
	must(t, err)
	n := &node{name: name, state: desired.NewState(), writes: map[string]int{}, refused: map[desired.Ref][]desired.Problem{}}
	n.source, err = source.New(source.Options{Client: cl, Node: name, Linger: c.linger, Log: c.log,
		Changed: func(k source.Key) { n.planner.Changed(k) },
		Stored:  func(k source.Key, b source.Binding, gone bool) { n.learned.Stored(k, b, gone) }})
	must(t, err)
	n.events, err = events.New(events.Options{Config: rc, Node: name, Log: c.log})
	must(t, err)
	n.planner = static.New(static.Options{Source: n.source, Node: name,
		Enqueue: func(k source.Key) { n.writer.Enqueue(k, writer.Static) },
		Touch:   func(k source.Key) { n.writer.Touch(k) },
		Refused: func(ref desired.Ref, list []desired.Problem) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.refused[ref] = list
			e, _ := n.source.Endpoint(desired.EndpointKey{Namespace: ref.Namespace, Name: ref.Name})
			for _, p := range list {
				n.events.Endpoint(e.EndpointRef, true, "Refused", "%s: %s: %s", p.Field, p.Reason, p.Mend)
			}
		}})
	var api writer.API = cl
	if c.rival != nil {
		c.rival.Client, api = cl, c.rival
	}
	if c.core == nil {
		c.core = deaf{}
	}
	if c.rate == 0 {
		c.rate = 2000
	}
	n.learned, err = learned.New(learned.Options{API: cl, Source: n.source, Core: c.core,
		Enqueue: func(k source.Key, class writer.Class) bool { return n.writer.Enqueue(k, class) }})
	must(t, err)
	n.writer, err = writer.New(learned.Decider{n.planner, n.learned}, writer.Options{API: api, Rate: c.rate, Burst: int(c.rate), BackoffMax: 2 * time.Second, Log: c.log,
		Observe: func(resource string, v writer.Verb, reason string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.writes[fmt.Sprintf("%v %s %s", v, resource, reason)]++
		}})
	must(t, err)
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	n.done.Go(func() { n.source.Run(ctx) })
	n.done.Go(func() { n.events.Run(ctx) })
	n.done.Go(func() { n.writer.Run(ctx) })
	n.done.Go(func() { n.loop(ctx) })
	return n
}

// deaf is the core of a node that learns nothing.
type deaf struct{}

func (deaf) Set(source.Key, learned.Binding)         {}
func (deaf) Gone(source.Key, string)                 {}
func (deaf) Done(source.Key, uint64, learned.Result) {}

// loop is what the agent's loop does with the source.
func (n *node) loop(ctx context.Context) {
	open := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.source.Changes():
		}
		d, g := n.source.Take()
		n.mu.Lock()
		n.state.Apply(d)
		n.gates = g
		n.mu.Unlock()
		if g.Open() && !open {
			open = true
			n.planner.Resync()
			for k := range g.Hosted {
				n.planner.Changed(source.Key{Kind: v1alpha1.KindNetwork, Network: k})
			}
		}
	}
}

// kill stops a node where it stands.
func (n *node) kill() {
	n.stop()
	n.done.Wait()
}

// quiet waits until the node has nothing left to write.
func (n *node) quiet(t *testing.T) {
	t.Helper()
	apitest.Eventually(t, n.name+" to have nothing to write", func() error {
		if l := n.writer.Len(writer.Static); l > 0 {
			return fmt.Errorf("%d keys", l)
		}
		return nil
	})
}

// countedWrites returns the writes since the last call.
func (n *node) countedWrites() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := maps.Clone(n.writes)
	clear(n.writes)
	return out
}

func (n *node) refusal(ep *v1alpha1.NetworkEndpoint) []desired.Problem {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refused[desired.Ref{Kind: "NetworkEndpoint", Namespace: ep.Namespace, Name: ep.Name}]
}

// judge compares what a node carries with what the API's objects say, worked
// out afresh and by other means than the source's: it returns the differences.
func (n *node) judge(c *client.Client) error {
	var fdb v1alpha1.FDBEntryList
	var neigh v1alpha1.NeighborList
	var nets v1alpha1.NetworkList
	for r, list := range map[string]interface {
		metav1.ListInterface
	}{v1alpha1.ResourceFDBEntries: &fdb, v1alpha1.ResourceNeighbors: &neigh, v1alpha1.ResourceNetworks: &nets} {
		var err error
		switch l := list.(type) {
		case *v1alpha1.FDBEntryList:
			err = c.List(ctx(), client.Resource{Name: r}, metav1.ListOptions{}, l)
		case *v1alpha1.NeighborList:
			err = c.List(ctx(), client.Resource{Name: r}, metav1.ListOptions{}, l)
		case *v1alpha1.NetworkList:
			err = c.List(ctx(), client.Resource{Name: r}, metav1.ListOptions{}, l)
		}
		if err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	carried := map[string]bool{}
	for i, x := range nets.Items {
		first := true
		for j, y := range nets.Items {
			older := y.CreationTimestamp.Before(&x.CreationTimestamp) ||
				y.CreationTimestamp.Equal(&x.CreationTimestamp) && y.UID < x.UID
			first = first && !(i != j && x.Spec.ID == y.Spec.ID && older)
		}
		carried[x.Name] = first
	}
	want := map[string]string{}
	sees := func(network, node string) bool {
		return carried[network] && (n.gates.Hosted[network] || node == n.name)
	}
	for _, o := range fdb.Items {
		if o.Status != nil && o.Status.ManagingNode != "" && sees(string(o.Spec.Network), o.Status.ManagingNode) {
			want["fdb "+o.Name] = fmt.Sprint(o.Status.ManagingNode, o.Spec.Source, o.Status.Segment)
		}
	}
	for _, o := range neigh.Items {
		if o.Status != nil && o.Status.ManagingNode != "" && sees(string(o.Spec.Network), o.Status.ManagingNode) {
			want["neigh "+o.Name] = fmt.Sprint(o.Status.ManagingNode, o.Spec.Source, o.Status.MAC)
		}
	}
	got := map[string]string{}
	text := func(static bool) string {
		if static {
			return "static"
		}
		return "learned"
	}
	for k, e := range n.state.FDB {
		got["fdb "+k.Name()] = fmt.Sprint(e.Node, text(e.Static), e.Segment)
	}
	for k, e := range n.state.Neighbors {
		if !e.Derived {
			got["neigh "+k.Name()] = fmt.Sprint(e.Node, text(e.Static), e.MAC)
		}
	}
	var diff []string
	for k, v := range want {
		if got[k] != v {
			diff = append(diff, fmt.Sprintf("%s: %q, want %q", k, got[k], v))
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			diff = append(diff, fmt.Sprintf("%s: %q, want nothing", k, v))
		}
	}
	if len(diff) == 0 {
		return nil
	}
	return fmt.Errorf("%s carries %d of %d bindings otherwise: %s", n.name, len(diff), len(want), strings.Join(diff[:min(len(diff), 5)], "; "))
}

// agrees waits until the node carries what the API says.
func (n *node) agrees(t *testing.T, c *client.Client) {
	t.Helper()
	apitest.Eventually(t, n.name+" to carry what the API says", func() error { return n.judge(c) })
}

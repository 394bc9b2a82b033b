package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
	"picot.dev/picot/k8s/source"
	"picot.dev/picot/k8s/static"
	"picot.dev/picot/k8s/writer"
)

// kube is the Kubernetes API as the source of what is desired, and this node's
// static bindings in it.
type kube struct {
	source  *source.Source
	planner *static.Planner
	writer  *writer.Writer[source.Key]
	book    *book
	log     *slog.Logger
	// mayWrite is closed when no older agent of this node writes any more.
	mayWrite chan struct{}
}

// decider breaks the ring between planner, writer and source: each needs one of
// the others when it is made.
type decider struct{ *static.Planner }

func newKube(c *Config) (*kube, error) {
	config, err := client.Config(c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", c.Kubeconfig, err)
	}
	api, err := client.New(config)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	k := &kube{book: newBook(), log: c.Log, mayWrite: make(chan struct{})}
	if k.source, err = source.New(source.Options{
		Client: api, Node: c.NodeName, Log: c.Log,
		Changed: func(key source.Key) { k.planner.Changed(key) },
	}); err != nil {
		return nil, err
	}
	k.planner = static.New(static.Options{
		Source: k.source, Node: c.NodeName, Port: k.book.port, Closed: k.book.closed,
		Enqueue: func(key source.Key) { k.writer.Enqueue(key, writer.Static) },
		Refused: func(ref desired.Ref, problems []desired.Problem) {
			for _, p := range problems {
				c.Log.Warn("endpoint holds less than it claims", "object", ref.String(), "field", p.Field, "reason", p.Reason, "mend", p.Mend)
			}
		},
	})
	k.writer, err = writer.New(decider{k.planner}, writer.Options{API: api, Log: c.Log})
	return k, err
}

// run follows the API until ctx ends. Nothing is written before everything was
// listed once.
func (k *kube) run(ctx context.Context, tell func(update)) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { k.source.Run(ctx) })
	writing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.source.Changes():
		}
		delta, gates := k.source.Take()
		u := update{delta: delta, open: gates.Open()}
		for _, list := range k.source.Problems() {
			for _, p := range list {
				u.problems = append(u.problems, p.Error())
			}
		}
		slices.Sort(u.problems)
		tell(u)
		if gates.Open() && !writing {
			writing = true
			k.planner.Resync()
			group.Go(func() {
				select {
				case <-k.mayWrite:
					k.writer.Run(ctx)
				case <-ctx.Done():
				}
			})
		}
	}
}

// ported tells the writer what became of the ports. The loop calls it after an
// apply.
func (k *kube) ported(notes map[desired.EndpointKey]portNote) {
	for _, key := range k.book.set(notes) {
		k.writer.Enqueue(source.Key{Kind: v1alpha1.KindNetworkEndpoint, Endpoint: key}, writer.Static)
	}
}

// portNote is what became of an endpoint's port.
type portNote struct {
	device string // "": none, because of why
	why    string
	there  bool // the port is not closed yet
}

// book is what the loop last said of the ports, for the writer's goroutines.
type book struct {
	mu    sync.Mutex
	notes map[desired.EndpointKey]portNote
}

func newBook() *book { return &book{notes: map[desired.EndpointKey]portNote{}} }

// set replaces the notes and returns the keys whose note changed.
func (b *book) set(notes map[desired.EndpointKey]portNote) (changed []desired.EndpointKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, n := range notes {
		if old, ok := b.notes[k]; !ok || old != n {
			changed = append(changed, k)
		}
	}
	for k := range b.notes {
		if _, ok := notes[k]; !ok {
			changed = append(changed, k)
		}
	}
	b.notes = notes
	return changed
}

func (b *book) port(k desired.EndpointKey) (port, why string, settled bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, ok := b.notes[k]
	return n.device, n.why, ok
}

func (b *book) closed(k desired.EndpointKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.notes[k].there
}

// notes says what became of each endpoint's port of this node, and of ports
// whose endpoint went and that are not closed yet.
func (p *ports) notes() map[desired.EndpointKey]portNote {
	notes := map[desired.EndpointKey]portNote{}
	for key, e := range p.tables.state.Endpoints {
		if e.Node != p.config.NodeName {
			continue
		}
		n := portNote{why: "no interface is named: the CNI plugin has not set one yet"}
		if e.Interface != "" {
			n.why = "device " + e.Interface + " is not there"
		}
		if b := p.retry[e.Interface]; b != nil && b.err != nil {
			n.why = b.err.Error()
		}
		notes[key] = n
	}
	for device, a := range p.attached {
		n := notes[a.key]
		n.there = true
		if a.sockets && p.retry[device] == nil {
			n.device, n.why = device, ""
		}
		notes[a.key] = n
	}
	return notes
}

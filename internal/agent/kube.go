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
	"picot.dev/picot/k8s/elected"
	"picot.dev/picot/k8s/events"
	"picot.dev/picot/k8s/learned"
	"picot.dev/picot/k8s/lease"
	"picot.dev/picot/k8s/source"
	"picot.dev/picot/k8s/static"
	"picot.dev/picot/k8s/writer"
)

// The Lease by which agents elect the one that judges for all, and where the
// nodes' own are: deploy/rbac has them.
const (
	electionNamespace = "picot-system"
	electionLease     = "picot-reclaimer"
	nodesNamespace    = "picot-nodes"
)

// kube is the Kubernetes API as the source of what is desired, this node's
// static bindings in it, and its part in the election.
type kube struct {
	api     *client.Client
	elector *lease.Elector
	node    *lease.Node
	judging elected.NodeOptions
	source  *source.Source
	planner *static.Planner
	writer  *writer.Writer[source.Key]
	events  *events.Recorder
	learned *learned.Learned
	learner *learner
	said    said
	book    *book
	writes  *writes
	log     *slog.Logger
	// mayWrite is closed when this agent has its place; alone then says that no
	// older one can be writing still.
	mayWrite chan struct{}
	alone    bool
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
	k := &kube{api: api, book: newBook(), said: said{}, writes: newWrites(), log: c.Log, mayWrite: make(chan struct{})}
	if k.elector, err = lease.New(lease.Options{
		Config: config, Namespace: electionNamespace, Name: electionLease, Identity: c.NodeName, Times: c.Leases.election(), Log: c.Log,
	}); err != nil {
		return nil, err
	}
	if k.node, err = lease.NewNode(lease.NodeOptions{
		Config: config, Namespace: nodesNamespace, Node: c.NodeName, Instance: instance(),
		Every: c.Leases.Interval, Duration: c.Leases.Stale, Log: c.Log,
	}); err != nil {
		return nil, err
	}
	k.judging = elected.NodeOptions{Config: config, Namespace: nodesNamespace, Self: c.NodeName, Times: c.Leases.times()}
	if k.source, err = source.New(source.Options{
		Client: api, Node: c.NodeName, Log: c.Log,
		Changed: func(key source.Key) { k.planner.Changed(key) },
		Stored:  func(key source.Key, b source.Binding, gone bool) { k.learned.Stored(key, b, gone) },
	}); err != nil {
		return nil, err
	}
	if k.events, err = events.New(events.Options{Config: config, Node: c.NodeName, Log: c.Log}); err != nil {
		return nil, err
	}
	k.planner = static.New(static.Options{
		Source: k.source, Node: c.NodeName, Port: k.book.port, Closed: k.book.closed,
		Enqueue: func(key source.Key) { k.writer.Enqueue(key, writer.Static) },
		Touch:   func(key source.Key) { k.writer.Touch(key) },
		Refused: k.refused,
	})
	if k.learner, err = newLearner(c, k); err != nil {
		return nil, err
	}
	if k.learned, err = learned.New(learned.Options{
		API: api, Source: k.source, Core: clusterSide{k.learner},
		Enqueue: func(key source.Key, class writer.Class) bool { return k.writer.Enqueue(key, class) },
	}); err != nil {
		return nil, err
	}
	k.writer, err = writer.New(learned.Decider{decider{k.planner}, k.learned}, writer.Options{API: api, Observe: k.writes.observe, Log: c.Log})
	return k, err
}

// refused tells what an endpoint of this node does not hold.
func (k *kube) refused(ref desired.Ref, problems []desired.Problem) {
	e, _ := k.source.Endpoint(desired.EndpointKey{Namespace: ref.Namespace, Name: ref.Name})
	for _, p := range problems {
		k.log.Warn("not taken as it is stored", "object", ref.String(), "field", p.Field, "reason", p.Reason, "mend", p.Mend)
		k.events.Object(ref, e.UID, true, "Refused", "%s: %s: %s", p.Field, p.Reason, p.Mend)
	}
}

// run follows the API until ctx ends. Nothing is written before everything was
// listed once.
func (k *kube) run(ctx context.Context, tell func(update)) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { k.source.Run(ctx) })
	group.Go(func() { k.events.Run(ctx) })
	opened := false
	relists := uint64(0)
	here := map[desired.EndpointKey]string{} // networks of the endpoints here, until then
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.source.Changes():
		}
		delta, gates := k.source.Take()
		opening := false
		if !opened {
			opening = allIn(here, &delta, &gates)
			opened = opening
		}
		u := update{delta: delta, open: opened, unheard: k.source.Unheard()}
		if n := k.source.Relists(); n != relists {
			relists, u.relisted = n, true
		}
		for _, list := range k.source.Problems() {
			for _, p := range list {
				u.problems = append(u.problems, p.Error())
			}
		}
		slices.Sort(u.problems)
		k.learner.onDesired(delta, gates.Hosted, opened)
		tell(u)
		if opening {
			k.planner.Resync()
			group.Go(func() { k.write(ctx) })
		}
	}
}

// allIn reports whether everything was listed once, the bindings of each network
// with an endpoint here included: without them an agent that forwards from its
// checkpoint would forget every other node's stations for a moment.
func allIn(here map[desired.EndpointKey]string, d *desired.Delta, g *source.Gates) bool {
	for key, e := range d.Endpoints {
		if delete(here, key); e != nil {
			here[key] = e.Network
		}
	}
	for _, network := range here {
		if !g.Hosted[network] {
			return false
		}
	}
	return g.Open()
}

// write has this agent write while it has the node's Lease.
func (k *kube) write(ctx context.Context) {
	select {
	case <-k.mayWrite:
		k.node.Run(ctx, k.alone, k.writeAll)
	case <-ctx.Done():
	}
}

// writeAll writes this node's bindings and, while it is elected, what is judged
// for all.
func (k *kube) writeAll(ctx context.Context) {
	k.learner.mayWrite(true)
	defer k.learner.mayWrite(false)
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { k.writer.Run(ctx) })
	group.Go(func() {
		k.elector.Run(ctx, func(term context.Context) {
			if err := elected.Run(term, elected.Options{Client: k.api, Nodes: &k.judging, Log: k.log}); err != nil {
				k.log.Error("elected, but cannot judge", "error", err)
			}
		})
	})
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
		if _, there := p.links[e.Interface]; there && p.attached[e.Interface] == nil && p.retry[e.Interface] == nil {
			continue // its turn has not come yet: nothing to say
		}
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

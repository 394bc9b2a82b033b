package source

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"

	"net/netip"
)

// Options say whose objects to follow and how.
type Options struct {
	Client *client.Client
	Node   string // this node's name
	// Linger is how long the bindings of a network are followed after its last
	// endpoint here went; 0: five minutes.
	Linger time.Duration
	// Changed, if set, is told of every object the writer may have to act on.
	Changed func(Key)
	// Stored, if set, is told of every stored state of every binding that is
	// followed, also when only its version changed: in the order of the versions
	// of a key, and with gone once the object left every view or binds nothing,
	// with the version that was last seen. It is called with the Source's lock
	// held: it notes what it is told and calls nothing of the Source.
	Stored func(k Key, b Binding, gone bool)
	Log    *slog.Logger // nil: none
}

// Key names an object that the writer acts on: of Kind NetworkEndpoint by
// Endpoint, of FDBEntry by Network and MAC, of Neighbor by Network and IP, of
// Network by Network. One of FDBEntry or Neighbor by Name is a refused binding
// (see [Refused]).
type Key struct {
	Kind     string
	Name     string
	Network  string
	MAC      packet.MAC
	IP       netip.Addr
	Endpoint desired.EndpointKey
}

// Gates say which sources are in sync. A gate that opened stays open: while the
// API server is away the last state stands.
type Gates struct {
	Networks  bool
	Nodes     bool
	Endpoints bool
	// Own is the bindings this node manages.
	Own bool
	// Hosted holds the networks whose bindings are in sync.
	Hosted map[string]bool
}

// Open reports whether everything but single networks is in sync.
func (g *Gates) Open() bool { return g.Networks && g.Nodes && g.Endpoints && g.Own }

// Source follows the API server. Make one with New.
type Source struct {
	opts    Options
	changed chan struct{} // holds one when Take has something
	hosted  chan struct{} // holds one when the set of hosted networks may have changed

	mu      sync.Mutex
	p       *projection
	synced  map[string]bool // by kind, and kind+"/own" for the view by node
	gates   Gates
	relists uint64 // whole lists taken after the first of a resource
	// unheard is why what is followed could not be listed or watched at the last
	// try.
	unheard map[view]string
}

// New returns a Source that follows nothing until Run.
func New(o Options) (*Source, error) {
	if o.Client == nil || o.Node == "" {
		return nil, errors.New("source: give a client and the node's name")
	}
	if o.Linger == 0 {
		o.Linger = 5 * time.Minute
	}
	if o.Changed == nil {
		o.Changed = func(Key) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{
		opts:    o,
		changed: make(chan struct{}, 1),
		hosted:  make(chan struct{}, 1),
		p:       newProjection(o.Node),
		synced:  map[string]bool{},
		gates:   Gates{Hosted: map[string]bool{}},
		unheard: map[view]string{},
	}
	s.p.stored = o.Stored
	return s, nil
}

// Run follows the API server until ctx ends, whatever becomes of the server.
func (s *Source) Run(ctx context.Context) {
	var wg sync.WaitGroup
	run := func(f func(context.Context)) { wg.Go(func() { f(ctx) }) }
	run(s.followNetworks)
	run(s.followNodes)
	run(s.followEndpoints)
	run(func(ctx context.Context) {
		s.followFDB(ctx, byNode, s.ownSelector(), s.ownSynced(v1alpha1.KindFDBEntry))
	})
	run(func(ctx context.Context) {
		s.followNeighbors(ctx, byNode, s.ownSelector(), s.ownSynced(v1alpha1.KindNeighbor))
	})
	run(s.followHosted)
	wg.Wait()
}

// Changes holds a token whenever Take, Problems or Unheard may return something
// new.
func (s *Source) Changes() <-chan struct{} { return s.changed }

// Take returns all changes since the last call, the latest of each key, and the
// gates as they are with these changes applied.
func (s *Source) Take() (desired.Delta, Gates) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gates
	g.Hosted = make(map[string]bool, len(s.gates.Hosted))
	for n := range s.gates.Hosted {
		g.Hosted[n] = true
	}
	return s.p.take(), g
}

// Relists is how often a resource was listed again: changes from then on may be
// what an API server restored from a backup, or one that is behind, does not know.
// Asked after Take, it counts the lists that Take returned changes of.
func (s *Source) Relists() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.relists
}

func (s *Source) relisted() {
	s.mu.Lock()
	s.relists++
	s.mu.Unlock()
}

// Problems returns what is wrong with the objects followed, by object.
func (s *Source) Problems() map[desired.Ref][]desired.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.p.resolveNodes()
	s.p.resolveEndpoints()
	out := make(map[desired.Ref][]desired.Problem, len(s.p.problems))
	for ref, list := range s.p.problems {
		out[ref] = list
	}
	return out
}

// update runs f on the projection and tells of keys and of the change.
func (s *Source) update(f func(p *projection) []Key) {
	s.mu.Lock()
	keys := f(s.p)
	s.mu.Unlock()
	poke(s.changed)
	for _, k := range keys {
		s.opts.Changed(k)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// opened records that a source is in sync.
func (s *Source) opened(name string) {
	s.mu.Lock()
	s.synced[name] = true
	s.gates.Networks = s.synced[v1alpha1.KindNetwork]
	s.gates.Nodes = s.synced[v1alpha1.KindSRv6Node]
	s.gates.Endpoints = s.synced[v1alpha1.KindNetworkEndpoint]
	s.gates.Own = s.synced[v1alpha1.KindFDBEntry+"/own"] && s.synced[v1alpha1.KindNeighbor+"/own"]
	s.mu.Unlock()
	poke(s.changed)
	poke(s.hosted)
}

func (s *Source) ownSynced(kind string) func() { return func() { s.opened(kind + "/own") } }

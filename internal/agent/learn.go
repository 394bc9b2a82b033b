package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/learning"
)

// Learning has a goroutine of its own, so that a port which invents stations
// holds up no apply, and no apply the news of a station that moved.
//
//	workers ── observations ─┐                 ┌─ writes, events ── sink
//	source ─── deltas, gates ┼─ learner ─ core ┤
//	sink ───── stored, done ─┤                 └─ probes, questions ── loop ── workers
//	loop ───── ports ────────┘                         └── answers back
//
// Everything but observations comes by the inbox: what anybody tells is a
// function that runs in the learner's goroutine.

// sink takes what the core wants of the cluster. Its methods do not block.
type sink interface {
	// Write is answered by learner.done.
	Write(learning.Write)
	Event(learning.Event)
}

// learner drives the learning core.
type learner struct {
	log    *slog.Logger
	node   string
	times  Learning
	sink   sink
	start  time.Time
	source fastpath.Observations
	skew   int64 // from the engine's clock to the core's
	wake   chan struct{}

	mu    sync.Mutex
	inbox []func()
	// For the loop, which alone may ask the workers. Guarded by mu.
	asks   []learning.Ask
	probes []learning.Probe
	counts bool // how much the ports' limits held back is wanted
	orders chan struct{}

	// The loop's own: the ports the learner was told of, and whether as all.
	told    map[table.PortID]learning.Port
	toldAll bool

	// The learner's goroutine's own, from here on.
	core      *learning.Core
	now       learning.Now
	networks  map[string]desired.Network // known
	hosted    map[string]bool            // told to the core: their bindings were listed
	endpoints map[desired.EndpointKey]desired.Endpoint
	nodes     map[string]bool
	ports     map[table.PortID]learning.Port
	early     []learning.Observation // of ports and networks that are about to come
	gate      struct{ source, ports, writes bool }
	limited   map[table.PortID]uint64
	counted   int64 // when the counts were last asked for
	events    map[learning.EventKind]uint64
}

// earlyMost and earlyFor bound what is kept of a port that is not known to be up
// yet. Its first frames may be the only ones for long.
const (
	earlyMost = 1024
	earlyFor  = 5 * int64(time.Second)
)

// drainMost is how many observations are taken between two looks at the inbox.
const drainMost = 256

func newLearner(c *Config, s sink) (*learner, error) {
	o := c.Learning.Options
	o.ClaimsElsewhere = true
	core, err := learning.NewCore(c.NodeName, o)
	if err != nil {
		return nil, err
	}
	return &learner{
		log: c.Log.With("part", "learning"), node: c.NodeName, times: c.Learning, sink: s, core: core,
		start: time.Now().Add(-time.Second), // 0 is no time to the core
		wake:  make(chan struct{}, 1), orders: make(chan struct{}, 1),
		networks: map[string]desired.Network{}, hosted: map[string]bool{}, nodes: map[string]bool{},
		endpoints: map[desired.EndpointKey]desired.Endpoint{}, ports: map[table.PortID]learning.Port{},
		limited: map[table.PortID]uint64{}, events: map[learning.EventKind]uint64{},
	}, nil
}

// tell has f run in the learner's goroutine. Any goroutine.
func (l *learner) tell(f func()) {
	l.mu.Lock()
	l.inbox = append(l.inbox, f)
	l.mu.Unlock()
	poke(l.wake)
}

// ask runs f there and waits for it.
func (l *learner) ask(ctx context.Context, f func()) error {
	done := make(chan struct{})
	l.tell(func() { f(); close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// startLearning starts the learner, if there is one, and returns how to wait for
// its end after ctx. The engine must be there.
func (a *Agent) startLearning(ctx context.Context) (stop func(), err error) {
	if a.learner == nil {
		return func() {}, nil
	}
	l := a.learner
	l.source = a.engine.Observations()
	l.skew = l.mono() - l.source.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(ctx)
	}()
	return func() { <-done }, nil
}

func (l *learner) mono() int64 { return int64(time.Since(l.start)) }

func (l *learner) tick() {
	l.now = learning.Now{Mono: l.mono(), Wall: time.Now().UnixMicro()}
}

func (l *learner) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		token := l.source.Wait()
		if l.step() {
			continue
		}
		wait := time.Hour
		if next := l.core.Next(); next != 0 {
			wait = max(time.Duration(next-l.mono()), 0)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-token:
		case <-timer.C:
		}
	}
}

// step does what waits and reports whether more may.
func (l *learner) step() (more bool) {
	l.tick()
	l.mu.Lock()
	inbox := l.inbox
	l.inbox = nil
	l.mu.Unlock()
	for _, f := range inbox {
		f()
	}
	n := l.source.Drain(drainMost, l.observe)
	if n > 0 {
		l.count()
	}
	l.core.Tick(l.now)
	l.carryOut(l.core.Take())
	return n == drainMost || len(inbox) > 0
}

// observe takes one observation by the engine's clock.
func (l *learner) observe(o learning.Observation) {
	o.Time += l.skew
	if !l.expected(o.Port) {
		if len(l.early) < earlyMost {
			l.early = append(l.early, o)
		}
		return
	}
	l.core.Observe(o, l.now)
}

// expected says that the core knows what the port belongs to.
func (l *learner) expected(id table.PortID) bool {
	p, ok := l.ports[id]
	if !ok || !p.Up {
		return false
	}
	e, ok := l.endpoints[desired.EndpointKey(p.Endpoint)]
	return ok && l.hosted[e.Network]
}

// replay observes what came early, once its port is there.
func (l *learner) replay() {
	var rest []learning.Observation
	for _, o := range l.early {
		switch {
		case l.expected(o.Port):
			l.core.Observe(o, l.now)
		case l.now.Mono-o.Time < earlyFor:
			rest = append(rest, o)
		}
	}
	l.early = rest
}

// count asks the loop what the ports' limits held back, at most once a second.
func (l *learner) count() {
	if l.now.Mono-l.counted < int64(time.Second) {
		return
	}
	l.counted = l.now.Mono
	l.mu.Lock()
	l.counts = true
	l.mu.Unlock()
	poke(l.orders)
}

func (l *learner) carryOut(in learning.Intents) {
	for _, w := range in.Writes {
		l.sink.Write(w)
	}
	for _, e := range in.Events {
		l.events[e.Kind]++
		l.sink.Event(e)
	}
	if len(in.Asks)+len(in.Probes) == 0 {
		return
	}
	l.mu.Lock()
	l.asks = append(l.asks, in.Asks...)
	l.probes = append(l.probes, in.Probes...)
	l.mu.Unlock()
	poke(l.orders)
}

// onStored, onGone and onDone tell what the cluster has and what became of a
// write. Any goroutine; what concerns one key in the order it happened.
func (l *learner) onStored(k learning.Key, b learning.Binding) {
	l.tell(func() { l.core.Set(k, b, l.now) })
}

func (l *learner) onGone(k learning.Key, uid string) {
	l.tell(func() { l.core.Gone(k, uid, l.now) })
}

func (l *learner) onDone(k learning.Key, seq uint64, r learning.Result) {
	l.tell(func() { l.core.Done(k, seq, r, l.now) })
}

// mayWrite opens the core's gate as far as writing goes, or shuts it.
func (l *learner) mayWrite(may bool) {
	l.tell(func() {
		l.gate.writes = may
		l.setGate()
	})
}

func (l *learner) setGate() {
	l.core.Gate(l.gate.source && l.gate.ports && l.gate.writes, l.now)
}

package agent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf/btf"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/linkmon"
	"picot.dev/picot/internal/manifests"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/routes"
	"picot.dev/picot/xsk/xdp"
)

// Agent is one node's agent. Make one with New, then call Run once.
type Agent struct {
	config Config
	log    *slog.Logger
	engine *fastpath.Engine
	tables *tables
	ports  *ports
	ups    *uplinks
	nodes  *nodes
	repair *repair
	kernel *routes.Netlink
	pins   *os.File // locks them

	// Gates: nothing is touched before each source said everything once.
	linksIn, desiredIn bool
	restored           bool          // the tables hold a checkpoint
	incoming           desired.State // what the source said before its gate opened
	swept              bool
	sweepSaid          string   // what kept the last sweep from its end
	problems           []string // of the objects

	kube       *kube // nil: manifests
	checkpoint *checkpoint

	older      *takeover     // an agent to take over from; nil: a cold start
	successor  *net.UnixConn // a newer agent that waits for this one's end
	handedOver bool          // it has the sockets

	published uint64 // version of the snapshot the workers were given
	applies   uint64

	// Messages to the loop.
	links    chan []linkmon.Event
	desired  chan update
	routes   chan struct{}
	requests chan request
	failed   chan error // what ends the agent
}

// update is what a source of desired state says.
type update struct {
	delta    desired.Delta
	open     bool // by now it has said everything at least once
	problems []string
	places   map[desired.Ref]manifests.Position // where objects were read; nil: not from files
}

// request is a question from another goroutine, answered between two applies.
type request struct {
	do   func()
	done chan struct{}
}

// New validates the configuration and makes the data path. Nothing is attached
// yet.
func New(c Config) (*Agent, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := checkCapabilities(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.RunDir, 0o755); err != nil {
		return nil, fmt.Errorf("--run-dir: %w", err)
	}
	if err := xdp.EnsureBPFFS(c.BPFFS); err != nil {
		return nil, fmt.Errorf("--bpffs %s: %w", c.BPFFS, err)
	}
	if err := os.MkdirAll(c.pinDir(), 0o700); err != nil {
		return nil, fmt.Errorf("--bpffs: pin directory: %w", err)
	}
	var queues []int
	for _, name := range c.Uplinks {
		queues = append(queues, countQueues(name))
	}
	older, err := findOlder(&c, engineConfig(&c, queues))
	if err != nil {
		return nil, err
	}
	if older != nil {
		a, err := assemble(c, queues, older.offer.HashKey)
		if err != nil {
			return nil, errors.Join(err, older.conn.Close(), older.mem.Close(), older.pins.Close())
		}
		a.older, a.pins = older, older.pins
		return a, nil
	}
	pins, err := lockPins(&c)
	if err != nil {
		return nil, err
	}
	a, err := newLocked(c, queues)
	if err != nil {
		return nil, errors.Join(err, pins.Close())
	}
	a.pins = pins
	return a, nil
}

// findOlder asks a living agent for its place, unless that is not wanted. If
// the two do not fit it has the other leave, for a cold start.
func findOlder(c *Config, engine fastpath.Config) (*takeover, error) {
	if c.Takeover == TakeoverNever {
		return nil, nil
	}
	older, err := requestTakeover(c, engine)
	if err == nil {
		return older, nil
	}
	if errors.Is(err, errOtherNode) {
		return nil, fmt.Errorf("--run-dir %s: %w", c.RunDir, err)
	}
	c.Log.Warn("no takeover: cold start", "error", err)
	return nil, askToLeave(c)
}

func engineConfig(c *Config, queues []int) fastpath.Config {
	return fastpath.Config{
		Workers: c.Workers, CPUs: c.CPUs, MaxPorts: c.MaxPorts, UplinkQueues: queues,
		HugePages: c.HugePages, NUMANode: -1, Limits: c.Limits,
	}
}

func (a *Agent) engineConfig() fastpath.Config { return engineConfig(&a.config, a.ups.queues) }

// setEngine gives the data path to all who use it.
func (a *Agent) setEngine(e *fastpath.Engine) {
	a.engine, a.ports.engine, a.ups.engine, a.repair.engine = e, e, e, e
}

// newLocked makes an agent with a data path of its own, once this process alone
// may touch the node's pins.
func newLocked(c Config, queues []int) (*Agent, error) {
	var key [16]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, fmt.Errorf("drawing the flow hash key: %w", err)
	}
	a, err := assemble(c, queues, packet.HashKey{binary.NativeEndian.Uint64(key[:8]), binary.NativeEndian.Uint64(key[8:])})
	if err != nil {
		return nil, err
	}
	engine, err := fastpath.New(a.engineConfig())
	if err != nil {
		a.kernel.Close()
		return nil, err
	}
	a.setEngine(engine)
	return a, nil
}

// assemble makes an agent without a data path.
func assemble(c Config, queues []int, key packet.HashKey) (*Agent, error) {
	kernel, err := routes.Open(nil)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: %w", err)
	}
	a := &Agent{
		config: c, log: c.Log, kernel: kernel,
		tables:   newTables(c.NodeName, c.Function, key),
		incoming: desired.NewState(), checkpoint: newCheckpoint(&c),
		links: make(chan []linkmon.Event, 16), desired: make(chan update, 16),
		routes: make(chan struct{}, 1), requests: make(chan request), failed: make(chan error, 4),
	}
	types := btf.NewCache()
	a.ports = &ports{
		types: types, config: &a.config, tables: a.tables, log: c.Log, links: map[string]linkmon.Link{},
		attached: map[string]*port{}, retry: map[string]*backoff{},
	}
	a.ups = &uplinks{types: types, config: &a.config, queues: queues, log: c.Log}
	for i, name := range c.Uplinks {
		a.ups.all = append(a.ups.all, &uplink{name: name, number: i})
	}
	if !c.fromManifests() {
		if a.kube, err = newKube(&a.config); err != nil {
			kernel.Close()
			return nil, err
		}
	}
	a.repair = newRepair(&a.config, a.tables, a.ports)
	a.nodes = &nodes{
		config: &a.config, tables: a.tables, uplinks: a.ups, log: c.Log,
		resolver: routes.NewResolver(kernel, c.Owner), driver: routes.NewDriver(kernel, c.Owner),
		said: map[string]string{}, narrow: map[string]string{}, pathMTUs: map[string]pathMTU{},
	}
	return a, nil
}

// Run works until ctx ends, then closes the sockets and leaves program, pins
// and routes in place: ports stay closed, not open. It returns nil after an
// ordinary end.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if a.kube != nil && a.older == nil {
		a.restore()
	}
	wait, err := a.watch(ctx)
	if err == nil {
		err = a.begin(ctx)
	}
	var stops []func()
	for _, serve := range []func(context.Context) (func(), error){a.serve, a.serveMetrics, a.serveTakeover} {
		if err != nil {
			break
		}
		var stop func()
		if stop, err = serve(ctx); err == nil {
			stops = append(stops, stop)
		}
	}
	if err == nil {
		a.log.Info("picot agent runs", "node", a.config.NodeName, "workers", a.config.Workers,
			"uplinks", a.config.Uplinks, "control", a.config.ControlPath())
		if a.kube == nil {
			a.log.Info("bindings come from manifests: what is learned is not written anywhere")
		} else {
			close(a.kube.mayWrite)
		}
		if err = a.loop(ctx); errors.Is(err, errHandedOver) {
			err = nil
		}
	}
	cancel()
	wait()
	for _, stop := range slices.Backward(stops) {
		stop()
	}
	return errors.Join(err, a.close())
}

// begin has the workers run: with an older agent's frames, or with none.
func (a *Agent) begin(ctx context.Context) error {
	if a.older == nil {
		return a.startEngine()
	}
	if err := a.takeOver(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return a.coldInstead(err)
	}
	return nil
}

func (a *Agent) startEngine() error {
	a.engine.Publish(a.tables.Snapshot())
	return a.engine.Start()
}

func (a *Agent) close() error {
	var err error
	for _, p := range a.ports.attached {
		if p.program != nil {
			err = errors.Join(err, p.program.Close())
		}
	}
	for _, u := range a.ups.all {
		if u.program != nil {
			err = errors.Join(err, u.program.Close())
		}
	}
	if a.engine != nil && !a.handedOver {
		err = errors.Join(err, a.engine.Stop())
	}
	if a.kube != nil {
		err = errors.Join(err, a.checkpoint.flush(a.tables.state))
	}
	a.kernel.Close()
	err = errors.Join(err, a.pins.Close())
	if a.successor != nil {
		_ = a.successor.Close() // now everything is let go of
	}
	return err
}

// watch starts the sources. The returned function waits for them to end.
func (a *Agent) watch(ctx context.Context) (wait func(), err error) {
	monitor, err := linkmon.New(linkmon.Options{OnError: func(err error) { a.log.Warn("link monitor recovers", "error", err) }})
	if err != nil {
		return func() {}, fmt.Errorf("link monitor: %w", err)
	}
	ended := make(chan struct{}, 3)
	source := func(name string, run func() error) {
		go func() {
			defer func() { ended <- struct{}{} }()
			if err := run(); err != nil && ctx.Err() == nil {
				a.failed <- fmt.Errorf("%s: %w", name, err)
			}
		}()
	}
	source("link monitor", func() error {
		defer monitor.Close()
		return monitor.Run(ctx, func(events []linkmon.Event) { send(ctx, a.links, events) })
	})
	source("route watch", func() error {
		for {
			if err := routes.Watch(ctx, nil, a.nodes.resolver.Relevant, a.routes); ctx.Err() != nil {
				return nil
			} else if err != nil {
				a.log.Warn("route watch restarts", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	source("desired state", func() error { return a.follow(ctx) })
	return func() {
		for range 3 {
			<-ended
		}
	}, nil
}

// follow tells the loop what is desired until ctx ends.
func (a *Agent) follow(ctx context.Context) error {
	if a.kube != nil {
		a.kube.run(ctx, func(u update) { send(ctx, a.desired, u) })
		return nil
	}
	last := desired.NewState()
	return manifests.Watch(ctx, a.config.Manifests, func(s manifests.State, errs []manifests.Error) {
		// A directory that could not be listed yet has said nothing at all.
		u := update{delta: desired.Diff(last, s.State), open: true, places: s.Positions}
		for _, e := range errs {
			u.problems = append(u.problems, e.Error())
			u.open = u.open && e.File != a.config.Manifests
		}
		last = s.State
		send(ctx, a.desired, u)
	})
}

// restore takes the checkpoint, if there is one, for the time until the source
// is in sync.
func (a *Agent) restore() {
	s, ok, err := a.checkpoint.load()
	if err != nil {
		a.log.Warn("no checkpoint to start from", "error", err)
	}
	if !ok {
		return
	}
	a.tables.apply(desired.Diff(desired.NewState(), s))
	a.repair.onDesired(time.Now(), desired.Diff(desired.NewState(), s))
	a.restored = true
	a.ports.dirty, a.ups.dirty, a.nodes.dirty = true, true, true
	a.log.Info("forwarding from the checkpoint until the API server answers", "endpoints", len(s.Endpoints), "bindings", len(s.FDB)+len(s.Neighbors))
}

func send[T any](ctx context.Context, to chan<- T, v T) {
	select {
	case to <- v:
	case <-ctx.Done():
	}
}

// applyEvery spaces applies while messages keep coming; the first one after a
// silence is immediate.
const applyEvery = 10 * time.Millisecond

// refresh is how often everything is looked at without a reason.
const refresh = 30 * time.Second

func (a *Agent) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time
	due := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-a.failed:
			return err
		case e := <-a.links:
			a.ports.onLinks(e)
			a.linksIn = true
			a.ups.dirty, a.nodes.dirty = true, true
		case u := <-a.desired:
			a.onDesired(u)
		case <-a.routes:
			a.nodes.dirty = true
			a.nodes.driver.Resync()
		case e := <-a.engine.Events():
			a.onSocket(e)
		case r := <-a.engine.PathMTUs():
			a.nodes.onPathMTU(time.Now(), a.tables.last, r)
		case r := <-a.requests:
			r.do()
			close(r.done)
			if a.successor != nil {
				return errHandedOver // nothing may be asked of the workers any more
			}
			continue
		case <-timer.C:
		}
		now := time.Now()
		if now.Sub(last) < applyEvery {
			timer.Reset(applyEvery - now.Sub(last))
			continue
		}
		if !a.dirty() && now.Before(due) {
			timer.Reset(due.Sub(now))
			continue
		}
		next := a.apply(ctx, now)
		last = time.Now()
		due = last.Add(refresh)
		if !next.IsZero() && next.Before(due) {
			due = next
		}
		timer.Reset(max(time.Until(due), applyEvery))
	}
}

func (a *Agent) dirty() bool {
	return a.ports.dirty || a.ups.dirty || a.nodes.dirty || a.tables.dirty
}

func (a *Agent) onDesired(u update) {
	if !a.desiredIn {
		a.incoming.Apply(u.delta)
		if !u.open {
			a.refused(u.problems)
			return
		}
		u.delta = desired.Diff(a.tables.state, a.incoming)
		a.incoming = desired.State{}
		a.desiredIn = true
	}
	a.checkpoint.dirty = a.checkpoint.dirty || u.delta.Len() > 0
	a.repair.onDesired(time.Now(), u.delta)
	a.tables.apply(u.delta)
	a.ports.places = u.places
	a.ports.dirty, a.ups.dirty, a.nodes.dirty = true, true, true
	a.refused(u.problems)
}

// refused logs what is new among the objects' problems and what is mended.
func (a *Agent) refused(problems []string) {
	known := map[string]bool{}
	for _, p := range a.problems {
		known[p] = true
	}
	for _, p := range problems {
		if !known[p] {
			a.log.Error("object refused", "error", p)
		}
		delete(known, p)
	}
	for p := range known {
		a.log.Info("object mended", "was", p)
	}
	a.problems = problems
}

// onSocket acts on a socket that cannot send any more. A device that is down
// needs nothing: its link event comes, and the worker tries again.
func (a *Agent) onSocket(e fastpath.SocketEvent) {
	if e.State == fastpath.SocketDown {
		return
	}
	for name, p := range a.ports.attached {
		if e.Uplink < 0 && p.entry.ID.Index() == e.Port {
			a.log.Warn("socket lost", "device", name, "queue", e.Queue, "state", e.State.String())
			p.broken = true
			a.ports.dirty = true
		}
	}
	for _, u := range a.ups.all {
		if u.number == e.Uplink && u.program != nil {
			a.log.Warn("socket lost", "device", u.name, "queue", e.Queue, "state", e.State.String())
			u.broken = true
			a.ups.dirty = true
		}
	}
}

// apply brings everything in line, once all sources are in sync. It returns
// when it wants to be called again.
func (a *Agent) apply(ctx context.Context, now time.Time) (next time.Time) {
	if !a.linksIn || !a.desiredIn && !a.restored {
		return time.Time{}
	}
	a.applies++
	soonest := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	var self *desired.Node
	if n, ok := a.tables.state.Nodes[a.config.NodeName]; ok {
		self = &n
	}
	soonest(a.ups.sync(now, a.ports.links, self))
	soonest(a.ports.sync(now))
	soonest(a.nodes.sync(now))
	a.publish(ctx)
	soonest(a.repair.sync(now))
	if !a.swept && a.desiredIn {
		soonest(a.sweep(now))
	}
	if a.kube != nil {
		a.kube.ported(a.ports.notes())
		soonest(a.checkpoint.sync(now, a.tables.state))
	}
	return next
}

// sweep removes what an earlier life left pinned. While an object cannot be
// taken, it is not known to be unwanted.
func (a *Agent) sweep(now time.Time) (next time.Time) {
	left, err := a.ports.sweep(len(a.problems) == 0)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != a.sweepSaid && err != nil {
		a.log.Error("left-over pins", "error", err)
	}
	a.sweepSaid = text
	if err == nil && left == 0 {
		a.swept = true
		return time.Time{}
	}
	return now.Add(lastRetry)
}

// publish gives the workers a new snapshot if anything changed, and waits until
// none uses the old one: only then may indexes be used again.
func (a *Agent) publish(ctx context.Context) {
	if !a.tables.dirty {
		return
	}
	a.tables.dirty = false
	s := a.tables.Snapshot()
	a.tables.last = s
	a.engine.Publish(s)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := a.engine.Quiesce(ctx, s.Version); err != nil {
		a.log.Error("worker hangs", "error", err)
		return
	}
	a.tables.Release(s.Version)
	a.published = s.Version
}

// ask runs f in the loop's goroutine.
func (a *Agent) ask(ctx context.Context, f func()) error {
	r := request{do: f, done: make(chan struct{})}
	select {
	case a.requests <- r:
		<-r.done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

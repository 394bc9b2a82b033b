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

	"picot.dev/picot/fastpath"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/device"
	"picot.dev/picot/internal/linkmon"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/routes"
	"picot.dev/picot/k8s/client"
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
	base   platform
	vitals *vitals
	pins   *os.File // locks them

	// Gates: nothing is touched before each source said everything once.
	linksIn, desiredIn bool
	restored           bool          // the tables hold a checkpoint
	incoming           desired.State // what the source said before its gate opened
	swept              bool
	sweepSaid          string   // what kept the last sweep from its end
	problems           []string // of the objects
	unheard            []string // of the source itself, as it said last

	kube       *kube        // nil: manifests
	learner    *learner     // nil: nothing is learned
	gateway    *gatewayPart // nil: off
	checkpoint *checkpoint
	capture    *capturing // the loop's own; nil: none runs

	instance   string        // names this process to its successors
	older      *takeover     // an agent to take over from; nil: a cold start
	successor  *net.UnixConn // a newer agent that waits for this one's end
	handedOver bool          // it has the sockets

	published uint64 // version of the snapshot the workers were given
	applies   uint64
	hangs     time.Time // since when a worker does not let go of an old snapshot
	fatal     error     // ends the loop

	// Messages to the loop.
	links    chan []linkmon.Event
	desired  chan update
	routes   chan struct{}
	taken    chan string // devices a pin of which went
	requests chan request
	failed   chan error // what ends the agent
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
	if err := preflight(&c); err != nil {
		return nil, err
	}
	var queues []int
	for _, name := range c.Uplinks {
		queues = append(queues, countQueues(name))
	}
	older, pins, err := findPlace(&c, engineConfig(&c, queues))
	if err != nil {
		return nil, err
	}
	if older != nil {
		a, err := assemble(c, queues, older.offer.HashKey)
		if err != nil {
			return nil, errors.Join(err, older.close())
		}
		a.older, a.pins = older, older.pins
		return a, nil
	}
	a, err := newLocked(c, queues)
	if err != nil {
		return nil, errors.Join(err, pins.Close())
	}
	a.pins = pins
	return a, nil
}

// preflight tries what would otherwise fail only after a living agent was asked
// to go.
func preflight(c *Config) error {
	if err := tryRunDir(c); err != nil {
		return fmt.Errorf("--run-dir: %w", err)
	}
	if c.MetricsAddr != "" {
		l, err := listenMetrics(context.Background(), c.MetricsAddr)
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("--metrics-addr %s: %w", c.MetricsAddr, err)
		}
	}
	if c.fromManifests() {
		return nil
	}
	if _, err := client.Config(c.Kubeconfig); err != nil {
		return fmt.Errorf("--kubeconfig %s: %w", c.Kubeconfig, err)
	}
	return nil
}

// tryRunDir says whether the run directory takes our sockets: it is neither full
// nor read-only, and in their places is nothing that cannot make way.
func tryRunDir(c *Config) error {
	for _, path := range []string{c.ControlPath(), c.takeoverPath()} {
		if entries, err := os.ReadDir(path); err == nil && len(entries) > 0 {
			return fmt.Errorf("%s is a directory, and not empty: remove it", path)
		}
	}
	f, err := os.CreateTemp(c.RunDir, halfPattern)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// workerNice has the data path go before what else runs on the node, this
// process's own control part and its successor's start included: while a worker
// waits for its turn, frames pile up in front of it.
const workerNice = -15

func engineConfig(c *Config, queues []int) fastpath.Config {
	return fastpath.Config{
		Workers: c.Workers, CPUs: c.CPUs, MaxPorts: c.MaxPorts, UplinkQueues: queues,
		HugePages: c.HugePages, NUMANode: -1, Limits: c.Limits, Nice: workerNice,
	}
}

func (a *Agent) engineConfig() fastpath.Config { return engineConfig(&a.config, a.ups.queues) }

// setEngine gives the data path to all who use it.
func (a *Agent) setEngine(e *fastpath.Engine) {
	a.engine, a.repair.engine = e, e
	a.ports.sockets, a.ups.sockets = device.EngineSockets{Engine: e}, device.EngineSockets{Engine: e}
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
		a.base.close()
		return nil, err
	}
	a.setEngine(engine)
	return a, nil
}

// platform is what an agent works on. Each part has a fake for tests.
type platform struct {
	devices device.Kernel
	routes  routes.Kernel
	close   func()
}

// assemble makes an agent without a data path, on the real kernel.
func assemble(c Config, queues []int, key packet.HashKey) (*Agent, error) {
	kernel, err := routes.Open(nil)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: %w", err)
	}
	a, err := assembleOn(platform{devices: device.Netlink{}, routes: kernel, close: kernel.Close}, c, queues, key)
	if err != nil {
		kernel.Close()
	}
	return a, err
}

func assembleOn(base platform, c Config, queues []int, key packet.HashKey) (*Agent, error) {
	a := &Agent{
		config: c, log: c.Log, base: base, vitals: newVitals(), instance: instance(),
		tables:   newTables(c.NodeName, c.Function, key),
		incoming: desired.NewState(), checkpoint: newCheckpoint(&c),
		links: make(chan []linkmon.Event, 16), desired: make(chan update, 16),
		routes: make(chan struct{}, 1), taken: make(chan string, 16), requests: make(chan request), failed: make(chan error, 4),
	}
	programs := xdp.NewCache()
	go func() { _ = programs.Warm() }() // if it cannot, the first attach says so
	a.ports = &ports{
		cache: programs, config: &a.config, kernel: base.devices, tables: a.tables, log: c.Log, alive: a.alive,
		links: map[string]linkmon.Link{}, attached: map[string]*port{}, retry: map[string]*backoff{},
	}
	a.ups = &uplinks{cache: programs, config: &a.config, kernel: base.devices, queues: queues, log: c.Log, alive: a.alive}
	for i, name := range c.Uplinks {
		a.ups.all = append(a.ups.all, &uplink{name: name, number: i})
	}
	var err error
	if a.gateway, err = newGateway(&a.config); err != nil {
		return nil, err
	}
	if !c.fromManifests() {
		if a.kube, err = newKube(&a.config); err != nil {
			return nil, err
		}
		a.learner, a.tables.learns = a.kube.learner, true
	}
	a.repair = newRepair(&a.config, a.tables, a.ports)
	a.nodes = &nodes{
		config: &a.config, tables: a.tables, uplinks: a.ups, log: c.Log,
		resolver: routes.NewResolver(base.routes, c.Owner), driver: routes.NewDriver(base.routes, c.Owner),
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
	if err == nil {
		a.watchWorkers()
		a.tellHealth()
	}
	var stops []func()
	for _, serve := range []func(context.Context) (func(), error){a.startLearning, a.serve, a.serveMetrics, a.serveTakeover, a.startGateway} {
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
			a.log.Info("bindings come from manifests: nothing is learned from traffic")
		} else {
			a.kube.alone = a.older == nil
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

// closePrograms lets go of all programs, which the pins keep in place.
func (a *Agent) closePrograms() (err error) {
	for name, p := range a.ports.attached {
		if a.handedOver && p.program != nil { // pins and programs are the newer agent's by now
			err = errors.Join(err, p.program.Close())
		} else {
			err = errors.Join(err, a.ports.letGo(name, p))
		}
	}
	for _, u := range a.ups.all {
		if u.program == nil {
			continue
		}
		if !a.handedOver {
			// The last look: without its pin the program would go with us.
			if _, kept := u.program.Keep(); kept != nil && !errors.Is(kept, xdp.ErrLost) {
				a.log.Error("not held by our end", "device", u.name, "error", kept)
			}
		}
		err = errors.Join(err, u.program.Close())
	}
	return err
}

func (a *Agent) close() error {
	err := a.closePrograms()
	if a.engine != nil && !a.handedOver {
		err = errors.Join(err, a.engine.Stop())
	}
	if a.kube != nil {
		err = errors.Join(err, a.checkpoint.flush(a.tables.state))
	}
	a.base.close()
	if a.pins != nil {
		err = errors.Join(err, a.pins.Close())
	}
	if a.successor != nil {
		_ = a.successor.Close() // now everything is let go of that it waits for
	}
	if a.handedOver {
		err = errors.Join(err, a.engine.Leave())
	}
	return err
}

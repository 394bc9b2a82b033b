package fastpath

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/spsc"
	"picot.dev/picot/learning"
	"picot.dev/picot/xsk"
)

// Config is fixed for the life of an Engine.
type Config struct {
	Workers int
	CPUs    []int // one a worker, to bind it to; nil: not bound
	// MaxPorts bounds the workload ports; it sizes the mapping.
	MaxPorts int
	// UplinkQueues is the number of queues of each uplink.
	UplinkQueues []int
	// ChunksPerShard and PortsPerShard cut the mapping; 0: xsk.DefaultChunksPerShard and 16.
	ChunksPerShard, PortsPerShard int
	HugePages                     bool
	// Nice is the nice value of the workers' threads, where theirs is higher and
	// the process may lower it; 0: as they are.
	Nice     int
	NUMANode int // of the uplink; -1: any
	Limits   Limits
}

// Errors of an Engine, wrapped with what they are about.
var (
	ErrConfig  = errors.New("bad fastpath configuration")
	ErrFull    = errors.New("no room for another port: raise --max-ports")
	ErrUnknown = errors.New("no such socket")
)

// Engine is the data path of a node: its memory and workers. One control
// goroutine calls its methods; those marked so may be called from anywhere.
type Engine struct {
	config      Config
	mem         *xsk.Memory
	workers     []*worker
	shards      []*shard
	places      []place
	owners      [][]int        // worker by uplink and queue
	inUse       []atomic.Int32 // queues in use, by uplink
	slots       []*slot
	started     bool
	awake       atomic.Int64 // until then, by clock, workers are to stay awake
	frozen      func()       // ends the freeze
	held        atomic.Bool  // the workers of a prepared engine wait
	began       chan int64   // when each of those did, by monotonic; nil: they did not wait
	ended       chan struct{}
	touched     chan struct{} // closed once nobody touches the memory's pages any more
	closing     atomic.Bool   // ends the touching
	unpopulated bool          // nobody has begun to take the pages

	snapshot atomic.Pointer[table.Snapshot]
	events   chan SocketEvent
	pathMTUs chan PathMTU
	start    time.Time

	observed  map[table.PortID]learning.SuppressorOptions // by Observe
	listening atomic.Bool                                 // the reader of observations waits
	something chan struct{}                               // its token

	capture  *Capture // nil: none runs
	captures uint32   // so far
}

// slot is what the control goroutine knows of a socket.
type slot struct {
	sock   *sock
	worker *worker
}

// SocketEvent says that a socket came into a state the control goroutine must
// act on.
type SocketEvent struct {
	Port   int // port index; -1 for an uplink
	Uplink int // -1 for a workload port
	Queue  int
	State  SocketState
}

// firstUplinkRow is where the rows of uplinks begin.
func (e *Engine) firstUplinkRow() int { return e.config.MaxPorts + 1 }

// New makes the memory and the workers. It starts nothing.
func New(c Config) (*Engine, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	o, err := c.MemoryOptions()
	if err != nil {
		return nil, err
	}
	mem, err := xsk.NewMemory(o)
	if err != nil {
		return nil, fmt.Errorf("memory for %d ports: %w", c.MaxPorts, err)
	}
	e, err := build(c, mem)
	if err == nil {
		e.unpopulated = len(c.UplinkQueues) > 0
	}
	return e, err
}

// populate takes the memory's pages in the background, once the first socket, which
// took its shard's, is with its worker. An uplink's socket takes them all anyway; the
// kernel clears them meanwhile, on another CPU than the one that prepares everything
// else. Then it touches them: at first when nobody else has use for the CPU, for a
// start has.
func (e *Engine) populate() {
	e.unpopulated = false
	began := time.Now()
	e.touched = make(chan struct{})
	go func() {
		defer close(e.touched)
		_ = e.mem.Populate()   // without it they are taken later
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		usual, err := niceValue()
		waits := err == nil && unix.Setpriority(unix.PRIO_PROCESS, 0, niceLast) == nil
		e.mem.Touch(e.mem.Whole(), func() bool {
			if waits && time.Since(began) > startsFor {
				waits = false
				_ = unix.Setpriority(unix.PRIO_PROCESS, 0, usual)
			}
			return e.closing.Load()
		})
	}()
}

// niceLast is the nice value of who goes after everybody.
const niceLast = 19

// niceValue is this thread's.
func niceValue() (int, error) {
	const most = 20 // getpriority(2), the system call, returns this less the nice value
	n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	return most - n, err
}

// startsFor is how long a start is let go before: 100 ports have their sockets
// then.
const startsFor = time.Second

func (c Config) withDefaults() (Config, error) {
	if c.ChunksPerShard == 0 {
		c.ChunksPerShard = xsk.DefaultChunksPerShard
	}
	if c.PortsPerShard == 0 {
		c.PortsPerShard = 16
	}
	if c.Workers < 1 || c.MaxPorts < 1 || c.MaxPorts >= 1<<16-1 {
		return c, fmt.Errorf("%w: %d workers, %d ports: at least one of each, at most 65534 ports", ErrConfig, c.Workers, c.MaxPorts)
	}
	if c.CPUs != nil && len(c.CPUs) != c.Workers {
		return c, fmt.Errorf("%w: %d CPUs for %d workers: name one each", ErrConfig, len(c.CPUs), c.Workers)
	}
	for i, q := range c.UplinkQueues {
		if q < 1 || q > 255 {
			return c, fmt.Errorf("%w: uplink %d has %d queues: 1 to 255", ErrConfig, i, q)
		}
	}
	return c, nil
}

// workloadShards is the number of shards for workload ports, as many a worker.
func (c *Config) workloadShards() int {
	perWorker := (c.MaxPorts + c.PortsPerShard*c.Workers - 1) / (c.PortsPerShard * c.Workers)
	return perWorker * c.Workers
}

// uplinkShards is one for each uplink queue.
func (c *Config) uplinkShards() int {
	n := 0
	for _, q := range c.UplinkQueues {
		n += q
	}
	return n
}

// build makes an engine on a mapping whose frames are all free. It owns mem.
func build(c Config, mem *xsk.Memory) (*Engine, error) {
	workload := c.workloadShards()
	e := &Engine{
		config: c, mem: mem, ended: make(chan struct{}), start: time.Now(),
		places: make([]place, (workload+c.uplinkShards())*c.ChunksPerShard),
		events: make(chan SocketEvent, 256), pathMTUs: make(chan PathMTU, 256),
		observed: map[table.PortID]learning.SuppressorOptions{}, something: make(chan struct{}, 1),
	}
	for i := range workload {
		e.shards = append(e.shards, newShard(mem, i, i%c.Workers))
	}
	next := 0
	for _, n := range c.UplinkQueues {
		owners := make([]int, n)
		for q := range owners {
			owners[q] = next % c.Workers
			e.shards = append(e.shards, newShard(mem, workload+next, owners[q]))
			next++
		}
		e.owners = append(e.owners, owners)
	}
	e.inUse = make([]atomic.Int32, len(e.owners))
	for i := range e.inUse {
		e.UseQueues(i, len(e.owners[i]))
	}
	e.snapshot.Store(table.NewBuilder().Snapshot())
	for i := range c.Workers {
		w, err := e.newWorker(i)
		if err != nil {
			return nil, errors.Join(err, e.close())
		}
		e.workers = append(e.workers, w)
	}
	return e, e.connect()
}

func (e *Engine) newWorker(id int) (*worker, error) {
	c := &e.config
	w := &worker{
		id: id, cpu: -1, eng: e, mem: e.mem, epfd: -1, wakefd: -1,
		rows: make([]row, e.firstUplinkRow()+len(c.UplinkQueues)), walk: *NewWalk(c.MaxPorts+1, c.Limits),
		places: e.places, byPort: make([]*sock, c.MaxPorts+1), tally: newTally(),
		in: make([]*spsc.Ring[parcel], c.Workers), out: make([]*spsc.Ring[parcel], c.Workers),
		homeIn: make([]*spsc.Ring[xsk.Addr], c.Workers), homeOut: make([]*spsc.Ring[xsk.Addr], c.Workers),
		woke:  make([]bool, c.Workers),
		descs: make([]xsk.Desc, batch), frames: make([]Frame, 0, batch), sources: make([]xsk.Desc, batch),
		addrs: make([]xsk.Addr, batch), parcels: make([]parcel, handoffRing), one: make([]parcel, 0, 32),
		scattered: make([]parcel, 0, 32), linear: make([]byte, room+linearMost), events: make([]unix.EpollEvent, 64),
		snap: e.snapshot.Load(), releasing: e.shards[0],
	}
	if c.CPUs != nil {
		w.cpu = c.CPUs[id]
	}
	w.seen.Store(offline)
	for _, n := range c.UplinkQueues {
		w.uplinks = append(w.uplinks, make([]*sock, n))
	}
	var err error
	if w.walk.learn, err = newObserving(c.MaxPorts + 1); err != nil {
		return nil, fmt.Errorf("worker %d: %w", id, err)
	}
	if w.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("worker %d: epoll: %w", id, err)
	}
	if w.wakefd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("worker %d: eventfd: %w", id, err)
	}
	err = unix.EpollCtl(w.epfd, unix.EPOLL_CTL_ADD, w.wakefd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: -1})
	if err != nil {
		return nil, fmt.Errorf("worker %d: epoll: %w", id, err)
	}
	return w, nil
}

// connect joins every pair of workers by rings. A return ring holds all frames
// of the worker it leads to, so that a frame can always come home.
func (e *Engine) connect() error {
	for _, a := range e.workers {
		own := 0
		for _, s := range e.shards {
			if s.owner == a.id {
				own += s.total
			}
		}
		size := 1
		for size < own {
			size *= 2
		}
		for _, b := range e.workers {
			if a == b {
				continue
			}
			to, err := spsc.New[parcel](handoffRing)
			if err != nil {
				return err
			}
			home, err := spsc.New[xsk.Addr](size)
			if err != nil {
				return err
			}
			b.out[a.id], a.in[b.id] = to, to
			b.homeOut[a.id], a.homeIn[b.id] = home, home
		}
	}
	return nil
}

// Start starts the workers, or none: if one cannot run, those that could are
// ended before it returns.
func (e *Engine) Start() error {
	err := e.launch()
	e.started = err == nil
	return err
}

func (e *Engine) launch() error {
	ready := make([]chan error, len(e.workers))
	ended := make(chan struct{}, len(e.workers))
	for i, w := range e.workers {
		ready[i] = make(chan error, 1)
		go func() {
			w.run(ready[i])
			ended <- struct{}{}
		}()
	}
	go func() {
		for range e.workers {
			<-ended
		}
		close(e.ended)
	}()
	var err error
	var running []*worker
	for i, w := range e.workers {
		if werr := <-ready[i]; werr != nil {
			err = errors.Join(err, fmt.Errorf("worker %d: %w", i, werr))
			continue
		}
		running = append(running, w)
	}
	if err == nil {
		return nil
	}
	if e.held.Load() {
		return err // Abandon ends those that run
	}
	for _, w := range running {
		w.do(func() { w.stop = true })
	}
	<-e.ended
	return err
}

// Stop closes every socket, ends the workers and frees the memory. A port
// whose program stays attached then has an empty slot: closed.
func (e *Engine) Stop() error {
	var err error
	for i, s := range e.slots {
		if s != nil {
			err = errors.Join(err, e.removeSlot(i))
		}
	}
	if e.started {
		for _, w := range e.workers {
			w.do(func() { w.stop = true })
		}
		<-e.ended
	}
	return errors.Join(err, e.close())
}

func (e *Engine) close() error {
	if e.touched != nil {
		e.closing.Store(true)
		<-e.touched
	}
	var err error
	for _, w := range e.workers {
		err = errors.Join(err, unix.Close(w.epfd), unix.Close(w.wakefd))
	}
	return errors.Join(err, e.mem.Close())
}

// MemoryOptions are those of the mapping c needs, to adopt it from another
// process.
func (c Config) MemoryOptions() (xsk.MemoryOptions, error) {
	c, err := c.withDefaults()
	return xsk.MemoryOptions{
		Shards: c.workloadShards() + c.uplinkShards(), ChunksPerShard: c.ChunksPerShard,
		HugePages: c.HugePages, NUMABind: c.NUMANode >= 0, NUMANode: max(0, c.NUMANode),
	}, err
}

// Geometry is that of the engine's configuration.
func (e *Engine) Geometry() string { return e.config.Geometry() }

// Memory is the mapping, for opening sockets on it.
func (e *Engine) Memory() *xsk.Memory { return e.mem }

// Publish makes s the snapshot from the workers' next batch on.
func (e *Engine) Publish(s *table.Snapshot) { e.snapshot.Store(s) }

// Quiesce waits until no worker uses a snapshot older than version.
func (e *Engine) Quiesce(ctx context.Context, version uint64) error {
	for _, w := range e.workers {
		for seen := w.seen.Load(); seen != offline && (seen == online || seen < version); seen = w.seen.Load() {
			select {
			case <-ctx.Done():
				return fmt.Errorf("worker %d still uses snapshot %d: %w", w.id, seen, ctx.Err())
			case <-time.After(50 * time.Microsecond):
			}
		}
	}
	return nil
}

// Beats are the rounds each worker has made: a worker whose number stands
// still hangs. Any goroutine.
func (e *Engine) Beats() []uint64 {
	b := make([]uint64, len(e.workers))
	for i, w := range e.workers {
		b[i] = w.beat.Load()
	}
	return b
}

// Events tells of sockets that cannot send. Events are lost when the reader is
// far behind; Sockets then shows the state.
func (e *Engine) Events() <-chan SocketEvent { return e.events }

// PathMTUs tells of Packet Too Big messages from the underlay.
func (e *Engine) PathMTUs() <-chan PathMTU { return e.pathMTUs }

func (e *Engine) reportPathMTU(r PathMTU) {
	select {
	case e.pathMTUs <- r:
	default: // the sender tries again, and so will the router
	}
}

// Counters are a port's totals over all workers. Any goroutine.
func (e *Engine) Counters(port int) Counters { return e.counters(port) }

// UplinkCounters are those of an uplink. Any goroutine.
func (e *Engine) UplinkCounters(uplink int) Counters { return e.counters(e.firstUplinkRow() + uplink) }

func (e *Engine) counters(row int) Counters {
	var c Counters
	for _, w := range e.workers {
		w.rows[row].addTo(&c)
	}
	return c
}

func (e *Engine) clock() int64 { return int64(time.Since(e.start)) }

// UplinkQueues is how many queues of an uplink there is room for.
func (e *Engine) UplinkQueues(uplink int) int { return len(e.owners[uplink]) }

// UseQueues says how many queues of an uplink, from the first, have sockets.
func (e *Engine) UseQueues(uplink, n int) { e.inUse[uplink].Store(int32(n)) }

// uplinkQueue chooses the queue a flow leaves by: always the same one.
func (e *Engine) uplinkQueue(uplink int, hash uint64) (queue, owner int) {
	owners := e.owners[uplink]
	q := int((hash >> 32) * uint64(e.inUse[uplink].Load()) >> 32)
	return q, owners[q]
}

// workloadShards are the shards of a worker, those of uplinks left out.
func (e *Engine) workloadShards(worker int) []*shard {
	last := len(e.shards)
	for _, o := range e.owners {
		last -= len(o)
	}
	var own []*shard
	for _, s := range e.shards[:last] {
		if s.owner == worker {
			own = append(own, s)
		}
	}
	return slices.Clip(own)
}

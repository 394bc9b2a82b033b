package fastpath

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/spsc"
	"picot.dev/picot/xsk"
)

// A worker is one OS thread with everything it owns.
type worker struct {
	// Fixed after New.
	id     int
	cpu    int // -1: wherever the scheduler likes
	eng    *Engine
	mem    *xsk.Memory
	epfd   int
	wakefd int
	rows   []row // by port index

	// Shared with other threads.
	seen     atomic.Uint64 // version of the snapshot in use, or offline, or online
	sleeping atomic.Bool
	beat     atomic.Uint64 // rounds, for health
	mu       sync.Mutex
	queue    []func() // guarded by mu
	pending  atomic.Bool

	// Of the worker's thread only, from here on.
	snap    *table.Snapshot
	walk    Walk
	places  []place // of the whole mapping; an entry belongs to the frame's holder
	socks   []*sock // by slot, nil where it is another worker's
	byPort  []*sock // the socket to send to a workload port by
	uplinks [][]*sock
	active  []*sock
	touched []*sock
	sending []*sock
	// watching is how many sockets epoll watches.
	watching int

	releasing *shard // of the frame released last

	capture   *capturing // nil: none runs
	recording uint32     // the token of the frame that is being emitted, if it has a record
	refused   DropReason // of the parcel dropped last

	cur   int // ingress port the tally counts for
	tally tally

	in, out         []*spsc.Ring[parcel]   // by the other worker
	homeIn, homeOut []*spsc.Ring[xsk.Addr] // by the other worker
	woke            []bool
	handed          uint64 // frames given to other workers

	// Scratch, sized once.
	descs     []xsk.Desc
	frames    []Frame
	sources   []xsk.Desc // where frames[i] came from
	addrs     []xsk.Addr
	parcels   []parcel
	one       []parcel
	scattered []parcel
	linear    []byte
	events    []unix.EpollEvent
	fetched   byte // keeps the reads of fetch

	stop bool
}

const (
	// batch is how many frames one look at a ring takes.
	batch = 64
	// burst is how many frames of a socket are walked before they are sent. A
	// kick is a system call, which all frames of its burst share.
	burst = stageMost
	// stageMost bounds the frames gathered for one socket before a flush.
	stageMost = 256
	// idleAfter is how long a socket without a frame is still looked at every
	// round: from then on epoll watches it.
	idleAfter = 100 * time.Microsecond
	// spinFor is how long a worker looks again at once after its last frame, and
	// awakeFor while it is to stay awake.
	spinFor  = 30 * time.Microsecond
	awakeFor = 2 * time.Millisecond
	// lookEvery is how long idle sockets wait at most while others keep the
	// worker busy. A look is a system call, which a small batch would feel.
	lookEvery = 50 * time.Microsecond
	// idleTick bounds a sleep: neither link loss nor a device's end wakes epoll.
	idleTick = 10 * time.Millisecond
	// restTick takes its place once there was no frame for restAfter. Each
	// tick also wakes the runtime's monitor thread, which costs as much again.
	restTick  = 50 * time.Millisecond
	restAfter = time.Second
)

// Values of seen that are no version.
const (
	offline = ^uint64(0)     // asleep: uses no snapshot
	online  = ^uint64(0) - 1 // awake, about to load one
)

// run is the worker's thread.
func (w *worker) run(ready chan<- error) {
	runtime.LockOSThread()
	// A name for top -H; a thread without one works as well.
	_ = os.WriteFile("/proc/thread-self/comm", fmt.Appendf(nil, "picot-work-%d", w.id), 0)
	// Never unlocked: a thread with changed affinity ends with its goroutine.
	if w.cpu >= 0 {
		var set unix.CPUSet
		set.Set(w.cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			ready <- fmt.Errorf("binding it to CPU %d: %w: name a CPU this process may run on", w.cpu, err)
			return
		}
	}
	w.hurry()
	ready <- nil
	if w.eng.began != nil { // not held, which may be over by now
		w.waitHeld()
	}
	var idle, looked int64 // when the rounds without frames began, 0: not idle; of the last look
	for !w.stop {
		w.load()
		did := w.round()
		w.beat.Add(1)
		if w.stop {
			return // and no look at a ring more: it may be another process's
		}
		now := w.walk.Now
		switch {
		case did > 0:
			idle = 0
			if now-looked > int64(lookEvery) {
				looked = now
				w.look()
			}
		case idle == 0:
			idle = now
			w.look()
		case now-idle < int64(spinFor), now-idle < int64(awakeFor) && now < w.eng.awake.Load():
			w.look()
		case now-idle < int64(restAfter):
			w.sleep(idleTick)
		default:
			w.sleep(restTick)
		}
	}
}

// hurry lowers the thread's nice value. Without the right to do so the worker
// waits for its turn like everybody.
func (w *worker) hurry() {
	now, err := niceValue()
	if nice := w.eng.config.Nice; nice < 0 && err == nil && nice < now {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, nice)
	}
}

// load takes the published snapshot. seen is stored before and after, so that
// Quiesce never takes a worker that is just waking for one that is away.
func (w *worker) load() {
	s := w.eng.snapshot.Load()
	if s == w.snap && w.seen.Load() == s.Version {
		return
	}
	w.seen.Store(online)
	w.snap = w.eng.snapshot.Load()
	w.seen.Store(w.snap.Version)
}

// round does everything that waits once and returns the number of frames.
func (w *worker) round() int {
	w.walk.Now = w.eng.clock()
	did := 0
	for i := 0; i < len(w.active); {
		k := w.active[i]
		if n := w.poll(k); n > 0 {
			w.carried(k, n)
			did += n
		} else if w.walk.Now-k.last > int64(idleAfter) && w.watch(k) {
			k.active = false
			w.active[i] = w.active[len(w.active)-1]
			w.active = w.active[:len(w.active)-1]
			continue
		}
		i++
	}
	if len(w.in) > 1 {
		w.takeHome()
		did += w.receiveHandoffs()
	}
	w.collect()
	w.wakeOthers()
	if w.walk.learn.told {
		w.ringReader()
	}
	if w.pending.Load() {
		w.obey()
	}
	return did
}

// collect takes completions of every socket that still has frames to complete,
// and kicks those whose ring was left undrained.
func (w *worker) collect() {
	for i := 0; i < len(w.sending); {
		k := w.sending[i]
		w.reap(k)
		if k.state == SocketUp && k.xs.TXQueued() > 0 {
			w.kick(k)
		}
		if k.xs.Outstanding() == 0 {
			k.sending = false
			w.sending[i] = w.sending[len(w.sending)-1]
			w.sending = w.sending[:len(w.sending)-1]
			continue
		}
		i++
	}
}

// discover makes sockets active that epoll says have frames. timeout in ms.
func (w *worker) discover(timeout int) {
	n, err := unix.EpollWait(w.epfd, w.events, timeout)
	if err != nil {
		return // EINTR; anything else shows in beat
	}
	for _, e := range w.events[:n] {
		if e.Fd < 0 {
			var b [8]byte
			_, _ = unix.Read(w.wakefd, b[:])
			continue
		}
		w.activate(w.socks[e.Fd])
	}
}

// look is discover without a wait. Where epoll watches nothing it is spared: a
// system call would be felt by every frame of a batch, and a worker that is
// awake sees commands and hand-offs without it.
func (w *worker) look() {
	if w.watching > 0 {
		w.discover(0)
	}
}

func (w *worker) activate(k *sock) {
	if k == nil || k.active {
		return
	}
	k.active = true
	k.last = w.walk.Now
	w.active = append(w.active, k)
}

// sleep waits in epoll for at most tick. Everything others can leave for
// this worker is looked at once more after sleeping is visible to them.
func (w *worker) sleep(tick time.Duration) {
	for _, k := range w.active {
		w.watch(k)
	}
	w.sleeping.Store(true)
	defer w.sleeping.Store(false)
	if w.waiting() {
		return
	}
	w.seen.Store(offline)
	w.discover(int(tick / time.Millisecond))
	w.seen.Store(online)
	for _, k := range w.socks {
		if k != nil && k.state == SocketDown {
			k.state = SocketUp // the next kick says
		}
	}
	// A ring may have filled up to a missed wake-up, and an idle socket's fill
	// ring may have been short of frames when it was looked at last.
	for _, k := range w.socks {
		if k != nil && k.inFill < k.shard.share {
			w.refill(k)
		}
	}
}

func (w *worker) waiting() bool {
	if w.pending.Load() {
		return true
	}
	for _, r := range w.in {
		if r != nil && r.Len() > 0 {
			return true
		}
	}
	return false
}

// wake ends the worker's sleep. Any goroutine.
func (w *worker) wake() {
	if w.sleeping.Load() {
		one := [8]byte{1} // any non-zero count
		_, _ = unix.Write(w.wakefd, one[:])
	}
}

// do runs f on the worker's thread between two rounds and waits for it.
func (w *worker) do(f func()) {
	done := make(chan struct{})
	w.post(func() { f(); close(done) })
	<-done
}

// post has f run on the worker's thread between two rounds.
func (w *worker) post(f func()) {
	w.mu.Lock()
	w.queue = append(w.queue, f)
	w.pending.Store(true)
	w.mu.Unlock()
	w.wake()
}

func (w *worker) obey() {
	w.mu.Lock()
	queue := w.queue
	w.queue = nil
	w.pending.Store(false)
	w.mu.Unlock()
	for _, f := range queue {
		f()
	}
}

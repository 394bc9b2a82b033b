package fastpath

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk"
)

// Place is where a workload port's sockets belong.
type Place struct {
	Worker int
	Shard  int
}

// Place chooses the shard for a new port: the emptiest one. The port's sockets
// must be opened on Memory().Shard(p.Shard).
func (e *Engine) Place() (Place, error) {
	var best *shard
	load := make([]int, len(e.shards))
	byWorker := make([]int, len(e.workers))
	for _, s := range e.slots {
		if s != nil && s.sock.uplink < 0 {
			load[s.sock.shard.index]++
			byWorker[s.worker.id]++
		}
	}
	for w := range e.workers {
		for _, s := range e.workloadShards(w) {
			if load[s.index] >= e.config.PortsPerShard {
				continue
			}
			if best == nil || byWorker[s.owner] < byWorker[best.owner] ||
				byWorker[s.owner] == byWorker[best.owner] && load[s.index] < load[best.index] {
				best = s
			}
		}
	}
	if best == nil {
		return Place{}, ErrFull
	}
	return Place{Worker: best.owner, Shard: best.index}, nil
}

// AddPort gives a workload port's socket for one queue to its worker. The
// Engine owns the socket from then on. Frames of the port are dropped until a
// snapshot has it. The caller puts the socket into the XSKMAP afterwards, when
// its fill ring has frames.
func (e *Engine) AddPort(port, queue int, at Place, xs *xsk.Socket) error {
	if port < 1 || port > e.config.MaxPorts {
		return fmt.Errorf("port index %d: 1 to %d: %w", port, e.config.MaxPorts, ErrFull)
	}
	k := &sock{xs: xs, port: port, uplink: -1, queue: queue, shard: e.shards[at.Shard]}
	return e.add(k, e.workers[at.Worker])
}

// AddUplink gives an uplink's socket for one queue to its worker. It must be
// open on Memory().Whole().
func (e *Engine) AddUplink(uplink, queue int, xs *xsk.Socket) error {
	if uplink >= len(e.owners) || queue >= len(e.owners[uplink]) {
		return fmt.Errorf("uplink %d queue %d: %w", uplink, queue, ErrUnknown)
	}
	index := len(e.shards)
	for _, o := range e.owners[uplink:] {
		index -= len(o)
	}
	k := &sock{xs: xs, port: e.firstUplinkRow() + uplink, uplink: uplink, queue: queue, shard: e.shards[index+queue]}
	return e.add(k, e.workers[e.owners[uplink][queue]])
}

func (e *Engine) add(k *sock, w *worker) error {
	k.slot = -1
	for i, s := range e.slots {
		if s == nil {
			k.slot = i
		}
	}
	if k.slot < 0 {
		k.slot = len(e.slots)
		e.slots = append(e.slots, nil)
	}
	k.prepare(w)
	e.resetRows(k)
	var err error
	e.on(w, func() { err = w.attach(k) })
	if err != nil {
		return err
	}
	e.slots[k.slot] = &slot{sock: k, worker: w}
	if e.unpopulated {
		e.populate()
	}
	return nil
}

// prepare makes what a socket needs of its worker.
func (k *sock) prepare(w *worker) {
	k.row = &w.rows[k.port]
	k.staged = make([]xsk.Desc, 0, stageMost+linearMost/xsk.MaxFrame+1)
	k.cells = make([]uint16, 0, cap(k.staged))
}

// resetRows starts a port's counters anew when its first socket comes, as the
// device's and the program's own do: the index may have been another port's, the
// uplink another device. Every worker writes its own row.
func (e *Engine) resetRows(k *sock) {
	for _, s := range e.slots {
		if s != nil && s.sock.port == k.port {
			return
		}
	}
	for _, w := range e.workers {
		e.on(w, func() {
			for i := range w.rows[k.port] {
				w.rows[k.port][i].Store(0)
			}
		})
	}
}

// on runs f on w's thread, or here while the workers do not run yet.
func (e *Engine) on(w *worker, f func()) {
	if e.started {
		w.do(f)
		return
	}
	f()
}

// attach is AddPort and AddUplink on the worker's thread.
func (w *worker) attach(k *sock) error {
	if err := w.enlist(k); err != nil {
		return err
	}
	w.eng.seat(k)
	w.refill(k)
	w.activate(k) // frames may have come before epoll watched
	return nil
}

// enlist makes k one of the worker's sockets, and leaves its rings alone.
func (w *worker) enlist(k *sock) error {
	if err := k.shard.join(k); err != nil {
		return err
	}
	if fd := k.xs.FD(); fd >= 0 {
		err := unix.EpollCtl(w.epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(k.slot)})
		if err != nil {
			k.shard.leave(k)
			return fmt.Errorf("watching the socket of port %d queue %d: %w", k.port, k.queue, err)
		}
		k.watched = true
		w.watching++
	}
	for len(w.socks) <= k.slot {
		w.socks = append(w.socks, nil)
	}
	w.socks[k.slot] = k
	if k.uplink >= 0 {
		w.uplinks[k.uplink][k.queue] = k
	} else if k.queue == 0 {
		w.byPort[k.port] = k
	}
	return nil
}

// RemovePort takes a workload port's sockets from their worker and closes
// them. The caller has emptied their XSKMAP slots before.
func (e *Engine) RemovePort(port int) error { return e.removeAll(port, -1) }

// RemoveUplink does the same for an uplink.
func (e *Engine) RemoveUplink(uplink int) error {
	return e.removeAll(e.firstUplinkRow()+uplink, uplink)
}

func (e *Engine) removeAll(port, uplink int) error {
	var err error
	found := false
	for i, s := range e.slots {
		if s != nil && s.sock.port == port && s.sock.uplink == uplink {
			found = true
			err = errors.Join(err, e.removeSlot(i))
		}
	}
	if !found {
		return fmt.Errorf("port %d: %w", port, ErrUnknown)
	}
	return err
}

// removeSlot closes outside of any worker: freeing a queue takes the kernel
// milliseconds. Frames are taken back with all workers paused, since a frame's
// place belongs to whoever holds it.
func (e *Engine) removeSlot(i int) error {
	s := e.slots[i]
	e.slots[i] = nil
	if s.sock.uplink < 0 {
		e.unobserve(s.sock.port)
	}
	e.on(s.worker, func() { s.worker.unlink(s.sock) })
	err := s.sock.xs.Close()
	e.paused(func() { s.worker.reclaim(s.sock) })
	return err
}

// unlink makes the worker forget k.
func (w *worker) unlink(k *sock) {
	w.settle()
	w.reap(k)
	w.socks[k.slot] = nil
	if k.uplink >= 0 {
		w.uplinks[k.uplink][k.queue] = nil
	} else if w.byPort[k.port] == k {
		w.byPort[k.port] = nil
		w.walk.learn.ports[k.port] = observer{}
	}
	w.active = without(w.active, k)
	w.sending = without(w.sending, k)
	if fd := k.xs.FD(); fd >= 0 {
		_ = unix.EpollCtl(w.epfd, unix.EPOLL_CTL_DEL, fd, nil) // closing it does the same
	}
	if k.watched {
		k.watched = false
		w.watching--
	}
	for _, p := range k.parts {
		w.release(p.Addr.Chunk())
	}
	k.parts = nil
}

// reclaim takes back the frames of a closed socket's fill and tx rings.
func (w *worker) reclaim(k *sock) {
	fill, tx := fillOf(k.slot), txOf(k.slot)
	for i, p := range w.places {
		if p == fill || p == tx {
			w.release(xsk.Addr(i) * xsk.ChunkSize)
		}
	}
	k.shard.leave(k)
	w.eng.seat(k)
	w.wakeOthers()
}

func without(list []*sock, k *sock) []*sock {
	for i, s := range list {
		if s == k {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// SocketInfo is a socket as Sockets shows it.
type SocketInfo struct {
	Port, Uplink, Queue int
	Worker, Shard       int
	State               SocketState
	ZeroCopy            bool
	Filled              int    // frames in the fill ring or with the kernel
	Outstanding         int    // frames sent and not completed
	Received, Sent      uint64 // descriptors
	Stats               xsk.Stats
	Faults              xsk.Faults
}

// Sockets lists the sockets with the kernel's own counts.
func (e *Engine) Sockets() ([]SocketInfo, error) {
	var all []SocketInfo
	var err error
	for _, s := range e.slots {
		if s == nil {
			continue
		}
		k := s.sock
		info := SocketInfo{
			Port: k.port, Uplink: k.uplink, Queue: k.queue, Worker: s.worker.id, Shard: k.shard.index,
			ZeroCopy: k.xs.Options().ZeroCopy,
		}
		e.on(s.worker, func() {
			info.Received, info.Sent = k.received, k.sent
			info.State, info.Filled, info.Outstanding, info.Faults = k.state, k.inFill, k.xs.Outstanding(), k.xs.Faults()
		})
		st, serr := k.xs.Stats()
		info.Stats, err = st, errors.Join(err, serr)
		all = append(all, info)
	}
	return all, err
}

// Handoffs is how many frames each worker has given to others.
func (e *Engine) Handoffs() []uint64 {
	n := make([]uint64, len(e.workers))
	for i, w := range e.workers {
		e.on(w, func() { n[i] = w.handed })
	}
	return n
}

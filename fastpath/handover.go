package fastpath

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk"
)

// handover.go gives the sockets and their frames to another process. What takes
// long is done while the old one goes on:
//
//	old                        new
//	Offer ── sockets ────────► Prepare: rings mapped, threads started, all wait
//	                           Adopt: the first worker waits for the state
//	Freeze: workers stop
//	      ── state ──────────► where each frame is, how far each ring; all go on
//
// Until then the kernel receives into the rx rings, as long as the fill rings have
// frames. The worker that stops last writes the state, and the new process's first
// one reads it. Where both are bound to one CPU it goes from thread to thread on
// that CPU: no other thread has to get its turn on a busy machine in between.

// Handover is what a new process needs beside the descriptors to prepare for an
// old one's frames: Memory's, and each socket's in the order of Sockets. Plain
// data, for gob.
type Handover struct {
	Config  Config
	Sockets []HandoverSocket
	InUse   []int32 // queues in use, by uplink
	// Cells is how many counters a port has, and Counted what they count: another
	// version, which counts other things, begins anew.
	Cells   int
	Counted string
}

// HandoverSocket is one socket of a Handover: what of it stays the same.
type HandoverSocket struct {
	Slot, Port, Uplink, Queue int
	Worker, Shard             int
	Options                   xsk.Options
}

// ErrHandover says that a Handover does not fit this process.
var ErrHandover = errors.New("handover refused")

// Geometry is what must be the same in both processes.
func (c Config) Geometry() string {
	c, _ = c.withDefaults()
	return fmt.Sprintf("%d workers, %d ports, %d a shard of %d chunks, uplink queues %v",
		c.Workers, c.MaxPorts, c.PortsPerShard, c.ChunksPerShard, c.UplinkQueues)
}

// Offer lists the sockets and their descriptors, which stay the Engine's. It
// holds until a socket is added or removed.
func (e *Engine) Offer() (h *Handover, fds []int) {
	h = &Handover{Config: e.config, Cells: numCells, Counted: counted()}
	for i := range e.inUse {
		h.InUse = append(h.InUse, e.inUse[i].Load())
	}
	for i, s := range e.slots {
		if s == nil {
			continue
		}
		k := s.sock
		h.Sockets = append(h.Sockets, HandoverSocket{
			Slot: i, Port: k.port, Uplink: k.uplink, Queue: k.queue, Worker: s.worker.id, Shard: k.shard.index,
			Options: k.xs.Requested(),
		})
		fds = append(fds, k.xs.FD())
	}
	return h, fds
}

// Freeze stops every worker at a safe point, where no frame is in a worker's
// hands or between workers: all are free, in a fill ring or in a tx ring. The one
// that stops last writes that into state, of StateLen bytes, and calls written.
// Then either resume is called and everything goes on, or Leave. Nothing else may
// be called in between, and no socket added or removed since Offer.
func (e *Engine) Freeze(state []byte, written func()) (resume func()) {
	since := monotonic()
	e.frozen = e.pauseThen(func() {
		e.drainRings()
		e.writeState(state, since)
		written()
	})
	return e.frozen
}

// Leave ends a frozen engine whose frames another process has, and touches none
// of them. The workers' threads end first and the memory is given back here: what
// is left to the process's last thread, which may be one of theirs, the kernel does
// on that thread's CPU, where the new process's worker is at work.
func (e *Engine) Leave() error {
	e.dismiss()
	return e.letGo()
}

// dismiss ends frozen workers.
func (e *Engine) dismiss() {
	for _, w := range e.workers {
		w.stop = true // read after the freeze's end
	}
	e.frozen()
	<-e.ended
}

// letGo closes what another process has, too: it notices nothing.
func (e *Engine) letGo() error {
	var err error
	for _, s := range e.slots {
		if s != nil {
			err = errors.Join(err, s.sock.xs.Close()) // unmaps and closes, no more
		}
	}
	return errors.Join(err, e.close())
}

// drainRings does the workers' part of the hand-offs under way, with all of
// them paused: what one hands over another takes, until nothing moves.
func (e *Engine) drainRings() {
	for moved := true; moved; {
		moved = false
		for _, w := range e.workers {
			w.settle()
			w.takeHome()
			if w.receiveHandoffs() > 0 {
				moved = true
			}
		}
	}
	for _, w := range e.workers {
		w.takeHome()
	}
}

// Prepare makes an engine that can go on with another process's sockets and
// frames, while that one still works. c must have the same geometry; mem is the
// other's memory, populated by now or each of its pages makes a frame wait. It
// owns mem and the descriptors, whatever comes of it. Then comes Adopt or Abandon.
func Prepare(c Config, h *Handover, mem *xsk.Memory, fds []int) (e *Engine, err error) {
	c, err = c.withDefaults()
	switch {
	case err != nil:
	case c.Geometry() != h.Config.Geometry():
		err = fmt.Errorf("%w: it has %s, this process %s", ErrHandover, h.Config.Geometry(), c.Geometry())
	case len(fds) != len(h.Sockets):
		err = fmt.Errorf("%w: %d sockets, %d descriptors", ErrHandover, len(h.Sockets), len(fds))
	case len(h.InUse) != len(c.UplinkQueues):
		err = fmt.Errorf("%w: %d uplinks in use, %d here", ErrHandover, len(h.InUse), len(c.UplinkQueues))
	}
	if err != nil {
		return nil, errors.Join(err, closeAll(fds), mem.Close())
	}
	if e, err = build(c, mem); err != nil {
		return nil, errors.Join(err, closeAll(fds))
	}
	for i, n := range h.InUse {
		e.inUse[i].Store(n)
	}
	for i := range h.Sockets {
		if err := e.prepareSocket(&h.Sockets[i], fds[i]); err != nil {
			return nil, errors.Join(err, closeAll(fds[i+1:]), e.Abandon())
		}
	}
	for i := range e.places {
		e.places[i] = placeFree
	}
	e.hold()
	if err := e.launch(); err != nil {
		return nil, errors.Join(err, e.Abandon())
	}
	return e, nil
}

func closeAll(fds []int) error {
	var err error
	for _, fd := range fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// prepareSocket maps a socket's rings and has its worker's epoll watch it. What
// is in the rings is not looked at: the other process still moves them. On an
// error the descriptor is closed.
func (e *Engine) prepareSocket(s *HandoverSocket, fd int) error {
	if !e.fits(s) {
		return errors.Join(fmt.Errorf("%w: a socket out of place: %+v", ErrHandover, *s), unix.Close(fd))
	}
	region := e.mem.Whole()
	if s.Uplink < 0 {
		region = e.mem.Shard(s.Shard)
	}
	xs, err := xsk.FromFD(fd, e.mem, region, s.Options)
	if err != nil {
		return errors.Join(fmt.Errorf("%w: socket of port %d queue %d: %w", ErrHandover, s.Port, s.Queue, err), unix.Close(fd))
	}
	if err := e.reserve(s, xs); err != nil {
		return errors.Join(err, xs.Close())
	}
	return nil
}

// reserve makes room for a socket without a look at its rings.
func (e *Engine) reserve(s *HandoverSocket, xs *xsk.Socket) error {
	k := &sock{xs: xs, slot: s.Slot, shard: e.shards[s.Shard], port: s.Port, uplink: s.Uplink, queue: s.Queue}
	w := e.workers[s.Worker]
	k.prepare(w)
	if err := w.enlist(k); err != nil {
		return err
	}
	e.slots[k.slot] = &slot{sock: k, worker: w}
	return nil
}

// fits says that every index of s is inside its table, and its slot free.
func (e *Engine) fits(s *HandoverSocket) bool {
	const slotMost = 1 << 20
	if s.Slot < 0 || s.Slot > slotMost || s.Shard < 0 || s.Shard >= len(e.shards) || s.Worker < 0 || s.Worker >= len(e.workers) {
		return false
	}
	for len(e.slots) <= s.Slot {
		e.slots = append(e.slots, nil)
	}
	if e.slots[s.Slot] != nil || s.Queue < 0 {
		return false
	}
	if s.Uplink < 0 {
		return s.Port >= 1 && s.Port <= e.config.MaxPorts
	}
	return s.Uplink < len(e.owners) && s.Queue < len(e.owners[s.Uplink]) && s.Port == e.firstUplinkRow()+s.Uplink
}

// Adopt takes over what Freeze of h's engine writes and lets the workers run. A
// snapshot has been published before. wait returns once state is written, and take
// once the frames are this process's; both are called in the first worker's thread
// and may block it. It returns for how long nobody forwarded: from Freeze until the
// last worker runs. On an error nothing is changed that both processes see, and
// Abandon comes.
func (e *Engine) Adopt(h *Handover, state []byte, wait, take func() error) (time.Duration, error) {
	var since int64
	var err error
	e.workers[0].do(func() {
		if err = wait(); err != nil {
			return
		}
		if since, err = e.readState(h, state); err != nil {
			return
		}
		if err = take(); err != nil {
			return
		}
		e.started = true
		e.release()
	})
	if err != nil {
		return 0, err
	}
	last := since
	for range e.workers {
		last = max(last, <-e.began)
	}
	return time.Duration(last - since), nil
}

// Abandon drops a prepared engine that does not get the frames after all. The
// other process notices nothing.
func (e *Engine) Abandon() error {
	if e.held.Load() {
		for _, w := range e.workers {
			w.stop = true // read after the hold's end
		}
		e.release()
		<-e.ended
	}
	return e.letGo()
}

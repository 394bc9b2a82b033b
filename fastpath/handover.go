package fastpath

import (
	"encoding/binary"
	"errors"
	"fmt"

	"picot.dev/picot/xsk"
)

// Handover is all a new process needs beside the descriptors to go on with an
// old one's frames: Memory's, and each socket's in the order of Sockets. Plain
// data, for gob.
type Handover struct {
	Config  Config
	Places  []byte // a little-endian word each
	Sockets []HandoverSocket
	InUse   []int32 // queues in use, by uplink
}

// HandoverSocket is one socket of a Handover.
type HandoverSocket struct {
	Slot, Port, Uplink, Queue int
	Worker, Shard             int
	State                     SocketState
	Options                   xsk.Options
	Parts                     []xsk.Desc
	Received, Sent            uint64
}

// ErrHandover says that a Handover does not fit this process.
var ErrHandover = errors.New("handover refused")

// Geometry is what must be the same in both processes.
func (c Config) Geometry() string {
	c, _ = c.withDefaults()
	return fmt.Sprintf("%d workers, %d ports, %d a shard of %d chunks, uplink queues %v",
		c.Workers, c.MaxPorts, c.PortsPerShard, c.ChunksPerShard, c.UplinkQueues)
}

// Freeze stops every worker at a safe point: no frame is in a worker's hands or
// between workers, all are free, in a fill ring or in a tx ring. The kernel
// goes on receiving into the rx rings. It returns the state and the sockets'
// descriptors, which stay the Engine's. Then either resume is called and
// everything goes on, or the process ends. Nothing else may be called in
// between.
func (e *Engine) Freeze() (h *Handover, fds []int, resume func()) {
	resume = e.pause()
	e.drainRings()
	h = &Handover{Config: e.config, Places: make([]byte, 4*len(e.places))}
	for i, p := range e.places {
		binary.LittleEndian.PutUint32(h.Places[4*i:], uint32(p))
	}
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
			State: k.state, Options: k.xs.Requested(), Parts: k.parts, Received: k.received, Sent: k.sent,
		})
		fds = append(fds, k.xs.FD())
	}
	return h, fds, resume
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

// Adopt makes an engine that goes on with another process's sockets and frames.
// c must have the same geometry; mem is the other's memory. The Engine owns mem
// and the descriptors from then on, unless Adopt fails: then both stay the
// caller's. Start it once a snapshot is published.
func Adopt(c Config, h *Handover, mem *xsk.Memory, fds []int) (*Engine, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if c.Geometry() != h.Config.Geometry() {
		return nil, fmt.Errorf("%w: it has %s, this process %s", ErrHandover, h.Config.Geometry(), c.Geometry())
	}
	if len(fds) != len(h.Sockets) {
		return nil, fmt.Errorf("%w: %d sockets, %d descriptors", ErrHandover, len(h.Sockets), len(fds))
	}
	e, err := build(c, mem)
	if err != nil {
		return nil, err
	}
	if len(h.Places) != 4*len(e.places) {
		return nil, fmt.Errorf("%w: %d frames, %d here", ErrHandover, len(h.Places)/4, len(e.places))
	}
	for i, n := range h.InUse {
		e.inUse[i].Store(n)
	}
	e.adoptPlaces(h)
	for i := range h.Sockets {
		if err := e.adoptSocket(&h.Sockets[i], fds[i]); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// adoptPlaces takes over where each frame is. What was in nobody's ring is free.
func (e *Engine) adoptPlaces(h *Handover) {
	parts := map[xsk.Addr]bool{}
	for _, s := range h.Sockets {
		for _, p := range s.Parts {
			parts[p.Addr.Chunk()] = true
		}
	}
	for _, sh := range e.shards {
		sh.free = sh.free[:0]
	}
	for i := range e.places {
		a := xsk.Addr(i) * xsk.ChunkSize
		p := place(binary.LittleEndian.Uint32(h.Places[4*i:]))
		switch p & stateMask {
		case placeFill, placeTX:
			e.places[i] = p
			continue
		}
		if parts[a] {
			e.places[i] = placeBatch
			continue
		}
		e.places[i] = placeFree
		sh := e.shards[e.mem.ShardOf(a)]
		sh.put(a)
	}
}

func (e *Engine) adoptSocket(s *HandoverSocket, fd int) error {
	region := e.mem.Whole()
	if s.Uplink < 0 {
		region = e.mem.Shard(s.Shard)
	}
	xs, err := xsk.FromFD(fd, e.mem, region, s.Options)
	if err != nil {
		return fmt.Errorf("%w: socket of port %d queue %d: %w", ErrHandover, s.Port, s.Queue, err)
	}
	k := &sock{
		xs: xs, slot: s.Slot, shard: e.shards[s.Shard], port: s.Port, uplink: s.Uplink, queue: s.Queue,
		state: s.State, parts: s.Parts, received: s.Received, sent: s.Sent,
	}
	fill := fillOf(k.slot)
	for _, p := range e.places {
		if p == fill {
			k.inFill++
		}
	}
	w := e.workers[s.Worker]
	k.prepare(w)
	if err := w.attach(k); err != nil {
		return err
	}
	if xs.Outstanding() > 0 {
		k.sending = true
		w.sending = append(w.sending, k)
	}
	for len(e.slots) <= k.slot {
		e.slots = append(e.slots, nil)
	}
	e.slots[k.slot] = &slot{sock: k, worker: w}
	return nil
}

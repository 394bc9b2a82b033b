package fastpath

import (
	"encoding/binary"
	"fmt"
	"strings"

	"picot.dev/picot/xsk"
)

// What Freeze writes and Adopt reads, all little-endian: when the workers were asked
// to stop (8 bytes, CLOCK_MONOTONIC in ns), a place for each frame (4), then for each
// socket in the Handover's order its state (1), the number of parts of a frame that
// has not come whole (1), descriptors received and sent (8 each), its port's counters
// (8 each) and those parts (16 each). The rings tell the rest.

const (
	stateHead  = 8
	stateFixed = 18
	statePart  = 16
	// partsMost is more than a frame can have: the kernel's buffers have 17
	// fragments and a head.
	partsMost = 20
)

// StateLen is the size of what Freeze writes, at most.
func (h *Handover) StateLen() (int, error) {
	o, err := h.Config.MemoryOptions()
	return stateHead + 4*o.Shards*o.ChunksPerShard + len(h.Sockets)*(stateFixed+8*h.Cells+partsMost*statePart), err
}

// writeState writes where everything is, with all workers paused, as they were
// asked to at since.
func (e *Engine) writeState(b []byte, since int64) {
	binary.LittleEndian.PutUint64(b, uint64(since))
	b = b[stateHead:]
	for i, p := range e.places {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(p))
	}
	b = b[4*len(e.places):]
	for _, s := range e.slots {
		if s == nil {
			continue
		}
		k := s.sock
		parts := k.parts
		if len(parts) > partsMost {
			parts = nil // no frame at all: its chunks are in nobody's hands, and so free
		}
		b[0], b[1] = byte(k.state), byte(len(parts))
		binary.LittleEndian.PutUint64(b[2:], k.received)
		binary.LittleEndian.PutUint64(b[10:], k.sent)
		b = b[stateFixed:]
		for i := range numCells {
			sum := uint64(0)
			for _, w := range e.workers {
				sum += w.rows[k.port][i].Load()
			}
			binary.LittleEndian.PutUint64(b[8*i:], sum)
		}
		b = b[8*numCells:]
		for _, d := range parts {
			binary.LittleEndian.PutUint64(b, uint64(d.Addr))
			binary.LittleEndian.PutUint32(b[8:], d.Len)
			binary.LittleEndian.PutUint32(b[12:], d.Options)
			b = b[statePart:]
		}
	}
}

// readState takes everything over, while the workers are held. Nothing in b is
// believed that could take an index out of a table.
func (e *Engine) readState(h *Handover, b []byte) (since int64, err error) {
	want, err := h.StateLen()
	if err != nil || h.Cells < 0 || len(b) < want || len(h.Sockets) != e.sockets() {
		return 0, fmt.Errorf("%w: state of %d bytes for %d sockets; %d sockets here: %w", ErrHandover, len(b), len(h.Sockets), e.sockets(), err)
	}
	since = int64(binary.LittleEndian.Uint64(b))
	b = b[stateHead:]
	places, b := b[:4*len(e.places)], b[4*len(e.places):]
	partial := map[xsk.Addr]bool{}
	same := h.Cells == numCells && h.Counted == counted()
	for _, s := range e.slots {
		if s == nil {
			continue
		}
		k := s.sock
		n := int(b[1])
		if n > partsMost {
			return 0, fmt.Errorf("%w: port %d: %d parts of one frame", ErrHandover, k.port, n)
		}
		k.state = SocketState(b[0] & 3)
		k.received, k.sent = binary.LittleEndian.Uint64(b[2:]), binary.LittleEndian.Uint64(b[10:])
		b = b[stateFixed:]
		for i := 0; same && i < numCells; i++ {
			// The sockets of a port have the same. It is the sum that counts.
			e.workers[0].rows[k.port][i].Store(binary.LittleEndian.Uint64(b[8*i:]))
		}
		b = b[8*h.Cells:]
		for range n {
			d := xsk.Desc{
				Addr: xsk.Addr(binary.LittleEndian.Uint64(b)), Len: binary.LittleEndian.Uint32(b[8:]), Options: binary.LittleEndian.Uint32(b[12:]),
			}
			if d.Addr.Chunk() >= xsk.Addr(e.mem.Len()) || int(d.Addr%xsk.ChunkSize)+int(d.Len) > xsk.ChunkSize {
				return 0, fmt.Errorf("%w: port %d: a part at %d of %d bytes", ErrHandover, k.port, d.Addr, d.Len)
			}
			partial[d.Addr.Chunk()] = true
			k.parts = append(k.parts, d)
			b = b[statePart:]
		}
	}
	e.takePlaces(places, partial)
	for _, s := range e.slots {
		if s != nil {
			e.seat(s.sock)
			s.worker.take(s.sock)
		}
	}
	return since, nil
}

// counted names what a port's counters count, in their order.
func counted() string {
	var b strings.Builder
	for r := range NumReasons {
		b.WriteString(r.String() + " ")
	}
	return b.String()
}

func (e *Engine) sockets() (n int) {
	for _, s := range e.slots {
		if s != nil {
			n++
		}
	}
	return n
}

// takePlaces takes over where each frame is. What was in nobody's ring is free, and
// comes in newShard's order: what was used most lies on top, for the first use of a
// frame costs the kernel as much as it does a process (docs/decisions/0113).
func (e *Engine) takePlaces(b []byte, partial map[xsk.Addr]bool) {
	for _, sh := range e.shards {
		sh.free = sh.free[:0]
	}
	chunks := e.config.ChunksPerShard
	for i := len(e.places) - 1; i >= 0; i-- {
		p := place(binary.LittleEndian.Uint32(b[4*i:]))
		slot := int(p &^ stateMask)
		switch state := p & stateMask; {
		case (state == placeFill || state == placeTX) && slot < len(e.slots) && e.slots[slot] != nil:
			e.places[i] = p
			if state == placeFill {
				e.slots[slot].sock.inFill++
			}
		case len(partial) > 0 && partial[xsk.Addr(i)*xsk.ChunkSize]:
			e.places[i] = placeBatch
		default:
			e.places[i] = placeFree
			e.shards[i/chunks].put(xsk.Addr(i) * xsk.ChunkSize)
		}
	}
}

// take begins with a socket whose rings are now this worker's.
func (w *worker) take(k *sock) {
	k.xs.Reload()
	k.paced, k.counted = w.eng.clock(), k.received
	if k.xs.Outstanding() > 0 {
		k.sending = true
		w.sending = append(w.sending, k)
	}
	w.activate(k) // it tops its fill ring up in its first round
}

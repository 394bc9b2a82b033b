package fastpath

import (
	"errors"
	"fmt"

	"picot.dev/picot/xsk"
)

// ErrNotSent says that a port could not take a frame now: no free frame, or a
// full tx ring. Try again.
var ErrNotSent = errors.New("frame not sent")

// Send puts one frame of picot's own making, of at most xsk.MaxFrame bytes,
// into a workload port's tx ring. It is counted in the port's TX only: nobody
// sent it to us.
func (e *Engine) Send(port int, frame []byte) error {
	for _, s := range e.slots {
		if s != nil && s.sock.port == port && s.sock.uplink < 0 && s.sock.queue == 0 {
			sent := false
			e.on(s.worker, func() { sent = s.worker.send(s.sock, frame) })
			if !sent {
				return fmt.Errorf("port %d: %w", port, ErrNotSent)
			}
			return nil
		}
	}
	return fmt.Errorf("port %d: %w", port, ErrUnknown)
}

func (w *worker) send(k *sock, frame []byte) bool {
	if k.state != SocketUp || len(frame) > xsk.MaxFrame {
		return false
	}
	w.settle()
	if k.xs.TXFree() == 0 {
		w.reap(k)
		w.kick(k)
	}
	if k.xs.TXFree() == 0 || k.shard.spare() < 1 {
		return false
	}
	chunk, _ := k.shard.take()
	w.places[chunk/xsk.ChunkSize] = placeBatch
	at := chunk + room
	copy(w.mem.Frame(at, len(frame)), frame)
	// Not a frame of anybody's: the part after the first of none.
	w.stage(k, at, uint32(len(frame)), 0, noCell)
	w.settle()
	k.row.add(cellTX, 1)
	return true
}

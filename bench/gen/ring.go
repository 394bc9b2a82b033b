package gen

import (
	"context"
	"errors"
	"fmt"

	"picot.dev/picot/xsk"
)

// ringFrames is how many frames a Ring has under way at most.
const ringFrames = 512

// Ring is the AF_XDP source: a burst costs one system call.
type Ring struct {
	writer
	mem    *xsk.Memory
	socket *xsk.Socket
	free   []xsk.Addr
	descs  []xsk.Desc
}

var _ Source = (*Ring)(nil)

// NewRing makes a source that sends out of the device's first queue, in copy
// mode. Refresh and Batch do not matter here.
func NewRing(ifindex int, o Options) (*Ring, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	mem, err := xsk.NewMemory(xsk.MemoryOptions{ChunksPerShard: ringFrames})
	if err != nil {
		return nil, err
	}
	s, err := xsk.Open(mem, mem.Whole(), xsk.Options{
		IfIndex: ifindex, Fill: 64, RX: 64, TX: ringFrames, Completion: ringFrames, TXBudget: 256, NeedWakeup: true,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("source on interface index %d: %w", ifindex, err), mem.Close())
	}
	r := &Ring{writer: newWriter(o), mem: mem, socket: s}
	for i := range ringFrames {
		r.free = append(r.free, xsk.Addr(i*xsk.ChunkSize))
	}
	return r, nil
}

// Run implements [Source].
func (r *Ring) Run(ctx context.Context, l Load) (Result, error) {
	return pace(ctx, l, 64, r.send)
}

// send sends up to n frames, as many as there are places for.
func (r *Ring) send(n int) (int, error) {
	r.reap()
	n = min(n, len(r.free), r.socket.TXFree())
	r.descs = r.descs[:0]
	for _, a := range r.free[len(r.free)-n:] {
		r.next()
		copy(r.mem.Chunk(a), r.frame)
		r.descs = append(r.descs, xsk.Desc{Addr: a, Len: uint32(len(r.frame))})
	}
	r.free = r.free[:len(r.free)-n]
	if sent := r.socket.Transmit(r.descs); sent != n {
		return sent, fmt.Errorf("send: the ring took %d of %d frames", sent, n)
	}
	for r.socket.TXQueued() > 0 {
		switch k := r.socket.Kick(); k {
		case xsk.KickOK, xsk.KickAgain, xsk.KickNoBufs:
		case xsk.KickBusy: // the device dropped one
		default:
			return n, fmt.Errorf("send: %s: %w", k, r.socket.Errno())
		}
		r.reap()
	}
	return n, nil
}

// reap takes back the chunks of frames that are through.
func (r *Ring) reap() {
	var done [64]xsk.Addr
	for {
		n := r.socket.Complete(done[:])
		for _, a := range done[:n] {
			r.free = append(r.free, a.Chunk())
		}
		if n < len(done) {
			return
		}
	}
}

// Close closes the socket.
func (r *Ring) Close() error { return errors.Join(r.socket.Close(), r.mem.Close()) }

package fastpath

import (
	"picot.dev/picot/xsk"
)

// room is the headroom the kernel leaves before every received frame; the walk
// may put headers there. Frames that are built from scratch keep to it.
const room = xsk.KernelHeadroom

// linearMost is the longest frame of several descriptors the walk takes.
const linearMost = 1 << 16

// poll takes what waits in k's rx ring, a burst at most, through the walk and
// out. It returns the number of descriptors taken.
func (w *worker) poll(k *sock) int {
	total := 0
	for total < burst {
		n := w.pollBatch(k)
		total += n
		if n < batch {
			break
		}
	}
	if total > 0 {
		w.settle()
	}
	return total
}

func (w *worker) pollBatch(k *sock) int {
	n := k.xs.Receive(w.descs)
	if n == 0 {
		if k.inFill < k.depth {
			w.refill(k)
		}
		return 0
	}
	k.received += uint64(n)
	w.pace(k)
	w.fetch(w.descs[:n])
	w.ingress(k.port)
	k.shard.filled(k, -w.claim(k, w.descs[:n]))
	w.refill(k)

	frames := w.frames[:0]
	for i := range w.descs[:n] {
		d := w.descs[i]
		if w.places[d.Addr/xsk.ChunkSize] != placeBatch || d.Len == 0 {
			continue
		}
		if d.Options&xsk.OptionContinues != 0 || len(k.parts) > 0 {
			frames = w.gather(k, d, frames)
			continue
		}
		w.tally.bytes += uint64(d.Len)
		w.sources[len(frames)] = d
		frames = append(frames, Frame{Buf: w.mem.Chunk(d.Addr), Off: int(d.Addr % xsk.ChunkSize), Len: int(d.Len)})
	}
	w.carry(k, frames)
	return n
}

// fetch reads the first byte of every frame. Their cache lines were last
// written on another CPU; reads with nothing between them overlap.
func (w *worker) fetch(descs []xsk.Desc) {
	var sum byte
	for i := range descs {
		sum += w.mem.Frame(descs[i].Addr, 1)[0]
	}
	w.fetched = sum
}

// carry walks frames, whose descriptors are in w.sources, and emits them.
func (w *worker) carry(k *sock, frames []Frame) {
	if len(frames) == 0 {
		return
	}
	if w.capture != nil {
		w.carryCaptured(k, frames)
		return
	}
	w.decide(k, frames)
	for i := range frames {
		w.emit(k, &frames[i], w.sources[i])
	}
}

// decide walks frames.
func (w *worker) decide(k *sock, frames []Frame) {
	w.tally.add(cellRX, int32(len(frames)))
	if k.uplink >= 0 {
		w.walk.FromUplink(w.snap, frames)
		if w.walk.pathMTUCount > 0 {
			w.walk.TakePathMTUs(w.eng.reportPathMTU)
		}
	} else if p := w.portOf(k); p != nil {
		w.walk.FromPort(w.snap, p, frames)
	} else {
		for i := range frames {
			frames[i].drop(ReasonNetwork)
		}
	}
}

// claim marks the frames of a batch as received and returns how many left the
// fill ring. A descriptor that names a frame the fill ring did not hold is
// bogus: it is left alone, for the frame is somewhere else.
func (w *worker) claim(k *sock, descs []xsk.Desc) int {
	want := fillOf(k.slot)
	claimed := 0
	for i := range descs {
		p := &w.places[descs[i].Addr/xsk.ChunkSize]
		if *p != want {
			k.row.add(cellBogus, 1)
			descs[i].Len = 0
			continue
		}
		*p = placeBatch
		claimed++
		if descs[i].Len == 0 {
			k.row.add(cellBogus, 1)
			w.release(descs[i].Addr.Chunk())
		}
	}
	return claimed
}

// gather collects the parts of a frame longer than a chunk. When the last one
// is there the frame is walked on its own, in one piece, in w.linear: such
// frames are rare and long, so a copy is cheap beside their transmission.
func (w *worker) gather(k *sock, d xsk.Desc, frames []Frame) []Frame {
	k.parts = append(k.parts, d)
	if d.Options&xsk.OptionContinues != 0 {
		return frames
	}
	// Those before it in the batch go first: a flow keeps its order.
	w.carry(k, frames)
	n := 0
	for _, p := range k.parts {
		if room+n+int(p.Len) <= len(w.linear) {
			copy(w.linear[room+n:], w.mem.Frame(p.Addr, int(p.Len)))
		}
		n += int(p.Len)
		w.release(p.Addr.Chunk())
	}
	k.parts = k.parts[:0]
	w.tally.bytes += uint64(n)
	f := Frame{Buf: w.linear, Off: room, Len: n}
	one := append(w.frames[:0], f)
	w.sources[0] = xsk.Desc{Options: linearSource}
	if room+n > len(w.linear) {
		w.tally.add(cellRX, 1)
		w.tally.add(cellDrop+int(ReasonMalformed), 1)
		return w.frames[:0]
	}
	w.carry(k, one)
	return w.frames[:0]
}

// linearSource marks a frame that lies in w.linear and in no chunk.
const linearSource = ^uint32(0)

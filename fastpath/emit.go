package fastpath

import (
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/xsk"
)

// emit does what the walk decided for one frame. src is the descriptor it came
// in, or a linearSource.
func (w *worker) emit(k *sock, f *Frame, src xsk.Desc) {
	if f.Verdict == Dropped {
		w.tally.add(cellDrop+int(f.Reason), 1)
		if !f.Reply {
			if src.Options != linearSource {
				w.release(src.Addr.Chunk())
			}
			return
		}
	}
	// The frame leaves the fill rings' reach, so one must be there in its
	// place: a port's floor holds whatever its neighbours do.
	if k.shard.spare() < 0 {
		w.lose(f, src, ReasonPool)
		return
	}
	t, cell := k, cellVerdict+uint16(f.Verdict)
	switch f.Verdict {
	case Local:
		if to := &w.snap.Ports[f.Port]; to.Worker != w.id {
			w.emitElsewhere(k, f, src, to.Worker, parcel{to: to.ID, cell: cell})
			return
		}
		t = w.byPort[f.Port]
	case Remote:
		q, owner := w.eng.uplinkQueue(int(f.Uplink), f.Hash)
		if owner != w.id {
			w.emitElsewhere(k, f, src, owner, parcel{remote: true, uplink: f.Uplink, queue: uint8(q), cell: cell})
			return
		}
		t = w.uplinkSock(int(f.Uplink), q)
	case Dropped:
		cell = cellErrors
	}
	if t == nil || t != k && t.state != SocketUp {
		w.lose(f, src, ReasonNoSocket)
		return
	}
	if src.Options == linearSource {
		w.emitLinear(t, f, src, cell)
		return
	}
	// The frame goes as it is if the socket registered its chunk, else as a copy.
	at := src.Addr.Chunk() + xsk.Addr(f.Off)
	if t.uplink < 0 && !t.shard.region.Contains(at) {
		if t.shard.spare() < 1 {
			w.lose(f, src, ReasonPool)
			return
		}
		at = w.copyTo(t.shard, at, f.Len)
		w.release(src.Addr.Chunk())
	}
	w.stage(t, at, uint32(f.Len), 0, cell)
}

// lose drops a frame the walk had let go on.
func (w *worker) lose(f *Frame, src xsk.Desc, r DropReason) {
	if f.Verdict != Dropped {
		w.tally.add(cellDrop+int(r), 1)
		f.drop(r)
	}
	f.Reply = false
	if src.Options != linearSource {
		w.release(src.Addr.Chunk())
	}
}

// emitLinear stages a frame that lies in no chunk for a socket of this worker.
func (w *worker) emitLinear(t *sock, f *Frame, src xsk.Desc, cell uint16) {
	parts := w.scatter(t.shard, f)
	if parts == nil {
		w.lose(f, src, ReasonPool)
		return
	}
	for i := range parts {
		w.stage(t, parts[i].addr, parts[i].len, parts[i].options, partCell(cell, i))
	}
}

// emitElsewhere hands a frame to the worker that owns its target.
func (w *worker) emitElsewhere(k *sock, f *Frame, src xsk.Desc, owner int, p parcel) {
	p.ingress, p.record = uint16(k.port), w.recording
	w.one = w.one[:0]
	if src.Options == linearSource {
		parts := w.scatter(k.shard, f)
		if parts == nil {
			w.lose(f, src, ReasonPool)
			return
		}
		for _, part := range parts {
			p.addr, p.len, p.options = part.addr, part.len, part.options
			w.one = append(w.one, p)
		}
	} else {
		p.addr, p.len = src.Addr.Chunk()+xsk.Addr(f.Off), uint32(f.Len)
		w.one = append(w.one, p)
	}
	if !w.handOff(owner, w.one) {
		w.tally.add(cellDrop+int(ReasonHandoffFull), 1)
		f.drop(ReasonHandoffFull)
		for i := range w.one {
			w.release(w.one[i].addr.Chunk())
		}
	}
}

// scatter cuts a linear frame into fresh chunks of sh; nil if it has too few.
func (w *worker) scatter(sh *shard, f *Frame) []parcel {
	b := f.Buf[f.Off : f.Off+f.Len]
	need := (len(b) + xsk.MaxFrame - 1) / xsk.MaxFrame
	if sh.spare() < need {
		return nil
	}
	w.scattered = w.scattered[:0]
	for len(b) > 0 {
		n := min(len(b), xsk.MaxFrame)
		chunk, _ := sh.take()
		w.places[chunk/xsk.ChunkSize] = placeBatch
		at := chunk + room
		copy(w.mem.Frame(at, n), b)
		b = b[n:]
		options := uint32(0)
		if len(b) > 0 {
			options = xsk.OptionContinues
		}
		w.scattered = append(w.scattered, parcel{addr: at, len: uint32(n), options: options})
	}
	return w.scattered
}

// stage adds a descriptor to what goes out of t at the end of the burst. The
// frame is counted then, in cell of the current ingress.
func (w *worker) stage(t *sock, at xsk.Addr, n, options uint32, cell uint16) {
	if len(t.staged) >= stageMost && cell != noCell {
		w.flush(t) // between two frames only
	}
	t.staged = append(t.staged, xsk.Desc{Addr: at, Len: n, Options: options})
	t.cells = append(t.cells, cell)
	if !t.touched {
		t.touched = true
		w.touched = append(w.touched, t)
	}
}

// ingress makes port i the one the tally counts for.
func (w *worker) ingress(i int) {
	if i != w.cur {
		w.settle()
		w.cur = i
	}
}

// settle flushes what is staged, which counts it, then publishes the tally.
func (w *worker) settle() {
	for _, t := range w.touched {
		w.flush(t)
	}
	w.touched = w.touched[:0]
	w.tally.publish(&w.rows[w.cur])
}

func (w *worker) portOf(k *sock) *table.Port {
	if k.port >= len(w.snap.Ports) {
		return nil
	}
	if p := &w.snap.Ports[k.port]; p.ID != 0 {
		return p
	}
	return nil
}

func (w *worker) uplinkSock(uplink, queue int) *sock {
	if uplink >= len(w.uplinks) || queue >= len(w.uplinks[uplink]) {
		return nil
	}
	return w.uplinks[uplink][queue]
}

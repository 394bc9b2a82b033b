package fastpath

import (
	"sync/atomic"

	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/spsc"
	"picot.dev/picot/xsk"
)

// capturing is a worker's part of a capture. Its owner is the worker's thread.
type capturing struct {
	capture *Capture
	id      int // the worker's

	free    []capSlot           // own records in nobody's hands
	home    *spsc.Ring[capSlot] // own records from the reader
	seen    *spsc.Ring[capSlot] // records, also others', to the reader
	missed  []atomic.Uint64     // by row; read from anywhere
	slots   [batch]capSlot      // of the batch's frames; 0: there was none
	spill   [batch]Captured     // in place of records that were not there
	pending []pendingRecord     // frames in tx rings' staging
}

// pendingRecord is of a frame whose descriptor waits to go into a tx ring, or
// whose way has ended.
type pendingRecord struct {
	slot   capSlot
	record *Captured
	at     xsk.Addr // its last descriptor's; nowhere: none waits
}

const nowhere = ^xsk.Addr(0)

// carryCaptured is carry with a capture. What a batch stages is sent at its end, so
// that what became of each frame is known.
func (w *worker) carryCaptured(k *sock, frames []Frame) {
	c := w.capture
	for i := range frames {
		c.copyIn(w, k, i, &frames[i])
	}
	w.decide(k, frames)
	for i := range frames {
		f, slot, r := &frames[i], c.slots[i], c.record(i)
		r.describe(w, k, i, f)
		handed := w.handed
		if slot != 0 {
			w.recording = c.capture.token | slot
		}
		w.emit(k, f, w.sources[i])
		w.recording = 0
		if slot != 0 && w.handed != handed {
			continue // with its parcel
		}
		r.Verdict, r.Reason, r.Reply = f.Verdict, f.Reason, f.Reply
		c.pending = append(c.pending, pendingRecord{slot, r, lastStaged(w.leavesBy(k, f))})
	}
	w.settle()
	c.publish()
}

// record is the one of frame i of the batch.
func (c *capturing) record(i int) *Captured {
	if slot := c.slots[i]; slot != 0 {
		return &c.capture.records[slot-1]
	}
	return &c.spill[i]
}

// copyIn takes a record for frame i of the batch and copies the frame into it: the
// walk will change it.
func (c *capturing) copyIn(w *worker, k *sock, i int, f *Frame) {
	if len(c.free) == 0 {
		c.free = c.free[:c.home.PopBatch(c.free[:cap(c.free)])]
	}
	c.slots[i] = 0
	if n := len(c.free); n > 0 {
		c.slots[i] = c.free[n-1]
		c.free = c.free[:n-1]
	}
	r := c.record(i)
	r.Data = r.Data[:cap(r.Data)]
	r.Data = r.Data[:copy(r.Data, f.bytes())]
	r.Time, r.Len, r.row, r.skip = c.capture.began+w.walk.Now, f.Len, k.port, false
}

// describe says where frame i of the batch came from and what the walk decided. It
// comes before emit, which may give the frame away.
func (r *Captured) describe(w *worker, k *sock, i int, f *Frame) {
	r.Network, r.SID, r.Inner, r.To = 0, packet.IP{}, 0, Device{}
	if k.uplink >= 0 {
		r.From = UplinkDevice(k.uplink)
		if w.walk.reasons[i] == ReasonNone { // opened
			r.Inner = w.walk.outers[i].Inner
			if net := int(w.walk.keys[i] >> 48); net < len(w.snap.Networks) {
				r.Network = w.snap.Networks[net].ID
			}
		}
	} else if p := w.portOf(k); p != nil {
		r.From, r.Network = PortDevice(p.ID), p.Network
	} else {
		r.From = PortDevice(table.NewPortID(k.port, 0)) // no port's: none has that generation
	}
	r.Verdict, r.Reason, r.Reply = f.Verdict, f.Reason, f.Reply
	switch f.Verdict {
	case Local:
		r.To = PortDevice(w.snap.Ports[f.Port].ID)
	case Remote:
		r.To, r.SID = UplinkDevice(int(f.Uplink)), finalSID(f.bytes())
	case Answered:
		r.To = r.From
	}
}

// finalSID is the last SID on the way of a frame that srv6.Encap made.
func finalSID(b []byte) packet.IP {
	ip := packet.IPv6(b[packet.EthernetLen:])
	if ip.NextHeader() == packet.ProtoRouting {
		return packet.SRH(ip[packet.IPv6Len:]).Segment(0) // RFC 8754 section 2: the last is the first
	}
	return ip.Destination()
}

// leavesBy is the worker's own socket that f is staged for; nil for none.
func (w *worker) leavesBy(k *sock, f *Frame) *sock {
	switch f.Verdict {
	case Local:
		return w.byPort[f.Port]
	case Remote:
		q, _ := w.eng.uplinkQueue(int(f.Uplink), f.Hash)
		return w.uplinkSock(int(f.Uplink), q)
	case Dropped:
		if !f.Reply {
			return nil
		}
	}
	return k
}

func lastStaged(t *sock) xsk.Addr {
	if t == nil || len(t.staged) == 0 {
		return nowhere
	}
	return t.staged[len(t.staged)-1].Addr
}

// flushed says that the first sent descriptors are in their tx ring and the others
// found no room. None of their frames waits any more: the chunk of one may be reaped
// and staged again before the batch is told of.
func (c *capturing) flushed(descs []xsk.Desc, sent int) {
	next := 0 // both are in the order they were staged in
	for n := range descs {
		for i := next; i < len(c.pending); i++ {
			if p := &c.pending[i]; p.at == descs[n].Addr {
				if p.at = nowhere; n >= sent {
					p.record.lose(ReasonTXFull)
				}
				next = i + 1
				break
			}
		}
	}
}

// lose is what becomes of a frame that does not get out.
func (r *Captured) lose(reason DropReason) {
	r.Reply = false
	if r.Verdict != Dropped {
		r.Verdict, r.Reason = Dropped, reason
	}
}

// publish tells the reader of the frames whose way has ended: all pending ones.
func (c *capturing) publish() {
	for i := range c.pending {
		c.tell(c.pending[i].slot, c.pending[i].record)
	}
	c.pending = c.pending[:0]
}

func (c *capturing) tell(slot capSlot, r *Captured) {
	wanted := c.capture.matches(r)
	switch {
	case slot == 0:
		if wanted {
			c.missed[r.row].Store(c.missed[r.row].Load() + 1)
		}
	case wanted:
		c.seen.Push(slot)
	case r.owner == c.id:
		c.free = append(c.free, slot)
	default:
		r.skip = true // it goes home by the reader
		c.seen.Push(slot)
	}
}

// acceptCaptured is what receiveHandoffs does with a capture.
func (w *worker) acceptCaptured(parcels []parcel) {
	c := w.capture
	for i := 0; i < len(parcels); {
		j := frameEnd(parcels, i)
		p := parcels[i]
		w.refused = ReasonNone
		w.acceptParcel(parcels[i:j])
		if p.record&^tokenSlot == c.capture.token && p.record != 0 { // of this capture
			slot := p.record & tokenSlot
			r := &c.capture.records[slot-1]
			at := nowhere
			if w.refused != ReasonNone {
				r.lose(w.refused)
			} else {
				at = lastStaged(w.takes(&p))
			}
			c.pending = append(c.pending, pendingRecord{slot, r, at})
		}
		if len(c.pending) == batch {
			w.settle()
			c.publish()
		}
		i = j
	}
	w.settle()
	c.publish()
}

// takes is the socket a parcel is staged for.
func (w *worker) takes(p *parcel) *sock {
	if p.remote {
		return w.uplinkSock(int(p.uplink), int(p.queue))
	}
	return w.byPort[p.to.Index()]
}

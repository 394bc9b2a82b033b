package fastpath

import (
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/xsk"
)

// A parcel is one descriptor on its way to the worker that owns its target.
// The frame stays its own shard's: it comes home by the return ring once it
// was copied or sent.
type parcel struct {
	addr    xsk.Addr
	len     uint32
	options uint32 // xsk.OptionContinues
	to      table.PortID
	uplink  uint8
	queue   uint8
	remote  bool
	ingress uint16
	cell    uint16
	record  uint32 // of a capture; 0: none
}

const handoffRing = 1024

// handOff queues the parts of one frame for another worker, all or none.
func (w *worker) handOff(to int, parts []parcel) bool {
	ring := w.out[to]
	if ring.Free() < len(parts) {
		return false
	}
	for i := range parts {
		w.places[parts[i].addr/xsk.ChunkSize] = placeHandoff
	}
	ring.PushBatch(parts)
	w.handed++
	w.woke[to] = true
	return true
}

// wakeOthers rings the workers that got something this round and sleep.
func (w *worker) wakeOthers() {
	for i, need := range w.woke {
		if need {
			w.woke[i] = false
			w.eng.workers[i].wake()
		}
	}
}

// receiveHandoffs sends on what other workers handed over.
func (w *worker) receiveHandoffs() int {
	total := 0
	for _, ring := range w.in {
		if ring == nil {
			continue
		}
		n := ring.PopBatch(w.parcels) // as long as the ring: never splits a frame
		total += n
		if w.capture != nil {
			w.acceptCaptured(w.parcels[:n])
			continue
		}
		for i := 0; i < n; {
			j := frameEnd(w.parcels[:n], i)
			w.acceptParcel(w.parcels[i:j])
			i = j
		}
		w.settle()
	}
	return total
}

// frameEnd is one past the parcels of the frame that begins at i.
func frameEnd(parcels []parcel, i int) int {
	for i++; i < len(parcels) && parcels[i-1].options&xsk.OptionContinues != 0; i++ {
	}
	return i
}

// acceptParcel is the target's owner's half of a hand-off.
func (w *worker) acceptParcel(parts []parcel) {
	p := &parts[0]
	w.ingress(int(p.ingress))
	for i := range parts {
		w.places[parts[i].addr/xsk.ChunkSize] = placeBatch
	}
	var k *sock
	if p.remote {
		k = w.uplinkSock(int(p.uplink), int(p.queue))
	} else if i := p.to.Index(); i < len(w.byPort) && w.snap.Ports[i].ID == p.to {
		k = w.byPort[i]
	}
	if k == nil || k.state != SocketUp {
		w.dropParcel(parts, ReasonNoSocket)
		return
	}
	if p.remote {
		// The uplink registered the whole mapping: no copy.
		for i := range parts {
			w.stage(k, parts[i].addr, parts[i].len, parts[i].options, partCell(p.cell, i))
		}
		return
	}
	if k.shard.spare() < len(parts) {
		w.dropParcel(parts, ReasonPool)
		return
	}
	for i := range parts {
		a := w.copyTo(k.shard, parts[i].addr, int(parts[i].len))
		w.release(parts[i].addr.Chunk())
		w.stage(k, a, parts[i].len, parts[i].options, partCell(p.cell, i))
	}
}

func partCell(cell uint16, i int) uint16 {
	if i > 0 {
		return noCell
	}
	return cell
}

func (w *worker) dropParcel(parts []parcel, r DropReason) {
	w.tally.add(cellDrop+int(r), 1)
	w.refused = r
	for i := range parts {
		w.release(parts[i].addr.Chunk())
	}
}

// copyTo copies a frame's bytes into a fresh frame of sh, at the same place in
// the chunk. The caller made sure that sh has one to spare.
func (w *worker) copyTo(sh *shard, from xsk.Addr, n int) xsk.Addr {
	chunk, _ := sh.take()
	to := chunk + from%xsk.ChunkSize
	copy(w.mem.Frame(to, n), w.mem.Frame(from, n))
	w.places[chunk/xsk.ChunkSize] = placeBatch
	return to
}

// release gives a frame this worker holds back to its shard, over the return
// ring if that is another worker's.
func (w *worker) release(a xsk.Addr) {
	i := a / xsk.ChunkSize
	sh := w.releasing
	if !sh.region.Contains(a) {
		// ShardOf divides; the next frame is likely to be of the same shard.
		sh = w.eng.shards[w.mem.ShardOf(a)]
		w.releasing = sh
	}
	if sh.owner == w.id {
		w.places[i] = placeFree
		sh.put(a)
		return
	}
	w.places[i] = placeHandoff
	// The ring holds every frame its reader owns, so it is never full.
	w.homeOut[sh.owner].Push(a)
	w.woke[sh.owner] = true
}

// takeHome collects own frames that other workers are done with.
func (w *worker) takeHome() {
	for _, ring := range w.homeIn {
		if ring == nil {
			continue
		}
		for {
			n := ring.PopBatch(w.addrs)
			for _, a := range w.addrs[:n] {
				w.places[a/xsk.ChunkSize] = placeFree
				w.eng.shards[w.mem.ShardOf(a)].put(a)
			}
			if n < len(w.addrs) {
				break
			}
		}
	}
}

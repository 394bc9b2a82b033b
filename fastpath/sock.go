package fastpath

import (
	"picot.dev/picot/xsk"
)

// sock is one (device, queue) of a port in its worker's hands.
type sock struct {
	xs    *xsk.Socket
	slot  int // in Engine.slots; part of a frame's place
	shard *shard
	port  int // index of the port, workload or uplink
	// uplink is the uplink's number, -1 for a workload port.
	uplink int
	queue  int

	row *row

	inFill  int    // frames in the fill ring or with the kernel for receiving
	depth   int    // what inFill is kept at: the share, more if much comes
	paced   int64  // walk.Now when depth was looked at last
	counted uint64 // received, then
	watched bool   // by epoll; always while it is not active
	carried int    // frames since it is watched
	active  bool   // in the worker's active list
	last    int64  // walk.Now of the last frame

	staged  []xsk.Desc // of this burst, for the tx ring
	cells   []uint16   // beside staged: where to count the frame if it goes out
	touched bool       // in the worker's touched list
	sending bool       // in the worker's sending list: frames not completed
	state   SocketState

	received, sent uint64 // descriptors, for Sockets

	parts []xsk.Desc // fragments of a frame whose last one has not come yet
}

// noCell is the cell of a frame's parts after the first.
const noCell = ^uint16(0)

// refill tops the fill ring up, out of the shard's spare frames and the
// socket's own share.
func (w *worker) refill(k *sock) {
	sh := k.shard
	n := min(sh.fillable(k), k.xs.FillFree())
	if n <= 0 {
		return
	}
	top := len(sh.free)
	frames := sh.free[top-n:]
	n = k.xs.Fill(frames)
	for _, a := range frames[:n] {
		w.places[a/xsk.ChunkSize] = fillOf(k.slot)
	}
	// Fill takes from the front of the slice; what it left moves down.
	sh.free = sh.free[:top-len(frames)+copy(frames, frames[n:])]
	sh.filled(k, n)
	if k.xs.NeedWakeupFill() {
		k.xs.WakeFill()
	}
}

// reap takes completed frames home and reports whether there were any.
func (w *worker) reap(k *sock) bool {
	some := false
	for {
		n := k.xs.Complete(w.addrs)
		if n == 0 {
			return some
		}
		some = true
		want := txOf(k.slot)
		for _, a := range w.addrs[:n] {
			a = a.Chunk()
			if w.places[a/xsk.ChunkSize] != want {
				// A completion that repeats or was never ours: the frame is
				// elsewhere by now and must not be handed out twice.
				k.row.add(cellBogus, 1)
				continue
			}
			w.release(a)
		}
	}
}

// Rounds of kick and reap for one flush: enough for a full ring at the
// smallest budget, and bounded whatever the kernel says.
const maxKicks = 64

// kick has the kernel send what is in k's tx ring.
func (w *worker) kick(k *sock) {
	queued := k.xs.TXQueued()
	for range maxKicks {
		if queued == 0 || !k.xs.NeedWakeupTX() {
			return
		}
		result := k.xs.Kick()
		moved := w.reap(k)
		switch result {
		case xsk.KickOK, xsk.KickAgain:
			// Neither says whether the ring is drained: look. No progress is
			// left for the next round.
			now := k.xs.TXQueued()
			if now == queued && !moved {
				return
			}
			queued = now
		case xsk.KickBusy:
			k.row.add(cellTXBusy, 1)
			queued = k.xs.TXQueued()
		case xsk.KickDown:
			w.setState(k, SocketDown)
			return
		case xsk.KickGone:
			w.setState(k, SocketGone)
			return
		case xsk.KickPoisoned:
			w.setState(k, SocketPoisoned)
			return
		default:
			return
		}
	}
}

// flush moves the staged frames of k into its tx ring and has them sent.
func (w *worker) flush(k *sock) {
	k.touched = false
	n := len(k.staged)
	if n == 0 {
		return
	}
	if k.xs.TXFree() < n {
		w.reap(k)
		w.kick(k)
	}
	fit := whole(k.staged, min(n, k.xs.TXFree()))
	// Places are written first: a completion may come at once.
	for _, d := range k.staged[:fit] {
		w.places[d.Addr/xsk.ChunkSize] = txOf(k.slot)
	}
	sent := k.xs.Transmit(k.staged[:fit])
	bytes, frames := uint64(0), uint64(0)
	for i, c := range k.cells[:sent] {
		bytes += uint64(k.staged[i].Len)
		if c != noCell {
			frames++
			w.tally.add(int(c), 1)
		}
	}
	if w.capture != nil {
		w.capture.flushed(k.staged, sent)
	}
	for i := sent; i < n; i++ {
		w.places[k.staged[i].Addr/xsk.ChunkSize] = placeBatch
		w.release(k.staged[i].Addr.Chunk())
		if c := k.cells[i]; c != noCell && c != cellErrors {
			w.tally.add(cellDrop+int(ReasonTXFull), 1)
		}
	}
	k.staged, k.cells = k.staged[:0], k.cells[:0]
	if sent == 0 {
		return
	}
	k.row.add(cellTX, frames)
	k.sent += uint64(sent)
	w.carried(k, sent)
	k.row.add(cellTXBytes, bytes)
	if !k.sending {
		k.sending = true
		w.sending = append(w.sending, k)
	}
	w.reap(k)
	w.kick(k)
}

// whole cuts n back so that no frame of several descriptors is split.
func whole(d []xsk.Desc, n int) int {
	for n > 0 && n < len(d) && d[n-1].Options&xsk.OptionContinues != 0 {
		n--
	}
	return n
}

// SocketState is what a worker knows about one of its sockets.
type SocketState uint8

// Socket states. Only SocketDown heals by itself.
const (
	SocketUp       SocketState = iota
	SocketDown                 // the device is down; tried again at every tick of a sleep
	SocketGone                 // the device is gone for good: remove the port
	SocketPoisoned             // the tx ring's head can never be sent: make a new socket
)

// String is the state's name.
func (s SocketState) String() string {
	return [...]string{"up", "down", "gone", "poisoned"}[s&3]
}

// setState stops sending to k and tells the control goroutine.
func (w *worker) setState(k *sock, st SocketState) {
	if k.state == st {
		return
	}
	k.state = st
	select {
	case w.eng.events <- SocketEvent{Port: k.port, Uplink: k.uplink, Queue: k.queue, State: st}:
	default: // the reader is behind; it looks at Sockets() when it comes
	}
}

// seat shares k's shard out anew after its members changed.
func (e *Engine) seat(k *sock) {
	seats := e.config.PortsPerShard
	if k.uplink >= 0 {
		seats = 1
	}
	k.shard.seat(seats)
}

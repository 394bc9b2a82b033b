package fastpath

import (
	"fmt"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/learning"
	"picot.dev/picot/xsk"
)

// TraceMax is the longest frame, in bytes, that a worker, and so a trace, takes.
const TraceMax = linearMost

// Trace is what a walk decides about one frame, and what it looked up for it.
// What it did not get to is zero.
type Trace struct {
	Verdict Verdict
	Reason  DropReason // of a Dropped frame
	// Out is what would leave: the frame to a port or an uplink, the answer, or the
	// ICMP error of a Dropped one. nil: nothing.
	Out    []byte
	Port   int // of a Local frame: index in Snapshot.Ports
	Uplink int // of a Remote frame
	// Hash is the inner flow's, of a Remote frame.
	Hash uint64

	// Message is the frame's ARP, RARP or ND message if the walk read one (its Op is
	// not OpNone), View what it found about the message's target.
	Message arpnd.Message
	View    arpnd.View
	// MAC is what the FDB was asked for, if FDB is an answer to anything. Of a
	// question to a group that is the MAC of the address asked for.
	MAC packet.MAC
	FDB table.Target
	Net table.NetIndex

	// Outer are the outer headers of a frame from an uplink, as far as they were read.
	Outer srv6.Outer
	// PathMTUs are what a Packet Too Big from the underlay would lower.
	PathMTUs []PathMTU
	// Claims are what learning would be told, had it not been told a moment ago.
	Claims []learning.Observation
}

// TracePort is what would become of a frame received from port p: a walk of its own,
// with its own rate limits, none of which is used up, and nobody learns from it.
// Any goroutine; the snapshot is only read. It costs some 200 kB for a moment.
func TracePort(s *table.Snapshot, p *table.Port, l Limits, frame []byte) (Trace, error) {
	w, f, err := traced(p.ID.Index()+1, l, frame)
	if err != nil {
		return Trace{}, err
	}
	suppressor, err := learning.NewSuppressor(learning.SuppressorOptions{})
	if err != nil {
		return Trace{}, err
	}
	if w.learn, err = newObserving(p.ID.Index() + 1); err != nil {
		return Trace{}, err
	}
	w.learn.ports[p.ID.Index()] = observer{p.ID, suppressor}
	w.FromPort(s, p, f)
	t := w.trace(&f[0])
	for o, ok := w.learn.ring.Pop(); ok; o, ok = w.learn.ring.Pop() {
		t.Claims = append(t.Claims, o)
	}
	return t, nil
}

// TraceUplink is TracePort of a frame that an uplink's program gave to its socket.
func TraceUplink(s *table.Snapshot, l Limits, frame []byte) (Trace, error) {
	w, f, err := traced(1, l, frame)
	if err != nil {
		return Trace{}, err
	}
	w.FromUplink(s, f)
	t := w.trace(&f[0])
	t.Outer = w.outers[0]
	w.TakePathMTUs(func(m PathMTU) { t.PathMTUs = append(t.PathMTUs, m) })
	return t, nil
}

// traced is a new walk and the frame as a worker would give it: in a chunk, or, if
// it is longer, in one piece.
func traced(ports int, l Limits, frame []byte) (*Walk, []Frame, error) {
	if len(frame) > TraceMax {
		return nil, nil, fmt.Errorf("%w: a frame of %d bytes: at most %d", ErrConfig, len(frame), TraceMax)
	}
	buf := make([]byte, xsk.ChunkSize)
	if len(frame) > xsk.MaxFrame {
		buf = make([]byte, room+linearMost)
	}
	copy(buf[room:], frame)
	return NewWalk(ports, l), []Frame{{Buf: buf, Off: room, Len: len(frame)}}, nil
}

// trace is what the walk of the one frame f left.
func (w *Walk) trace(f *Frame) Trace {
	t := Trace{
		Verdict: f.Verdict, Reason: f.Reason, Hash: f.Hash,
		Message: w.message, View: w.view,
		MAC: packet.MACFromUint64(w.keys[0]), FDB: w.targets[0], Net: table.NetIndex(w.keys[0] >> 48),
	}
	switch f.Verdict {
	case Local:
		t.Port = int(f.Port)
	case Remote:
		t.Uplink = int(f.Uplink)
	}
	if f.Verdict != Dropped || f.Reply {
		t.Out = f.bytes()
	}
	return t
}

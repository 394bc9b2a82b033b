package fastpath

import (
	"encoding/binary"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// Frame is one frame of a batch on its way through the walk.
//
// The walk may use all of Buf: headers go in before Off, an answer may be
// longer than its question. On return Buf[Off:Off+Len] is what is to be sent.
type Frame struct {
	Buf      []byte
	Off, Len int

	Verdict Verdict
	Reason  DropReason // of a Dropped frame
	// Reply says that a Dropped frame was turned into an ICMP error that goes
	// back out of the port it came from.
	Reply  bool
	Uplink uint8  // of a Remote frame
	Port   uint16 // of a Local frame: index in Snapshot.Ports
	Hash   uint64 // of a Remote frame: the inner flow's
}

func (f *Frame) bytes() []byte { return f.Buf[f.Off : f.Off+f.Len] }

func (f *Frame) drop(r DropReason) { f.Verdict, f.Reason = Dropped, r }

// Limits are the rates a Walk holds each port, and all uplinks together, to.
// Tokens a second and the burst; the zero value of a pair means its default.
type Limits struct {
	AnswerRate, AnswerBurst uint32 // ARP and ND answers per port
	ErrorRate, ErrorBurst   uint32 // ICMP errors per port, and for all uplinks
}

func (l Limits) withDefaults() Limits {
	if l.AnswerRate == 0 {
		l.AnswerRate, l.AnswerBurst = 1000, 1000
	}
	if l.ErrorRate == 0 {
		l.ErrorRate, l.ErrorBurst = 100, 50
	}
	return l
}

// Walk decides about frames. It keeps nothing but scratch and the rate limits'
// state, belongs to one goroutine and does not allocate.
type Walk struct {
	// Now is the monotonic time in nanoseconds the rate limits go by. Set it
	// before a batch.
	Now int64

	limits  Limits
	ports   []portLimits // by port index
	uplinks arpnd.Bucket

	network *table.NetworkView // of the batch's port; nil: not known
	portMAC uint64             // the port's
	layout  packet.Layout
	message arpnd.Message
	view    arpnd.View
	keys    [table.Batch]uint64
	targets [table.Batch]table.Target
	owners  [table.Batch]table.Neighbor // of what the questions among the frames ask for
	at      int                         // the frame being decided about
	outers  [table.Batch]srv6.Outer
	reasons [table.Batch]DropReason

	learn *observing // nil: nothing is reported

	pathMTUs     [maxPathMTUs]PathMTU
	pathMTUCount int
}

type portLimits struct {
	id             table.PortID // the state is this port's; of another, it starts anew
	answer, errors arpnd.Bucket
}

// NewWalk makes a walk for port indexes below ports.
func NewWalk(ports int, l Limits) *Walk {
	w := &Walk{limits: l.withDefaults(), ports: make([]portLimits, ports)}
	w.uplinks = arpnd.NewBucket(w.limits.ErrorRate, w.limits.ErrorBurst, 0)
	return w
}

// mac48 is the MAC at the start of b, which has at least 8 bytes, as a number.
func mac48(b []byte) uint64 { return binary.BigEndian.Uint64(b) >> 16 }

const (
	macMask  = 1<<48 - 1
	groupBit = 1 << 40
)

// limitsOf returns the rate state of p.
func (w *Walk) limitsOf(p *table.Port) *portLimits {
	i := p.ID.Index()
	if i >= len(w.ports) {
		return &w.ports[0] // index 0 is no port: what is over shares one bucket
	}
	l := &w.ports[i]
	if l.id != p.ID {
		l.id = p.ID
		l.answer = arpnd.NewBucket(w.limits.AnswerRate, w.limits.AnswerBurst, w.Now)
		l.errors = arpnd.NewBucket(w.limits.ErrorRate, w.limits.ErrorBurst, w.Now)
	}
	return l
}

package fastpath

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/spsc"
)

// capture.go shows another goroutine frames as they came in and what became of
// each. A record of one is in one place at a time, as a frame's chunk is:
//
//	free ─ copied before the walk ─ walk, emit ─┬─ dropped, or in a tx ring ─────────── seen ─┐
//	 ▲                                          └─ handed over ─ in a tx ring, or lost ─ seen ─┤
//	 └──────────────────────────── home ─────────────────────────── reader (Drain) ◄───────────┘
//
// A worker without a free record counts the frame as missed; it waits for nobody
// and wakes nobody. With no capture it looks at one field of its own a batch
// (batch.go, handoff.go); what it does with one is captureworker.go.

// MaxSnaplen is the most bytes a capture keeps of a frame. DefaultSnaplen holds any
// frame where no device has jumbo frames.
const (
	MaxSnaplen     = linearMost
	DefaultSnaplen = 2048
)

const (
	// captureMemory is what a worker's records may take, and allMemory those of all
	// workers, with what there is beside their bytes: recordSize each, and
	// slotsSize for each worker (capSlots: the rings round up to a power of two).
	// mostRecords is enough for 20 ms of 200,000 frames/s.
	captureMemory = 9 << 20
	allMemory     = 8 * captureMemory
	mostRecords   = 4096
	recordSize    = 128
	slotsSize     = 8
)

// ErrCapturing says that another capture runs.
var ErrCapturing = errors.New("another capture runs")

// Device is a workload port or an uplink. The zero value is none.
type Device struct {
	Port   table.PortID // 0: no workload port
	uplink uint16       // its number and one
}

// PortDevice is a workload port.
func PortDevice(id table.PortID) Device { return Device{Port: id} }

// UplinkDevice is an uplink by its number.
func UplinkDevice(number int) Device { return Device{uplink: uint16(number + 1)} }

// Uplink is the uplink's number; false: it is none.
func (d Device) Uplink() (number int, ok bool) { return int(d.uplink) - 1, d.uplink != 0 }

// CaptureOptions choose what is captured. The zero value of a field chooses all.
type CaptureOptions struct {
	Snaplen int    // bytes kept of a frame, at most MaxSnaplen; 0: DefaultSnaplen
	Device  Device // frames that came from it or go to it
	Network table.NetworkID
	Dropped bool
	Reasons []DropReason // frames dropped for one of them
}

// Captured is one frame and what became of it.
type Captured struct {
	Time     int64  // of its batch, in nanoseconds since 1970
	From, To Device // To is where it went or would have gone; none if that was not decided
	Network  table.NetworkID
	Verdict  Verdict
	Reason   DropReason // of a Dropped frame
	Reply    bool       // an ICMP error went back
	SID      packet.IP  // of a Remote frame: the last one on its way
	Inner    int        // where the inner frame begins in Data, if it came from an uplink and was opened
	Len      int        // in bytes, as it came in
	Data     []byte     // its first bytes, as it came in

	row   int // of the device it came from
	owner int // the worker whose record it is
	skip  bool
}

// Capture is one that runs. It counts frames as the ports' counters do, but for those
// of several pieces that are longer than MaxSnaplen: no worker puts them together, so
// they are counted as received and malformed (batch.go) and neither shown nor missed.
// Drain and Missed are for one reader goroutine.
type Capture struct {
	options CaptureOptions
	reasons [NumReasons]bool
	began   int64 // the engine's clock began at this time since 1970
	token   uint32
	records []Captured
	workers []*capturing
	uplinks int       // where the rows of uplinks begin
	taken   []capSlot // scratch of Drain
}

// capSlot numbers the records from 1; 0 is none.
type capSlot = uint32

// The token of a record that crosses to another worker: the slot, and above it
// which capture's it is.
const (
	tokenShift = 24
	tokenSlot  = 1<<tokenShift - 1
)

// StartCapture begins one, in all workers at once. EndCapture ends it.
func (e *Engine) StartCapture(o CaptureOptions) (*Capture, error) {
	if e.capture != nil {
		return nil, ErrCapturing
	}
	if o.Snaplen == 0 {
		o.Snaplen = DefaultSnaplen
	}
	if o.Snaplen < 1 || o.Snaplen > MaxSnaplen {
		return nil, fmt.Errorf("%d bytes of a frame: 1 to %d can be captured", o.Snaplen, MaxSnaplen)
	}
	e.captures++
	c := &Capture{options: o, token: e.captures << tokenShift, uplinks: e.firstUplinkRow(), began: time.Now().UnixNano() - e.clock()}
	for _, r := range o.Reasons {
		if r == ReasonNone || r >= NumReasons {
			return nil, fmt.Errorf("drop reason %d: no such reason", r)
		}
		c.reasons[r] = true
	}
	if err := c.makeRecords(e); err != nil {
		return nil, err
	}
	e.paused(func() {
		for i, w := range e.workers {
			w.capture = c.workers[i]
		}
	})
	e.capture = c
	return c, nil
}

// recordsEach is how many records each worker has: a power of two. With many workers
// and a long snaplen they are fewer than a batch, and of a full one some frames are
// missed.
func recordsEach(workers, snaplen int) int {
	memory := min(captureMemory, allMemory/workers)
	record := snaplen + recordSize + slotsSize*workers
	each := 1
	for each < mostRecords && 2*each*record <= memory {
		each *= 2
	}
	return each
}

// makeRecords takes all the memory a capture needs, and touches it: the workers
// must not wait for a page.
func (c *Capture) makeRecords(e *Engine) error {
	each := recordsEach(len(e.workers), c.options.Snaplen)
	all := 1
	for all < each*len(e.workers) {
		all *= 2
	}
	data := make([]byte, each*len(e.workers)*c.options.Snaplen)
	for i := 0; i < len(data); i += 4096 {
		data[i] = 1
	}
	c.records = make([]Captured, each*len(e.workers))
	c.taken = make([]capSlot, 0, len(c.records))
	for i := range c.records {
		at := i * c.options.Snaplen
		c.records[i].Data = data[at : at+c.options.Snaplen : at+c.options.Snaplen]
		c.records[i].owner = i / each
	}
	for id := range e.workers {
		w := &capturing{
			capture: c, id: id, free: make([]capSlot, each), pending: make([]pendingRecord, 0, batch+1),
			missed: make([]atomic.Uint64, len(e.workers[id].rows)),
		}
		for i := range w.free {
			w.free[i] = capSlot(id*each + i + 1)
		}
		var err error
		if w.home, err = spsc.New[capSlot](each); err != nil {
			return err
		}
		// Any worker may tell what became of any record: never full.
		if w.seen, err = spsc.New[capSlot](all); err != nil {
			return err
		}
		c.workers = append(c.workers, w)
	}
	return nil
}

// EndCapture ends a capture in all workers at once. What they have told is still
// there to be drained.
func (e *Engine) EndCapture(c *Capture) {
	if e.capture != c {
		return
	}
	e.paused(func() {
		for _, w := range e.workers {
			w.capture = nil
		}
	})
	e.capture = nil
}

// Capturing says whether a capture runs.
func (e *Engine) Capturing() bool { return e.capture != nil }

// Published is the snapshot the workers go by. Any goroutine.
func (e *Engine) Published() *table.Snapshot { return e.snapshot.Load() }

// Drain gives f what the workers have seen since the last time, in the order of
// time, and returns how many frames that were. f keeps nothing of what it gets.
func (c *Capture) Drain(f func(*Captured)) (frames int) {
	c.taken = c.taken[:0]
	for _, w := range c.workers {
		n := len(c.taken)
		c.taken = c.taken[:n+w.seen.PopBatch(c.taken[n:cap(c.taken)])]
	}
	slices.SortStableFunc(c.taken, func(a, b capSlot) int {
		return cmp.Compare(c.records[a-1].Time, c.records[b-1].Time)
	})
	for _, slot := range c.taken {
		r := &c.records[slot-1]
		if !r.skip {
			f(r)
			frames++
		}
		c.workers[r.owner].home.Push(slot)
	}
	return frames
}

// Missed is how many frames that were to be captured found no free record, by the
// device they came from. A port is named by its index alone.
func (c *Capture) Missed(f func(uplink bool, index int, frames uint64)) {
	for row := range c.workers[0].missed {
		n := uint64(0)
		for _, w := range c.workers {
			n += w.missed[row].Load()
		}
		switch {
		case n == 0:
		case row >= c.uplinks:
			f(true, row-c.uplinks, n)
		default:
			f(false, row, n)
		}
	}
}

// matches says that the capture wants r.
func (c *Capture) matches(r *Captured) bool {
	o := &c.options
	switch {
	case o.Device != Device{} && o.Device != r.From && o.Device != r.To,
		o.Network != 0 && o.Network != r.Network,
		o.Dropped && r.Verdict != Dropped,
		len(o.Reasons) > 0 && (r.Verdict != Dropped || !c.reasons[r.Reason]):
		return false
	}
	return true
}

package gen

import (
	"encoding/binary"
	"fmt"
	"time"
)

const (
	// StampLen is the length of the stamp in bytes: magic (2), balance (2),
	// flow (4), sequence (8), big-endian. The balance keeps a checksum over the
	// stamp and the summed fields as it was in the template.
	StampLen = 16

	stampMagic = 0x7063
	maxFields  = 4
	// maxFrame is what the kernel's page holds besides headroom and its own
	// bookkeeping (net/bpf/test_run.c).
	maxFrame     = 3400
	refreshWords = 16
)

// Field is a 16-bit big-endian word of the frame that carries Base + flow.
type Field struct {
	Offset int // from the start of the frame
	Base   uint16
	Summed bool // a checksum that also covers the stamp covers the field
}

// Options describe the frames. Offsets are even.
type Options struct {
	Frame  []byte  // the template, 14 to 3400 bytes
	Stamp  int     // offset of the stamp; 0: frames carry none
	Flows  int     // flows, round robin; 0: 1
	Fields []Field // at most 4

	// Refresh rewrites the first 128 bytes of every frame. Frames are recycled
	// as they come back from the receiver; one that writes into them in place
	// (a router counting down the hop limit) needs it.
	Refresh bool
	// Batch is how many frames go before the receiver's softirq may run on
	// this CPU, 1 to 256; 0: 64. A veth's ring holds 256.
	Batch int
}

// Load is how much to send. Whichever of Count, Duration and the context ends
// first ends the run.
type Load struct {
	Count    uint64        // frames; 0: no limit
	Duration time.Duration // 0: no limit
	Rate     float64       // frames a second, in bursts of a millisecond; 0: as fast as it goes
}

// Result is what a source sent. A frame counts when it was handed to the
// device, which may still drop it.
type Result struct {
	Frames  uint64
	Elapsed time.Duration
}

// PerSecond is the rate of the run.
func (r Result) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Frames) / r.Elapsed.Seconds()
}

func (o *Options) validate() error {
	if n := len(o.Frame); n < 14 || n > maxFrame {
		return fmt.Errorf("generator frame of %d bytes, want 14 to %d", n, maxFrame)
	}
	if o.Stamp != 0 && (o.Stamp < 14 || o.Stamp%2 != 0 || o.Stamp+StampLen > len(o.Frame)) {
		return fmt.Errorf("stamp at %d is odd or not between byte 14 and the end of %d", o.Stamp, len(o.Frame))
	}
	if o.Flows == 0 {
		o.Flows = 1
	}
	if o.Flows < 0 || o.Flows > 1<<31 {
		return fmt.Errorf("%d flows", o.Flows)
	}
	if len(o.Fields) > maxFields {
		return fmt.Errorf("%d fields, at most %d", len(o.Fields), maxFields)
	}
	for _, f := range o.Fields {
		if f.Offset <= 0 || f.Offset%2 != 0 || f.Offset+2 > len(o.Frame) {
			return fmt.Errorf("field at %d is odd or outside of %d bytes", f.Offset, len(o.Frame))
		}
	}
	if o.Batch == 0 {
		o.Batch = 64
	}
	if o.Batch < 1 || o.Batch > 256 {
		return fmt.Errorf("batch of %d, want 1 to 256", o.Batch)
	}
	return nil
}

// replacedSum is the sum of the template's words that a frame replaces, as they
// stand in memory (RFC 1071 section 2(B): byte order does not matter).
func (o *Options) replacedSum() (sum uint32) {
	if o.Stamp != 0 {
		for i := 0; i < StampLen; i += 2 {
			sum += uint32(binary.NativeEndian.Uint16(o.Frame[o.Stamp+i:]))
		}
	}
	for _, f := range o.Fields {
		if f.Summed {
			sum += uint32(binary.NativeEndian.Uint16(o.Frame[f.Offset:]))
		}
	}
	return sum
}

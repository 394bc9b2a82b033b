package table

import (
	"fmt"
	"slices"
)

// maxClasses bounds the matrix of segment pairs: 2 MiB of bits.
const maxClasses = 4096

// isolation is an Isolation made ready: each segment the rules name has a class,
// and a bit per pair of classes says whether the first may send to the second.
// Class 0 is every other known segment. Immutable.
type isolation struct {
	segments []classSlot // open addressing by segment; nil: everything is closed
	classes  uint32
	allowed  []uint64 // classes x classes bits
}

type classSlot struct{ segment, class uint32 }

// closed lets nothing pass: what a network has whose rules do not compile.
var closed = &isolation{}

func (x *isolation) class(s Segment) uint32 {
	mask := uint32(len(x.segments)) - 1
	for i := spread(uint32(s)) & mask; int(i) < len(x.segments); i = (i + 1) & mask {
		p := &x.segments[i]
		if p.segment == uint32(s) {
			return p.class
		}
		if p.segment == 0 {
			return 0
		}
	}
	return 0
}

// allows reports that from may send to to. A segment that is not known is
// allowed nothing.
func (x *isolation) allows(from, to Segment) bool {
	if from == 0 || to == 0 || x.classes == 0 {
		return false
	}
	i := x.class(from)*x.classes + x.class(to)
	return x.allowed[i/64]>>(i%64)&1 != 0
}

func spread(v uint32) uint32 { v *= 0x9e3779b1; return v ^ v>>16 }

// compileIsolation returns nil for no isolation, and closed with an error for
// rules that do not compile.
func compileIsolation(c *Isolation) (*isolation, error) {
	if c == nil {
		return nil, nil
	}
	var named []Segment
	for i, r := range c.Rules {
		if len(r.From) == 0 || len(r.To) == 0 {
			return closed, fmt.Errorf("%w: isolation rule %d: name at least one segment in from and in to", ErrInvalid, i)
		}
		for _, s := range slices.Concat(r.From, r.To) {
			if s == 0 || s > MaxSegment {
				return closed, fmt.Errorf("%w: isolation rule %d: segment %d: give 1..%d", ErrInvalid, i, s, MaxSegment)
			}
			named = append(named, s)
		}
	}
	slices.Sort(named)
	named = slices.Compact(named)
	if len(named) >= maxClasses {
		return closed, fmt.Errorf("%w: isolation names %d segments: at most %d", ErrInvalid, len(named), maxClasses-1)
	}
	n := len(named) + 1
	size := 2
	for size < 2*n {
		size *= 2
	}
	x := &isolation{segments: make([]classSlot, size), classes: uint32(n), allowed: make([]uint64, (n*n+63)/64)}
	for i, s := range named {
		x.insert(uint32(s), uint32(i+1))
	}
	if !c.DefaultDeny {
		for i := range x.allowed {
			x.allowed[i] = ^uint64(0)
		}
	}
	for _, r := range c.Rules {
		for _, from := range r.From {
			row := x.class(from) * x.classes
			for _, to := range r.To {
				i := row + x.class(to)
				if c.DefaultDeny {
					x.allowed[i/64] |= 1 << (i % 64)
				} else {
					x.allowed[i/64] &^= 1 << (i % 64)
				}
			}
		}
	}
	return x, nil
}

func (x *isolation) insert(segment, class uint32) {
	mask := uint32(len(x.segments)) - 1
	i := spread(segment) & mask
	for x.segments[i].segment != 0 {
		i = (i + 1) & mask
	}
	x.segments[i] = classSlot{segment, class}
}

package spsc

import (
	"fmt"
	"sync/atomic"
)

// MaxCapacity bounds a ring, far below where the free-running 32-bit indexes
// would become ambiguous.
const MaxCapacity = 1 << 24

// line is two cache lines: adjacent-line prefetch pairs them on x86.
const line = 128

// Ring is a queue of at most [Ring.Cap] elements. Use a fixed-size T without
// pointers: a popped slot keeps its old value until it is overwritten.
type Ring[T any] struct {
	slots []T
	mask  uint32

	_ [line]byte
	// Written by the producer.
	tail     atomic.Uint32 // next slot to fill, published
	nextTail uint32        // the producer's own copy of tail
	seenHead uint32        // head as the producer last read it

	_ [line]byte
	// Written by the consumer.
	head     atomic.Uint32 // next slot to take, published
	nextHead uint32        // the consumer's own copy of head
	seenTail uint32        // tail as the consumer last read it

	_ [line]byte
}

// New makes a ring of the given capacity, a power of two up to [MaxCapacity].
func New[T any](capacity int) (*Ring[T], error) {
	if capacity < 1 || capacity > MaxCapacity || capacity&(capacity-1) != 0 {
		return nil, fmt.Errorf("ring capacity %d: use a power of two in 1..%d", capacity, MaxCapacity)
	}
	return &Ring[T]{slots: make([]T, capacity), mask: uint32(capacity - 1)}, nil
}

// Cap is the number of elements the ring holds when full.
func (r *Ring[T]) Cap() int { return len(r.slots) }

// Push adds one element and reports whether there was room. Producer only.
func (r *Ring[T]) Push(v T) bool {
	t := r.nextTail
	if t-r.seenHead > r.mask {
		r.seenHead = r.head.Load()
		if t-r.seenHead > r.mask {
			return false
		}
	}
	s := r.slots
	s[t&uint32(len(s)-1)] = v
	r.nextTail = t + 1
	r.tail.Store(t + 1)
	return true
}

// PushBatch adds as many leading elements of vs as there is room for, publishes
// them at once and returns their number. Producer only.
func (r *Ring[T]) PushBatch(vs []T) int {
	n := min(len(vs), r.room(len(vs)))
	if n == 0 {
		return 0
	}
	at := int(r.nextTail & r.mask)
	first := copy(r.slots[at:], vs[:n])
	copy(r.slots, vs[first:n])
	r.nextTail += uint32(n)
	r.tail.Store(r.nextTail)
	return n
}

// Free is the room for elements, at least; it grows while the consumer pops.
// Producer only.
func (r *Ring[T]) Free() int { return r.room(len(r.slots)) }

// room returns the known room, looking at the consumer's index only when the
// known one is below want.
func (r *Ring[T]) room(want int) int {
	room := len(r.slots) - int(r.nextTail-r.seenHead)
	if room < want {
		r.seenHead = r.head.Load()
		room = len(r.slots) - int(r.nextTail-r.seenHead)
	}
	return room
}

// Pop takes the oldest element; false when there is none. Consumer only.
func (r *Ring[T]) Pop() (v T, ok bool) {
	h := r.nextHead
	if h == r.seenTail {
		r.seenTail = r.tail.Load()
		if h == r.seenTail {
			return v, false
		}
	}
	s := r.slots
	v = s[h&uint32(len(s)-1)]
	r.nextHead = h + 1
	r.head.Store(h + 1)
	return v, true
}

// PopBatch takes up to len(out) of the oldest elements, gives their slots back at
// once and returns their number. Consumer only.
func (r *Ring[T]) PopBatch(out []T) int {
	n := min(len(out), r.ready(len(out)))
	if n == 0 {
		return 0
	}
	at := int(r.nextHead & r.mask)
	first := copy(out[:n], r.slots[at:])
	copy(out[first:n], r.slots)
	r.nextHead += uint32(n)
	r.head.Store(r.nextHead)
	return n
}

// Len is the number of elements waiting, at least; it grows while the producer
// pushes. Consumer only.
func (r *Ring[T]) Len() int { return r.ready(len(r.slots)) }

// ready mirrors room.
func (r *Ring[T]) ready(want int) int {
	n := int(r.seenTail - r.nextHead)
	if n < want {
		r.seenTail = r.tail.Load()
		n = int(r.seenTail - r.nextHead)
	}
	return n
}

package xsk

import "sync/atomic"

// The two ends of a ring's index pair. Indices are free-running and wrap at
// 2^32; a ring's size is a power of two, so that masking keeps working across
// the wrap. Each end keeps its own index privately and a cached copy of the
// opposite one, reads the opposite one only when the copy does not satisfy the
// call, and stores its own once per batch. Go's atomics are sequentially
// consistent, which covers the store-release and load-acquire the ABI asks
// for, and the full barrier between storing the producer and reading the
// wake-up flag.

// producer is our end of a ring we write: fill and tx.
type producer struct {
	next uint32  // our index, equal to *own outside of a call
	cons uint32  // last accepted value of *peer
	size uint32  // entries
	own  *uint32 // producer index, ours to store
	peer *uint32 // consumer index, stored by the kernel
	bad  uint64  // impossible values of *peer
}

// reload takes both indices from the ring. Nothing is cached of an adopted ring
// but what it says itself; an impossible consumer index leaves the ring full
// until it is possible.
func (p *producer) reload() {
	p.next = atomic.LoadUint32(p.own)
	p.cons = p.next - p.size
	p.refresh()
}

// room is the number of free entries, looked up again if less than want.
func (p *producer) room(want uint32) uint32 {
	if n := p.size - (p.next - p.cons); n >= want {
		return n
	}
	return p.refresh()
}

func (p *producer) refresh() uint32 {
	c := atomic.LoadUint32(p.peer)
	// The kernel's index only moves from where it was toward ours.
	if c-p.cons <= p.next-p.cons {
		p.cons = c
	} else {
		p.bad++
	}
	return p.size - (p.next - p.cons)
}

// publish hands n written entries to the kernel.
func (p *producer) publish(n uint32) {
	p.next += n
	atomic.StoreUint32(p.own, p.next)
}

// consumer is our end of a ring we read: rx and completion.
type consumer struct {
	next uint32  // our index, equal to *own outside of a call
	prod uint32  // last accepted value of *peer
	size uint32  // entries
	own  *uint32 // consumer index, ours to store
	peer *uint32 // producer index, stored by the kernel
	bad  uint64  // impossible values of *peer
}

// reload takes both indices from the ring.
func (c *consumer) reload() {
	c.next = atomic.LoadUint32(c.own)
	c.prod = c.next
	c.refresh()
}

// ready is the number of entries to read, looked up again if less than want.
func (c *consumer) ready(want uint32) uint32 {
	if n := c.prod - c.next; n >= want {
		return n
	}
	return c.refresh()
}

func (c *consumer) refresh() uint32 {
	p := atomic.LoadUint32(c.peer)
	// The kernel's index only moves forward, at most a ring ahead of ours.
	if n := p - c.next; n <= c.size && n >= c.prod-c.next {
		c.prod = p
	} else {
		c.bad++
	}
	return c.prod - c.next
}

// release gives n read entries back to the kernel.
func (c *consumer) release(n uint32) {
	c.next += n
	atomic.StoreUint32(c.own, c.next)
}

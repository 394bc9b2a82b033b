package xsk

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Peer is the kernel's side of a socket whose rings lie in plain memory. It
// moves raw words and checks nothing, so that package xsktest, its only user,
// can also play a kernel that misbehaves. Addresses are the words on the ring:
// bytes from the start of the region, as the kernel counts.
//
// Each ring may be driven from one goroutine besides the socket's owner.
type Peer struct {
	// What the syscalls do. Nil: success.
	OnKick     func() unix.Errno
	OnWakeFill func() unix.Errno
	OnStats    func() Stats
	OnClose    func() error

	fill, completion shared[ringAddr]
	rx, tx           shared[ringDesc]
}

// NewPeer makes a socket over plain memory, every index starting at first, and
// the side the kernel would have. Only tests use it.
func NewPeer(m *Memory, r Region, o Options, first uint32) (*Socket, *Peer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, nil, err
	}
	if err := m.check(r); err != nil {
		return nil, nil, err
	}
	s := newSocket(-1, r, o)
	p := &Peer{
		fill:       plainRing[ringAddr](o.Fill, first),
		completion: plainRing[ringAddr](o.Completion, first),
		rx:         plainRing[ringDesc](o.RX, first),
		tx:         plainRing[ringDesc](o.TX, first),
	}
	s.peer = p
	s.attach(p.fill, p.completion, p.rx, p.tx)
	s.negotiated.TXBudget = max(o.TXBudget, KernelTXBudget)
	return s, p, nil
}

func (p *Peer) kick() unix.Errno {
	if p.OnKick == nil {
		return 0
	}
	return p.OnKick()
}

func (p *Peer) wakeFill() unix.Errno {
	if p.OnWakeFill == nil {
		return 0
	}
	return p.OnWakeFill()
}

func (p *Peer) stats() Stats {
	if p.OnStats == nil {
		return Stats{}
	}
	return p.OnStats()
}

func (p *Peer) close() error {
	if p.OnClose == nil {
		return nil
	}
	return p.OnClose()
}

// take reads the entry at the consumer index, with advance also moving it.
func take[E ringAddr | ringDesc](r shared[E], advance bool) (e E, ok bool) {
	c := atomic.LoadUint32(r.consumer)
	if atomic.LoadUint32(r.producer) == c {
		return e, false
	}
	e = r.entries[c&uint32(len(r.entries)-1)]
	if advance {
		atomic.StoreUint32(r.consumer, c+1)
	}
	return e, true
}

// put writes e at the producer index and moves it, unless the ring is full.
func put[E ringAddr | ringDesc](r shared[E], e E) bool {
	p := atomic.LoadUint32(r.producer)
	if p-atomic.LoadUint32(r.consumer) >= uint32(len(r.entries)) {
		return false
	}
	r.entries[p&uint32(len(r.entries)-1)] = e
	atomic.StoreUint32(r.producer, p+1)
	return true
}

// TakeFill consumes a fill entry.
func (p *Peer) TakeFill() (addr uint64, ok bool) {
	a, ok := take(p.fill, true)
	return uint64(a), ok
}

// PeekTX reads the TX entry at the head and leaves it there.
func (p *Peer) PeekTX() (addr uint64, n, options uint32, ok bool) {
	d, ok := take(p.tx, false)
	return uint64(d.addr), d.len, d.options, ok
}

// TakeTX consumes a TX entry.
func (p *Peer) TakeTX() (addr uint64, n, options uint32, ok bool) {
	d, ok := take(p.tx, true)
	return uint64(d.addr), d.len, d.options, ok
}

// PutRX produces a received descriptor; false: the ring is full.
func (p *Peer) PutRX(addr uint64, n, options uint32) bool {
	return put(p.rx, ringDesc{addr: ringAddr(addr), len: n, options: options})
}

// PutCompletion produces a completion; false: the ring is full.
func (p *Peer) PutCompletion(addr uint64) bool { return put(p.completion, ringAddr(addr)) }

// CompletionFree is the number of free completion entries.
func (p *Peer) CompletionFree() int {
	return len(p.completion.entries) - int(atomic.LoadUint32(p.completion.producer)-atomic.LoadUint32(p.completion.consumer))
}

// Indices are pointers to the index pair of each ring, to be read and written
// atomically: a hostile test stores what no kernel would.
func (p *Peer) Indices(r RingKind) (producer, consumer *uint32) {
	switch r {
	case FillRing:
		return p.fill.producer, p.fill.consumer
	case CompletionRing:
		return p.completion.producer, p.completion.consumer
	case RXRing:
		return p.rx.producer, p.rx.consumer
	}
	return p.tx.producer, p.tx.consumer
}

// RingKind names one of the four rings.
type RingKind uint8

// The four rings.
const (
	FillRing RingKind = iota
	CompletionRing
	RXRing
	TXRing
)

// SetWakeup stores the need-wakeup flags of the fill and TX ring.
func (p *Peer) SetWakeup(fill, tx bool) {
	for _, f := range []struct {
		word *uint32
		on   bool
	}{{p.fill.flags, fill}, {p.tx.flags, tx}} {
		v := uint32(0)
		if f.on {
			v = ringNeedWakeup
		}
		atomic.StoreUint32(f.word, v)
	}
}

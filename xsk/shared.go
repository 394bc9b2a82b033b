package xsk

// shared is a ring's memory as both sides see it.
type shared[E ringAddr | ringDesc] struct {
	producer, consumer, flags *uint32
	entries                   []E
}

// plainRing is a ring in ordinary memory with both indices at first.
func plainRing[E ringAddr | ringDesc](entries int, first uint32) shared[E] {
	// A cache line each, as in the kernel's struct xdp_ring.
	words := make([]uint32, 48)
	words[0], words[16] = first, first
	return shared[E]{producer: &words[0], consumer: &words[16], flags: &words[32], entries: make([]E, entries)}
}

func (r shared[E]) asProducer() producer {
	p := producer{size: uint32(len(r.entries)), own: r.producer, peer: r.consumer}
	p.reload()
	return p
}

func (r shared[E]) asConsumer() consumer {
	c := consumer{size: uint32(len(r.entries)), own: r.consumer, peer: r.producer}
	c.reload()
	return c
}

// attach makes our ends of the rings, with the indices the memory holds.
func (s *Socket) attach(fill, completion shared[ringAddr], rx, tx shared[ringDesc]) {
	s.fill = fillRing{producer: fill.asProducer(), flags: fill.flags, entries: fill.entries}
	s.completion = completionRing{consumer: completion.asConsumer(), entries: completion.entries}
	s.rx = rxRing{consumer: rx.asConsumer(), entries: rx.entries}
	s.tx = txRing{
		producer: tx.asProducer(), flags: tx.flags, entries: tx.entries,
		metadata: s.options.metadata(), refused: s.options.refused(),
	}
	s.countOutstanding()
}

// countOutstanding takes the frames under way from the rings: both indices count
// from the socket's birth, and what is submitted and not reaped is their
// difference. After excess completions it can be negative.
func (s *Socket) countOutstanding() {
	s.outstanding = max(0, int(int32(s.tx.next-s.completion.next)))
}

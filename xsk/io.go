package xsk

import "sync/atomic"

// Fill gives empty chunks to receive into and returns how many were taken:
// fewer when the ring is full, or at an address outside the region, which is
// counted in Faults.RejectedFill. Any address of a chunk stands for it.
func (s *Socket) Fill(addrs []Addr) int {
	return s.fill.push(addrs, s.region, &s.faults.RejectedFill)
}

// Receive takes up to len(out) received frames.
func (s *Socket) Receive(out []Desc) int {
	return s.rx.pop(out, s.region, &s.faults.BogusRX)
}

// Transmit queues frames and returns how many were taken: fewer when the ring
// is full, or at a descriptor the kernel would not take (outside the region,
// empty, over its chunk's end, or with option bits not negotiated), which is
// counted in Faults.RejectedTX. The kernel sends them at the next Kick.
func (s *Socket) Transmit(descs []Desc) int {
	n := s.tx.push(descs, s.region, &s.faults.RejectedTX)
	s.outstanding += n
	return n
}

// Complete takes up to len(out) addresses of frames that have been sent, or
// dropped by the kernel: exactly those given to Transmit. In copy mode that is
// when the packet is freed, which may be long after the receiver got it. A
// call may return fewer than are there when it met bogus ones.
func (s *Socket) Complete(out []Addr) int {
	n := s.completion.pop(out, s.region, &s.faults.BogusCompletions)
	if n > s.outstanding {
		s.faults.ExcessCompletions += uint64(n - s.outstanding)
		s.outstanding = n
	}
	s.outstanding -= n
	return n
}

// FillFree is how many chunks Fill takes now.
func (s *Socket) FillFree() int { return int(s.fill.room(s.fill.size)) }

// TXFree is how many frames Transmit takes now.
func (s *Socket) TXFree() int { return int(s.tx.room(s.tx.size)) }

// TXQueued is how many transmitted frames the kernel has not taken from the
// ring yet: what a Kick is for.
func (s *Socket) TXQueued() int { return int(s.tx.size) - s.TXFree() }

// Received is how many frames wait for Receive.
func (s *Socket) Received() int { return int(s.rx.ready(s.rx.size)) }

// Outstanding is how many frames were transmitted and not completed.
func (s *Socket) Outstanding() int { return s.outstanding }

// Faults is what has been wrong so far.
func (s *Socket) Faults() Faults {
	f := s.faults
	f.BadIndex = s.fill.bad + s.tx.bad + s.rx.bad + s.completion.bad
	return f
}

// ringNeedWakeup is XDP_RING_NEED_WAKEUP.
const ringNeedWakeup = 1

// NeedWakeupTX reports whether the kernel wants a Kick to send. Always true
// without Options.NeedWakeup.
func (s *Socket) NeedWakeupTX() bool {
	return !s.options.NeedWakeup || atomic.LoadUint32(s.tx.flags)&ringNeedWakeup != 0
}

// NeedWakeupFill reports whether the kernel wants a WakeFill to receive.
// Always false without Options.NeedWakeup.
func (s *Socket) NeedWakeupFill() bool {
	return s.options.NeedWakeup && atomic.LoadUint32(s.fill.flags)&ringNeedWakeup != 0
}

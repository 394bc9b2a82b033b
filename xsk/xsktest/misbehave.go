package xsktest

import (
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk"
)

// FailKicks has the next kicks return these errnos and do nothing else.
func (k *Kernel) FailKicks(errnos ...unix.Errno) {
	k.locked(func() { k.failures = append(k.failures, errnos...) })
}

// SetBudget is how many descriptors one kick takes.
func (k *Kernel) SetBudget(n int) { k.locked(func() { k.budget = n }) }

// SetDown takes the device down (ENETDOWN) or up again.
func (k *Kernel) SetDown(down bool) { k.locked(func() { k.down = down }) }

// Delete deletes the device: ENXIO for good.
func (k *Kernel) Delete() { k.locked(func() { k.gone = true }) }

// DropBusy has the device drop the next n frames, each with EBUSY and a
// completion.
func (k *Kernel) DropBusy(n int) { k.locked(func() { k.busy += n }) }

// HoldCompletions keeps completions back until Release, as a receiver that
// holds on to the packets does.
func (k *Kernel) HoldCompletions() { k.locked(func() { k.hold = true }) }

// Release completes what was held back and stops holding; with reorder the
// last frame first.
func (k *Kernel) Release(reorder bool) {
	k.locked(func() {
		if reorder {
			slices.Reverse(k.inflight)
		}
		for _, a := range k.inflight {
			k.peer.PutCompletion(a)
		}
		k.inflight, k.hold = nil, false
	})
}

// CompleteRaw produces completions with these words, whatever they are.
func (k *Kernel) CompleteRaw(addrs ...uint64) bool {
	ok := true
	k.locked(func() {
		for _, a := range addrs {
			ok = k.peer.PutCompletion(a) && ok
		}
	})
	return ok
}

// ReceiveRaw produces a received descriptor with these words, whatever they are.
func (k *Kernel) ReceiveRaw(addr uint64, n, options uint32) bool {
	ok := false
	k.locked(func() { ok = k.peer.PutRX(addr, n, options) })
	return ok
}

// SetIndex stores the kernel's index of a ring: the consumer of fill and TX,
// the producer of completion and RX.
func (k *Kernel) SetIndex(r xsk.RingKind, v uint32) {
	p, c := k.peer.Indices(r)
	if r == xsk.FillRing || r == xsk.TXRing {
		p = c
	}
	atomic.StoreUint32(p, v)
}

// SetWakeup stores the need-wakeup flags.
func (k *Kernel) SetWakeup(fill, tx bool) { k.peer.SetWakeup(fill, tx) }

func (k *Kernel) wakeFill() unix.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wakes++
	switch {
	case k.gone:
		return unix.ENXIO
	case k.down:
		return unix.ENETDOWN
	}
	return 0
}

func (k *Kernel) locked(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

package xsktest

import (
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk"
)

func (k *Kernel) indices(r xsk.RingKind) (producer, consumer uint32) {
	p, c := k.peer.Indices(r)
	return atomic.LoadUint32(p), atomic.LoadUint32(c)
}

// kick is xsk_generic_xmit.
func (k *Kernel) kick() unix.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kicks++
	switch {
	case len(k.failures) > 0:
		e := k.failures[0]
		k.failures = k.failures[1:]
		return e
	case k.gone:
		return unix.ENXIO
	case k.down:
		return unix.ENETDOWN
	}
	return k.transmit()
}

func (k *Kernel) transmit() unix.Errno {
	for range k.budget {
		addr, n, options, ok := k.peer.PeekTX()
		switch {
		case !ok:
			k.stats.TXRingEmpty++
			return 0
		case !k.valid(addr, n, options):
			k.peer.TakeTX()
			k.stats.TXInvalid++
			continue
		case k.peer.CompletionFree() <= len(k.inflight):
			return unix.EAGAIN
		case options&xsk.OptionTXMetadata != 0 && !k.metadataValid(addr):
			k.poisoned++
			k.peer.PutCompletion(addr)
			return unix.EINVAL
		}
		k.peer.TakeTX()
		if k.busy > 0 {
			k.busy--
			k.complete(addr)
			return unix.EBUSY
		}
		k.send(addr, n, options)
		k.complete(addr)
	}
	if _, _, _, more := k.peer.PeekTX(); more {
		return unix.EAGAIN
	}
	return 0
}

// valid is xp_aligned_validate_desc.
func (k *Kernel) valid(addr uint64, n, options uint32) bool {
	meta := uint64(0)
	if k.opts.TXMetadata {
		meta = xsk.TXMetadataLen
	}
	off := addr % xsk.ChunkSize
	return n > 0 && addr < uint64(k.region.Len()) && off >= meta && off+uint64(n) <= xsk.ChunkSize &&
		options&^(xsk.OptionContinues|xsk.OptionTXMetadata) == 0
}

// metadataValid looks at the flags word only, which is enough to be poisoned.
func (k *Kernel) metadataValid(addr uint64) bool {
	if !k.opts.TXMetadata {
		return false
	}
	const known = unix.XDP_TXMD_FLAGS_TIMESTAMP | unix.XDP_TXMD_FLAGS_CHECKSUM | unix.XDP_TXMD_FLAGS_LAUNCH_TIME
	flags := k.bytes(addr-xsk.TXMetadataLen, xsk.TXMetadataLen)
	return flags[0]&^known == 0 && !slices.ContainsFunc(flags[1:8], func(b byte) bool { return b != 0 })
}

func (k *Kernel) send(addr uint64, n, options uint32) {
	k.partial = append(k.partial, k.bytes(addr, int(n))...)
	if options&xsk.OptionContinues == 0 {
		k.sent = append(k.sent, k.partial)
		k.partial = nil
	}
}

func (k *Kernel) complete(addr uint64) {
	if k.hold {
		k.inflight = append(k.inflight, addr)
		return
	}
	k.peer.PutCompletion(addr)
}

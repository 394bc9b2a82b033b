package xsktest

import "picot.dev/picot/xsk"

// Deliver has the device receive a frame, into as many chunks as it needs. It
// reports whether the frame is in the RX ring; if not, the reason is counted
// as the kernel counts it.
func (k *Kernel) Deliver(frame []byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down || k.gone {
		return false
	}
	start := xsk.KernelHeadroom + k.opts.Headroom
	room := xsk.ChunkSize - start
	if len(frame) > room && !k.opts.MultiBuffer {
		k.stats.RXDropped++
		return false
	}
	need := max(1, (len(frame)+room-1)/room)
	if k.filled() < need {
		k.stats.RXFillEmpty++
		k.stats.RXDropped++
		return false
	}
	if k.rxFree() < need {
		k.stats.RXRingFull++
		return false
	}
	for need > 0 {
		addr, ok := k.takeFill()
		if !ok {
			k.stats.RXFillEmpty++
			k.stats.RXDropped++
			return false
		}
		n := min(len(frame), room)
		options := uint32(0)
		if need > 1 {
			options = xsk.OptionContinues
		}
		copy(k.bytes(addr+uint64(start), n), frame[:n])
		k.peer.PutRX(addr+uint64(start), uint32(n), options)
		frame, need = frame[n:], need-1
	}
	return true
}

// takeFill takes the next fill entry the kernel accepts.
func (k *Kernel) takeFill() (uint64, bool) {
	for {
		addr, ok := k.peer.TakeFill()
		if !ok {
			return 0, false
		}
		addr &^= xsk.ChunkSize - 1
		if addr < uint64(k.region.Len()) {
			return addr, true
		}
		k.stats.RXInvalid++
	}
}

func (k *Kernel) filled() int {
	p, c := k.indices(xsk.FillRing)
	return int(p - c)
}

func (k *Kernel) rxFree() int {
	p, c := k.indices(xsk.RXRing)
	size := k.opts.RX
	if size == 0 {
		size = xsk.DefaultRing
	}
	return size - int(p-c)
}

package xsk

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The entry types are what the kernel writes.
var (
	_ [16]byte = [unsafe.Sizeof(ringDesc{})]byte{}
	_ [8]byte  = [unsafe.Offsetof(ringDesc{}.len)]byte{}
	_ [12]byte = [unsafe.Offsetof(ringDesc{}.options)]byte{}
)

// mapRings maps the four rings and takes our indices from them.
func (s *Socket) mapRings() error {
	var off unix.XDPMmapOffsets
	if err := getsockopt(s.fd, unix.SOL_XDP, unix.XDP_MMAP_OFFSETS, &off); err != nil {
		return fmt.Errorf("reading ring offsets: %w", err)
	}
	fill, err := mapRing[ringAddr](s, "fill", unix.XDP_UMEM_PGOFF_FILL_RING, off.Fr, s.options.Fill)
	if err != nil {
		return err
	}
	completion, err := mapRing[ringAddr](s, "completion", unix.XDP_UMEM_PGOFF_COMPLETION_RING, off.Cr, s.options.Completion)
	if err != nil {
		return err
	}
	rx, err := mapRing[ringDesc](s, "rx", unix.XDP_PGOFF_RX_RING, off.Rx, s.options.RX)
	if err != nil {
		return err
	}
	tx, err := mapRing[ringDesc](s, "tx", unix.XDP_PGOFF_TX_RING, off.Tx, s.options.TX)
	if err != nil {
		return err
	}
	s.attach(fill, completion, rx, tx)
	return nil
}

func mapRing[E ringAddr | ringDesc](s *Socket, name string, pgoff int64, off unix.XDPRingOffset, entries int) (shared[E], error) {
	var e E
	size := int(off.Desc) + entries*int(unsafe.Sizeof(e))
	mem, err := unix.Mmap(s.fd, pgoff, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return shared[E]{}, fmt.Errorf("mapping the %s ring of %d entries: %w", name, entries, err)
	}
	touch(mem)
	s.rings = append(s.rings, mem)
	return shared[E]{
		producer: (*uint32)(unsafe.Pointer(&mem[off.Producer])),
		consumer: (*uint32)(unsafe.Pointer(&mem[off.Consumer])),
		flags:    (*uint32)(unsafe.Pointer(&mem[off.Flags])),
		entries:  unsafe.Slice((*E)(unsafe.Pointer(&mem[off.Desc])), entries),
	}, nil
}

package xsk

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// getsockopt fills v and fails unless the kernel wrote all of it.
func getsockopt[T any](fd, level, opt int, v *T) error {
	n := uint32(unsafe.Sizeof(*v))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt),
		uintptr(unsafe.Pointer(v)), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 {
		return errno
	}
	if n != uint32(unsafe.Sizeof(*v)) {
		return fmt.Errorf("socket option %d gave %d bytes, this needs a newer kernel: %w", opt, n, unix.EOPNOTSUPP)
	}
	return nil
}

func statistics(fd int) (Stats, error) {
	var st unix.XDPStatistics
	if err := getsockopt(fd, unix.SOL_XDP, unix.XDP_STATISTICS, &st); err != nil {
		return Stats{}, err
	}
	return Stats{
		RXDropped:   st.Rx_dropped,
		RXInvalid:   st.Rx_invalid_descs,
		TXInvalid:   st.Tx_invalid_descs,
		RXRingFull:  st.Rx_ring_full,
		RXFillEmpty: st.Rx_fill_ring_empty_descs,
		TXRingEmpty: st.Tx_ring_empty_descs,
	}, nil
}

func zeroCopyMode(fd int) (bool, error) {
	var flags uint32
	if err := getsockopt(fd, unix.SOL_XDP, unix.XDP_OPTIONS, &flags); err != nil {
		return false, err
	}
	return flags&unix.XDP_OPTIONS_ZEROCOPY != 0, nil
}

// registerUMEM makes r of m the socket's frames. The kernel pins the pages.
func registerUMEM(fd int, m *Memory, r Region, o Options) error {
	reg := unix.XDPUmemReg{
		Addr:     uint64(uintptr(unsafe.Pointer(&m.data[r.base]))),
		Len:      r.size,
		Size:     ChunkSize,
		Headroom: uint32(o.Headroom),
	}
	if o.TXMetadata {
		reg.Flags = unix.XDP_UMEM_TX_METADATA_LEN
		reg.Tx_metadata_len = TXMetadataLen
	}
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_UMEM_REG,
		uintptr(unsafe.Pointer(&reg)), unsafe.Sizeof(reg), 0)
	if errno != 0 {
		return fmt.Errorf("registering %d chunks (RLIMIT_MEMLOCK or memory may be short): %w", r.Chunks(), errno)
	}
	return nil
}

package xsk

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// preferNode sets the memory policy of a fresh mapping, mbind(2).
func preferNode(mapping []byte, node int) error {
	const bits = 64
	var mask [16]uint64
	if node < 0 || node >= len(mask)*bits {
		return fmt.Errorf("preferring NUMA node %d: %w", node, unix.EINVAL)
	}
	mask[node/bits] = 1 << (node % bits)
	// The kernel reads one bit less than maxnode says.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&mapping[0])), uintptr(len(mapping)),
		unix.MPOL_PREFERRED, uintptr(unsafe.Pointer(&mask)), uintptr(len(mask)*bits+1), 0)
	if errno != 0 {
		return fmt.Errorf("preferring NUMA node %d: %w", node, errno)
	}
	return nil
}

// touch writes to every page of a mapping what is there already, in one step.
func touch(mapping []byte) {
	for i, page := 0, os.Getpagesize(); i < len(mapping); i += page {
		atomic.OrUint32((*uint32)(unsafe.Pointer(&mapping[i])), 0)
	}
}

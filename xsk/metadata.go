package xsk

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// RequestChecksum asks the device to finish a checksum: the sum over the bytes
// from start on, whose 16-bit field at start+offset holds the pseudo-header
// sum. Both count from the frame's first byte, the field from start. It writes
// the TXMetadataLen bytes before the frame (struct xsk_tx_metadata,
// linux/if_xdp.h) and sets OptionTXMetadata in d.
//
// It writes only metadata the kernel takes, since other metadata poisons the
// socket: false, and nothing written, where the field is not in the frame or
// the chunk has no room before it.
func (m *Memory) RequestChecksum(d *Desc, start, offset int) bool {
	if start < 0 || offset < 0 || start > 0xffff || offset > 0xffff || start+offset+2 > int(d.Len) {
		return false
	}
	if uint64(d.Addr)%ChunkSize < TXMetadataLen {
		return false
	}
	b := m.Frame(d.Addr-TXMetadataLen, TXMetadataLen)
	binary.NativeEndian.PutUint64(b, unix.XDP_TXMD_FLAGS_CHECKSUM)
	binary.NativeEndian.PutUint16(b[8:], uint16(start))
	binary.NativeEndian.PutUint16(b[10:], uint16(offset))
	clear(b[12:])
	d.Options |= OptionTXMetadata
	return true
}

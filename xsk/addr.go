package xsk

import "golang.org/x/sys/unix"

// ChunkSize is the size in bytes of a chunk, the unit of ownership. A frame
// never crosses the end of its chunk.
const ChunkSize = 4096

// KernelHeadroom is how many bytes the kernel leaves free at the start of a
// chunk before a received frame (XDP_PACKET_HEADROOM), besides
// [Options.Headroom].
const KernelHeadroom = unix.XDP_PACKET_HEADROOM

// MaxFrame is the longest frame one chunk receives with no Options.Headroom.
const MaxFrame = ChunkSize - KernelHeadroom

// Addr is the address of a byte, counted from the start of the whole mapping.
type Addr uint64

// Chunk is the address of the first byte of the chunk that contains a. A
// completion carries the exact address that was transmitted; Chunk turns it
// back into what a free list holds.
func (a Addr) Chunk() Addr { return a &^ (ChunkSize - 1) }

// Desc is one frame, or one fragment of it, in a Memory.
type Desc struct {
	Addr    Addr
	Len     uint32 // bytes
	Options uint32 // OptionContinues, OptionTXMetadata; otherwise 0
}

const (
	// OptionContinues says that the next descriptor holds more of the same
	// frame. Set by Receive and accepted by Transmit only with
	// Options.MultiBuffer.
	OptionContinues = unix.XDP_PKT_CONTD
	// OptionTXMetadata says that TXMetadataLen bytes of metadata lie right
	// before the frame. Accepted by Transmit only with Options.TXMetadata.
	OptionTXMetadata = unix.XDP_TX_METADATA
)

// ringAddr is an address as the rings carry it: counted from the start of the
// socket's region.
type ringAddr uint64

// ringDesc has the layout of struct xdp_desc (linux/if_xdp.h).
type ringDesc struct {
	addr    ringAddr
	len     uint32
	options uint32
}

// Region is the part of a Memory that a socket registers. Get one from
// [Memory.Whole] or [Memory.Shard]. The zero Region is empty.
type Region struct {
	base Addr
	size uint64
}

// Base is the address of the region's first byte.
func (r Region) Base() Addr { return r.base }

// Len is the region's size in bytes.
func (r Region) Len() int { return int(r.size) }

// Chunks is the region's size in chunks.
func (r Region) Chunks() int { return int(r.size / ChunkSize) }

// Contains reports whether a lies in the region.
func (r Region) Contains(a Addr) bool { return uint64(a-r.base) < r.size }

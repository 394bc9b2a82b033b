package xsk

// txRing gives the kernel frames to transmit. We produce.
type txRing struct {
	producer
	flags   *uint32
	entries []ringDesc
	// What the kernel would skip without a completion, or choke on, never
	// enters the ring (net/xdp/xsk_queue.h, xp_aligned_validate_desc).
	metadata uint64 // bytes before every frame that are the metadata's
	refused  uint32 // option bits this socket did not negotiate
}

// push writes descs until one does not fit the ring or is refused, and returns
// how many it wrote.
func (r *txRing) push(descs []Desc, in Region, rejected *uint64) int {
	entries, next, metadata, refused := r.entries, r.next, r.metadata, r.refused
	n := min(len(descs), int(r.room(uint32(len(descs)))))
	if n == 0 || len(entries) == 0 {
		return 0
	}
	for i, d := range descs[:n] {
		rel := uint64(d.Addr - in.base)
		off := rel % ChunkSize
		if rel >= in.size || d.Len == 0 || off < metadata || off+uint64(d.Len) > ChunkSize || d.Options&refused != 0 {
			*rejected++
			n = i
			break
		}
		entries[int(next+uint32(i))&(len(entries)-1)] = ringDesc{addr: ringAddr(rel), len: d.Len, options: d.Options}
	}
	if n > 0 {
		r.publish(uint32(n))
	}
	return n
}

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
	n := min(len(descs), int(r.room(uint32(len(descs)))))
	mask := uint32(len(r.entries) - 1)
	done := 0
	for done < n {
		d := &descs[done]
		rel := uint64(d.Addr - in.base)
		off := rel % ChunkSize
		if rel >= in.size || d.Len == 0 || off < r.metadata || off+uint64(d.Len) > ChunkSize || d.Options&r.refused != 0 {
			*rejected++
			break
		}
		r.entries[(r.next+uint32(done))&mask] = ringDesc{addr: ringAddr(rel), len: d.Len, options: d.Options}
		done++
	}
	if done > 0 {
		r.publish(uint32(done))
	}
	return done
}

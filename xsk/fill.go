package xsk

// fillRing gives the kernel empty chunks to receive into. We produce.
type fillRing struct {
	producer
	flags   *uint32
	entries []ringAddr
}

// push writes the chunks of addrs until one does not fit the ring or the
// region, and returns how many it wrote.
func (r *fillRing) push(addrs []Addr, in Region, rejected *uint64) int {
	n := min(len(addrs), int(r.room(uint32(len(addrs)))))
	mask := uint32(len(r.entries) - 1)
	done := 0
	for done < n {
		rel := uint64(addrs[done] - in.base)
		if rel >= in.size {
			*rejected++
			break
		}
		r.entries[(r.next+uint32(done))&mask] = ringAddr(rel &^ (ChunkSize - 1))
		done++
	}
	if done > 0 {
		r.publish(uint32(done))
	}
	return done
}

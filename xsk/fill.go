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
	entries, next := r.entries, r.next
	n := min(len(addrs), int(r.room(uint32(len(addrs)))))
	if n == 0 || len(entries) == 0 {
		return 0
	}
	for i, a := range addrs[:n] {
		rel := uint64(a - in.base)
		if rel >= in.size {
			*rejected++
			n = i
			break
		}
		entries[int(next+uint32(i))&(len(entries)-1)] = ringAddr(rel &^ (ChunkSize - 1))
	}
	if n > 0 {
		r.publish(uint32(n))
	}
	return n
}

package xsk

// rxRing brings received frames. We consume.
type rxRing struct {
	consumer
	entries []ringDesc
}

// pop reads up to len(out) frames and returns how many are in out. A
// descriptor outside the region is dropped; one that runs over the end of its
// chunk is kept with Len 0, so that the chunk is not lost. Both are counted in
// bogus.
func (r *rxRing) pop(out []Desc, in Region, bogus *uint64) int {
	entries, next := r.entries, r.next
	n := min(len(out), int(r.ready(uint32(len(out)))))
	if n == 0 || len(entries) == 0 {
		return 0
	}
	kept := 0
	for i := range out[:n] {
		d := entries[int(next+uint32(i))&(len(entries)-1)]
		if uint64(d.addr) >= in.size {
			*bogus++
			continue
		}
		if uint64(d.addr)%ChunkSize+uint64(d.len) > ChunkSize {
			*bogus++
			d.len = 0
		}
		out[kept] = Desc{Addr: in.base + Addr(d.addr), Len: d.len, Options: d.options}
		kept++
	}
	r.release(uint32(n))
	return kept
}

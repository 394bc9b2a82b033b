package xsk

// completionRing returns the chunks the kernel has transmitted. We consume.
type completionRing struct {
	consumer
	entries []ringAddr
}

// pop reads up to len(out) completions. It returns how many lay in the region
// and so are in out; the others are counted in bogus.
func (r *completionRing) pop(out []Addr, in Region, bogus *uint64) int {
	entries, next := r.entries, r.next
	n := min(len(out), int(r.ready(uint32(len(out)))))
	if n == 0 || len(entries) == 0 {
		return 0
	}
	kept := 0
	for i := range out[:n] {
		rel := uint64(entries[int(next+uint32(i))&(len(entries)-1)])
		if rel >= in.size {
			*bogus++
			continue
		}
		out[kept] = in.base + Addr(rel)
		kept++
	}
	r.release(uint32(n))
	return kept
}

package table

import (
	"iter"
	"math/bits"
	"slices"
)

// slot is one place of an open-addressing shard; value 0 is an empty place.
type slot[K comparable] struct {
	key K
	val uint64
}

// line is where a hash leads: lineSlots slots, for the FDB a cache line of the
// processor. Of a shard at most half full, nearly all entries are in the line
// their hash leads to.
type line[K comparable] [lineSlots]slot[K]

const lineSlots = 4

// find returns the value of k in a line of the FDB's, or 0. It has no branch:
// which slot it is in, nobody could predict.
func find(l *line[uint64], k uint64) (v uint64) {
	v0, v1, v2, v3 := l[0].val, l[1].val, l[2].val, l[3].val
	if l[0].key == k {
		v = v0
	}
	if l[1].key == k {
		v = v1
	}
	if l[2].key == k {
		v = v2
	}
	if l[3].key == k {
		v = v3
	}
	return v
}

// index is the readers' view: a directory of shards by the top bits of a hash,
// in each shard linear probing from the line its low bits name. Several places
// of the directory may hold the same shard (extendible hashing, Fagin et al. 1979).
type index[K comparable] struct {
	dir   [][]line[K]
	shift uint8 // 64 less the bits the directory takes; at most 63
}

// shard is where keys of hash h are; an index that was never published has none.
func (x *index[K]) shard(h uint64) []line[K] {
	if d := h >> (x.shift & 63); d < uint64(len(x.dir)) {
		return x.dir[d]
	}
	return nil
}

// get returns the value of k, whose hash is h, or 0. A line whose last slot is
// empty ends the search.
func get(x *index[uint64], h, k uint64) uint64 {
	lines := x.shard(h)
	mask := uint64(len(lines)) - 1
	for i := h & mask; i < uint64(len(lines)); i = (i + 1) & mask {
		l := &lines[i]
		if v := find(l, k); v != 0 || l[lineSlots-1].val == 0 {
			return v
		}
	}
	return 0
}

// get6 is get for the keys of IPv6 neighbours. In a line it picks the slot by
// the interface identifier, in which nearly all of them differ.
func get6(x *index[key6], h uint64, k key6) uint64 {
	lines := x.shard(h)
	mask := uint64(len(lines)) - 1
	for i := h & mask; i < uint64(len(lines)); i = (i + 1) & mask {
		l := &lines[i]
		j := 0
		if l[1].key.lo == k.lo {
			j = 1
		}
		if l[2].key.lo == k.lo {
			j = 2
		}
		if l[3].key.lo == k.lo {
			j = 3
		}
		if e := &l[j]; e.key == k && e.val != 0 {
			return e.val
		}
		for j := range l {
			if l[j].key == k {
				return l[j].val
			}
		}
		if l[lineSlots-1].val == 0 {
			return 0
		}
	}
	return 0
}

// each calls f for every entry until it returns false.
func (x *index[K]) each(f func(K, uint64) bool) {
	for i, s := range x.dir {
		if i > 0 && &s[0] == &x.dir[i-1][0] {
			continue // the places that share a shard are neighbours
		}
		for e := range entries(s) {
			if !f(e.key, e.val) {
				return
			}
		}
	}
}

// entries iterates over the slots that are not empty.
func entries[K comparable](lines []line[K]) iter.Seq[slot[K]] {
	return func(yield func(slot[K]) bool) {
		for i := range lines {
			for _, e := range lines[i] {
				if e.val != 0 && !yield(e) {
					return
				}
			}
		}
	}
}

const (
	minShard = 2
	maxShard = 512 // lines: what one change copies, 32 or 64 KiB
	maxDepth = 24  // a shard that does not split by then just grows
)

// shard is the builder's side of one shard.
type shard[K comparable] struct {
	lines []line[K]
	used  int
	depth uint8  // bits of the hash all its keys share
	epoch uint64 // of the last copy: older ones are shared with a snapshot
}

// full says one more entry would make the first probe miss too often.
func (s *shard[K]) full() bool { return (s.used+1)*2 > len(s.lines)*lineSlots }

// dictionary is the builder's side of an index: the same shards, copied before
// the first write after each publication.
type dictionary[K comparable] struct {
	dir   []*shard[K]
	lines [][]line[K] // of each shard of dir, to be published by one copy
	depth uint8
	epoch uint64
	dirty bool
	count int
	view  index[K]
	hash  func(K) uint64
}

func newDictionary[K comparable](hash func(K) uint64) *dictionary[K] {
	d := &dictionary[K]{depth: 1, epoch: 1, dirty: true, hash: hash}
	for range 2 {
		s := &shard[K]{lines: make([]line[K], minShard), depth: 1, epoch: 1}
		d.dir, d.lines = append(d.dir, s), append(d.lines, s.lines)
	}
	return d
}

// publish returns a view that no later write changes.
func (d *dictionary[K]) publish() index[K] {
	if d.dirty {
		d.view = index[K]{dir: slices.Clone(d.lines), shift: 64 - d.depth}
		d.dirty = false
		d.epoch++
	}
	return d.view
}

// at is the position of a hash in the directory.
func (d *dictionary[K]) at(h uint64) uint64 { return h >> (64 - d.depth) }

// places is the part of the directory that holds the shard of hash h, whose keys
// share depth bits.
func (d *dictionary[K]) places(h uint64, depth uint8) (first, end int) {
	span := 1 << (d.depth - depth)
	first = int(d.at(h)) &^ (span - 1)
	return first, first + span
}

// replace gives the shard of hash h other lines.
func (d *dictionary[K]) replace(s *shard[K], h uint64, lines []line[K]) {
	s.lines, s.epoch, d.dirty = lines, d.epoch, true
	for first, end := d.places(h, s.depth); first < end; first++ {
		d.lines[first] = lines
	}
}

// own makes the shard of hash h writable.
func (d *dictionary[K]) own(s *shard[K], h uint64) {
	d.dirty = true
	if s.epoch != d.epoch {
		d.replace(s, h, slices.Clone(s.lines))
	}
}

// home is the position a probe sequence begins at, next the one after i, and at
// the slot there.
func (s *shard[K]) home(h uint64) int { return int(h) & (len(s.lines) - 1) * lineSlots }
func (s *shard[K]) next(i int) int    { return (i + 1) & (len(s.lines)*lineSlots - 1) }
func (s *shard[K]) at(i int) *slot[K] { return &s.lines[i/lineSlots][i%lineSlots] }

// find returns the position of k in s, or of the empty slot where it would go.
func (s *shard[K]) find(h uint64, k K) int {
	i := s.home(h)
	for s.at(i).val != 0 && s.at(i).key != k {
		i = s.next(i)
	}
	return i
}

// set stores val, not 0, under k.
func (d *dictionary[K]) set(k K, val uint64) {
	h := d.hash(k)
	s := d.dir[d.at(h)]
	i := s.find(h, k)
	if s.at(i).val == val {
		return
	}
	if s.at(i).val == 0 {
		for s.full() {
			if len(s.lines) < maxShard || s.depth >= maxDepth {
				d.grow(s, h)
			} else {
				d.split(s, h)
				s = d.dir[d.at(h)]
			}
		}
		i = s.find(h, k)
		s.used++
		d.count++
	}
	d.own(s, h)
	*s.at(i) = slot[K]{k, val}
}

// remove deletes k and closes the gap in its probe sequence (Knuth, volume 3,
// section 6.4, algorithm R).
func (d *dictionary[K]) remove(k K) {
	h := d.hash(k)
	s := d.dir[d.at(h)]
	i := s.find(h, k)
	if s.at(i).val == 0 {
		return
	}
	d.own(s, h)
	s.used--
	d.count--
	mask := len(s.lines)*lineSlots - 1
	for j := s.next(i); s.at(j).val != 0; j = s.next(j) {
		home := s.home(d.hash(s.at(j).key))
		if (j-home)&mask >= (j-i)&mask {
			*s.at(i) = *s.at(j)
			i = j
		}
	}
	*s.at(i) = slot[K]{}
}

// grow doubles the slots of s, the shard of hash h.
func (d *dictionary[K]) grow(s *shard[K], h uint64) {
	old := s.lines
	d.replace(s, h, make([]line[K], 2*len(old)))
	for e := range entries(old) {
		*s.at(s.find(d.hash(e.key), e.key)) = e
	}
}

// split parts s, which holds hash h, by the next bit of the hash; the directory
// doubles if it does not tell that bit yet.
func (d *dictionary[K]) split(s *shard[K], h uint64) {
	if s.depth == d.depth {
		dir := make([]*shard[K], 2*len(d.dir))
		for i, p := range d.dir {
			dir[2*i], dir[2*i+1] = p, p
		}
		d.dir, d.lines = dir, make([][]line[K], len(dir))
		for i, p := range dir {
			d.lines[i] = p.lines
		}
		d.depth++
	}
	d.dirty = true
	depth := s.depth + 1
	var half [2]*shard[K]
	for i := range half {
		half[i] = &shard[K]{lines: make([]line[K], len(s.lines)), depth: depth, epoch: d.epoch}
	}
	for e := range entries(s.lines) {
		eh := d.hash(e.key)
		p := half[eh>>(64-depth)&1]
		*p.at(p.find(eh, e.key)) = e
		p.used++
	}
	first, end := d.places(h, s.depth)
	for i := first; i < end; i++ {
		p := half[(i-first)*2/(end-first)]
		d.dir[i], d.lines[i] = p, p.lines
	}
}

// mix folds the 128-bit product of a and b.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

package table

import (
	"math/bits"
	"slices"
)

// slot is one place of an open-addressing shard; value 0 is an empty place.
type slot[K comparable] struct {
	key K
	val uint64
}

// index is the readers' view: a directory of shards by the top bits of a hash,
// in each shard linear probing from its low bits. Several places of the
// directory may hold the same shard (extendible hashing, Fagin et al. 1979).
type index[K comparable] struct {
	dir   [][]slot[K]
	shift uint8 // 64 less the bits the directory takes; at most 63
}

// get returns the value of k, whose hash is h, or 0.
func (x *index[K]) get(h uint64, k K) uint64 {
	d := h >> (x.shift & 63)
	if d >= uint64(len(x.dir)) {
		return 0
	}
	s := x.dir[d]
	mask := uint64(len(s)) - 1
	for i := h & mask; i < uint64(len(s)); i = (i + 1) & mask {
		p := &s[i]
		if p.key == k {
			return p.val
		}
		if p.val == 0 {
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
		for j := range s {
			if s[j].val != 0 && !f(s[j].key, s[j].val) {
				return
			}
		}
	}
}

const (
	minShard = 8
	maxShard = 2048 // slots: what one change copies, 32 or 64 KiB
	maxDepth = 24   // a shard that does not split by then just grows
)

// shard is the builder's side of one shard.
type shard[K comparable] struct {
	slots []slot[K]
	used  int
	depth uint8  // bits of the hash all its keys share
	epoch uint64 // of the last copy: older ones are shared with a snapshot
}

// full says one more entry would make the first probe miss too often.
func (s *shard[K]) full() bool { return (s.used+1)*2 > len(s.slots) }

// dictionary is the builder's side of an index: the same shards, copied before
// the first write after each publication.
type dictionary[K comparable] struct {
	dir   []*shard[K]
	slots [][]slot[K] // of each shard of dir, to be published by one copy
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
		s := &shard[K]{slots: make([]slot[K], minShard), depth: 1, epoch: 1}
		d.dir, d.slots = append(d.dir, s), append(d.slots, s.slots)
	}
	return d
}

// publish returns a view that no later write changes.
func (d *dictionary[K]) publish() index[K] {
	if d.dirty {
		d.view = index[K]{dir: slices.Clone(d.slots), shift: 64 - d.depth}
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

// replace gives the shard of hash h other slots.
func (d *dictionary[K]) replace(s *shard[K], h uint64, slots []slot[K]) {
	s.slots, s.epoch, d.dirty = slots, d.epoch, true
	for first, end := d.places(h, s.depth); first < end; first++ {
		d.slots[first] = slots
	}
}

// own makes the shard of hash h writable.
func (d *dictionary[K]) own(s *shard[K], h uint64) {
	d.dirty = true
	if s.epoch != d.epoch {
		d.replace(s, h, slices.Clone(s.slots))
	}
}

// find returns the position of k in s, or of the empty slot where it would go.
func (s *shard[K]) find(h uint64, k K) int {
	mask := uint64(len(s.slots)) - 1
	i := h & mask
	for s.slots[i].val != 0 && s.slots[i].key != k {
		i = (i + 1) & mask
	}
	return int(i)
}

// set stores val, not 0, under k.
func (d *dictionary[K]) set(k K, val uint64) {
	h := d.hash(k)
	s := d.dir[d.at(h)]
	i := s.find(h, k)
	if s.slots[i].val == val {
		return
	}
	if s.slots[i].val == 0 {
		for s.full() {
			if len(s.slots) < maxShard || s.depth >= maxDepth {
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
	s.slots[i] = slot[K]{k, val}
}

// remove deletes k and closes the gap in its probe sequence (Knuth, volume 3,
// section 6.4, algorithm R).
func (d *dictionary[K]) remove(k K) {
	h := d.hash(k)
	s := d.dir[d.at(h)]
	i := s.find(h, k)
	if s.slots[i].val == 0 {
		return
	}
	d.own(s, h)
	s.used--
	d.count--
	mask := len(s.slots) - 1
	for j := (i + 1) & mask; s.slots[j].val != 0; j = (j + 1) & mask {
		home := int(d.hash(s.slots[j].key)) & mask
		if (j-home)&mask >= (j-i)&mask {
			s.slots[i] = s.slots[j]
			i = j
		}
	}
	s.slots[i] = slot[K]{}
}

// grow doubles the slots of s, the shard of hash h.
func (d *dictionary[K]) grow(s *shard[K], h uint64) {
	old := s.slots
	d.replace(s, h, make([]slot[K], 2*len(old)))
	for _, e := range old {
		if e.val != 0 {
			s.slots[s.find(d.hash(e.key), e.key)] = e
		}
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
		d.dir, d.slots = dir, make([][]slot[K], len(dir))
		for i, p := range dir {
			d.slots[i] = p.slots
		}
		d.depth++
	}
	d.dirty = true
	depth := s.depth + 1
	var half [2]*shard[K]
	for i := range half {
		half[i] = &shard[K]{slots: make([]slot[K], len(s.slots)), depth: depth, epoch: d.epoch}
	}
	for _, e := range s.slots {
		if e.val != 0 {
			eh := d.hash(e.key)
			p := half[eh>>(64-depth)&1]
			p.slots[p.find(eh, e.key)] = e
			p.used++
		}
	}
	first, end := d.places(h, s.depth)
	for i := first; i < end; i++ {
		p := half[(i-first)*2/(end-first)]
		d.dir[i], d.slots[i] = p, p.slots
	}
}

// mix folds the 128-bit product of a and b.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

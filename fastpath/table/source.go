package table

import (
	"slices"

	"picot.dev/picot/fastpath/srv6"
)

// sourceTable finds the nodes whose locators have one length. Immutable.
type sourceTable struct {
	mask  uint64 // of the length
	shift uint8
	slots []sourceSlot
}

// sourceSlot has node 0 if empty.
type sourceSlot struct {
	hi   uint64
	node NodeIndex
}

func (t *sourceTable) home(hi uint64) uint64 { return hi * 0x9e3779b97f4a7c15 >> (t.shift & 63) }

func (t *sourceTable) get(hi uint64) NodeIndex {
	hi &= t.mask
	mask := uint64(len(t.slots)) - 1
	for i := t.home(hi); i < uint64(len(t.slots)); i = (i + 1) & mask {
		p := &t.slots[i]
		if p.hi == hi || p.node == 0 {
			return p.node
		}
	}
	return 0
}

// compileSources makes the tables of the locators of all known nodes but those
// that overlap our own.
func compileSources(nodes []NodeView, self srv6.Locator) []sourceTable {
	byBits := map[uint8][]NodeIndex{}
	for i := range nodes {
		n := &nodes[i]
		if n.Known && !n.Locator.Overlaps(self) {
			byBits[n.Locator.Bits] = append(byBits[n.Locator.Bits], NodeIndex(i))
		}
	}
	var tables []sourceTable
	for bits, list := range byBits {
		t := sourceTable{mask: srv6.Locator{Bits: bits}.Mask(), shift: 63}
		size := 2
		for size < 2*len(list)+1 {
			size *= 2
			t.shift--
		}
		t.slots = make([]sourceSlot, size)
		for _, n := range list {
			hi := nodes[n].Locator.Hi
			i := t.home(hi)
			for t.slots[i].node != 0 {
				i = (i + 1) & uint64(size-1)
			}
			t.slots[i] = sourceSlot{hi, n}
		}
		tables = append(tables, t)
	}
	// The commonest length first.
	slices.SortFunc(tables, func(a, b sourceTable) int { return len(b.slots) - len(a.slots) })
	return tables
}

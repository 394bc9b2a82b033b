package fastpath

import "sync/atomic"

// Counters are one port's totals since the port was added: a consistent copy
// of nothing but monotonic numbers, each read on its own.
type Counters struct {
	RX, RXBytes uint64 // frames and bytes taken from the port's rx rings
	TX, TXBytes uint64 // frames and bytes put into the port's tx rings
	// TXBusy are frames of TX that the kernel said it dropped (EBUSY).
	TXBusy uint64
	// Errors are ICMP errors sent back to the port beside the verdict.
	Errors uint64
	// Bogus are ring entries that named a frame the ring did not hold.
	Bogus    uint64
	Verdicts [NumVerdicts]uint64 // Verdicts[Dropped] is the sum of Drops
	Drops    [NumReasons]uint64
}

// Unaccounted is what the promise of the package says is 0 once the port is
// quiet: received frames without a verdict.
func (c Counters) Unaccounted() int64 {
	n := int64(c.RX)
	for _, v := range c.Verdicts {
		n -= int64(v)
	}
	return n
}

// The cells of a port's row.
const (
	cellRX = iota
	cellRXBytes
	cellTX
	cellTXBytes
	cellTXBusy
	cellErrors
	cellBogus
	cellVerdict // NumVerdicts cells; Dropped is derived, its cell stays 0
	cellDrop    = cellVerdict + int(NumVerdicts)
	numCells    = cellDrop + int(NumReasons)
)

// row is one port's counters as one worker writes them. Rows of two workers
// never share a cache line: each worker has its own array.
type row [numCells]atomic.Uint64

// add is for the owning worker only: there is no other writer, so load and
// store need no locked read-modify-write.
func (r *row) add(cell int, n uint64) { r[cell].Store(r[cell].Load() + n) }

func (r *row) addTo(c *Counters) {
	c.RX += r[cellRX].Load()
	c.RXBytes += r[cellRXBytes].Load()
	c.TX += r[cellTX].Load()
	c.TXBytes += r[cellTXBytes].Load()
	c.TXBusy += r[cellTXBusy].Load()
	c.Errors += r[cellErrors].Load()
	c.Bogus += r[cellBogus].Load()
	for v := Local; v < NumVerdicts; v++ {
		c.Verdicts[v] += r[cellVerdict+int(v)].Load()
	}
	for i := range c.Drops {
		n := r[cellDrop+i].Load()
		c.Drops[i] += n
		c.Verdicts[Dropped] += n
	}
}

// tally gathers the counts of one batch of one ingress port and publishes them
// at its end: one store a touched cell instead of one a frame.
type tally struct {
	count   [numCells]int32
	touched []uint16
	bytes   uint64
}

func newTally() tally { return tally{touched: make([]uint16, 0, numCells)} }

func (t *tally) add(cell int, n int32) {
	if t.count[cell] == 0 {
		t.touched = append(t.touched, uint16(cell))
	}
	t.count[cell] += n
}

// publish adds what was gathered to r and empties the tally.
func (t *tally) publish(r *row) {
	for _, c := range t.touched {
		if n := t.count[c]; n != 0 {
			r.add(int(c), uint64(int64(n)))
			t.count[c] = 0
		}
	}
	t.touched = t.touched[:0]
	if t.bytes != 0 {
		r.add(cellRXBytes, t.bytes)
		t.bytes = 0
	}
}

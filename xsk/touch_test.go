package xsk_test

import (
	"encoding/binary"
	"sync"
	"testing"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

// Populate and Touch leave what is in the frames as it is, while another process,
// here another mapping, goes on writing to them.
func TestTouchWhileFramesAreWritten(t *testing.T) {
	const chunks, rounds = 64, 2000
	m := xsktest.Memory(t, 2, chunks)
	other, err := xsk.MemoryFromFD(dup(t, m.FD()), xsk.MemoryOptions{Shards: 2, ChunksPerShard: chunks})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	words := func(m *xsk.Memory, chunk int) []byte { return m.Frame(xsk.Addr(chunk*xsk.ChunkSize), 8) }
	var writing sync.WaitGroup
	writing.Go(func() {
		for n := range uint64(rounds) {
			for c := range 2 * chunks {
				w := words(m, c)
				if got := binary.NativeEndian.Uint64(w); got != n {
					t.Errorf("chunk %d: %d was written, %d is there", c, n, got)
					return
				}
				binary.NativeEndian.PutUint64(w, n+1)
			}
		}
	})
	for range 50 {
		if err := other.Populate(); err != nil {
			t.Fatal(err)
		}
		other.Touch(other.Whole(), nil)
	}
	writing.Wait()
	for c := range 2 * chunks {
		if got := binary.NativeEndian.Uint64(words(other, c)); got != rounds {
			t.Errorf("chunk %d: %d, want %d", c, got, rounds)
		}
	}
}

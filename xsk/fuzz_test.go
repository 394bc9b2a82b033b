package xsk_test

import (
	"encoding/binary"
	"testing"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

// FuzzHostileKernel writes any words and indices into the kernel's side. Every
// address that comes out must be readable and in the region.
func FuzzHostileKernel(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0})
	f.Add([]byte{4, 255, 255, 255, 255, 255, 255, 255, 255, 9, 0, 0, 0, 1, 0, 48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{2, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	m, err := xsk.NewMemory(xsk.MemoryOptions{Shards: 3, ChunksPerShard: 8})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { m.Close() })
	r := m.Shard(1)
	f.Fuzz(func(t *testing.T, script []byte) {
		s, k := xsktest.New(t, m, r, small)
		var d [8]xsk.Desc
		var a [8]xsk.Addr
		for len(script) >= 13 {
			word, length := binary.LittleEndian.Uint64(script[1:]), binary.LittleEndian.Uint32(script[9:])
			switch script[0] % 8 {
			case 0:
				k.ReceiveRaw(word, length, uint32(word>>60))
			case 1:
				k.CompleteRaw(word)
			case 2, 3, 4, 5:
				k.SetIndex(xsk.RingKind(script[0]%8-2), uint32(word))
			case 6:
				s.Transmit([]xsk.Desc{{Addr: xsk.Addr(word), Len: length}})
			case 7:
				s.Fill([]xsk.Addr{xsk.Addr(word)})
			}
			script = script[13:]
			for _, d := range d[:s.Receive(d[:])] {
				if !r.Contains(d.Addr) {
					t.Fatalf("received %+v", d)
				}
				m.Frame(d.Addr, int(d.Len))
			}
			for _, a := range a[:s.Complete(a[:])] {
				if !r.Contains(a) {
					t.Fatalf("completed %d", a)
				}
				m.Chunk(a)
			}
			if s.FillFree() > 8 || s.TXFree() > 8 || s.Received() > 8 || s.Outstanding() < 0 {
				t.Fatalf("fill %d tx %d rx %d outstanding %d", s.FillFree(), s.TXFree(), s.Received(), s.Outstanding())
			}
		}
	})
}

package xsk_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

// small is four rings of 8.
var small = xsk.Options{Fill: 8, Completion: 8, RX: 8, TX: 8}

// Indices are free-running: start just before the wrap at 2^32 and go across.
func TestIndexWrap(t *testing.T) {
	for _, first := range []uint32{0, 1<<32 - 3, 1<<32 - 8, 1<<31 - 5} {
		m := xsktest.Memory(t, 2, 8)
		r := m.Shard(1)
		s, k := xsktest.NewAt(t, m, r, small, first)
		free := chunks(r, 0, 8)
		for seq := range 200 {
			if n := s.Fill(free); n != len(free) || s.FillFree() != 0 {
				t.Fatalf("first %d, frame %d: filled %d, free %d", first, seq, n, s.FillFree())
			}
			free = free[:0]
			want := frame(seq, 64+seq)
			if !k.Deliver(want) {
				t.Fatalf("first %d: not delivered", first)
			}
			var d [8]xsk.Desc
			if s.Received() != 1 || s.Receive(d[:]) != 1 || !bytes.Equal(m.Frame(d[0].Addr, int(d[0].Len)), want) {
				t.Fatalf("first %d: frame %d did not come", first, seq)
			}
			if s.Transmit(d[:1]) != 1 || s.TXQueued() != 1 || s.Outstanding() != 1 {
				t.Fatalf("first %d: not queued", first)
			}
			if s.Kick() != xsk.KickOK || s.TXQueued() != 0 {
				t.Fatalf("first %d: not sent", first)
			}
			var out [8]xsk.Addr
			if s.Complete(out[:]) != 1 || out[0] != d[0].Addr || s.Outstanding() != 0 {
				t.Fatalf("first %d: completion %d of %d", first, out[0], d[0].Addr)
			}
			if sent := k.Sent(); len(sent) != 1 || !bytes.Equal(sent[0], want) {
				t.Fatalf("first %d: sent % x", first, sent)
			}
			free = append(free, out[0])
		}
		if f := s.Faults(); f != (xsk.Faults{}) {
			t.Errorf("first %d: %+v", first, f)
		}
	}
}

func TestFullRings(t *testing.T) {
	m := xsktest.Memory(t, 1, 16)
	s, k := xsktest.New(t, m, m.Whole(), small)
	if n := s.Fill(chunks(m.Whole(), 0, 16)); n != 8 || s.FillFree() != 0 {
		t.Errorf("filled %d of 8", n)
	}
	descs := make([]xsk.Desc, 16)
	for i := range descs {
		descs[i] = xsk.Desc{Addr: xsk.Addr(i * xsk.ChunkSize), Len: 60}
	}
	if n := s.Transmit(descs); n != 8 || s.TXFree() != 0 || s.Outstanding() != 8 {
		t.Errorf("queued %d of 8", n)
	}
	s.Kick()
	if n := s.Transmit(descs[8:]); n != 8 {
		t.Errorf("queued %d after the kick", n)
	}
	if k := s.Kick(); k != xsk.KickAgain { // completion ring is full
		t.Errorf("kick: %v", k)
	}
	for range 9 {
		k.Deliver(frame(0, 64))
	}
	st, _ := s.Stats()
	if s.Received() != 8 || st.RXFillEmpty != 1 {
		t.Errorf("received %d, %+v", s.Received(), st)
	}
	if s.Receive(nil) != 0 || s.Complete(nil) != 0 || s.Fill(nil) != 0 || s.Transmit(nil) != 0 {
		t.Error("something came of nothing")
	}
	if f := s.Faults(); f != (xsk.Faults{}) {
		t.Errorf("%+v", f)
	}
}

// Whatever the kernel would skip without a completion, which loses the frame,
// never enters the ring.
func TestTransmitRefuses(t *testing.T) {
	m := xsktest.Memory(t, 3, 8)
	r := m.Shard(1)
	for name, d := range map[string]xsk.Desc{
		"below the region":    {Addr: r.Base() - 1, Len: 1},
		"above the region":    {Addr: r.Base() + 8*xsk.ChunkSize, Len: 60},
		"far away":            {Addr: 1 << 63, Len: 60},
		"empty":               {Addr: r.Base(), Len: 0},
		"over the chunk":      {Addr: r.Base() + 4000, Len: 97},
		"over any chunk":      {Addr: r.Base(), Len: 1<<32 - 1},
		"stray bit":           {Addr: r.Base(), Len: 60, Options: xsk.OptionContinues},
		"metadata not wanted": {Addr: r.Base() + 256, Len: 60, Options: xsk.OptionTXMetadata},
		"unknown bit":         {Addr: r.Base(), Len: 60, Options: 1 << 31},
	} {
		s, k := xsktest.New(t, m, r, small)
		good := xsk.Desc{Addr: r.Base() + 4000, Len: 96}
		if n := s.Transmit([]xsk.Desc{good, d, good}); n != 1 || s.Faults().RejectedTX != 1 || s.Outstanding() != 1 {
			t.Errorf("%s: took %d, %+v", name, n, s.Faults())
		}
		s.Kick()
		if st, _ := s.Stats(); len(k.Sent()) != 1 || st.TXInvalid != 0 {
			t.Errorf("%s: %+v", name, st)
		}
	}
	// Where metadata is negotiated every frame needs room for it.
	o := small
	o.TXMetadata = true
	s, _ := xsktest.New(t, m, r, o)
	if n := s.Transmit([]xsk.Desc{{Addr: r.Base() + 23, Len: 60}}); n != 0 {
		t.Error("took a frame without room for metadata")
	}
	if n := s.Transmit([]xsk.Desc{{Addr: r.Base() + 24, Len: 60, Options: xsk.OptionTXMetadata}}); n != 1 {
		t.Error("refused a frame with metadata")
	}
}

func TestFillRefuses(t *testing.T) {
	m := xsktest.Memory(t, 3, 8)
	r := m.Shard(1)
	for _, a := range []xsk.Addr{0, r.Base() - 1, r.Base() + 8*xsk.ChunkSize, 1 << 63} {
		s, _ := xsktest.New(t, m, r, small)
		if n := s.Fill([]xsk.Addr{r.Base(), a, r.Base() + xsk.ChunkSize}); n != 1 || s.Faults().RejectedFill != 1 {
			t.Errorf("address %d: took %d, %+v", a, n, s.Faults())
		}
	}
}

// A kernel that lies about addresses cannot make anyone leave the region.
func TestHostileAddresses(t *testing.T) {
	m := xsktest.Memory(t, 3, 8)
	r := m.Shard(1)
	s, k := xsktest.New(t, m, r, small)
	size := uint64(r.Len())
	k.CompleteRaw(size, 4096+300, 1<<63, ^uint64(0), size-1)
	var out [8]xsk.Addr
	if n := s.Complete(out[:]); n != 2 || out[0] != r.Base()+4096+300 || out[1] != r.Base()+xsk.Addr(size)-1 {
		t.Errorf("completions %v", out[:n])
	}
	if f := s.Faults(); f.BogusCompletions != 3 || f.ExcessCompletions != 2 || s.Outstanding() != 0 {
		t.Errorf("%+v, outstanding %d", f, s.Outstanding())
	}
	k.ReceiveRaw(size, 60, 0)
	k.ReceiveRaw(^uint64(0), 60, 0)
	k.ReceiveRaw(256, 60, 0)
	k.ReceiveRaw(4096+256, 3841, 0)
	k.ReceiveRaw(2*4096, 1<<32-1, 0)
	k.ReceiveRaw(3*4096, 4096, 0)
	var d [8]xsk.Desc
	n := s.Receive(d[:])
	want := []xsk.Desc{
		{Addr: r.Base() + 256, Len: 60},
		{Addr: r.Base() + 4096 + 256, Len: 0}, // kept: its chunk must not be lost
		{Addr: r.Base() + 2*4096, Len: 0},
		{Addr: r.Base() + 3*4096, Len: 4096},
	}
	if !slices.Equal(d[:n], want) || s.Faults().BogusRX != 4 {
		t.Errorf("received %v, %+v", d[:n], s.Faults())
	}
	for _, d := range d[:n] {
		m.Frame(d.Addr, int(d.Len))
	}
}

func TestDuplicateCompletionIsCounted(t *testing.T) {
	m := xsktest.Memory(t, 1, 8)
	s, k := xsktest.New(t, m, m.Whole(), small)
	s.Transmit([]xsk.Desc{{Addr: 256, Len: 60}})
	s.Kick()
	k.CompleteRaw(256, 256)
	var out [8]xsk.Addr
	if n := s.Complete(out[:]); n != 3 || s.Faults().ExcessCompletions != 2 || s.Outstanding() != 0 {
		t.Errorf("%d completions, %+v", n, s.Faults())
	}
}

// A kernel index that cannot be is ignored and counted; a right one later is
// taken again.
func TestHostileIndices(t *testing.T) {
	for _, first := range []uint32{0, 1<<32 - 2} {
		m := xsktest.Memory(t, 1, 16)
		s, k := xsktest.NewAt(t, m, m.Whole(), small, first)
		var d [16]xsk.Desc
		var a [16]xsk.Addr
		bad := uint64(0)
		for _, v := range []uint32{first - 1, first + 9, first + 1<<31, first - 1<<31} {
			k.SetIndex(xsk.RXRing, v)
			k.SetIndex(xsk.CompletionRing, v)
			if n := s.Receive(d[:]); n != 0 {
				t.Errorf("producer at %d of %d: received %d", v, first, n)
			}
			if n := s.Complete(a[:]); n != 0 {
				t.Errorf("producer at %d of %d: completed %d", v, first, n)
			}
			bad += 2
		}
		k.SetIndex(xsk.RXRing, first)
		k.SetIndex(xsk.CompletionRing, first)
		s.Fill(chunks(m.Whole(), 0, 4))
		s.Transmit([]xsk.Desc{{Addr: 0, Len: 60}, {Addr: 4096, Len: 60}})
		bad = s.Faults().BadIndex
		if bad != 8 {
			t.Errorf("%d bad indices counted, want 8", bad)
		}
		for _, v := range []uint32{first - 1, first + 5, first + 1<<31} {
			k.SetIndex(xsk.FillRing, v)
			k.SetIndex(xsk.TXRing, v)
			if s.FillFree() != 4 || s.TXFree() != 6 {
				t.Errorf("consumer at %d of %d: %d and %d free", v, first, s.FillFree(), s.TXFree())
			}
			bad += 2
		}
		if got := s.Faults().BadIndex; got != bad {
			t.Errorf("%d bad indices counted, want %d", got, bad)
		}
		k.SetIndex(xsk.FillRing, first)
		k.SetIndex(xsk.TXRing, first)
		if !k.Deliver(frame(1, 60)) || s.Receive(d[:]) != 1 || s.Kick() != xsk.KickOK || s.Complete(a[:]) != 2 {
			t.Error("does not go on with sound indices")
		}
	}
}

// Random walk against the obvious model: where each chunk is. With two
// goroutines, the race detector judges the atomics.
func TestNoChunkIsLost(t *testing.T) {
	const chunkCount = 24
	m := xsktest.Memory(t, 2, chunkCount)
	r := m.Shard(1)
	s, k := xsktest.NewAt(t, m, r, xsk.Options{Fill: 16, Completion: 16, RX: 8, TX: 16}, 1<<32-100)
	// The device's receive side, on the raw rings: no lock orders the two.
	stop := make(chan struct{})
	var device sync.WaitGroup
	device.Go(func() {
		p := k.Peer()
		for seq := 0; ; {
			select {
			case <-stop:
				return
			default:
			}
			addr, ok := p.TakeFill()
			if !ok {
				runtime.Gosched()
				continue
			}
			f := m.Frame(r.Base()+xsk.Addr(addr+xsk.KernelHeadroom), 60+seq%1000)
			copy(f, frame(seq, len(f)))
			for !p.PutRX(addr+xsk.KernelHeadroom, uint32(len(f)), 0) {
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
				}
			}
			seq++
		}
	})
	rnd := rand.New(rand.NewPCG(1, 2))
	where := map[xsk.Addr]string{}
	free := chunks(r, 0, chunkCount)
	for _, a := range free {
		where[a] = "free"
	}
	move := func(a xsk.Addr, from, to string) {
		if where[a.Chunk()] != from {
			t.Fatalf("chunk %d is %s, not %s", a.Chunk(), where[a.Chunk()], from)
		}
		where[a.Chunk()] = to
	}
	var rx []xsk.Desc
	var out [16]xsk.Addr
	received := 0
	deadline := time.Now().Add(time.Minute)
	for received < 5000 && !time.Now().After(deadline) {
		switch rnd.IntN(5) {
		case 0:
			n := s.Fill(free[:rnd.IntN(len(free)+1)])
			for _, a := range free[:n] {
				move(a, "free", "fill")
			}
			free = free[n:]
		case 1:
			var d [16]xsk.Desc
			n := s.Receive(d[:rnd.IntN(17)])
			for _, d := range d[:n] {
				move(d.Addr, "fill", "rx")
				if m.Frame(d.Addr, int(d.Len))[12] != etherType>>8 {
					t.Fatal("not a frame")
				}
			}
			rx = append(rx, d[:n]...)
			received += n
		case 2:
			n := s.Transmit(rx[:rnd.IntN(len(rx)+1)])
			for _, d := range rx[:n] {
				move(d.Addr, "rx", "tx")
			}
			rx = rx[n:]
		case 3:
			s.Kick()
			k.Sent()
			runtime.Gosched() // the device's turn, on one core
		case 4:
			n := s.Complete(out[:rnd.IntN(17)])
			for _, a := range out[:n] {
				move(a, "tx", "free")
				free = append(free, a.Chunk())
			}
		}
	}
	close(stop)
	device.Wait()
	if f := s.Faults(); f != (xsk.Faults{}) || received < 5000 {
		t.Errorf("received %d, %+v", received, f)
	}
	count := map[string]int{}
	for _, w := range where {
		count[w]++
	}
	if count["tx"] != s.Outstanding() || count["free"] != len(free) || count["rx"] != len(rx) {
		t.Errorf("%v, outstanding %d", count, s.Outstanding())
	}
	t.Logf("%d frames round, at the end %v", received, count)
}

package spsc

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

func mustNew(t testing.TB, capacity int) *Ring[uint64] {
	t.Helper()
	r, err := New[uint64](capacity)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// startAt moves an empty ring's free-running indexes, to reach their wrap.
func startAt(r *Ring[uint64], index uint32) {
	r.nextTail, r.seenHead, r.nextHead, r.seenTail = index, index, index, index
	r.head.Store(index)
	r.tail.Store(index)
}

func TestCapacityIsAPowerOfTwo(t *testing.T) {
	for capacity, ok := range map[int]bool{
		-1: false, 0: false, 1: true, 2: true, 3: false, 1000: false, 1024: true,
		MaxCapacity: true, 2 * MaxCapacity: false,
	} {
		if r, err := New[byte](capacity); (err == nil) != ok {
			t.Errorf("New(%d): %v", capacity, err)
		} else if ok && r.Cap() != capacity {
			t.Errorf("New(%d).Cap() = %d", capacity, r.Cap())
		}
	}
}

func TestFullAndEmpty(t *testing.T) {
	r := mustNew(t, 4)
	if _, ok := r.Pop(); ok || r.Len() != 0 || r.Free() != 4 {
		t.Fatal("a new ring is not empty")
	}
	if n := r.PushBatch([]uint64{1, 2, 3, 4, 5, 6}); n != 4 {
		t.Fatalf("pushed %d into 4 slots", n)
	}
	if r.Push(9) || r.PushBatch([]uint64{9}) != 0 || r.Free() != 0 {
		t.Fatal("a full ring took an element")
	}
	out := make([]uint64, 3)
	if n := r.PopBatch(out); n != 3 || !slices.Equal(out, []uint64{1, 2, 3}) {
		t.Fatalf("popped %d: %v", n, out)
	}
	if r.Len() != 1 || r.Free() != 3 {
		t.Fatalf("len %d free %d", r.Len(), r.Free())
	}
	if r.PopBatch(nil) != 0 || r.PushBatch(nil) != 0 {
		t.Fatal("an empty batch moved elements")
	}
}

// The ring against a plain slice, one thread, random operations, across the wrap
// of the 32-bit indexes.
func TestAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, capacity := range []int{1, 2, 8, 64} {
		r := mustNew(t, capacity)
		startAt(r, ^uint32(0)-500)
		var model []uint64
		next := uint64(0)
		for step := range 20_000 {
			switch rng.IntN(4) {
			case 0:
				if ok := r.Push(next); ok != (len(model) < capacity) {
					t.Fatalf("cap %d step %d: Push = %v with %d waiting", capacity, step, ok, len(model))
				} else if ok {
					model = append(model, next)
				}
				next++
			case 1:
				batch := make([]uint64, rng.IntN(2*capacity+1))
				for i := range batch {
					batch[i] = next
					next++
				}
				n := r.PushBatch(batch)
				if want := min(len(batch), capacity-len(model)); n != want {
					t.Fatalf("cap %d step %d: pushed %d, want %d", capacity, step, n, want)
				}
				model = append(model, batch[:n]...)
			case 2:
				v, ok := r.Pop()
				if ok != (len(model) > 0) || ok && v != model[0] {
					t.Fatalf("cap %d step %d: Pop = %d, %v; model %v", capacity, step, v, ok, model)
				}
				if ok {
					model = model[1:]
				}
			case 3:
				out := make([]uint64, rng.IntN(2*capacity+1))
				n := r.PopBatch(out)
				if want := min(len(out), len(model)); n != want || !slices.Equal(out[:n], model[:n]) {
					t.Fatalf("cap %d step %d: popped %v, model %v", capacity, step, out[:n], model)
				}
				model = model[n:]
			}
			if r.Len() != len(model) || r.Free() != capacity-len(model) {
				t.Fatalf("cap %d step %d: len %d free %d, model %d", capacity, step, r.Len(), r.Free(), len(model))
			}
		}
	}
}

// Two threads with hostile interleavings: tiny ring, wrap of the indexes, random
// batch sizes, yields at random places. Every element arrives once, in order and
// whole (the two words of an element always match).
func TestHostileInterleaving(t *testing.T) {
	type element struct{ seq, check uint64 }
	const total = 200_000
	for _, capacity := range []int{1, 2, 16, 256} {
		r, err := New[element](capacity)
		if err != nil {
			t.Fatal(err)
		}
		start := ^uint32(0) - total/2
		r.nextTail, r.seenHead, r.nextHead, r.seenTail = start, start, start, start
		r.head.Store(start)
		r.tail.Store(start)

		go func() {
			rng := rand.New(rand.NewPCG(uint64(capacity), 1))
			batch := make([]element, 0, 2*capacity)
			for seq := uint64(0); seq < total; {
				if rng.IntN(2) == 0 {
					if r.Push(element{seq, ^seq}) {
						seq++
					} else {
						runtime.Gosched()
					}
					continue
				}
				batch = batch[:0]
				for i := range uint64(1 + rng.IntN(2*capacity)) {
					if seq+i == total {
						break
					}
					batch = append(batch, element{seq + i, ^(seq + i)})
				}
				n := r.PushBatch(batch)
				seq += uint64(n)
				if n < len(batch) || rng.IntN(8) == 0 {
					runtime.Gosched()
				}
			}
		}()

		rng := rand.New(rand.NewPCG(uint64(capacity), 2))
		out := make([]element, 2*capacity)
		for want := uint64(0); want < total; {
			n := 0
			if rng.IntN(2) == 0 {
				if v, ok := r.Pop(); ok {
					out[0], n = v, 1
				}
			} else {
				n = r.PopBatch(out[:1+rng.IntN(len(out))])
			}
			for _, e := range out[:n] {
				if e.seq != want || e.check != ^want {
					t.Fatalf("cap %d: got %d/%d, want %d", capacity, e.seq, ^e.check, want)
				}
				want++
			}
			if n == 0 || rng.IntN(8) == 0 {
				runtime.Gosched()
			}
		}
		if r.Len() != 0 {
			t.Fatalf("cap %d: %d elements too many", capacity, r.Len())
		}
	}
}

func TestNoAllocs(t *testing.T) {
	r := mustNew(t, 64)
	batch := make([]uint64, 32)
	if n := testing.AllocsPerRun(1000, func() {
		r.Push(1)
		r.Pop()
		r.PushBatch(batch)
		r.PopBatch(batch)
	}); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}

func BenchmarkPushPop(b *testing.B) {
	r := mustNew(b, 1024)
	b.ReportAllocs()
	for b.Loop() {
		r.Push(1)
		r.Pop()
	}
}

func BenchmarkBatch32(b *testing.B) {
	r := mustNew(b, 1024)
	batch := make([]uint64, 32)
	b.ReportAllocs()
	for b.Loop() {
		r.PushBatch(batch)
		r.PopBatch(batch)
	}
}

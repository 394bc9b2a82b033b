package arpnd

import (
	"testing"

	"picot.dev/picot/internal/packet"
)

// answer is the whole way from a frame to its answer, as a worker goes it.
func answer(chunk []byte, n int, v *View) int {
	var l packet.Layout
	var m Message
	if !packet.Parse(chunk[:n], &l) || Parse(chunk[:n], &l, &m) != OK || Decide(&m, v) != Answer {
		return 0
	}
	Evidence(&m)
	mac, router := v.Answer()
	return Reply(chunk, n, &l, &m, mac, router)
}

func benchmarkAnswer(b *testing.B, frame []byte) {
	chunk := make([]byte, 4096)
	v := held()
	b.ReportAllocs()
	for b.Loop() {
		n := copy(chunk, frame)
		if answer(chunk, n, &v) == 0 {
			b.Fatal("no answer")
		}
	}
}

func BenchmarkAnswerARP(b *testing.B)   { benchmarkAnswer(b, request().frame(b)) }
func BenchmarkAnswerNS(b *testing.B)    { benchmarkAnswer(b, ns().frame(b)) }
func BenchmarkAnswerDADNS(b *testing.B) { benchmarkAnswer(b, dad().frame(b)) }

func BenchmarkBucket(b *testing.B) {
	bucket := NewBucket(1000, 100, 0)
	now := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 100
		bucket.Take(now)
	}
}

func TestNoAllocations(t *testing.T) {
	v := held()
	chunk := make([]byte, 4096)
	bucket := NewBucket(1000, 100, 0)
	for name, frame := range map[string][]byte{"ARP": request().frame(t), "NS": ns().frame(t), "DAD NS": dad().frame(t)} {
		if got := testing.AllocsPerRun(100, func() { answer(chunk, copy(chunk, frame), &v) }); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
	if got := testing.AllocsPerRun(100, func() {
		BuildGARP(chunk, owner4, owner)
		BuildUnsolicitedNA(chunk, owner6, owner, true)
		BuildProbe(chunk, Prober{MAC: ProbeMAC()}, owner6, owner)
		bucket.Take(1)
	}); got != 0 {
		t.Errorf("builders: %v allocations", got)
	}
}

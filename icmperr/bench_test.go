package icmperr

import (
	"testing"

	"picot.dev/picot/internal/packet"
)

func BenchmarkPacketTooBig(b *testing.B) {
	benchmark(b, udp6(1400).frame(b), func(c []byte, n int, l *packet.Layout) int { return PacketTooBig(c, n, l, from6, 1280) })
}

func BenchmarkFragNeeded(b *testing.B) {
	benchmark(b, udp4(1400).frame(b), func(c []byte, n int, l *packet.Layout) int { return FragNeeded(c, n, l, from4, 1280) })
}

func benchmark(b *testing.B, frame []byte, w writer) {
	chunk := make([]byte, 4096)
	l := layout(b, frame)
	b.ReportAllocs()
	for b.Loop() {
		if w(chunk, copy(chunk, frame), &l) == 0 {
			b.Fatal("refused")
		}
	}
}

func TestNoAllocations(t *testing.T) {
	chunk := make([]byte, 4096)
	frame4, frame6, too := udp4(1400).frame(t), udp6(1400).frame(t), ptb(t, 2, 1400, outer(udp4(1400).frame(t))[:1232])
	l4, l6, lt := layout(t, frame4), layout(t, frame6), layout(t, too)
	if got := testing.AllocsPerRun(100, func() {
		if FragNeeded(chunk, copy(chunk, frame4), &l4, from4, 1400) == 0 || PacketTooBig(chunk, copy(chunk, frame6), &l6, from6, 1400) == 0 ||
			TimeExceeded(chunk, copy(chunk, frame4), &l4, from4) == 0 || HostUnreachable(chunk, copy(chunk, frame6), &l6, from6) == 0 {
			t.Error("refused")
		}
		if _, ok := ParsePTB(too, &lt); !ok {
			t.Error("PTB refused")
		}
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

package packet

import (
	"fmt"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

func BenchmarkParse(b *testing.B) {
	for _, v6 := range []bool{false, true} {
		frame := flow{v6: v6, proto: layers.IPProtocolUDP, payload: make([]byte, 22)}.build(b)
		b.Run(fmt.Sprintf("v6=%v", v6), func(b *testing.B) {
			var l Layout
			for b.Loop() {
				Parse(frame, &l)
			}
		})
	}
}

func BenchmarkFlowHash(b *testing.B) {
	for _, v6 := range []bool{false, true} {
		frame := flow{v6: v6, proto: layers.IPProtocolUDP, payload: make([]byte, 22)}.build(b)
		l, k := mustParse(b, frame), HashKey{1, 2}
		b.Run(fmt.Sprintf("v6=%v", v6), func(b *testing.B) {
			for b.Loop() {
				FlowHash(&k, frame, l)
			}
		})
	}
}

func BenchmarkCompleteChecksum(b *testing.B) {
	for _, v6 := range []bool{false, true} {
		frame := flow{v6: v6, proto: layers.IPProtocolUDP, payload: make([]byte, 22)}.build(b)
		l := mustParse(b, frame)
		b.Run(fmt.Sprintf("complete/v6=%v", v6), func(b *testing.B) {
			for b.Loop() {
				CompleteChecksum(frame, l)
			}
		})
	}
	big := flow{proto: layers.IPProtocolTCP, payload: make([]byte, 1400)}.build(b)
	l := mustParse(b, big)
	makePartial(b, big, l)
	field := TCP(big[l.L4:]).Checksum()
	b.Run("partial/1454", func(b *testing.B) {
		b.SetBytes(int64(len(big)))
		for b.Loop() {
			TCP(big[l.L4:]).SetChecksum(field)
			CompleteChecksum(big, l)
		}
	})
}

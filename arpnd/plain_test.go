package arpnd

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"picot.dev/picot/internal/packet"
)

// TestPlainSolicitationsAreReadAlike: what is read of a solicitation by whole
// words is what the way of all other messages reads of it, and none is taken for
// plain that has a fault.
func TestPlainSolicitationsAreReadAlike(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	tagged, bare, padded := ns(), ns(), append(ns().frame(t), 1, 2, 3)
	tagged.tags, bare.opts = []uint16{7}, nil
	var plain, faulty, other int
	for _, fresh := range [][]byte{ns().frame(t), padded, tagged.frame(t), bare.frame(t), dad().frame(t), na().frame(t)} {
		for range 20_000 {
			frame := bytes.Clone(fresh)
			for range r.IntN(3) {
				// Few values, so that the ones with a meaning come up.
				frame[r.IntN(len(frame))] = [...]byte{0, 1, 2, 0x33, 0xff, byte(r.Uint32())}[r.IntN(6)]
			}
			frame = frame[:len(frame)-r.IntN(2)*r.IntN(12)]
			var l packet.Layout
			if !packet.Parse(frame, &l) {
				continue
			}
			if r.IntN(4) != 0 && l.L4 != 0 && l.End()-l.L4 >= 8 {
				rightChecksum(frame, &l)
			}
			var got, want Message
			bad := Parse(frame, &l, &got)
			if wanted := parseAny(frame, &l, &want); bad != wanted {
				t.Fatalf("% x: %v, want %v", frame, bad, wanted)
			}
			if bad == OK && got != want {
				t.Fatalf("% x:\n got %+v\nwant %+v", frame, got, want)
			}
			switch {
			case parsePlainNS(frame, &l, &Message{}):
				plain++
			case bad != OK:
				faulty++
			default:
				other++
			}
		}
	}
	if plain < 1000 || faulty < 1000 || other < 1000 {
		t.Errorf("%d plain, %d faulty, %d others: too few to mean anything", plain, faulty, other)
	}
}

// rightChecksum puts the ICMPv6 checksum of a frame right.
func rightChecksum(frame []byte, l *packet.Layout) {
	body := frame[l.L4:l.End()]
	body[2], body[3] = 0, 0
	sum := checksum(ip6At(frame[l.L3+8:]), ip6At(frame[l.L3+24:]), body)
	body[2], body[3] = byte(sum>>8), byte(sum)
}

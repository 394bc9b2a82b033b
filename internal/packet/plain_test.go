package packet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// TestPlainFramesAreReadAlike: what is read of a Plain frame by whole words is
// what the way of all other frames reads of it: headers, flow, and checksum.
func TestPlainFramesAreReadAlike(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	key := HashKey{r.Uint64(), r.Uint64()}
	var plain, completed, other int
	for _, f := range []flow{
		{proto: layers.IPProtocolUDP}, {proto: layers.IPProtocolTCP}, {proto: layers.IPProtocolSCTP},
		{proto: layers.IPProtocolUDP, v6: true}, {proto: layers.IPProtocolTCP, v6: true},
		{proto: layers.IPProtocolUDP, tags: 1}, {proto: layers.IPProtocolTCP, v6: true, options: true},
	} {
		for range 20_000 {
			f.payload = make([]byte, r.IntN(40))
			frame := f.build(t)
			if l := mustParse(t, frame); r.IntN(2) == 0 {
				makePartial(t, frame, l)
			}
			for range r.IntN(3) {
				frame[12+r.IntN(min(len(frame), 70)-12)] = byte(r.Uint32())
			}
			frame = frame[:len(frame)-r.IntN(2)*r.IntN(30)]

			var got, want Layout
			ok := Parse(frame, &got)
			if parse(frame, &want, false) != ok {
				t.Fatalf("% x: ok = %v", frame, ok)
			}
			if !ok {
				continue
			}
			want.Plain = got.Plain
			if got != want {
				t.Fatalf("% x:\n got %+v\nwant %+v", frame, got, want)
			}
			if got.Plain {
				plain++
			} else {
				other++
			}
			want.Plain = false
			hash, tos, complete := ReadFlow(&key, frame, &got)
			if wantHash, wantTOS, _ := ReadFlow(&key, frame, &want); hash != wantHash || tos != wantTOS {
				t.Fatalf("% x: hash %x, TOS %x, want %x, %x", frame, hash, tos, wantHash, wantTOS)
			}
			a, b := bytes.Clone(frame), bytes.Clone(frame)
			did := CompleteChecksum(a, &got)
			if did != CompleteChecksum(b, &want) || !bytes.Equal(a, b) {
				t.Fatalf("% x: %v, and %x instead of %x", frame, did, a, b)
			}
			if complete && did != ChecksumNotNeeded {
				t.Fatalf("% x: said to be complete, but %v", frame, did)
			}
			if did == ChecksumCompleted {
				completed++
			}
		}
	}
	if plain < 1000 || other < 1000 || completed < 1000 {
		t.Errorf("%d plain frames, %d others, %d completed: too few to mean anything", plain, other, completed)
	}
}

// TestICMPv6IsReadAlike is the same for ICMPv6, which has a short way through
// Parse for the sake of Neighbor Discovery and is never Plain.
func TestICMPv6IsReadAlike(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	parsed, failed := 0, 0
	for range 50_000 {
		frame := make([]byte, EthernetLen+IPv6Len+r.IntN(40))
		for i := range frame {
			frame[i] = byte(r.Uint32())
		}
		h := (*[EthernetLen + IPv6Len]byte)(frame)
		binary.BigEndian.PutUint16(h[12:], EtherTypeIPv6)
		h[14], h[18], h[19], h[20] = 0x60, 0, byte(len(frame)-len(h)), ProtoICMPv6
		for range r.IntN(3) {
			frame[12+r.IntN(10)] = byte(r.IntN(64))
		}
		var got, want Layout
		ok := Parse(frame, &got)
		if parse(frame, &want, false) != ok {
			t.Fatalf("% x: ok = %v", frame, ok)
		}
		if !ok {
			failed++
			continue
		}
		if got != want && !got.Plain {
			t.Fatalf("% x:\n got %+v\nwant %+v", frame, got, want)
		}
		if got.Plain && got.Proto == ProtoICMPv6 {
			t.Fatalf("% x: Plain", frame)
		}
		parsed++
	}
	if parsed < 1000 || failed < 1000 {
		t.Errorf("%d parsed, %d failed: too few to mean anything", parsed, failed)
	}
}

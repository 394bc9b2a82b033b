package packet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// gopacket computed each frame's checksum; the completed one must be the same.
func TestCompleteChecksumMatchesOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, proto := range []layers.IPProtocol{layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolSCTP} {
		for _, v6 := range []bool{false, true} {
			for _, options := range []bool{false, true} {
				for tags := range 3 {
					t.Run(fmt.Sprintf("%v/v6=%v/options=%v/tags=%d", proto, v6, options, tags), func(t *testing.T) {
						for range 100 {
							payload := make([]byte, rng.IntN(200))
							for i := range payload {
								payload[i] = byte(rng.Uint32())
							}
							want := flow{v6, proto, tags, options, payload}.build(t)
							got := bytes.Clone(want)
							l := mustParse(t, got)
							if c := CompleteChecksum(got, l); c != ChecksumNotNeeded || !bytes.Equal(got, want) {
								t.Fatalf("a complete checksum: %d, frame changed %v", c, !bytes.Equal(got, want))
							}
							makePartial(t, got, l)
							padded := append(got, 0xde, 0xad) // Ethernet padding is not summed
							if c := CompleteChecksum(padded, mustParse(t, padded)); c != ChecksumCompleted || !bytes.Equal(padded, append(bytes.Clone(want), 0xde, 0xad)) {
								t.Fatalf("completed %d\n got %x\nwant %x", c, padded, want)
							}
						}
					})
				}
			}
		}
	}
}

// A checksum that is right and looks partial must come out as it was.
func TestCompleteChecksumKeepsOneThatLooksPartial(t *testing.T) {
	frame := flow{proto: layers.IPProtocolTCP, payload: []byte{0, 0}}.build(t)
	l := mustParse(t, frame)
	seg := frame[l.L4:l.End()]
	ip := IPv4(frame[l.L3:])
	pseudo := PseudoHeader4(ip.Source().V4(), ip.Destination().V4(), l.Proto, len(seg))
	// Choose the payload so that the true checksum is the pseudo-header sum.
	TCP(seg).SetChecksum(0)
	binary.BigEndian.PutUint16(seg[20:], 0)
	rest := Fold(Add(pseudo, Sum(seg)))
	binary.BigEndian.PutUint16(seg[20:], Fold(uint64(^Fold(pseudo))+uint64(^rest)))
	TCP(seg).SetChecksum(Fold(pseudo))
	if Fold(Add(pseudo, Sum(seg))) != 0xffff {
		t.Fatal("the test's own frame is not valid")
	}
	want := bytes.Clone(frame)
	if c := CompleteChecksum(frame, l); c != ChecksumCompleted || !bytes.Equal(frame, want) {
		t.Fatalf("got %d, frame changed %v", c, !bytes.Equal(frame, want))
	}
}

func TestUDPChecksumZero(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		frame := flow{v6: v6, proto: layers.IPProtocolUDP, payload: []byte("x")}.build(t)
		l := mustParse(t, frame)
		UDP(frame[l.L4:]).SetChecksum(0)
		want := bytes.Clone(frame)
		if c := CompleteChecksum(frame, l); c != ChecksumNotNeeded || !bytes.Equal(frame, want) {
			t.Errorf("v6=%v: no checksum must stay none: %d", v6, c)
		}
		// A sum of zero is sent as 0xffff.
		frame = flow{v6: v6, proto: layers.IPProtocolUDP, payload: []byte{0, 0}}.build(t)
		old := UDP(frame[l.L4:]).Checksum()
		binary.BigEndian.PutUint16(frame[l.L4+8:], old)
		l = mustParse(t, frame)
		makePartial(t, frame, l)
		if c := CompleteChecksum(frame, l); c != ChecksumCompleted || UDP(frame[l.L4:]).Checksum() != 0xffff {
			t.Errorf("v6=%v: %d, checksum %#04x, want 0xffff", v6, c, UDP(frame[l.L4:]).Checksum())
		}
	}
}

func TestFragmentsAreNeverTouched(t *testing.T) {
	for _, proto := range []layers.IPProtocol{layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolSCTP} {
		frame := flow{proto: proto, payload: make([]byte, 32)}.build(t)
		l := mustParse(t, frame)
		makePartial(t, frame, l)
		for _, frag := range []uint16{0x2000, 0x2001, 0x0001} {
			binary.BigEndian.PutUint16(frame[l.L3+6:], frag)
			f := mustParse(t, frame)
			want := bytes.Clone(frame)
			if c := CompleteChecksum(frame, f); c != ChecksumSkipped || !bytes.Equal(frame, want) {
				t.Errorf("%v fragment %#x: %d", proto, frag, c)
			}
			if !f.Fragment || f.FirstFragment != (frag == 0x2000) || (f.L4 != 0) != f.FirstFragment {
				t.Errorf("%v fragment %#x: layout %+v", proto, frag, f)
			}
		}
		// IPv6, an atomic fragment included.
		six := flow{v6: true, proto: proto, payload: make([]byte, 32)}.build(t)
		l = mustParse(t, six)
		makePartial(t, six, l)
		for _, frag := range []uint16{0, 1, 8, 9} {
			b := insertExtension(six, ProtoFragment, []byte{0, 0, byte(frag >> 8), byte(frag), 0, 0, 0, 1})
			f := mustParse(t, b)
			want := bytes.Clone(b)
			if c := CompleteChecksum(b, f); c != ChecksumSkipped || !bytes.Equal(b, want) || !f.Fragment {
				t.Errorf("%v IPv6 fragment %#x: %d %+v", proto, frag, c, f)
			}
		}
	}
}

// insertExtension puts an extension header behind an untagged IPv6 header; its
// first byte is filled in.
func insertExtension(frame []byte, kind byte, ext []byte) []byte {
	const at = EthernetLen + IPv6Len
	b := append(bytes.Clone(frame[:at]), ext...)
	b[at] = frame[EthernetLen+6]
	b[EthernetLen+6] = kind
	b = append(b, frame[at:]...)
	IPv6(b[EthernetLen:]).SetPayloadLen(len(b) - at)
	return b
}

// RFC 8200 section 8.1: with a routing header, the pseudo-header has the final
// destination.
func TestCompleteChecksumThroughRoutingHeader(t *testing.T) {
	final := IP{0xfd00_0010 << 32, 0xcc}
	for _, test := range []struct {
		name string
		kind byte
		left byte
		want Checksum
	}{
		{"srh", 4, 1, ChecksumCompleted},
		{"srh done", 4, 0, ChecksumCompleted},
		{"type 2", 2, 1, ChecksumCompleted},
		{"unknown type", 99, 1, ChecksumSkipped},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := flow{v6: true, proto: layers.IPProtocolTCP, payload: []byte("hello")}.build(t)
			ext := make([]byte, 24)
			ext[1], ext[2], ext[3] = 2, test.kind, test.left
			final.Put((*[16]byte)(ext[8:]))
			frame := insertExtension(base, ProtoRouting, ext)
			l := mustParse(t, frame)
			ip, seg := IPv6(frame[l.L3:]), frame[l.L4:]
			dst := ip.Destination()
			if test.left != 0 {
				dst = final
			}
			pseudo := PseudoHeader6(ip.Source(), dst, ProtoTCP, len(seg))
			TCP(seg).SetChecksum(Fold(pseudo))
			if c := CompleteChecksum(frame, l); c != test.want {
				t.Fatalf("got %d, want %d", c, test.want)
			}
			if test.want == ChecksumCompleted && Fold(Add(pseudo, Sum(seg))) != 0xffff {
				t.Error("the sum is wrong")
			}
		})
	}
}

func TestShortTransportIsSkipped(t *testing.T) {
	for _, proto := range []uint8{ProtoTCP, ProtoUDP, ProtoSCTP} {
		frame := flow{proto: layers.IPProtocol(proto), payload: nil}.build(t)
		frame = frame[:EthernetLen+IPv4MinLen+4]
		IPv4(frame[EthernetLen:]).SetTotalLen(24)
		if c := CompleteChecksum(frame, mustParse(t, frame)); c != ChecksumSkipped {
			t.Errorf("protocol %d: %d", proto, c)
		}
	}
}

func TestSumMatchesWordByWord(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		b := make([]byte, rng.IntN(300))
		fill := byte(rng.Uint32())
		for i := range b {
			b[i] = byte(rng.Uint32()) | fill
		}
		var want uint32
		for i, v := range b {
			want += uint32(v) << (8 * uint(1-i%2))
		}
		for want>>16 != 0 {
			want = want>>16 + want&0xffff
		}
		if got := Fold(Sum(b)); got != uint16(want) {
			t.Fatalf("%x: got %#x, want %#x", b, got, want)
		}
		cut := rng.IntN(len(b)/2+1) * 2
		if got := Fold(Add(Sum(b[:cut]), Sum(b[cut:]))); got != uint16(want) {
			t.Fatalf("%x joined at %d: got %#x, want %#x", b, cut, got, want)
		}
		if len(b) >= 2 {
			old, new := binary.BigEndian.Uint16(b), uint16(rng.Uint32())
			check := ^Fold(Sum(b))
			binary.BigEndian.PutUint16(b, new)
			if got, want := Update(check, old, new), ^Fold(Sum(b)); got != want && got|want != 0xffff {
				t.Fatalf("update: got %#x, want %#x", got, want)
			}
		}
	}
}

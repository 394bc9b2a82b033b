package srv6

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"picot.dev/picot/internal/packet"
)

func TestDecapWhatPushWrote(t *testing.T) {
	for _, bits := range []string{"2001:db8:0:40::/64", "2001:db8:0:40::/63", "2001:db8:0:40::/61", "2001:db0::/44", "2001:db8::/32"} {
		self := locator(t, bits)
		e := encap(t, "2001:db9:0:1::/64", bits)
		in := inner(77)
		b := pushed(e, in, 0xabcdef, 0x123456, 77<<32|99, 0x2e<<2|2)
		b = append(b, 0, 0, 0) // Ethernet padding
		var o Outer
		if r := Decap(b, self, DefaultFunction, &o); r != OK {
			t.Fatalf("%s: %s", bits, r)
		}
		if o.Network != 0xabcdef || o.Arg != 0x123456 || o.TOS != 0xba || o.FlowLabel != 99 || o.Function != DefaultFunction || o.NextHeader != 143 {
			t.Errorf("%s: %+v", bits, o)
		}
		if o.Src != SourceSID(locator(t, "2001:db9:0:1::/64"), 77) || !bytes.Equal(b[o.Inner:o.End], in) {
			t.Errorf("%s: from %s, inner %x", bits, o.Src, b[o.Inner:o.End])
		}
	}
}

// withSRH puts an SRH behind the outer header; list is in header order.
func withSRH(frame []byte, left, last byte, list []SID, tlvs []byte) []byte {
	srh := []byte{frame[20], byte(2*len(list) + len(tlvs)/8), 4, left, last, 0, 0, 0}
	for _, s := range list {
		srh = append(srh, s[:]...)
	}
	srh = append(srh, tlvs...)
	b := append(bytes.Clone(frame[:54]), srh...)
	b = append(b, frame[54:]...)
	b[20] = packet.ProtoRouting
	binary.BigEndian.PutUint16(b[18:], uint16(len(b)-54))
	return b
}

func TestDecapReasons(t *testing.T) {
	self := locator(t, "2001:db8:0:40::/61")
	good := pushed(encap(t, "2001:db9:0:1::/64", "2001:db8:0:40::/61"), inner(60), 100, 7, 5, 0)
	sid := NewSID(self, DefaultFunction, 100, 7)
	edit := func(at int, v ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], v)
		return b
	}
	long := func(n int) []byte { b := bytes.Clone(good); binary.BigEndian.PutUint16(b[18:], uint16(n)); return b }
	srh := func(spoil func([]byte)) []byte {
		b := withSRH(good, 0, 0, []SID{sid}, nil)
		spoil(b[54:])
		return b
	}
	one := []SID{sid}
	for _, test := range []struct {
		name  string
		frame []byte
		want  Reason
	}{
		{"good", good, OK},
		{"empty", nil, Runt},
		{"runt", good[:53], Runt},
		{"tagged", edit(12, 0x81, 0), NotIPv6},
		{"IPv4", edit(12, 8, 0), NotIPv6},
		{"version", edit(14, 0x45), BadVersion},
		{"payload beyond the frame", long(61), BadLength},
		{"frame cut", good[:len(good)-1], BadLength},
		{"inner runt", long(13), InnerRunt},
		{"inner empty", long(0), InnerRunt},
		{"inner bare", long(14), OK},
		{"another locator", edit(45, 0x50), NotOurs},
		{"bits after the locator", edit(45, 0x41), SIDBits},
		{"function", edit(46, 0x0d, 0x21), FunctionUnknown},
		{"function 0", edit(46, 0, 0), FunctionUnknown},
		{"upper layer UDP", edit(20, packet.ProtoUDP), UpperLayer},
		{"hop-by-hop", edit(20, packet.ProtoHopByHop), UpperLayer},
		{"fragment", edit(20, packet.ProtoFragment), UpperLayer},
		{"ICMPv6 to the SID", edit(20, packet.ProtoICMPv6), ICMP},
		{"SRH, as the kernel's l2encap", withSRH(good, 0, 0, one, nil), OK},
		{"SRH with two segments", withSRH(good, 0, 1, []SID{sid, {1}}, nil), OK},
		{"SRH with TLVs", withSRH(good, 0, 0, one, []byte{4, 6, 1, 2, 3, 4, 5, 6}), OK},
		{"SRH with garbage TLVs", withSRH(good, 0, 0, one, []byte{255, 255, 255, 255, 255, 255, 255, 255}), OK},
		{"SRH with segments left", withSRH(good, 1, 1, []SID{{1}, sid}, nil), SegmentsLeft},
		{"SRH last entry beyond", withSRH(good, 0, 1, one, nil), SRHMalformed},
		{"SRH length beyond", srh(func(b []byte) { b[1] = 200 }), SRHMalformed},
		{"routing type 0", srh(func(b []byte) { b[2] = 0 }), SRHMalformed},
		{"SRH then SRH", srh(func(b []byte) { b[0] = packet.ProtoRouting }), UpperLayer},
		{"SRH cut", withSRH(good, 0, 0, one, nil)[:60], BadLength},
		{"SRH without its list", append(edit(20, packet.ProtoRouting)[:54], 143, 0, 4, 0, 0, 0, 0, 0), BadLength},
		{"SRH then ICMPv6", srh(func(b []byte) { b[0] = packet.ProtoICMPv6 }), ICMP},
	} {
		t.Run(test.name, func(t *testing.T) {
			var o Outer
			r := Decap(test.frame, self, DefaultFunction, &o)
			if r != test.want {
				t.Fatalf("got %s, want %s", r, test.want)
			}
			if r == OK && strings.HasPrefix(test.name, "SRH") && !bytes.Equal(test.frame[o.Inner:o.End], inner(60)) {
				t.Error("wrong inner frame")
			}
		})
	}
	icmp := edit(20, packet.ProtoICMPv6)
	copy(icmp[46:], []byte{0, 0})
	if r := Decap(icmp, self, DefaultFunction, new(Outer)); r != ICMP {
		t.Errorf("ICMPv6 to function 0: %s", r)
	}
	seen := map[string]bool{}
	for r := range NumReasons {
		if r.String() == "" || seen[r.String()] {
			t.Errorf("reason %d has the name %q", r, r)
		}
		seen[r.String()] = true
	}
}

// RFC 6040 section 4.2, figure 4; drop is -1.
func TestRFC6040Decapsulation(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for in, row := range [4][4]int{
			// outer Not-ECT, ECT(1), ECT(0), CE
			notECT: {0, 0, 0, -1},
			ect1:   {1, 1, 1, 3},
			ect0:   {2, 1, 2, 3},
			ce:     {3, 3, 3, 3},
		} {
			for outer, want := range row {
				tos := byte(0xb8 | in)
				b := innerIP(v6, tos)
				var l packet.Layout
				if !packet.Parse(b, &l) || InnerTOS(b, &l) != tos {
					t.Fatal("the test's frame")
				}
				drop := DecapECN(b, &l, byte(0x10|outer))
				if drop != (want < 0) {
					t.Errorf("v6=%v inner %d outer %d: drop %v", v6, in, outer, drop)
				}
				if want >= 0 && InnerTOS(b, &l) != 0xb8|byte(want) {
					t.Errorf("v6=%v inner %d outer %d: %#x, want ECN %d", v6, in, outer, InnerTOS(b, &l), want)
				}
				if !v6 && packet.IPv4(b[14:]).Checksum() != packet.IPv4(b[14:]).ComputeChecksum() {
					t.Errorf("inner %d outer %d: the header checksum is wrong", in, outer)
				}
				if v6 && packet.IPv6(b[14:]).FlowLabel() != 0x12345 {
					t.Error("the flow label changed")
				}
			}
		}
	}
	var l packet.Layout
	b := inner(60)
	if !packet.Parse(b, &l) || DecapECN(b, &l, 3) || InnerTOS(b, &l) != 0 || !bytes.Equal(b, inner(60)) {
		t.Error("a frame that is not IP has no ECN")
	}
}

func innerIP(v6 bool, tos byte) []byte {
	b := make([]byte, 60)
	copy(b, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1})
	if v6 {
		b[12], b[13] = 0x86, 0xdd
		ip := packet.IPv6(b[14:])
		ip.SetVersion(tos, 0x12345)
		ip.SetPayloadLen(6)
		ip.SetNextHeader(packet.ProtoNone)
		return b
	}
	b[12], b[13] = 8, 0
	ip := packet.IPv4(b[14:])
	ip.SetVersion(20)
	ip.SetTOS(tos)
	ip.SetTotalLen(46)
	ip.SetTTL(64)
	ip.SetProtocol(253)
	ip.SetChecksum(ip.ComputeChecksum())
	return b
}

// kernelL2Encap was captured from Linux 6.18 behind "encap seg6 mode l2encap segs
// 2001:db8:0:40:d20:0:6400:7" with "ip sr tunsrc set 2001:db9:0:1::1": a ping.
const kernelL2Encap = `
	0200000001020200000001 0186dd6001 021b008e2b3f20010db9000000010000
	0000000000012001 0db8000000400d20 0000640000078f020400000000002001
	0db8000000400d20 0000640000079a06 469aba38b6ed66372ecc86dd6001021b
	00403a40fd000009 0000000000000000 00000001fd0000080000000000000000
	000000058000bc2e 1d8b000189c50c6b 0000000053ae03000000000010111213
	1415161718191a1b 1c1d1e1f20212223 2425262728292a2b2c2d2e2f30313233
	34353637`

func TestDecapKernelL2Encap(t *testing.T) {
	frame, err := hex.DecodeString(strings.Join(strings.Fields(kernelL2Encap), ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, bits := range []string{"2001:db8:0:40::/64", "2001:db8:0:40::/63", "2001:db8:0:40::/61"} {
		var o Outer
		if r := Decap(frame, locator(t, bits), DefaultFunction, &o); r != OK || o.Network != 0x64 || o.Arg != 7 || o.End != len(frame) {
			t.Fatalf("%s %+v", r, o)
		}
		if o.Src.String() != "2001:db9:0:1::1" {
			t.Errorf("from %s", o.Src)
		}
		var l packet.Layout
		in := frame[o.Inner:o.End]
		if !packet.Parse(in, &l) || l.Proto != packet.ProtoICMPv6 || packet.IPv6(in[l.L3:]).Destination().String() != "fd00:8::5" {
			t.Errorf("inner %x", in)
		}
	}
}

// Whatever the bytes: no panic, and on OK an inner frame within the payload.
func FuzzDecap(f *testing.F) {
	self := locator(f, "2001:db8:0:40::/61")
	good := pushed(encap(f, "2001:db9:0:1::/64", "2001:db8:0:40::/61"), inner(60), 100, 7, 5, 0)
	sid := NewSID(self, DefaultFunction, 100, 7)
	f.Add(good)
	f.Add(withSRH(good, 0, 1, []SID{sid, {1}}, make([]byte, 8)))
	f.Add(withSRH(good, 1, 1, []SID{{1}, sid}, nil))
	f.Add(echoRequest(f, self, 0, []byte("hello")))
	f.Add(tooBig(pushed(encap(f, "2001:db8:0:40::/61", "2001:db9:0:1::/64"), inner(60), 100, 7, 5, 0), 1400, 100))
	f.Fuzz(func(t *testing.T, frame []byte) {
		var o Outer
		r := Decap(frame, self, DefaultFunction, &o)
		if r >= NumReasons {
			t.Fatalf("reason %d", r)
		}
		if r == OK && (o.Inner < 54 || o.End-o.Inner < 14 || o.End > len(frame) || o.Network > MaxNetwork || o.Arg > MaxSegment) {
			t.Fatalf("%+v of %d bytes", o, len(frame))
		}
		room := append(bytes.Clone(frame), make([]byte, 64)...)
		if n, ok := ParameterProblem(room[:len(frame)], CodeUpperLayer, 40, self, len(room)); ok {
			checkICMP(t, room[:n])
		}
		var q Quote
		if PacketTooBig(frame, self, &q) && (q.Inner > q.End || q.End > len(frame)) {
			t.Fatalf("%+v of %d bytes", q, len(frame))
		}
		reply := bytes.Clone(frame)
		if n, ok := EchoReply(reply); ok {
			checkICMP(t, reply[:n])
		} else if !bytes.Equal(reply, frame) {
			t.Fatal("no reply, yet the frame changed")
		}
	})
}

package srv6

import (
	"bytes"
	"encoding/binary"
	"testing"

	"picot.dev/picot/internal/packet"
)

// tooBig is a router's Packet Too Big about a frame of ours.
func tooBig(frame []byte, mtu uint32, quote int) []byte {
	b := make([]byte, 62, 62+quote)
	copy(b, frame[:54])
	copy(b[22:38], []byte{0x20, 1, 0xd, 0xb8, 0xff, 0xff, 15: 1})
	copy(b[38:54], frame[22:38])
	b = append(b, frame[14:14+quote]...)
	b[20] = packet.ProtoICMPv6
	binary.BigEndian.PutUint16(b[18:], uint16(len(b)-54))
	m := packet.ICMPv6(b[54:])
	m.SetType(packet.ICMPv6PacketTooBig, 0)
	m.SetRest(mtu)
	m.SetChecksum(^icmpSum(b, m))
	return b
}

func TestPacketTooBig(t *testing.T) {
	self := locator(t, "2001:db8:0:1::/64")
	key := packet.HashKey{3, 4}
	in := innerIP(true, 0)
	var l packet.Layout
	if !packet.Parse(in, &l) {
		t.Fatal("the test's frame")
	}
	hash := packet.FlowHash(&key, in, &l)
	final := NewSID(locator(t, "2001:db8:0:2::/64"), DefaultFunction, 100, 7)
	for name, via := range map[string][]string{"red": nil, "SRH": {"2001:db8:a::1"}} {
		e := encap(t, "2001:db8:0:1::/64", "2001:db8:0:2::/64", via...)
		sent := pushed(e, in, 100, 7, hash, 0)
		whole := len(sent) - 14
		for _, cut := range []int{0, 6} {
			b := tooBig(sent, 1400, whole-cut)
			var q Quote
			if !PacketTooBig(b, self, &q) || q.MTU != 1400 || q.Dst != final || !bytes.Equal(b[q.Inner:q.End], in[:len(in)-cut]) {
				t.Fatalf("%s: %+v", name, q)
			}
			var ql packet.Layout
			if !packet.ParseQuote(b[q.Inner:q.End], &ql) {
				t.Fatal("the quote does not parse")
			}
			h := packet.FlowHash(&key, b[q.Inner:q.End], &ql)
			if FlowLabel(h) != q.FlowLabel || SourceSID(self, Entropy(h)) != q.Src {
				t.Errorf("%s: label %#x from the quote, %#x sent", name, FlowLabel(h), q.FlowLabel)
			}
		}
		for name, spoil := range map[string]func([]byte){
			"checksum":        func(b []byte) { b[56]++ },
			"another type":    func(b []byte) { b[54]++ },
			"not to us":       func(b []byte) { b[41]++ },
			"foreign source":  func(b []byte) { b[62+8+7]++ },
			"not function 0":  func(b []byte) { b[62+8+8]++ },
			"not version 6":   func(b []byte) { b[62] = 0x45 },
			"not an L2 outer": func(b []byte) { b[62+6] = 17 },
		} {
			b := tooBig(sent, 1400, whole)
			spoil(b)
			if m := packet.ICMPv6(b[54:]); name != "checksum" {
				m.SetChecksum(0)
				m.SetChecksum(^icmpSum(b, m))
			}
			if PacketTooBig(b, self, new(Quote)) {
				t.Errorf("%s: taken", name)
			}
		}
		if PacketTooBig(tooBig(sent, 1400, 30), self, new(Quote)) {
			t.Error("taken with less than an IPv6 header")
		}
	}
}

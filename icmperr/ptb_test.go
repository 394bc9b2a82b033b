package icmperr

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/internal/packet"
)

var (
	router  = addr("2001:db8:ffff::1")
	self    = addr("2001:db8:0:1:0:0:0:beef")
	sid     = addr("2001:db8:0:2:d20:0:6400:7")
	via     = addr("2001:db8:0:9:d20::")
	nodeMAC = packet.MAC{0x02, 0, 0, 0, 1, 1}
)

// outer is an SRv6 packet of ours, from its IPv6 header on, around inner.
func outer(inner []byte, segments ...packet.IP) []byte {
	next, dst := byte(143), sid
	var srh []byte
	if len(segments) > 0 {
		next, dst = 43, segments[len(segments)-1]
		srh = []byte{143, byte(2 * len(segments)), 4, byte(len(segments) - 1), byte(len(segments) - 1), 0, 0, 0}
		for _, s := range segments {
			srh = append(srh, wire6(s)...)
		}
	}
	b := make([]byte, 0, 40)
	b = binary.BigEndian.AppendUint32(b, 6<<28|0xb8<<20|0xabcde)
	b = binary.BigEndian.AppendUint16(b, uint16(len(srh)+len(inner)))
	b = append(b, next, 63)
	b = append(append(b, wire6(self)...), wire6(dst)...)
	return append(append(b, srh...), inner...)
}

// ptb is the frame a router of the underlay sends about quote.
func ptb(t testing.TB, typ uint8, mtu uint32, quote []byte) []byte {
	t.Helper()
	ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 60, SrcIP: wire6(router), DstIP: wire6(self)}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(typ, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	body := binary.BigEndian.AppendUint32(nil, mtu)
	return serialize(t, &layers.Ethernet{SrcMAC: peer[:], DstMAC: nodeMAC[:], EthernetType: layers.EthernetTypeIPv6},
		ip, icmp, gopacket.Payload(append(body, quote...)))
}

func TestParsePTB(t *testing.T) {
	inner := udp4(1400).frame(t)
	for _, tc := range []struct {
		name     string
		segments []packet.IP
		dst      packet.IP
		header   int
		quoted   int
	}{
		{"reduced", nil, sid, 40, 1192},
		{"SRH of one", []packet.IP{sid}, sid, 64, 1168},
		{"SRH of two, on the way to the first", []packet.IP{sid, via}, via, 80, 1152},
	} {
		t.Run(tc.name, func(t *testing.T) {
			whole := outer(inner, tc.segments...)
			frame := ptb(t, 2, 1400, whole[:1232])
			l := layout(t, frame)
			got, ok := ParsePTB(frame, &l)
			want := PTB{MTU: 1400, Router: router, Src: self, Dst: tc.dst, Final: sid, FlowLabel: 0xabcde, TOS: 0xb8,
				Length: len(whole), Inner: 62 + tc.header, End: 62 + 1232}
			if !ok || got != want {
				t.Fatalf("%v\ngot  %+v\nwant %+v", ok, got, want)
			}
			quote := frame[got.Inner:got.End]
			if !bytes.Equal(quote, inner[:tc.quoted]) {
				t.Fatalf("the inner quote is %d bytes, not the inner frame's first %d", len(quote), tc.quoted)
			}
			// The flow is recognised from the cut off quote.
			var whole4, cut packet.Layout
			key := packet.HashKey{1, 2}
			if !packet.Parse(inner, &whole4) || !packet.ParseQuote(quote, &cut) {
				t.Fatal("inner frame not parsed")
			}
			if packet.FlowHash(&key, inner, &whole4) != packet.FlowHash(&key, quote, &cut) {
				t.Error("the quote hashes to another flow")
			}
		})
	}
}

func TestParsePTBRefuses(t *testing.T) {
	inner := udp6(1300).frame(t)
	good := outer(inner)[:1232]
	edit := func(at int, v byte) []byte {
		q := bytes.Clone(good)
		q[at] = v
		return q
	}
	for name, frame := range map[string][]byte{
		"MTU 1279, RFC 8201 4": ptb(t, 2, 1279, good),
		"time exceeded":        ptb(t, 3, 1400, good),
		"echo":                 ptb(t, 128, 1400, good),
		"39 bytes of quote":    ptb(t, 2, 1400, good[:39]),
		"quote of IPv4":        ptb(t, 2, 1400, edit(0, 0x45)),
		"quote of TCP":         ptb(t, 2, 1400, edit(6, 6)),
		"routing type 0":       ptb(t, 2, 1400, append(bytes.Clone(outer(inner, sid)[:42]), append([]byte{0}, outer(inner, sid)[43:1232]...)...)),
		"SRH cut off":          ptb(t, 2, 1400, outer(inner, sid)[:63]),
		"SRH of no segment":    ptb(t, 2, 1400, append(append(bytes.Clone(outer(inner, sid)[:41]), 0), outer(inner, sid)[42:1232]...)),
		"SRH past the quote":   ptb(t, 2, 1400, outer(inner, sid, via)[:70]),
		"not ICMPv6":           inner,
		"IPv4":                 udp4(100).frame(t),
	} {
		l := layout(t, frame)
		if p, ok := ParsePTB(frame, &l); ok {
			t.Errorf("%s: accepted %+v", name, p)
		}
	}
	frame := ptb(t, 2, 1400, good)
	for at := 22; at < len(frame); at += 7 {
		frame[at] ^= 4
		l := layout(t, frame)
		if _, ok := ParsePTB(frame, &l); ok {
			t.Errorf("byte %d flipped: accepted", at)
		}
		frame[at] ^= 4
	}
}

// TestParsePTBQuoteEnds: bytes behind the quoted packet's own end are not inner
// frame, and a quote of the outer header alone leaves an empty one.
func TestParsePTBQuoteEnds(t *testing.T) {
	inner := udp4(0).frame(t)
	frame := ptb(t, 2, 1400, append(outer(inner), 0xee, 0xee))
	l := layout(t, frame)
	if p, ok := ParsePTB(frame, &l); !ok || p.End-p.Inner != len(inner) {
		t.Errorf("%v %+v", ok, p)
	}
	frame = ptb(t, 2, 1400, outer(inner)[:40])
	l = layout(t, frame)
	if p, ok := ParsePTB(frame, &l); !ok || p.End != p.Inner {
		t.Errorf("%v %+v", ok, p)
	}
}

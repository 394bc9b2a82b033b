package packet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func TestParse(t *testing.T) {
	v4 := flow{proto: layers.IPProtocolUDP, payload: []byte("abc")}.build(t)
	v4opt := flow{proto: layers.IPProtocolUDP, options: true}.build(t)
	v6 := flow{v6: true, proto: layers.IPProtocolTCP}.build(t)
	v6hop := flow{v6: true, proto: layers.IPProtocolTCP, options: true, tags: 2}.build(t)
	edit := func(b []byte, at int, v ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], v)
		return b
	}
	hop := func(n int, f []byte) []byte {
		for range n {
			f = insertExtension(f, ProtoDestOpts, make([]byte, 8))
		}
		return f
	}
	for _, test := range []struct {
		name  string
		frame []byte
		ok    bool
		want  Layout
	}{
		{"empty", nil, false, Layout{}},
		{"runt", v4[:13], false, Layout{}},
		{"bare", edit(v4[:14], 12, 0x12, 0x34), true, Layout{L3: 14, Len: 14, EtherType: 0x1234}},
		{"802.3", edit(v4[:14], 12, 0, 3), true, Layout{L3: 14, Len: 14, EtherType: 3}},
		{"tag cut", edit(v4[:17], 12, 0x81, 0), false, Layout{}},
		{"third tag is the payload", edit(v6hop, 20, 0x81, 0), true, Layout{L3: 22, Len: len(v6hop), EtherType: EtherTypeVLAN, Tags: 2}},
		{"v4", v4, true, Layout{L3: 14, Len: len(v4), L4: 34, L3Len: 31, EtherType: EtherTypeIPv4, Proto: ProtoUDP, Plain: true}},
		{"v4 padded", append(bytes.Clone(v4), 0, 0, 0), true, Layout{L3: 14, Len: len(v4) + 3, L4: 34, L3Len: 31, EtherType: EtherTypeIPv4, Proto: ProtoUDP, Plain: true}},
		{"v4 options", v4opt, true, Layout{L3: 14, Len: len(v4opt), L4: 38, L3Len: 32, EtherType: EtherTypeIPv4, Proto: ProtoUDP}},
		{"v4 header cut", v4[:33], false, Layout{}},
		{"v4 total length beyond", v4[:44], false, Layout{}},
		{"v4 version", edit(v4, 14, 0x65), false, Layout{}},
		{"v4 IHL 4", edit(v4, 14, 0x44), false, Layout{}},
		{"v4 IHL beyond total", edit(v4, 14, 0x4f), false, Layout{}},
		{"v4 total 0", edit(v4, 16, 0, 0), false, Layout{}},
		{"v4 no payload", edit(v4, 16, 0, 20), true, Layout{L3: 14, Len: len(v4), L3Len: 20, EtherType: EtherTypeIPv4, Proto: ProtoUDP}},
		{"v6", v6, true, Layout{L3: 14, Len: len(v6), L4: 54, L3Len: 60, EtherType: EtherTypeIPv6, Proto: ProtoTCP, Plain: true}},
		{"v6 hop-by-hop, two tags", v6hop, true, Layout{L3: 22, Len: len(v6hop), L4: 70, L3Len: 68, EtherType: EtherTypeIPv6, Tags: 2, Proto: ProtoTCP}},
		{"v6 header cut", v6[:53], false, Layout{}},
		{"v6 payload beyond", v6[:len(v6)-1], false, Layout{}},
		{"v6 version", edit(v6, 14, 0x45), false, Layout{}},
		{"v6 no next header", edit(v6, 20, ProtoNone), true, Layout{L3: 14, Len: len(v6), L3Len: 60, EtherType: EtherTypeIPv6, Proto: ProtoNone}},
		{"v6 option length beyond", edit(v6hop, 63, 200), true, Layout{L3: 22, Len: len(v6hop), L3Len: 68, EtherType: EtherTypeIPv6, Tags: 2, Proto: ProtoHopByHop, ChainBroken: true}},
		{"v6 seven extensions", hop(7, v6), true, Layout{L3: 14, Len: len(v6) + 56, L4: 110, L3Len: 116, EtherType: EtherTypeIPv6, Proto: ProtoTCP}},
		{"v6 too many extensions", hop(9, v6), true, Layout{L3: 14, Len: len(v6) + 72, L3Len: 132, EtherType: EtherTypeIPv6, Proto: ProtoDestOpts, ChainBroken: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Layout{Tags: 77, L4: 77} // of an earlier frame
			if ok := Parse(test.frame, &got); ok != test.ok {
				t.Fatalf("ok = %v", ok)
			}
			switch test.want.EtherType {
			case EtherTypeIPv4:
				test.want.Source = IPFromAddr(netip.MustParseAddr("10.0.0.10"))
			case EtherTypeIPv6:
				test.want.Source = IPFromAddr(netip.MustParseAddr("fd00:10::a"))
			}
			if test.ok && got != test.want {
				t.Errorf("\n got %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestParseQuoteAllowsCutPacket(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		frame := flow{v6: v6, proto: layers.IPProtocolUDP, payload: make([]byte, 100)}.build(t)
		var whole, cut Layout
		if !Parse(frame, &whole) || !ParseQuote(frame[:70], &cut) || Parse(frame[:70], new(Layout)) {
			t.Fatal("parse")
		}
		k := HashKey{1, 2}
		if FlowHash(&k, frame, &whole) != FlowHash(&k, frame[:70], &cut) {
			t.Error("a quote hashes otherwise than its packet")
		}
	}
}

func TestFlowHash(t *testing.T) {
	k := HashKey{0x0123456789abcdef, 0xfedcba9876543210}
	hash := func(frame []byte) uint64 { return FlowHash(&k, frame, mustParse(t, frame)) }
	for _, v6 := range []bool{false, true} {
		f := flow{v6: v6, proto: layers.IPProtocolTCP, payload: []byte("one")}
		base := hash(f.build(t))
		same := f
		same.payload, same.tags, same.options = []byte("another"), 1, true
		if hash(same.build(t)) != base {
			t.Error("one flow, two hashes")
		}
		other := f.build(t)
		l := mustParse(t, other)
		other[l.L4]++
		if hash(other) == base {
			t.Error("another port, the same hash")
		}
		k2 := HashKey{1, 2}
		if FlowHash(&k2, f.build(t), l) == base {
			t.Error("another key, the same hash")
		}
	}
	// All fragments of a packet have one hash, whatever their next headers say.
	v4 := flow{proto: layers.IPProtocolUDP, payload: make([]byte, 64)}.build(t)
	first, later := bytes.Clone(v4), bytes.Clone(v4)
	binary.BigEndian.PutUint16(first[20:], 0x2000)
	binary.BigEndian.PutUint16(later[20:], 0x0002)
	later[34]++ // not a port there
	if hash(first) != hash(later) {
		t.Error("fragments of one packet differ")
	}
	// ICMP echo: identifier and sequence do not count.
	ping := flow{proto: layers.IPProtocolICMPv4, payload: []byte{8, 0, 0, 0, 1, 2, 3, 4}}.build(t)
	pong := bytes.Clone(ping)
	pong[38]++
	if hash(ping) != hash(pong) {
		t.Error("echo requests of one flow differ")
	}
	// Bits are usable anywhere: 64 flows give at least 60 labels and sources.
	low, high := map[uint64]bool{}, map[uint64]bool{}
	for i := range 64 {
		f := flow{proto: layers.IPProtocolUDP}.build(t)
		binary.BigEndian.PutUint16(f[34:], uint16(5000+i))
		h := hash(f)
		low[h&0xfffff], high[h>>32&0xffff] = true, true
	}
	if len(low) < 60 || len(high) < 60 {
		t.Errorf("64 flows: %d and %d values", len(low), len(high))
	}
}

func TestMAC(t *testing.T) {
	m, err := ParseMAC("02:00:Ab:cD:00:0a")
	if err != nil || m.String() != "02:00:ab:cd:00:0a" || MACFromUint64(m.Uint64()) != m || m.Uint64() != 0x0200abcd000a {
		t.Errorf("%v %v", m, err)
	}
	for _, s := range []string{"", "02-00-00-00-00-01", "02:00:00:00:00:0", "02:00:00:00:00:0g", "2:0:0:0:0:1", "02:00:00:00:00:01:02", "0200.0000.0001", "02:00:00:00:00:001"} {
		if _, err := ParseMAC(s); err == nil {
			t.Errorf("%q parses", s)
		}
	}
	if !Broadcast.IsBroadcast() || !Broadcast.IsGroup() || (MAC{2}).IsGroup() || !(MAC{}).IsZero() {
		t.Error("kinds of MAC")
	}
}

func TestEthernetAddresses(t *testing.T) {
	e := Ethernet(flow{proto: layers.IPProtocolUDP}.build(t))
	if e.Destination48() != e.Destination().Uint64() || e.Source48() != e.Source().Uint64() || e.Source().String() != macA.String() {
		t.Errorf("%x %x", e.Destination48(), e.Source48())
	}
}

func TestIP(t *testing.T) {
	for _, s := range []string{"0.0.0.0", "10.0.0.1", "224.0.0.1", "255.255.255.255", "239.1.2.3", "::", "::1", "fe80::1", "febf::1", "fec0::1", "ff02::1", "2001:db8::5"} {
		a := netip.MustParseAddr(s)
		ip := IPFromAddr(a)
		if ip.Addr() != a || ip.Is4() != a.Is4() || ip.IsUnspecified() != a.IsUnspecified() || ip.IsMulticast() != a.IsMulticast() ||
			ip.IsLinkLocal6() != (a.Is6() && a.IsLinkLocalUnicast()) {
			t.Errorf("%s: %+v", s, ip)
		}
	}
	if IPFromAddr(netip.MustParseAddr("::ffff:10.0.0.1")) != IPFrom4(0x0a000001) {
		t.Error("a mapped address is not its IPv4 address")
	}
}

// Whatever the bytes, every offset stays inside the frame, completion changes
// nothing but checksum bytes, and gopacket agrees on the transport's place.
func FuzzParse(f *testing.F) {
	for _, proto := range []layers.IPProtocol{layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolSCTP} {
		for _, v6 := range []bool{false, true} {
			f.Add(flow{v6: v6, proto: proto, tags: 1, options: true, payload: []byte("payload")}.build(f))
			f.Add(flow{v6: v6, proto: proto}.build(f))
		}
	}
	six := flow{v6: true, proto: layers.IPProtocolTCP}.build(f)
	f.Add(insertExtension(six, ProtoFragment, make([]byte, 8)))
	f.Add(insertExtension(six, ProtoRouting, []byte{0, 2, 4, 1, 0, 23: 0}))
	f.Fuzz(func(t *testing.T, frame []byte) {
		var l Layout
		if !Parse(frame, &l) {
			return
		}
		if l.L3 < 14 || l.L3 > len(frame) || l.End() > len(frame) || l.L4 != 0 && (l.L4 < l.L3+20 || l.L4 >= l.End()) || l.Len != len(frame) {
			t.Fatalf("layout %+v of %d bytes", l, len(frame))
		}
		k := HashKey{1, 2}
		h := FlowHash(&k, frame, &l)
		before := bytes.Clone(frame)
		done := CompleteChecksum(frame, &l)
		if done != ChecksumCompleted && !bytes.Equal(before, frame) {
			t.Fatalf("%d, yet the frame changed", done)
		}
		if h != FlowHash(&k, frame, &l) {
			t.Fatal("completion changed the hash")
		}
		if l.IsIPv4() && l.L4 != 0 && l.Proto == ProtoUDP {
			p := gopacket.NewPacket(frame[l.L3:], layers.LayerTypeIPv4, gopacket.NoCopy)
			if ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok && l.L4 != l.L3+len(ip.Contents) {
				t.Fatalf("transport at %d, gopacket says %d", l.L4, l.L3+len(ip.Contents))
			}
		}
	})
}

func TestNoAllocations(t *testing.T) {
	for _, proto := range []layers.IPProtocol{layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolSCTP} {
		frame := flow{v6: true, proto: proto, options: true, payload: make([]byte, 99)}.build(t)
		k := HashKey{1, 2}
		var l Layout
		if n := testing.AllocsPerRun(100, func() {
			Parse(frame, &l)
			CompleteChecksum(frame, &l)
			FlowHash(&k, frame, &l)
		}); n != 0 {
			t.Errorf("%v: %v allocations", proto, n)
		}
	}
}

package srv6

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/internal/packet"
)

func locator(t testing.TB, s string) Locator {
	t.Helper()
	l, err := LocatorFrom(netip.MustParsePrefix(s))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var (
	uplinkMAC  = packet.MAC{2, 0, 0, 0, 1, 1}
	nextHopMAC = packet.MAC{2, 0, 0, 0, 1, 2}
)

func encap(t testing.TB, source, dest string, via ...string) *Encap {
	t.Helper()
	c := EncapConfig{SrcMAC: uplinkMAC, DstMAC: nextHopMAC, Source: locator(t, source), Dest: locator(t, dest), Function: DefaultFunction}
	for _, v := range via {
		c.Via = append(c.Via, netip.MustParseAddr(v))
	}
	e, err := NewEncap(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// inner is an Ethernet frame with a tag of its own EtherType and n bytes.
func inner(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	b[12], b[13] = 0x88, 0xb5
	return b
}

// pushed encapsulates in over stale bytes.
func pushed(e *Encap, in []byte, network, segment uint32, hash uint64, tos byte) []byte {
	b := bytes.Repeat([]byte{0xa5}, e.Overhead()+len(in))
	copy(b[e.Overhead():], in)
	e.Push(b, len(in), network, segment, hash, tos)
	return b
}

func TestLocatorFrom(t *testing.T) {
	for _, test := range []struct {
		prefix string
		ok     bool
	}{
		{"2001:db8:0:1::/64", true}, {"2001:db8:0:10::/60", true}, {"2001:db8::/32", true}, {"2001:db8:0:2::/63", true},
		{"2001:db8:0:8::/61", true}, {"2001:db8:0::/44", true}, {"fd00::/48", true},
		{"2001::/31", false}, {"2001:db8::/65", false}, {"2001:db8::1/64", false}, {"2001:db8:0:1::/63", false},
		{"10.0.0.0/24", false}, {"ff00::/64", false}, {"fe80::/64", false}, {"::/64", false}, {"::ffff:10.0.0.0/104", false},
	} {
		p := netip.MustParsePrefix(test.prefix)
		l, err := LocatorFrom(p)
		if (err == nil) != test.ok || err != nil && !errors.Is(err, ErrLocator) {
			t.Errorf("%s: %v", test.prefix, err)
		}
		if err == nil && (l.Prefix() != p || l.String() != test.prefix && test.prefix != "2001:db8:0::/44") {
			t.Errorf("%s came back as %s", p, l)
		}
	}
	if _, err := LocatorFrom(netip.Prefix{}); err == nil {
		t.Error("the invalid prefix is taken")
	}
}

func TestLocatorContainsAndOverlaps(t *testing.T) {
	a, b, c := locator(t, "2001:db8:0:8::/61"), locator(t, "2001:db8:0:f::/64"), locator(t, "2001:db8:0:10::/64")
	if !a.Contains(b.Hi) || a.Contains(c.Hi) || (Locator{}).Contains(0) {
		t.Error("contains")
	}
	if !a.Overlaps(b) || !b.Overlaps(a) || a.Overlaps(c) || b.Overlaps(c) || a.Overlaps(Locator{}) {
		t.Error("overlaps")
	}
}

func TestSIDParts(t *testing.T) {
	s := NewSID(locator(t, "2001:db8:0:1::/64"), 0x0d20, 0xabcdef, 0x123456)
	if s.String() != "2001:db8:0:1:d20:abcd:ef12:3456" || s.Function() != 0x0d20 || s.Network() != 0xabcdef || s.Argument() != 0x123456 {
		t.Errorf("%s: %x %x %x", s, s.Function(), s.Network(), s.Argument())
	}
}

// gopacket reads every field of what Push wrote.
func TestPushAgainstOracle(t *testing.T) {
	e := encap(t, "2001:db8:0:8::/61", "2001:db8:0:40::/63")
	if e.Overhead() != 54 {
		t.Fatalf("overhead %d", e.Overhead())
	}
	in := inner(60)
	b := pushed(e, in, 0xabcdef, 7, 0x0000_1234_000f_edcb, 0xb9)
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
	eth := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	ip := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	if eth.SrcMAC.String() != uplinkMAC.String() || eth.DstMAC.String() != nextHopMAC.String() || eth.EthernetType != layers.EthernetTypeIPv6 {
		t.Errorf("%+v", eth)
	}
	if ip.Version != 6 || ip.TrafficClass != 0xb9 || ip.FlowLabel != 0xfedcb || int(ip.Length) != len(in) || ip.NextHeader != 143 || ip.HopLimit != 64 {
		t.Errorf("%+v", ip)
	}
	if ip.SrcIP.String() != "2001:db8:0:8::1234" || ip.DstIP.String() != "2001:db8:0:40:d20:abcd:ef00:7" {
		t.Errorf("%s -> %s", ip.SrcIP, ip.DstIP)
	}
	if !bytes.Equal(ip.Payload, in) {
		t.Error("the inner frame changed")
	}
}

// DPDK grout 693 and 713: the outer length exact, Last Entry right, no stale
// bytes in the SRH.
func TestPushSRH(t *testing.T) {
	via := []string{"2001:db8:a::1", "2001:db8:b::2", "2001:db8:c::3"}
	for n := 1; n <= len(via); n++ {
		e := encap(t, "2001:db8:0:1::/64", "2001:db8:0:2::/64", via[:n]...)
		in := inner(61)
		b := pushed(e, in, 100, 9, 1<<40|5, 0)
		if want := 54 + 8 + 16*(n+1); e.Overhead() != want {
			t.Fatalf("overhead %d, want %d", e.Overhead(), want)
		}
		ip := packet.IPv6(b[14:])
		if !ip.Valid() || ip.PayloadLen() != 8+16*(n+1)+len(in) || ip.NextHeader() != 43 || ip.Destination().String() != via[0] {
			t.Fatalf("outer %d bytes, next %d, to %s", ip.PayloadLen(), ip.NextHeader(), ip.Destination())
		}
		s := packet.SRH(b[54:])
		if !s.Valid() || s.NextHeader() != 143 || s.Len() != 8+16*(n+1) || s.SegmentsLeft() != n || s.LastEntry() != n || s[5] != 0 || s.Tag() != 0 || len(s.TLVs()) != 0 {
			t.Fatalf("SRH %x", s[:8])
		}
		final := NewSID(locator(t, "2001:db8:0:2::/64"), DefaultFunction, 100, 9)
		if s.Segment(0).Addr() != final.Addr() {
			t.Errorf("last segment %s, want %s", s.Segment(0), final)
		}
		for i := range n {
			if s.Segment(n-i).String() != via[i] {
				t.Errorf("segment %d is %s, want %s", n-i, s.Segment(n-i), via[i])
			}
		}
		if !bytes.Equal(b[e.Overhead():], in) {
			t.Error("the inner frame changed")
		}
	}
}

func TestEntropyAndLabelAreNeverZero(t *testing.T) {
	e := encap(t, "2001:db8:0:1::/64", "2001:db8:0:2::/64")
	for _, hash := range []uint64{0, 0xfff0_0000_fff0_0000, 0xffff_0000_0000_0000} {
		b := pushed(e, inner(60), 1, 1, hash, 0)
		ip := packet.IPv6(b[14:])
		if ip.FlowLabel() == 0 || ip.Source().Lo == 0 || ip.Source().Lo > 0xffff {
			t.Errorf("hash %#x: label %#x, source %s", hash, ip.FlowLabel(), ip.Source())
		}
		if ip.FlowLabel() != FlowLabel(hash) || ip.Source().Lo != uint64(Entropy(hash)) {
			t.Error("FlowLabel and Entropy say otherwise")
		}
	}
	fixed, err := NewEncap(EncapConfig{SrcMAC: uplinkMAC, DstMAC: nextHopMAC, Source: locator(t, "2001:db8:0:1::/64"),
		Dest: locator(t, "2001:db8:0:2::/64"), Function: DefaultFunction, FixedSource: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, hash := range []uint64{0, 1 << 33, ^uint64(0)} {
		ip := packet.IPv6(pushed(fixed, inner(60), 1, 1, hash, 0)[14:])
		if ip.Source().Lo != 1 || ip.FlowLabel() != FlowLabel(hash) {
			t.Errorf("hash %#x: source %s", hash, ip.Source())
		}
	}
}

func TestNewEncapRefuses(t *testing.T) {
	good := EncapConfig{SrcMAC: uplinkMAC, DstMAC: nextHopMAC, Source: locator(t, "2001:db8:0:1::/64"), Dest: locator(t, "2001:db8:0:2::/64"), Function: 1}
	for name, spoil := range map[string]func(*EncapConfig){
		"no source":      func(c *EncapConfig) { c.Source = Locator{} },
		"no destination": func(c *EncapConfig) { c.Dest = Locator{} },
		"function 0":     func(c *EncapConfig) { c.Function = 0 },
		"group next hop": func(c *EncapConfig) { c.DstMAC = packet.Broadcast },
		"zero uplink":    func(c *EncapConfig) { c.SrcMAC = packet.MAC{} },
		"IPv4 via":       func(c *EncapConfig) { c.Via = []netip.Addr{netip.MustParseAddr("10.0.0.1")} },
		"no via address": func(c *EncapConfig) { c.Via = []netip.Addr{{}} },
		"long via":       func(c *EncapConfig) { c.Via = make([]netip.Addr, MaxVia+1) },
	} {
		c := good
		spoil(&c)
		if _, err := NewEncap(c); !errors.Is(err, ErrEncap) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewEncap(good); err != nil {
		t.Error(err)
	}
}

func TestNoAllocations(t *testing.T) {
	e := encap(t, "2001:db8:0:1::/64", "2001:db8:0:2::/64", "2001:db8:a::1")
	self := locator(t, "2001:db8:0:2::/64")
	in := inner(60)
	b := pushed(e, in, 1, 1, 5, 0)
	var o Outer
	if n := testing.AllocsPerRun(100, func() {
		e.Push(b, len(in), 1, 1, 5, 0)
		Decap(b, self, DefaultFunction, &o)
		EchoReply(b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPush(b *testing.B) {
	for _, via := range [][]string{nil, {"2001:db8:a::1"}} {
		e := encap(b, "2001:db8:0:1::/64", "2001:db8:0:2::/64", via...)
		buf := make([]byte, e.Overhead()+60)
		b.Run(map[bool]string{true: "red", false: "srh"}[via == nil], func(b *testing.B) {
			h := uint64(1)
			for b.Loop() {
				h += 0x9e3779b97f4a7c15
				e.Push(buf, 60, 100, 7, h, 0)
			}
		})
	}
}

func BenchmarkDecap(b *testing.B) {
	e := encap(b, "2001:db8:0:1::/64", "2001:db8:0:2::/64")
	self := locator(b, "2001:db8:0:2::/64")
	buf := pushed(e, inner(60), 100, 7, 5, 0)
	var o Outer
	for b.Loop() {
		if Decap(buf, self, DefaultFunction, &o) != OK {
			b.Fatal("not ok")
		}
	}
}

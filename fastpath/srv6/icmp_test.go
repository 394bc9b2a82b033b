package srv6

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/internal/packet"
)

// echoRequest is a ping of a SID, built by gopacket.
func echoRequest(t testing.TB, self Locator, function uint16, data []byte) []byte {
	t.Helper()
	dst := NewSID(self, function, 100, 7)
	ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 60, SrcIP: net.ParseIP("2001:db9::5"), DstIP: net.IP(dst[:])}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: nextHopMAC[:], DstMAC: uplinkMAC[:], EthernetType: layers.EthernetTypeIPv6},
		ip, icmp, &layers.ICMPv6Echo{Identifier: 3, SeqNumber: 4}, gopacket.Payload(data)); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(buf.Bytes())
}

// checkICMP holds of every answer: lengths exact, checksum valid.
func checkICMP(t testing.TB, frame []byte) packet.ICMPv6 {
	t.Helper()
	ip := packet.IPv6(frame[14:])
	if !ip.Valid() || ip.PayloadLen() != len(frame)-54 || ip.NextHeader() != packet.ProtoICMPv6 || ip.HopLimit() != 64 {
		t.Fatalf("outer header %x of %d bytes", frame[:54], len(frame))
	}
	if icmpSum(frame, frame[54:]) != 0xffff {
		t.Fatal("the checksum is wrong")
	}
	return packet.ICMPv6(frame[54:])
}

func TestRFC9259EchoReply(t *testing.T) {
	self := locator(t, "2001:db8:0:40::/61")
	for _, size := range []int{0, 1, 56, 1200} {
		data := bytes.Repeat([]byte{0x5a}, size)
		plain := echoRequest(t, self, DefaultFunction, data)
		for name, request := range map[string][]byte{
			"plain": plain, "padded": append(bytes.Clone(plain), 0, 0),
			"SRH": withSRH(plain, 0, 0, []SID{NewSID(self, DefaultFunction, 100, 7)}, nil),
		} {
			b := bytes.Clone(request)
			n, ok := EchoReply(b)
			if !ok || n != 62+size {
				t.Fatalf("%s: %d bytes, %v", name, n, ok)
			}
			m := checkICMP(t, b[:n])
			eth, ip := packet.Ethernet(b), packet.IPv6(b[14:])
			if m.Type() != 129 || m.Rest() != 3<<16|4 || !bytes.Equal(m[8:], data) {
				t.Errorf("%s: message %x", name, m[:8])
			}
			if eth.Source() != uplinkMAC || eth.Destination() != nextHopMAC || ip.Destination().String() != "2001:db9::5" ||
				ip.Source().Addr() != NewSID(self, DefaultFunction, 100, 7).Addr() {
				t.Errorf("%s: %s -> %s", name, ip.Source(), ip.Destination())
			}
		}
	}
}

func TestEchoReplyRefuses(t *testing.T) {
	good := echoRequest(t, locator(t, "2001:db8:0:40::/61"), 0, []byte("data"))
	for name, spoil := range map[string]func([]byte) []byte{
		"checksum":          func(b []byte) []byte { b[56]++; return b },
		"reply":             func(b []byte) []byte { b[54] = 129; return b },
		"code":              func(b []byte) []byte { b[55] = 1; b[57]--; return b },
		"cut":               func(b []byte) []byte { return b[:60] },
		"multicast source":  func(b []byte) []byte { b[22] = 0xff; return b },
		"no source":         func(b []byte) []byte { copy(b[22:38], make([]byte, 16)); return b },
		"group destination": func(b []byte) []byte { b[0] |= 1; return b },
		"not ICMPv6":        func(b []byte) []byte { b[20] = 17; return b },
	} {
		b := spoil(bytes.Clone(good))
		before := bytes.Clone(b)
		if _, ok := EchoReply(b); ok || !bytes.Equal(b, before) {
			t.Errorf("%s: answered %v, changed %v", name, ok, !bytes.Equal(b, before))
		}
	}
}

func TestRFC4443ParameterProblem(t *testing.T) {
	self := locator(t, "2001:db8:0:40::/61")
	sid := NewSID(self, DefaultFunction, 100, 7)
	for _, test := range []struct {
		name    string
		inner   int
		room    int
		want    int // bytes of the answer
		pointer uint32
	}{
		{"all quoted", 60, 2000, 54 + 8 + 40 + 40 + 60, 43},
		{"minimum MTU", 1400, 2000, 14 + 1280, 43},
		{"little room", 1400, 600, 600, 43},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := pushed(encap(t, "2001:db9:0:1::/64", "2001:db8:0:40::/61"), inner(test.inner), 100, 7, 5, 0)
			b = withSRH(b, 1, 1, []SID{{1}, sid}, nil)
			var o Outer
			if r := Decap(b, self, DefaultFunction, &o); r != SegmentsLeft || o.Pointer != test.pointer || b[14+o.Pointer] != 1 {
				t.Fatalf("%s %+v", r, o)
			}
			room := make([]byte, 2048)
			n, ok := ParameterProblem(room[:copy(room, b)], CodeErroneousHeader, o.Pointer, self, test.room)
			if !ok || n != test.want {
				t.Fatalf("%d bytes, %v, want %d", n, ok, test.want)
			}
			m := checkICMP(t, room[:n])
			ip := packet.IPv6(room[14:])
			if m.Type() != 4 || m.Code() != 0 || m.Rest() != test.pointer || !bytes.Equal(m[8:], b[14:14+len(m)-8]) {
				t.Errorf("message %x", m[:8])
			}
			if ip.Source().Addr() != sid.Addr() || ip.Destination().Addr() != SourceSID(locator(t, "2001:db9:0:1::/64"), 1).Addr() {
				t.Errorf("%s -> %s", ip.Source(), ip.Destination())
			}
		})
	}
}

func TestParameterProblemForUpperLayer(t *testing.T) {
	self := locator(t, "2001:db8:0:40::/61")
	b := pushed(encap(t, "2001:db9:0:1::/64", "2001:db8:0:40::/61"), inner(60), 100, 7, 5, 0)
	b[20] = packet.ProtoUDP
	var o Outer
	if r := Decap(b, self, DefaultFunction, &o); r != UpperLayer || o.Pointer != 40 {
		t.Fatalf("%s %+v", r, o)
	}
	srh := withSRH(b, 0, 0, []SID{NewSID(self, DefaultFunction, 100, 7)}, nil)
	if r := Decap(srh, self, DefaultFunction, &o); r != UpperLayer || o.Pointer != 64 {
		t.Fatalf("behind an SRH: %s %+v", r, o)
	}
}

// RFC 4443 section 2.4 e: never about errors, nor to what is not one sender.
func TestParameterProblemRefuses(t *testing.T) {
	self := locator(t, "2001:db8:0:40::/61")
	good := pushed(encap(t, "2001:db9:0:1::/64", "2001:db8:0:40::/61"), inner(60), 100, 7, 5, 0)
	for name, spoil := range map[string]func([]byte) []byte{
		"ICMPv6 error":      func(b []byte) []byte { b[20], b[54] = 58, 1; return b },
		"redirect":          func(b []byte) []byte { b[20], b[54] = 58, 137; return b },
		"multicast source":  func(b []byte) []byte { b[22] = 0xff; return b },
		"no source":         func(b []byte) []byte { copy(b[22:38], make([]byte, 16)); return b },
		"group destination": func(b []byte) []byte { b[0] |= 1; return b },
		"not ours":          func(b []byte) []byte { b[40]++; return b },
		"cut":               func(b []byte) []byte { return b[:50] },
		"bad length":        func(b []byte) []byte { binary.BigEndian.PutUint16(b[18:], 999); return b },
	} {
		b := append(make([]byte, 0, 512), spoil(bytes.Clone(good))...)
		before := bytes.Clone(b)
		if _, ok := ParameterProblem(b, 0, 0, self, 512); ok || !bytes.Equal(b, before) {
			t.Errorf("%s: answered %v", name, ok)
		}
	}
	if _, ok := ParameterProblem(good, 0, 0, self, 60); ok {
		t.Error("answered without room")
	}
}

package icmperr

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/internal/packet"
)

// kind is an error as the wire has it.
type kind struct {
	typ, code uint8
	rest      uint32
	write     writer
}

func kinds4(src Source) map[string]kind {
	return map[string]kind{
		"fragmentation needed": {3, 4, 1446, func(c []byte, n int, l *packet.Layout) int { return FragNeeded(c, n, l, src, 1446) }},
		"too big":              {3, 4, 1446, func(c []byte, n int, l *packet.Layout) int { return TooBig(c, n, l, src, 1446) }},
		"time exceeded":        {11, 0, 0, func(c []byte, n int, l *packet.Layout) int { return TimeExceeded(c, n, l, src) }},
		"host unreachable":     {3, 1, 0, func(c []byte, n int, l *packet.Layout) int { return HostUnreachable(c, n, l, src) }},
	}
}

func kinds6(src Source) map[string]kind {
	return map[string]kind{
		"packet too big":   {2, 0, 1446, func(c []byte, n int, l *packet.Layout) int { return PacketTooBig(c, n, l, src, 1446) }},
		"too big":          {2, 0, 1446, func(c []byte, n int, l *packet.Layout) int { return TooBig(c, n, l, src, 1446) }},
		"time exceeded":    {3, 0, 0, func(c []byte, n int, l *packet.Layout) int { return TimeExceeded(c, n, l, src) }},
		"host unreachable": {1, 3, 0, func(c []byte, n int, l *packet.Layout) int { return HostUnreachable(c, n, l, src) }},
	}
}

// judge decodes an error with gopacket and compares all of it with the offending
// frame: addresses turned, tags kept, quote as received and as long as it may be,
// checksums right.
func judge(t *testing.T, offending, got []byte, src Source, k kind) {
	t.Helper()
	l, was := layout(t, got), layout(t, offending)
	if !bytes.Equal(got[:6], offending[6:12]) || !bytes.Equal(got[6:12], src.MAC[:]) || !bytes.Equal(got[12:l.L3], offending[12:was.L3]) {
		t.Fatalf("Ethernet header %x from %x", got[:l.L3], offending[:was.L3])
	}
	if l.End() != len(got) {
		t.Fatalf("%d bytes behind the packet", len(got)-l.End())
	}
	p := gopacket.NewPacket(got, layers.LayerTypeEthernet, gopacket.NoCopy)
	var icmp []byte
	limit := 576
	if was.IsIPv4() {
		ip := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		if err, sum := ip.VerifyChecksum(); err != nil || !sum.Valid {
			t.Fatalf("IPv4 checksum: %v %+v", err, sum)
		}
		msg := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		if err, sum := msg.VerifyChecksum(); err != nil || !sum.Valid {
			t.Fatalf("ICMPv4 checksum: %v %+v", err, sum)
		}
		if ip.TTL != 64 || ip.Flags != layers.IPv4DontFragment || ip.FragOffset != 0 || ip.Id != 0 || ip.TOS != 0xc0 || ip.IHL != 5 ||
			!ip.SrcIP.Equal(wire(src.IP)) || !bytes.Equal(ip.DstIP, offending[was.L3+12:was.L3+16]) {
			t.Fatalf("IPv4 header %+v", ip)
		}
		icmp = ip.Payload
	} else {
		limit = 1280
		ip := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		msg := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
		if err := msg.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
		if err, sum := msg.VerifyChecksum(); err != nil || !sum.Valid {
			t.Fatalf("ICMPv6 checksum: %v %+v", err, sum)
		}
		if ip.HopLimit != 64 || ip.FlowLabel != 0 || !ip.SrcIP.Equal(wire(src.IP)) || !bytes.Equal(ip.DstIP, offending[was.L3+8:was.L3+24]) {
			t.Fatalf("IPv6 header %+v", ip)
		}
		icmp = ip.Payload
	}
	if icmp[0] != k.typ || icmp[1] != k.code || binary.BigEndian.Uint32(icmp[4:]) != k.rest {
		t.Fatalf("ICMP header %x, want %d/%d %d", icmp[:8], k.typ, k.code, k.rest)
	}
	whole := offending[was.L3:was.End()]
	overhead := l.L4 - l.L3 + 8
	if want := whole[:min(len(whole), limit-overhead)]; !bytes.Equal(icmp[8:], want) {
		t.Fatalf("quote of %d bytes, want %d of %d", len(icmp)-8, len(want), len(whole))
	}
}

func TestErrors(t *testing.T) {
	for _, tags := range [][]uint16{nil, {7}, {100, 7}} {
		for _, size := range []int{0, 1, 8, 519, 520, 521, 1183, 1184, 1185, 1472, 3500} {
			o4, o6 := udp4(size), udp6(size)
			o4.tags, o6.tags = tags, tags
			for name, k := range kinds4(from4) {
				t.Run(fmt.Sprint(name, " v4 ", size, tags), func(t *testing.T) {
					judge(t, o4.frame(t), written(t, o4.frame(t), 0xff, k.write), from4, k)
				})
			}
			for name, k := range kinds6(from6) {
				t.Run(fmt.Sprint(name, " v6 ", size, tags), func(t *testing.T) {
					judge(t, o6.frame(t), written(t, o6.frame(t), 0xff, k.write), from6, k)
				})
			}
		}
	}
}

// TestQuoteIsAsReceived: Ethernet padding is left out, IPv4 options and DF are
// kept, and a transport checksum that is only a pseudo-header sum is not mended.
func TestQuoteIsAsReceived(t *testing.T) {
	k4 := kinds4(from4)["too big"]
	for name, tc := range map[string]struct {
		o    offence
		edit func([]byte) []byte
	}{
		"padded":           {udp4(0), func(b []byte) []byte { return append(b, bytes.Repeat([]byte{0xee}, 18)...) }},
		"options":          {offence{src: pod, dst: peer, from: pod4, to: peer4, size: 900, options: 40}, nil},
		"DF":               {offence{src: pod, dst: peer, from: pod4, to: peer4, size: 900, frag: 0x4000}, nil},
		"first fragment":   {offence{src: pod, dst: peer, from: pod4, to: peer4, size: 900, frag: 0x2000}, nil},
		"partial checksum": {udp4(900), func(b []byte) []byte { b[40], b[41] = 0x12, 0x34; return b }},
	} {
		t.Run(name, func(t *testing.T) {
			frame := tc.o.frame(t)
			if tc.edit != nil {
				frame = tc.edit(frame)
			}
			judge(t, frame, written(t, frame, 0xff, k4.write), from4, k4)
		})
	}
}

// TestMTUBounds: no Packet Too Big below 1280, for senders ignore it (RFC 8201
// section 4); no fragmentation needed below 68 (RFC 791) or beyond its field.
func TestMTUBounds(t *testing.T) {
	for _, tc := range []struct {
		o    offence
		mtu  int
		want bool
	}{
		{udp6(1400), 1279, false}, {udp6(1400), 1280, true}, {udp6(1400), 65536, true}, {udp6(1400), -1, false}, {udp6(1400), 1 << 33, false},
		{udp4(1400), 67, false}, {udp4(1400), 68, true}, {udp4(1400), 65535, true}, {udp4(1400), 65536, false}, {udp4(1400), -1, false},
	} {
		src := from4
		if tc.o.six {
			src = from6
		}
		got := written(t, tc.o.frame(t), 0, func(c []byte, n int, l *packet.Layout) int { return TooBig(c, n, l, src, tc.mtu) })
		if (len(got) > 0) != tc.want {
			t.Errorf("six %v, MTU %d: %d bytes", tc.o.six, tc.mtu, len(got))
		}
	}
}

// TestRefusalLeavesTheFrame: where no error may or can be sent, nothing changes.
func TestRefusalLeavesTheFrame(t *testing.T) {
	echoError := offence{src: pod, dst: peer, from: pod4, to: peer4, proto: layers.IPProtocolICMPv4, payload: make([]byte, 36)}
	echoError.payload[0] = 3
	for name, tc := range map[string]struct {
		o     offence
		room  int // behind the packet
		write writer
	}{
		"not allowed":             {echoError, 1000, kinds4(from4)["time exceeded"].write},
		"source of other family":  {udp4(100), 1000, kinds4(from6)["time exceeded"].write},
		"source of other family6": {udp6(100), 1000, kinds6(from4)["time exceeded"].write},
		"PTB for IPv4":            {udp4(100), 1000, kinds6(from4)["packet too big"].write},
		"frag needed for IPv6":    {udp6(100), 1000, kinds4(from6)["fragmentation needed"].write},
		"no room":                 {udp4(0), 27, kinds4(from4)["time exceeded"].write},
		"no room6":                {udp6(0), 47, kinds6(from6)["time exceeded"].write},
	} {
		t.Run(name, func(t *testing.T) {
			frame := tc.o.frame(t)
			l := layout(t, frame)
			frame = frame[:l.End()]
			chunk := append(bytes.Clone(frame), make([]byte, tc.room)...)
			before := bytes.Clone(chunk)
			if n := tc.write(chunk[:len(chunk):len(chunk)], len(frame), &l); n != 0 || !bytes.Equal(chunk, before) {
				t.Errorf("%d bytes written", n)
			}
		})
	}
}

// TestQuoteShrinksToTheRoom: a full chunk still tells the sender.
func TestQuoteShrinksToTheRoom(t *testing.T) {
	frame := udp6(1000).frame(t)
	l := layout(t, frame)
	chunk := append(bytes.Clone(frame), make([]byte, 10)...)
	n := TimeExceeded(chunk[:len(chunk):len(chunk)], len(frame), &l, from6)
	if n != len(chunk) {
		t.Fatalf("%d bytes of %d", n, len(chunk))
	}
	if q := chunk[14+48 : n]; !bytes.Equal(q, frame[14:14+len(q)]) {
		t.Error("the quote is not the packet's beginning")
	}
}

// TestJumboHead: of a packet that lies in several buffers only the first is at
// hand; it is enough.
func TestJumboHead(t *testing.T) {
	frame := udp4(3000).frame(t)
	var l packet.Layout
	if !packet.ParseQuote(frame[:400], &l) {
		t.Fatal("ParseQuote refused")
	}
	chunk := bytes.Repeat([]byte{0xff}, 4096)
	copy(chunk, frame[:400])
	n := FragNeeded(chunk, 400, &l, from4, 1446)
	if n != 400+28 || !bytes.Equal(chunk[42:n], frame[14:400]) {
		t.Errorf("%d bytes", n)
	}
}

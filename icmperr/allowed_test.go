package icmperr

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/internal/packet"
)

func TestAllowed(t *testing.T) {
	with := func(o offence, edit func(*offence)) offence { edit(&o); return o }
	icmp4 := func(typ byte) offence {
		return with(udp4(0), func(o *offence) {
			o.proto, o.payload = layers.IPProtocolICMPv4, append([]byte{typ}, make([]byte, 35)...)
		})
	}
	icmp6 := func(typ byte) offence {
		return with(udp6(0), func(o *offence) {
			o.proto, o.payload = layers.IPProtocolICMPv6, append([]byte{typ}, make([]byte, 55)...)
		})
	}
	behind := func(next byte, rest ...byte) []byte { return append([]byte{next, 0}, rest...) }
	for _, tc := range []struct {
		name string
		o    offence
		want bool
	}{
		{"UDP", udp4(100), true},
		{"UDP6", udp6(100), true},
		{"tagged", with(udp4(100), func(o *offence) { o.tags = []uint16{100, 7} }), true},
		{"limited broadcast", with(udp4(9), func(o *offence) { o.to = addr("255.255.255.255") }), false},
		{"IPv4 group", with(udp4(9), func(o *offence) { o.to = addr("224.0.0.251") }), false},
		{"IPv6 group", with(udp6(9), func(o *offence) { o.to = addr("ff02::fb") }), false},
		{"Ethernet broadcast", with(udp4(9), func(o *offence) { o.dst = packet.Broadcast }), false},
		{"Ethernet group6", with(udp6(9), func(o *offence) { o.dst = packet.MAC{0x33, 0x33, 0, 0, 0, 1} }), false},
		{"group as source MAC", with(udp4(9), func(o *offence) { o.src = packet.MAC{1} }), false},
		{"zero source MAC", with(udp4(9), func(o *offence) { o.src = packet.MAC{} }), false},
		{"from 0.0.0.0", with(udp4(9), func(o *offence) { o.from = addr("0.0.0.0") }), false},
		{"from 0/8", with(udp4(9), func(o *offence) { o.from = addr("0.1.2.3") }), false},
		{"from 127/8", with(udp4(9), func(o *offence) { o.from = addr("127.0.0.1") }), false},
		{"from a group", with(udp4(9), func(o *offence) { o.from = addr("239.1.1.1") }), false},
		{"from class E", with(udp4(9), func(o *offence) { o.from = addr("240.0.0.1") }), false},
		{"from broadcast", with(udp4(9), func(o *offence) { o.from = addr("255.255.255.255") }), false},
		{"from ::", with(udp6(9), func(o *offence) { o.from = addr("::") }), false},
		{"from ::1", with(udp6(9), func(o *offence) { o.from = addr("::1") }), false},
		{"from a group6", with(udp6(9), func(o *offence) { o.from = addr("ff02::1") }), false},
		{"from a mapped address", with(udp6(9), func(o *offence) { o.from = pod4 }), false},
		{"from a link-local", with(udp6(9), func(o *offence) { o.from = addr("fe80::a") }), true},
		{"first fragment", with(udp4(9), func(o *offence) { o.frag = 0x2000 }), true},
		{"middle fragment", with(udp4(9), func(o *offence) { o.frag = 0x2001 }), false},
		{"last fragment", with(udp4(9), func(o *offence) { o.frag = 0x0001 }), false},
		{"later fragment6", with(udp6(0), func(o *offence) { o.proto, o.payload = 44, behind(17, 0, 8, 1, 2, 3, 4, 9, 9) }), false},
		{"first fragment6", with(udp6(0), func(o *offence) { o.proto, o.payload = 44, behind(17, 0, 1, 1, 2, 3, 4, 9, 9) }), true},
		{"first fragment of an error6", with(udp6(0), func(o *offence) { o.proto, o.payload = 44, behind(58, 0, 1, 1, 2, 3, 4, 1, 3) }), false},
		{"error behind hop-by-hop", with(udp6(0), func(o *offence) { o.proto, o.payload = 0, behind(58, 1, 4, 0, 0, 0, 0, 3, 0) }), false},
		{"broken extension chain", with(udp6(0), func(o *offence) { o.proto, o.payload = 60, behind(58, 1, 4) }), false},
		{"no next header", with(udp6(0), func(o *offence) { o.proto, o.payload = 59, []byte{1} }), false},
		{"no transport header", with(udp4(0), func(o *offence) { o.proto, o.payload = layers.IPProtocolICMPv4, []byte{} }), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			frame := tc.o.frame(t)
			l := layout(t, frame)
			if got := Allowed(frame, &l); got != tc.want {
				t.Errorf("Allowed = %v", got)
			}
		})
	}
	// RFC 1122 3.2.2 and RFC 4443 2.4 (e): never about an error, and a type
	// nobody has defined may be one.
	queries := []byte{0, 8, 9, 10, 13, 14, 15, 16, 17, 18, 42, 43}
	for typ := range 256 {
		frame := icmp4(byte(typ)).frame(t)
		l := layout(t, frame)
		if got, want := Allowed(frame, &l), bytes.IndexByte(queries, byte(typ)) >= 0; got != want {
			t.Errorf("ICMPv4 type %d: %v", typ, got)
		}
		frame = icmp6(byte(typ)).frame(t)
		l = layout(t, frame)
		if got, want := Allowed(frame, &l), typ >= 128 && typ != 137; got != want {
			t.Errorf("ICMPv6 type %d: %v", typ, got)
		}
	}
}

// TestAllowedNotIP: ARP and unknown EtherTypes have no L4.
func TestAllowedNotIP(t *testing.T) {
	frame := udp4(100).frame(t)
	frame[12], frame[13] = 0x88, 0xb5
	l := layout(t, frame)
	if Allowed(frame, &l) {
		t.Error("allowed")
	}
}

package arpnd

import (
	"bytes"
	"testing"

	"picot.dev/picot/internal/packet"
)

// built runs a builder on a dirty buffer and has the frame judged.
func built(t *testing.T, build func([]byte) int) (packet.Layout, Message, []byte) {
	t.Helper()
	buf := bytes.Repeat([]byte{0xff}, 256)
	n := build(buf)
	if n == 0 {
		t.Fatal("nothing built")
	}
	l, m := mustParse(t, buf[:n])
	oracle(t, buf[:n], &l, &m)
	if l.IsIPv6() && l.End() != n {
		t.Errorf("%d bytes behind the packet", n-l.End())
	}
	if build(buf[:n-1]) != 0 && n != GARPLen+int(l.Tags)*packet.VLANLen {
		t.Error("built without room")
	}
	return l, m, buf[:n]
}

func TestBuildGARP(t *testing.T) {
	_, m, frame := built(t, func(b []byte) int { return BuildGARP(b, owner4, owner) })
	want := unhex(t, `ffffffffffff 02000000000b 0806
		0001 0800 06 04 0001 02000000000b 0a00000b 000000000000 0a00000b`)
	if !bytes.Equal(frame, want) || !m.Announcement {
		t.Errorf("got %x", frame)
	}
	if BuildGARP(make([]byte, GARPLen-1), owner4, owner) != 0 || BuildGARP(make([]byte, 256), owner6, owner) != 0 {
		t.Error("built without room or for IPv6")
	}
}

func TestBuildUnsolicitedNA(t *testing.T) {
	for _, router := range []bool{false, true} {
		_, m, _ := built(t, func(b []byte) int { return BuildUnsolicitedNA(b, owner6, owner, router) })
		want := Message{Op: NA, Announcement: true, HasLLAO: true, Router: router, Override: true,
			Target: owner6, Sender: owner6, SenderMAC: owner, EtherSrc: owner, EtherDst: packet.MAC{0x33, 0x33, 0, 0, 0, 1}}
		if m != want {
			t.Errorf("got  %+v\nwant %+v", m, want)
		}
	}
	if BuildUnsolicitedNA(make([]byte, 256), owner4, owner, false) != 0 {
		t.Error("built for IPv4")
	}
}

// TestBuildProbe: everything unicast, from the gateway if there is one; IPv6
// never from ::, which would be DAD.
func TestBuildProbe(t *testing.T) {
	for _, tc := range []struct {
		name   string
		from   Prober
		ip     packet.IP
		sender packet.IP
	}{
		{"IPv4", Prober{MAC: ProbeMAC()}, owner4, none4},
		{"IPv4, gateway", Prober{MAC: gateway, IP: asker4}, owner4, asker4},
		{"IPv4, gateway has only IPv6", Prober{MAC: gateway, IP: asker6}, owner4, none4},
		{"IPv6", Prober{MAC: ProbeMAC()}, owner6, addr("fe80::70:69ff:fe63:6f74")},
		{"IPv6, gateway", Prober{MAC: gateway, IP: asker6}, owner6, asker6},
		{"IPv6, gateway has only IPv4", Prober{MAC: gateway, IP: asker4}, owner6, addr("fe80::ff:fe00:1")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, m, _ := built(t, func(b []byte) int { return BuildProbe(b, tc.from, tc.ip, owner) })
			want := Message{Op: NS, Unicast: true, HasLLAO: true, Target: tc.ip, Sender: tc.sender,
				SenderMAC: tc.from.MAC, EtherSrc: tc.from.MAC, EtherDst: owner}
			if tc.ip.Is4() {
				want.Op, want.Probe = ARPRequest, tc.sender.IsUnspecified()
			}
			if m != want {
				t.Errorf("got  %+v\nwant %+v", m, want)
			}
		})
	}
}

// TestBuildProbeTagged: the same probe behind the tags the host's frames carry.
func TestBuildProbeTagged(t *testing.T) {
	for _, tags := range []string{"81000064", "88a800c881000064"} {
		tagged := append(make([]byte, 12), append(unhex(t, tags), 0, 0)...)
		var l packet.Layout
		packet.Parse(tagged, &l)
		for _, ip := range []packet.IP{owner4, owner6} {
			from := Prober{MAC: gateway, Tags: packet.TagsOf(tagged, &l)}
			_, _, got := built(t, func(b []byte) int { return BuildProbe(b, from, ip, owner) })
			from.Tags = 0
			_, _, plain := built(t, func(b []byte) int { return BuildProbe(b, from, ip, owner) })
			want := bytes.Join([][]byte{plain[:12], unhex(t, tags), plain[12:]}, nil)
			if !bytes.Equal(got, want) {
				t.Errorf("got  %x\nwant %x", got, want)
			}
		}
	}
}

func TestProbeMACIsALocalStation(t *testing.T) {
	if m := ProbeMAC(); m.IsGroup() || m[0]&2 == 0 {
		t.Errorf("%v", m)
	}
}

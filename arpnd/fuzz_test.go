package arpnd

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/internal/packet"
)

// FuzzReply parses a frame, answers it if it is a request, and parses the answer
// again. gopacket judges every frame that was accepted and every answer.
func FuzzReply(f *testing.F) {
	for _, frame := range seeds(f) {
		f.Add(frame, true)
	}
	f.Fuzz(func(t *testing.T, frame []byte, router bool) { roundTrip(t, frame, router) })
}

// FuzzReplyChecksummed is FuzzReply with the ICMPv6 checksum and hop limit of
// the input put right, so that the checks behind them are reached.
func FuzzReplyChecksummed(f *testing.F) {
	for _, frame := range seeds(f) {
		f.Add(frame, false)
	}
	f.Fuzz(func(t *testing.T, frame []byte, router bool) {
		var l packet.Layout
		if packet.Parse(frame, &l) && l.IsIPv6() && l.Proto == packet.ProtoICMPv6 && l.L4 != 0 && l.End()-l.L4 >= 4 {
			frame[l.L3+7] = 255
			body := frame[l.L4:l.End()]
			body[1], body[2], body[3] = 0, 0, 0
			sum := checksum(ip6At(frame[l.L3+8:]), ip6At(frame[l.L3+24:]), body)
			body[2], body[3] = byte(sum>>8), byte(sum)
		}
		roundTrip(t, frame, router)
	})
}

func seeds(f *testing.F) [][]byte {
	long := ns()
	long.opts = append(append([]byte{14, 1, 1, 2, 3, 4, 5, 6}, long.opts...), 200, 1, 0, 0, 0, 0, 0, 0)
	behind := ns()
	behind.next = layers.IPProtocolIPv6HopByHop
	behind.ext = []gopacket.SerializableLayer{hopByHop()}
	bare := ns()
	bare.opts = nil
	frames := [][]byte{
		request().frame(f), arp{op: 2, src: owner, dst: asker, spa: owner4, tpa: asker4}.frame(f),
		arp{op: 3, src: owner, dst: packet.Broadcast, reverse: true, spa: none4, tpa: none4}.frame(f),
		ns().frame(f), dad().frame(f), na().frame(f), long.frame(f), behind.frame(f), bare.frame(f),
		nd{typ: 133, src: asker, dst: third, from: none6, to: addr("ff02::2"), fixed: make([]byte, 4)}.frame(f),
		nd{typ: 134, src: gateway, dst: third, from: addr("fe80::1"), to: allNodes6, fixed: make([]byte, 12), opts: lladdr(1, gateway)}.frame(f),
		nd{typ: 137, src: gateway, dst: asker, from: addr("fe80::1"), to: asker6, fixed: append(append(make([]byte, 4), wire6(owner6)...), wire6(owner6)...), opts: lladdr(2, owner)}.frame(f),
	}
	for _, tags := range [][]uint16{{7}, {100, 7}} {
		r, n := request(), ns()
		r.tags, n.tags = tags, tags
		frames = append(frames, r.frame(f), n.frame(f))
	}
	return frames
}

func roundTrip(t *testing.T, frame []byte, router bool) {
	var l packet.Layout
	var m Message
	if len(frame) > 2048 || !packet.Parse(frame, &l) {
		return
	}
	before := bytes.Clone(frame)
	if bad := Parse(frame, &l, &m); bad != OK {
		if m.Op == OpNone {
			t.Fatalf("%v, but no operation", bad)
		}
		return
	}
	if !bytes.Equal(before, frame) {
		t.Fatal("Parse wrote into the frame")
	}
	if m.Op == OpNone {
		return
	}
	oracle(t, frame, &l, &m)
	Evidence(&m)
	if m.Op != ARPRequest && m.Op != NS {
		chunk := append(bytes.Clone(frame), make([]byte, 200)...)
		if n := Reply(chunk, len(frame), &l, &m, owner, router); n != 0 || !bytes.Equal(chunk[:len(frame)], before) {
			t.Fatalf("answered %v", m.Op)
		}
		return
	}
	answer := reply(t, frame, 0x00, owner, router)
	if again := reply(t, frame, 0xff, owner, router); !bytes.Equal(answer, again) {
		t.Fatalf("the answer depends on what lay behind the request\n%x\n%x", answer, again)
	}
	checkAnswer(t, before, answer, &l, &m, router)
}

// checkAnswer parses the answer again and holds it against the request.
func checkAnswer(t *testing.T, asked, answer []byte, l *packet.Layout, m *Message, router bool) {
	t.Helper()
	al, am := mustParse(t, answer)
	oracle(t, answer, &al, &am)
	want := Message{Unicast: m.Unicast, HasLLAO: true, Target: m.Target, Sender: m.Target, SenderMAC: owner,
		EtherSrc: owner, EtherDst: m.EtherSrc}
	if m.Op == ARPRequest {
		want.Op, want.Target = ARPReply, m.Sender
		want.Announcement = m.Sender == m.Target && !m.Sender.IsUnspecified()
		if al.L3+28 != len(answer) || !bytes.Equal(answer[al.L3+18:al.L3+24], m.SenderMAC[:]) {
			t.Fatalf("tha or length wrong: %x", answer)
		}
	} else {
		want.Op, want.Override, want.Router, want.Solicited = NA, true, router, !m.Probe
		if m.Probe {
			want.EtherDst, want.Announcement = allNodesMAC(), true
		}
		if al.End() != len(answer) {
			t.Fatalf("%d bytes behind the packet", len(answer)-al.End())
		}
	}
	want.Unicast = !want.EtherDst.IsGroup()
	if want.Op == NA {
		want.Announcement = !want.Solicited && !want.Unicast
	}
	if am != want {
		t.Fatalf("answer\n%+v, want\n%+v", am, want)
	}
	if !bytes.Equal(asked[12:l.L3], answer[12:al.L3]) {
		t.Fatalf("tags changed from %x to %x", asked[12:l.L3], answer[12:al.L3])
	}
}

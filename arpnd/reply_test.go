package arpnd

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
)

// unhex reads hex digits, blanks ignored.
func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestA1_A2_ReplyBytes: op 2, sha/spa the owner, tha/tpa the asker, Ethernet
// unicast from the owner's MAC (RFC 826, RFC 9161 3.3, RFC 5227 2.6).
func TestA1_A2_ReplyBytes(t *testing.T) {
	want := unhex(t, `02000000000a 02000000000b 0806
		0001 0800 06 04 0002 02000000000b 0a00000b 02000000000a 0a00000a`)
	if got := reply(t, append(request().frame(t), make([]byte, 18)...), 0xff, owner, false); !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

// TestA4_ProbeReplyBytes: spa the owner's, tpa 0.0.0.0 as asked (RFC 5227 2.1.1).
func TestA4_ProbeReplyBytes(t *testing.T) {
	a := request()
	a.spa = none4
	want := unhex(t, `02000000000a 02000000000b 0806
		0001 0800 06 04 0002 02000000000b 0a00000b 02000000000a 00000000`)
	if got := reply(t, a.frame(t), 0xff, owner, false); !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

// TestN3_N4_SolicitedReplyBytes: source = target, to the asker, S=1 O=1, TLLAO,
// hop limit 255 (RFC 4861 7.2.4, RFC 9161 3.3 (d)). The checksum was worked out
// apart from this code.
func TestN3_N4_SolicitedReplyBytes(t *testing.T) {
	got := reply(t, ns().frame(t), 0xff, owner, false)
	want := unhex(t, `02000000000a 02000000000b 86dd
		60000000 0020 3a ff fd00001000000000000000000000000b fd00001000000000000000000000000a
		88 00 0000 60000000 fd00001000000000000000000000000b 02 01 02000000000b`)
	copy(want[56:58], independentChecksum(t, want))
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

// TestN3_UnspecifiedSource: row 3 (ndppd PR 52): a DAD NS is answered to ff02::1,
// 33:33:00:00:00:01, with S=0, never to ::.
func TestN3_UnspecifiedSource(t *testing.T) {
	got := reply(t, dad().frame(t), 0xff, owner, true)
	want := unhex(t, `333300000001 02000000000b 86dd
		60000000 0020 3a ff fd00001000000000000000000000000b ff020000000000000000000000000001
		88 00 0000 a0000000 fd00001000000000000000000000000b 02 01 02000000000b`)
	copy(want[56:58], independentChecksum(t, want))
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

// independentChecksum adds 16-bit words one at a time over an untagged frame
// whose ICMPv6 checksum field is zero.
func independentChecksum(t *testing.T, frame []byte) []byte {
	t.Helper()
	sum := 58 + len(frame) - 54
	for i := 22; i < len(frame); i += 2 {
		sum += int(frame[i])<<8 | int(frame[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return []byte{byte(^sum >> 8), byte(^sum)}
}

// TestN3_TLLAOWithoutSLLAO: row 6 (inet 1168): the frame grows by the option.
func TestN3_TLLAOWithoutSLLAO(t *testing.T) {
	n := ns()
	n.opts = nil
	frame := n.frame(t)
	got := reply(t, frame, 0xff, owner, false)
	if len(got) != len(frame)+8 {
		t.Errorf("%d bytes from %d", len(got), len(frame))
	}
	if _, m := mustParse(t, got); !m.HasLLAO || m.SenderMAC != owner || !m.Override || !m.Solicited {
		t.Errorf("%+v", m)
	}
}

// TestReplyIsFresh: nothing of the request's traffic class, flow label, hop
// limit, reserved bits, options or extension headers is left in the answer.
func TestReplyIsFresh(t *testing.T) {
	want := reply(t, ns().frame(t), 0, owner, false)
	noisy := ns()
	noisy.opts = append(append([]byte{14, 1, 1, 2, 3, 4, 5, 6}, noisy.opts...), 253, 1, 0, 0, 0, 0, 0, 1)
	noisy.fixed = append([]byte{0xff, 0xff, 0xff, 0xff}, wire6(owner6)...)
	noisy.ext = []gopacket.SerializableLayer{hopByHop()}
	frame := noisy.frame(t)
	frame[14], frame[15], frame[16], frame[17] = 0x6a, 0xbc, 0xde, 0xf1
	if got := reply(t, frame, 0xff, owner, false); !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

// TestTagsKept: row 21 (cilium 37959): an answer carries the tags of its
// request, priority included, and is otherwise the untagged answer.
func TestTagsKept(t *testing.T) {
	for _, tags := range [][]uint16{{7}, {100, 7}, {0}} {
		a, n, d := request(), ns(), dad()
		plain := [][]byte{a.frame(t), n.frame(t), d.frame(t)}
		a.tags, n.tags, d.tags = tags, tags, tags
		for i, tagged := range [][]byte{a.frame(t), n.frame(t), d.frame(t)} {
			t.Run(fmt.Sprint(tags, i), func(t *testing.T) {
				got := reply(t, tagged, 0xff, owner, false)
				want := reply(t, plain[i], 0xff, owner, false)
				l3 := 14 + 4*len(tags)
				if !bytes.Equal(got[:12], want[:12]) || !bytes.Equal(got[12:l3], tagged[12:l3]) || !bytes.Equal(got[l3:], want[14:]) {
					t.Errorf("got  %x\nfrom %x\nlike %x", got, tagged, want)
				}
			})
		}
	}
}

// TestReplyRoom: with one byte too little nothing is written.
func TestReplyRoom(t *testing.T) {
	bare := ns()
	bare.opts = nil
	for name, frame := range map[string][]byte{"ARP": request().frame(t), "NS": bare.frame(t)} {
		l, m := mustParse(t, frame)
		need := len(reply(t, frame, 0, owner, false))
		for _, room := range []int{need - 1, need} {
			chunk := make([]byte, room)
			n := copy(chunk, frame)
			before := bytes.Clone(chunk)
			got := Reply(chunk[:n:room], n, &l, &m, owner, false)
			if room < need && (got != 0 || !bytes.Equal(chunk, before)) || room == need && got != need {
				t.Errorf("%s in %d bytes: %d", name, room, got)
			}
		}
	}
}

func TestReplyOnlyToRequests(t *testing.T) {
	for _, frame := range [][]byte{na().frame(t), arp{op: 2, src: owner, dst: asker, spa: owner4, tpa: asker4}.frame(t)} {
		l, m := mustParse(t, frame)
		chunk := append(bytes.Clone(frame), make([]byte, 100)...)
		if n := Reply(chunk, len(frame), &l, &m, owner, false); n != 0 || !bytes.Equal(chunk[:len(frame)], frame) {
			t.Errorf("%v answered", m.Op)
		}
	}
}

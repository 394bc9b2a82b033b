package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/packet"
)

// ether puts an Ethernet header from one pod to another before an IP packet.
func ether(t *testing.T, from, to *lab.Pod, etherType uint16, payload []byte) []byte {
	t.Helper()
	dst, err := packet.ParseMAC(to.MAC)
	must(t, err)
	src, err := packet.ParseMAC(from.MAC)
	must(t, err)
	b := append(append([]byte{}, dst[:]...), src[:]...)
	return append(binary.BigEndian.AppendUint16(b, etherType), payload...)
}

// ipFrame is an IP packet of a protocol between the pods' addresses of a family.
// fragment is the IPv4 fragment word (flags and offset/8); for IPv6 it becomes a
// fragment header. 0: no fragment.
func ipFrame(t *testing.T, from, to *lab.Pod, v6 bool, protocol byte, fragment uint16, payload []byte) []byte {
	t.Helper()
	if !v6 {
		b := make([]byte, 20, 20+len(payload))
		b[0], b[8], b[9] = 0x45, 64, protocol
		binary.BigEndian.PutUint16(b[2:], uint16(20+len(payload)))
		binary.BigEndian.PutUint16(b[4:], 0x1234)
		binary.BigEndian.PutUint16(b[6:], fragment)
		copy(b[12:], from.IP4().AsSlice())
		copy(b[16:], to.IP4().AsSlice())
		binary.BigEndian.PutUint16(b[10:], ^packet.Fold(packet.Sum(b)))
		return ether(t, from, to, 0x0800, append(b, payload...))
	}
	if fragment != 0 {
		word := fragment&0x1fff<<3 | fragment>>13&1
		payload = append([]byte{protocol, 0, byte(word >> 8), byte(word), 0, 0, 0x12, 0x34}, payload...)
		protocol = 44
	}
	b := make([]byte, 40, 40+len(payload))
	b[0], b[6], b[7] = 0x60, protocol, 64
	binary.BigEndian.PutUint16(b[4:], uint16(len(payload)))
	copy(b[8:], from.IP6().AsSlice())
	copy(b[24:], to.IP6().AsSlice())
	return ether(t, from, to, 0x86dd, append(b, payload...))
}

// sctp is an SCTP packet with one DATA chunk and that CRC field (RFC 9260
// sections 3.1 and 3.3.1).
func sctp(port uint16, crc uint32, data string) []byte {
	b := binary.BigEndian.AppendUint16(nil, port)
	b = binary.BigEndian.AppendUint16(b, 5000)
	b = binary.BigEndian.AppendUint32(b, 0xfeedface)
	b = binary.BigEndian.AppendUint32(b, crc)
	b = append(b, 0, 3)
	b = binary.BigEndian.AppendUint16(b, uint16(16+len(data)))
	b = binary.BigEndian.AppendUint32(b, 1) // TSN
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, data...)
	return append(b, make([]byte, -len(data)&3)...)
}

// An SCTP packet whose CRC field is zero was left to the device; it arrives
// complete, as tshark reckons. One with another value is the sender's: it
// arrives as it was, even if it is wrong.
func TestSCTPZeroCRCIsCompleted(t *testing.T) {
	c := fourPods(t)
	pods := c.Pods()
	for _, to := range []*lab.Pod{pods[1], pods[3]} {
		k := c.dump(to, lab.PodDevice, "ip proto 132 or ip6 proto 132")
		var frames [][]byte
		for _, v6 := range []bool{false, true} {
			for i, data := range []string{"even", "odd", "a longer one that is no multiple"} {
				frames = append(frames, ipFrame(t, pods[0], to, v6, 132, 0, sctp(uint16(1000+i), 0, data)))
			}
			frames = append(frames, ipFrame(t, pods[0], to, v6, 132, 0, sctp(2000, 0x01020304, "wrong")))
		}
		seen := startCapture(t, to.Netns(), lab.PodDevice)
		sendRaw(t, pods[0].Netns(), lab.PodDevice, frames...)
		eventually(t, 10*time.Second, "SCTP at "+to.Name, func() error {
			if n := len(seen.all(func(f captured) bool { return isIP(f.data, 132) })); n != len(frames) {
				return fmt.Errorf("%d of %d frames", n, len(frames))
			}
			return nil
		})
		rows := k.tshark("sctp", "sctp.srcport", "sctp.checksum.status", "sctp.checksum")
		if len(rows) != len(frames) {
			t.Fatalf("%s: tshark read %d frames of %d: %v", to.Name, len(rows), len(frames), rows)
		}
		for _, r := range rows {
			wrong := r[0] == "2000"
			if good := r[1] == "1"; good == wrong || wrong && r[2] != "0x01020304" {
				t.Errorf("%s: port %s: checksum status %s, field %s", to.Name, r[0], r[1], r[2])
			}
		}
	}
	c.account()
}

// isIP says that an untagged frame is an IP packet of the protocol; behind a
// fragment header, too.
func isIP(b []byte, protocol byte) bool {
	if len(b) < 54 {
		return false
	}
	switch binary.BigEndian.Uint16(b[12:]) {
	case 0x0800:
		return b[23] == protocol
	case 0x86dd:
		return b[20] == protocol || b[20] == 44 && b[54] == protocol
	}
	return false
}

// A fragment holds a part of what its checksum is over: it arrives byte for byte
// as it was sent, whatever stands where a checksum would be.
func TestFragmentsPassUntouched(t *testing.T) {
	c := fourPods(t)
	pods := c.Pods()
	for _, to := range []*lab.Pod{pods[1], pods[2]} {
		var want [][]byte
		for _, v6 := range []bool{false, true} {
			pseudo := packet.PseudoHeader4(packet.IPFromAddr(pods[0].IP4()).V4(), packet.IPFromAddr(to.IP4()).V4(), 17, 1208)
			if v6 {
				pseudo = packet.PseudoHeader6(packet.IPFromAddr(pods[0].IP6()), packet.IPFromAddr(to.IP6()), 17, 1208)
			}
			udp := make([]byte, 1208)
			copy(udp, []byte{0x10, 0x00, 0x20, 0x00, 0x04, 0xb8})
			// As a stack leaves it to the device, had this not been a fragment.
			binary.BigEndian.PutUint16(udp[6:], packet.Fold(pseudo))
			for i := range udp[8:] {
				udp[8+i] = byte(i)
			}
			const more = 0x2000
			want = append(want, ipFrame(t, pods[0], to, v6, 17, more, udp[:600]), ipFrame(t, pods[0], to, v6, 17, 600/8, udp[600:]))
			s := sctp(7, 0, "zero CRC in a fragment, and so on and on")
			want = append(want, ipFrame(t, pods[0], to, v6, 132, more, s[:40]), ipFrame(t, pods[0], to, v6, 132, 40/8, s[40:]))
		}
		seen := startCapture(t, to.Netns(), lab.PodDevice)
		sendRaw(t, pods[0].Netns(), lab.PodDevice, want...)
		eventually(t, 10*time.Second, "fragments at "+to.Name, func() error {
			got := seen.all(func(f captured) bool { return !f.outgoing && (isIP(f.data, 17) || isIP(f.data, 132)) })
			if len(got) != len(want) {
				return fmt.Errorf("%d of %d", len(got), len(want))
			}
			for _, w := range want {
				n := 0
				for _, g := range got {
					if bytes.Equal(g.data, w) {
						n++
					}
				}
				if n != 1 {
					return fmt.Errorf("%d times came\n% x", n, w)
				}
			}
			return nil
		})
		// And a stack puts together what a stack took apart.
		for _, a := range to.Addresses {
			c.ping(pods[0], 5, "-i", "0.01", "-s", "4000", a.String())
		}
	}
	c.account()
}

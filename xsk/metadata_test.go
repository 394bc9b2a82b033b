package xsk_test

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

// The kernel takes what RequestChecksum writes, and marks the packet so that
// the receiver knows its checksum is still to be made.
func TestRequestChecksum(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, b := veth(t, "v", 1, 1500)
	s := open(t, m, m.Whole(), a, xsk.Options{TXMetadata: true})
	app := openPacket(t, b)
	if err := unix.SetsockoptInt(app.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		t.Fatal(err)
	}
	for i, wantMark := range []bool{false, true} {
		d := write(m, xsk.Addr(i*xsk.ChunkSize+256), frame(i, 100))
		if wantMark && !m.RequestChecksum(&d, 34, 16) {
			t.Fatal("refused a sound request")
		}
		s.Transmit([]xsk.Desc{d})
		drain(t, s, 1)
		buf, oob := make([]byte, 2048), make([]byte, 256)
		var oobn int
		eventually(t, "frame", func() bool {
			var err error
			_, oobn, _, _, err = unix.Recvmsg(app.fd, buf, oob, 0)
			return err == nil
		})
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(messages) != 1 {
			t.Fatalf("%d control messages, %v", len(messages), err)
		}
		const notReady = 1 << 3 // TP_STATUS_CSUMNOTREADY, linux/if_packet.h
		if mark := binary.NativeEndian.Uint32(messages[0].Data)&notReady != 0; mark != wantMark {
			t.Errorf("request %v: packet marked %v", wantMark, mark)
		}
	}
	noFaults(t, s)
}

func TestRequestChecksumRefuses(t *testing.T) {
	m := xsktest.Memory(t, 1, 2)
	for _, c := range []struct {
		d             xsk.Desc
		start, offset int
		want          bool
	}{
		{xsk.Desc{Addr: 256, Len: 60}, 34, 16, true},
		{xsk.Desc{Addr: 256, Len: 52}, 34, 16, true}, // the frame's last two bytes
		{xsk.Desc{Addr: 256, Len: 51}, 34, 16, false},
		{xsk.Desc{Addr: 24, Len: 60}, 34, 16, true},
		{xsk.Desc{Addr: 23, Len: 60}, 34, 16, false}, // no room before it
		{xsk.Desc{Addr: xsk.ChunkSize, Len: 60}, 34, 16, false},
		{xsk.Desc{Addr: 256, Len: 60}, -1, 16, false},
		{xsk.Desc{Addr: 256, Len: 60}, 34, -1, false},
		{xsk.Desc{Addr: 256, Len: 1 << 31}, 1 << 16, 0, false},
	} {
		d := c.d
		if got := m.RequestChecksum(&d, c.start, c.offset); got != c.want || (d.Options != 0) != c.want {
			t.Errorf("%+v start %d offset %d: %v, options %d", c.d, c.start, c.offset, got, d.Options)
		}
	}
}

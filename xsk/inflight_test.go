package xsk_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

// In copy mode a completion comes when the packet is freed, not when it is
// sent: whoever holds the packet holds the chunk. Such a packet also holds the
// queue of a closed socket, which Open waits for.
func TestCompletionWhenPacketIsFreed(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, b := veth(t, "v", 1, 1500)
	out, far := veth(t, "w", 1, 1500)
	const size, held = 1500, time.Second
	slowBridge(t, b, out, size, held)
	app := openPacket(t, far)
	warmUp(t, m, a, app)

	s := open(t, m, m.Whole(), a, xsk.Options{})
	s.Transmit([]xsk.Desc{write(m, 0, frame(1, size)), write(m, xsk.ChunkSize, frame(2, size))})
	start := time.Now()
	if k := s.Kick(); k != xsk.KickOK || s.TXQueued() != 0 {
		t.Fatalf("kick: %v (%v), %d queued", k, s.Errno(), s.TXQueued())
	}
	completeAll(t, s, 1)
	if s.Outstanding() != 1 {
		t.Fatalf("%d outstanding: the second packet should be held", s.Outstanding())
	}
	s.Close()
	o := xsk.Options{IfIndex: a.Attrs().Index, BindTimeout: -1}
	if _, err := xsk.Open(m, m.Whole(), o); !errors.Is(err, xsk.ErrQueueBusy) {
		t.Errorf("queue with a packet in flight: %v", err)
	}
	open(t, m, m.Whole(), a, xsk.Options{BindTimeout: 10 * time.Second})
	t.Logf("queue free after %v", time.Since(start).Round(time.Millisecond))
	if took := time.Since(start); took < held/2 {
		t.Errorf("queue free after %v, the packet was held for about %v", took, held)
	}
	if first, second := app.receive(t), app.receive(t); seqOf(first) != 1 || seqOf(second) != 2 {
		t.Errorf("frames %d and %d", seqOf(first), seqOf(second))
	}
}

// The bytes in flight are bounded by the send buffer: a small one gives EAGAIN
// without progress while packets are held, the default one takes a full ring.
func TestSendBufferBoundsPacketsInFlight(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, b := veth(t, "v", 1, 1500)
	out, far := veth(t, "w", 1, 1500)
	const size, frames = 1500, 20
	slowBridge(t, b, out, size, 20*time.Millisecond)
	app := openPacket(t, far)
	warmUp(t, m, a, app)
	for _, sndbuf := range []int{1, 0} { // 1: the kernel's least
		s := open(t, m, m.Whole(), a, xsk.Options{SndBuf: sndbuf, BindTimeout: 10 * time.Second})
		for i := range frames {
			s.Transmit([]xsk.Desc{write(m, xsk.Addr(i*xsk.ChunkSize), frame(i, size))})
		}
		k := s.Kick()
		t.Logf("send buffer %d: %v (%v), %d of %d queued", sndbuf, k, s.Errno(), s.TXQueued(), frames)
		if small := sndbuf != 0; small != (k == xsk.KickAgain) || small != (s.TXQueued() > 0) {
			t.Errorf("send buffer %d: %v, %d queued", sndbuf, k, s.TXQueued())
		}
		drain(t, s, frames)
		for i := range frames {
			if got := app.receive(t); seqOf(got) != i {
				t.Fatalf("frame %d, want %d", seqOf(got), i)
			}
		}
		s.Close()
	}
}

// slowBridge bridges two devices; the second one lets one frame of size bytes
// pass and holds the next one that long.
func slowBridge(t *testing.T, in, out netlink.Link, size uint32, held time.Duration) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "br"
	br := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(br); err != nil {
		t.Fatalf("no bridge: %v", err)
	}
	up(t, br)
	for _, l := range []netlink.Link{in, out} {
		if err := netlink.LinkSetMaster(l, br); err != nil {
			t.Fatal(err)
		}
	}
	rate := uint64(float64(size) / held.Seconds())
	q := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: out.Attrs().Index, Parent: netlink.HANDLE_ROOT},
		Rate:       rate, Limit: 64 * size, Buffer: netlink.Xmittime(rate, size+14),
	}
	if err := netlink.QdiscAdd(q); err != nil {
		t.Fatalf("nothing to hold packets with: tbf: %v", err)
	}
}

// warmUp waits until the bridge forwards.
func warmUp(t *testing.T, m *xsk.Memory, l netlink.Link, app packetSocket) {
	t.Helper()
	s := open(t, m, m.Whole(), l, xsk.Options{})
	var out [8]xsk.Addr
	eventually(t, "forwarding bridge", func() bool {
		s.Transmit([]xsk.Desc{write(m, 0, frame(0, 64))})
		s.Kick()
		for s.Outstanding() > 0 {
			s.Complete(out[:])
			time.Sleep(time.Millisecond)
		}
		return app.tryReceive() != nil
	})
	s.Close()
	time.Sleep(10 * time.Millisecond)
	for app.tryReceive() != nil {
	}
}

package xsk_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

// veth has no zero-copy: preferring it falls back and says so, requiring it
// fails.
func TestZeroCopyFallsBackToCopy(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, b := veth(t, "v", 1, 1500)
	if _, err := xsk.Open(m, m.Whole(), xsk.Options{IfIndex: a.Attrs().Index, ZeroCopy: xsk.ZeroCopyRequire}); err == nil {
		t.Fatal("veth in zero-copy mode")
	} else {
		t.Log(err)
	}
	s := open(t, m, m.Whole(), a, xsk.Options{ZeroCopy: xsk.ZeroCopyPrefer, NeedWakeup: true})
	got := s.Options()
	if got.ZeroCopy || len(got.Fallbacks) != 1 || got.Fallbacks[0].What != "zero-copy" || got.Fallbacks[0].Err == nil {
		t.Fatalf("negotiated %+v", got)
	}
	app := openPacket(t, b)
	s.Transmit([]xsk.Desc{write(m, 0, frame(1, 64))})
	drain(t, s, 1)
	app.receive(t)
}

// Copy mode always wants a kick to send, and never one to receive.
func TestNeedWakeup(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, b := veth(t, "v", 1, 1500)
	s := open(t, m, m.Whole(), a, xsk.Options{NeedWakeup: true})
	slot(t, redirector(t, a, false), s)
	app := openPacket(t, b)
	s.Fill(chunks(m.Whole(), 0, 4))
	if !s.NeedWakeupTX() || s.NeedWakeupFill() {
		t.Errorf("need wake-up: tx %v, fill %v", s.NeedWakeupTX(), s.NeedWakeupFill())
	}
	app.send(t, frame(1, 64))
	receiveOne(t, s)
	if k := s.WakeFill(); k != xsk.KickOK && k != xsk.KickAgain {
		t.Errorf("WakeFill: %v (%v)", k, s.Errno())
	}
}

func TestBusyPoll(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, b := veth(t, "v", 1, 1500)
	s := open(t, m, m.Whole(), a, xsk.Options{BusyPoll: xsk.BusyPoll{Microseconds: 20, Budget: 64, Prefer: true}})
	for opt, want := range map[int]int{unix.SO_BUSY_POLL: 20, unix.SO_PREFER_BUSY_POLL: 1} {
		if got, err := unix.GetsockoptInt(s.FD(), unix.SOL_SOCKET, opt); err != nil || got != want {
			t.Errorf("socket option %d is %d (%v), want %d", opt, got, err, want)
		}
	}
	if f := s.Options().Fallbacks; len(f) != 0 {
		t.Errorf("fallbacks: %v", f)
	}
	slot(t, redirector(t, a, false), s)
	app := openPacket(t, b)
	s.Fill(chunks(m.Whole(), 0, 4))
	app.send(t, frame(1, 64))
	var d [1]xsk.Desc
	eventually(t, "frame under busy polling", func() bool { s.WakeFill(); return s.Receive(d[:]) == 1 })
}

func TestSendBuffer(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, _ := veth(t, "v", 2, 1500)
	for queue, want := range map[int]int{0: 1 << 22, 1: 8192 * xsk.ChunkSize} {
		o := xsk.Options{Queue: queue, SndBuf: want}
		if queue == 1 {
			o.SndBuf, o.TX = 0, 8192 // a chunk an entry
		}
		s := open(t, m, m.Whole(), a, o)
		if got, err := unix.GetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_SNDBUF); err != nil || got != 2*want {
			t.Errorf("send buffer is %d (%v), want twice %d", got, err, want)
		}
	}
}

// A frame longer than a chunk: chained descriptors with multi-buffer, both ways;
// without it dropped into rx_dropped.
func TestMultiBuffer(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 128)
	a, b := veth(t, "v", 1, 9000)
	s := open(t, m, m.Whole(), a, xsk.Options{MultiBuffer: true})
	slot(t, redirector(t, a, true), s)
	app := openPacket(t, b)
	s.Fill(chunks(m.Whole(), 0, 32))
	want := frame(1, 9000)
	app.send(t, want)
	var got []byte
	var parts []xsk.Desc
	for more := true; more; {
		d := receiveOne(t, s)
		got = append(got, m.Frame(d.Addr, int(d.Len))...)
		parts = append(parts, d)
		more = d.Options&xsk.OptionContinues != 0
	}
	t.Logf("%d bytes in %d chunks", len(got), len(parts))
	if !bytes.Equal(got, want) || len(parts) < 3 {
		t.Fatalf("received %d bytes in %d parts", len(got), len(parts))
	}
	s.Transmit(parts)
	done := drain(t, s, len(parts))
	for i, a := range done {
		if a != parts[i].Addr {
			t.Errorf("completion %d is %d, want %d", i, a, parts[i].Addr)
		}
	}
	if back := app.receive(t); !bytes.Equal(back, want) {
		t.Errorf("sent %d bytes back", len(back))
	}
	// The stray bit: two frames become one. Hence Options is always written,
	// and refused where multi-buffer was not negotiated.
	one, two := write(m, 100*xsk.ChunkSize, frame(1, 64)), write(m, 101*xsk.ChunkSize, frame(2, 64))
	one.Options = xsk.OptionContinues
	s.Transmit([]xsk.Desc{one, two})
	drain(t, s, 2)
	if merged := app.receive(t); len(merged) != 128 {
		t.Errorf("a stray bit gave a frame of %d bytes, want 128", len(merged))
	}
	noFaults(t, s)
}

// A frame of more fragments than a packet holds (MAX_SKB_FRAGS) is not sent. It
// counts in tx_invalid_descs and is completed all the same, so no chunk is
// lost; and what is outstanding can be told from the indices alone.
func TestTooManyFragmentsAreCompleted(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, b := veth(t, "v", 1, 9000)
	o := xsk.Options{IfIndex: a.Attrs().Index, MultiBuffer: true}
	s := open(t, m, m.Whole(), a, o)
	app := openPacket(t, b)
	const parts = 20
	for i := range parts {
		d := write(m, xsk.Addr(i*xsk.ChunkSize), frame(i, 64))
		if i < parts-1 {
			d.Options = xsk.OptionContinues
		}
		s.Transmit([]xsk.Desc{d})
	}
	s.Transmit([]xsk.Desc{write(m, 30*xsk.ChunkSize, frame(99, 64))})
	var out [64]xsk.Addr
	done := 0
	eventually(t, "frame behind it", func() bool {
		s.Kick()
		done += s.Complete(out[:])
		got := app.tryReceive()
		return got != nil && seqOf(got) == 99
	})
	st, err := s.Stats()
	if err != nil || st.TXInvalid != parts || done != parts+1 || s.Outstanding() != 0 {
		t.Errorf("%d of %d completed, %d outstanding, %+v, %v", done, parts+1, s.Outstanding(), st, err)
	}
	fd := dup(t, s.FD())
	s.Close()
	adopted, err := xsk.FromFD(fd, m, m.Whole(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer adopted.Close()
	if n := adopted.Outstanding(); n != 0 {
		t.Errorf("%d outstanding after adoption: nothing will complete", n)
	}
}

func TestWithoutMultiBuffer(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 128)
	a, b := veth(t, "v", 1, 3900) // more than MaxFrame, less than a page allows veth's XDP
	s := open(t, m, m.Whole(), a, xsk.Options{})
	app := openPacket(t, b)
	one, two := write(m, 0, frame(1, 64)), write(m, xsk.ChunkSize, frame(2, 64))
	one.Options = xsk.OptionContinues
	if n := s.Transmit([]xsk.Desc{one, two}); n != 0 || s.Faults().RejectedTX != 1 {
		t.Errorf("took %d with a stray bit, faults %+v", n, s.Faults())
	}
	one.Options = 0
	s.Transmit([]xsk.Desc{one, two})
	drain(t, s, 2)
	if got := app.receive(t); len(got) != 64 || seqOf(got) != 1 {
		t.Errorf("first frame has %d bytes", len(got))
	}

	slot(t, redirector(t, a, true), s)
	s.Fill(chunks(m.Whole(), 32, 8))
	app.send(t, frame(3, 3900))
	statsReach(t, s, func(st xsk.Stats) bool { return st.RXDropped == 1 })
	app.send(t, frame(4, xsk.MaxFrame)) // the longest that fits
	if d := receiveOne(t, s); d.Len != xsk.MaxFrame || uint64(d.Addr)%xsk.ChunkSize != xsk.KernelHeadroom {
		t.Errorf("%d bytes at %d", d.Len, d.Addr)
	}
}

func statsReach(t *testing.T, s *xsk.Socket, ok func(xsk.Stats) bool) {
	t.Helper()
	var st xsk.Stats
	deadline := time.Now().Add(5 * time.Second)
	for {
		var err error
		if st, err = s.Stats(); err != nil {
			t.Fatal(err)
		}
		if ok(st) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("statistics stay %+v", st)
		}
		time.Sleep(time.Millisecond)
	}
}

// xdp-tutorial#115, #116: bursts lost silently. Each way to lose one has its
// counter.
func TestStatsCountEveryLoss(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 128)
	a, b := veth(t, "v", 1, 1500)
	s := open(t, m, m.Whole(), a, xsk.Options{RX: 8, Fill: 64})
	slot(t, redirector(t, a, false), s)
	app := openPacket(t, b)
	for i := range 10 {
		app.send(t, frame(i, 64))
	}
	statsReach(t, s, func(st xsk.Stats) bool { return st.RXFillEmpty >= 10 })
	s.Fill(chunks(m.Whole(), 0, 64))
	for i := range 20 {
		app.send(t, frame(i, 64))
	}
	statsReach(t, s, func(st xsk.Stats) bool { return st.RXRingFull >= 12 })
	if s.Received() != 8 {
		t.Errorf("%d frames in a ring of 8", s.Received())
	}
	s.Kick()
	statsReach(t, s, func(st xsk.Stats) bool { return st.TXRingEmpty >= 1 })
	st, _ := s.Stats()
	t.Logf("%+v", st)
}

// Headroom moves the frame in its chunk.
func TestHeadroom(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, b := veth(t, "v", 1, 1500)
	s := open(t, m, m.Whole(), a, xsk.Options{Headroom: 64})
	slot(t, redirector(t, a, false), s)
	app := openPacket(t, b)
	s.Fill(chunks(m.Whole(), 3, 1))
	app.send(t, frame(1, 64))
	if d := receiveOne(t, s); d.Addr != 3*xsk.ChunkSize+xsk.KernelHeadroom+64 {
		t.Errorf("received at %d of chunk %d", d.Addr-d.Addr.Chunk(), d.Addr.Chunk()/xsk.ChunkSize)
	}
}

// poll never wakes on a link that goes down, nor on its deletion: whoever
// sleeps on a socket needs a timeout and a link monitor.
func TestPollIsDeafToLinkDown(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, b := veth(t, "v", 1, 1500)
	s := open(t, m, m.Whole(), a, xsk.Options{NeedWakeup: true})
	slot(t, redirector(t, a, false), s)
	app := openPacket(t, b)
	s.Fill(chunks(m.Whole(), 0, 8))
	app.send(t, frame(1, 64))
	if n := pollIn(t, s); n != 1 {
		t.Fatalf("poll gave %d with a frame waiting", n)
	}
	receiveOne(t, s)
	down(t, a)
	if n := pollIn(t, s); n != 0 {
		t.Errorf("poll woke %d on link down: this kernel tells, unlike those known", n)
	}
	if err := netlink.LinkDel(a); err != nil {
		t.Fatal(err)
	}
	if n := pollIn(t, s); n != 0 {
		t.Errorf("poll woke %d on deletion: this kernel tells, unlike those known", n)
	}
}

func pollIn(t *testing.T, s *xsk.Socket) int {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(s.FD()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 100)
	if err != nil && err != unix.EINTR {
		t.Fatal(err)
	}
	if n > 0 {
		t.Logf("poll: events %#x", fds[0].Revents)
	}
	return n
}

package xsk_test

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

// Every errno has its rule.
func TestKickClassification(t *testing.T) {
	m := xsktest.Memory(t, 1, 8)
	for errno, want := range map[unix.Errno]xsk.KickResult{
		0:               xsk.KickOK,
		unix.EAGAIN:     xsk.KickAgain,
		unix.EINTR:      xsk.KickAgain,
		unix.EBUSY:      xsk.KickBusy,
		unix.ENETDOWN:   xsk.KickDown,
		unix.ENXIO:      xsk.KickGone,
		unix.EBADF:      xsk.KickGone,
		unix.EINVAL:     xsk.KickPoisoned,
		unix.ENOBUFS:    xsk.KickNoBufs,
		unix.ENOMEM:     xsk.KickNoBufs,
		unix.EOPNOTSUPP: xsk.KickOther,
		unix.EMSGSIZE:   xsk.KickOther,
	} {
		s, k := xsktest.New(t, m, m.Whole(), small)
		k.FailKicks(errno)
		if got := s.Kick(); got != want || s.Errno() != errno {
			t.Errorf("%v: %v (%v), want %v", errno, got, s.Errno(), want)
		}
		if s.Kick() != xsk.KickOK || s.Errno() != 0 {
			t.Errorf("after %v: %v", errno, s.Errno())
		}
	}
	names := map[string]bool{}
	for k := range xsk.NumKickResults {
		names[k.String()] = true
	}
	if len(names) != int(xsk.NumKickResults) || names["invalid"] || xsk.NumKickResults.String() != "invalid" {
		t.Errorf("names %v", names)
	}
}

// The fake behaves on each errno as the devices in the tests beside it.
func TestFakeErrnos(t *testing.T) {
	m := xsktest.Memory(t, 1, 64)
	o := xsk.Options{Fill: 64, Completion: 64, RX: 64, TX: 64, TXMetadata: true}
	s, k := xsktest.New(t, m, m.Whole(), o)
	send := func(i int) { s.Transmit([]xsk.Desc{{Addr: xsk.Addr(i*xsk.ChunkSize + 256), Len: 60}}) }
	var out [64]xsk.Addr

	k.SetDown(true)
	send(0)
	if got := s.Kick(); got != xsk.KickDown || s.TXQueued() != 1 || s.WakeFill() != xsk.KickDown || k.Deliver(frame(0, 60)) {
		t.Errorf("down: %v", got)
	}
	k.SetDown(false)
	if got := s.Kick(); got != xsk.KickOK || s.Complete(out[:]) != 1 {
		t.Errorf("up again: %v", got)
	}

	k.DropBusy(2)
	for i := range 3 {
		send(i)
	}
	for i, want := range []xsk.KickResult{xsk.KickBusy, xsk.KickBusy, xsk.KickOK} {
		if got := s.Kick(); got != want || s.Complete(out[:]) != 1 || out[0] != xsk.Addr(i*xsk.ChunkSize+256) {
			t.Errorf("busy kick %d: %v", i, got)
		}
	}
	k.Sent()

	for i := range 50 {
		send(i)
	}
	if got := s.Kick(); got != xsk.KickAgain || s.TXQueued() != 50-xsk.KernelTXBudget {
		t.Errorf("budget: %v, %d queued", got, s.TXQueued())
	}
	k.SetBudget(4)
	s.Kick()
	if s.TXQueued() != 14 || len(k.Sent()) != 36 {
		t.Errorf("short budget: %d queued", s.TXQueued())
	}
	k.SetBudget(32)
	s.Kick()
	if n := s.Complete(out[:]); n != 50 || s.Outstanding() != 0 {
		t.Errorf("%d completions", n)
	}

	k.HoldCompletions()
	for i := range 3 {
		send(i)
	}
	s.Kick()
	if s.Complete(out[:]) != 0 || s.Outstanding() != 3 || k.InFlight() != 3 {
		t.Error("completions were not held")
	}
	k.Release(true)
	if n := s.Complete(out[:]); n != 3 || out[0] != 2*xsk.ChunkSize+256 {
		t.Errorf("released %v", out[:n])
	}

	m.Frame(256-xsk.TXMetadataLen, 8)[0] = 0xff
	s.Transmit([]xsk.Desc{{Addr: 256, Len: 60, Options: xsk.OptionTXMetadata}})
	for range 3 {
		if got := s.Kick(); got != xsk.KickPoisoned || s.TXQueued() != 1 || s.Complete(out[:]) != 1 {
			t.Errorf("poisoned: %v", got)
		}
	}
	if s.Faults().ExcessCompletions != 2 {
		t.Errorf("%+v", s.Faults())
	}

	k.Delete()
	if s.Kick() != xsk.KickGone || s.WakeFill() != xsk.KickGone {
		t.Error("deleted device")
	}
	if k.Kicks() == 0 || k.WakeFills() != 2 {
		t.Errorf("%d kicks, %d wakes", k.Kicks(), k.WakeFills())
	}
	if s.Close() != nil || s.Close() == nil {
		t.Error("closing")
	}
}

func TestFakeMultiBuffer(t *testing.T) {
	m := xsktest.Memory(t, 1, 8)
	o := small
	o.MultiBuffer = true
	s, k := xsktest.New(t, m, m.Whole(), o)
	s.Fill(chunks(m.Whole(), 0, 8))
	want := frame(1, 9000)
	var d [8]xsk.Desc
	if !k.Deliver(want) || s.Receive(d[:]) != 3 {
		t.Fatal("not delivered in three")
	}
	s.Transmit(d[:3])
	s.Kick()
	if sent := k.Sent(); len(sent) != 1 || !bytes.Equal(sent[0], want) {
		t.Error("not the frame")
	}
	plain, pk := xsktest.New(t, m, m.Whole(), small)
	plain.Fill(chunks(m.Whole(), 0, 8))
	if st, _ := plain.Stats(); pk.Deliver(want) || st.RXDropped != 0 {
		t.Error("delivered without multi-buffer")
	}
	if st, _ := plain.Stats(); st.RXDropped != 1 {
		t.Errorf("%+v", st)
	}
}

func TestFakeNeedWakeup(t *testing.T) {
	m := xsktest.Memory(t, 1, 8)
	s, _ := xsktest.New(t, m, m.Whole(), small)
	if !s.NeedWakeupTX() || s.NeedWakeupFill() {
		t.Error("without need-wakeup: kick always, wake never")
	}
	o := small
	o.NeedWakeup = true
	s, k := xsktest.New(t, m, m.Whole(), o)
	for _, fill := range []bool{false, true} {
		for _, tx := range []bool{false, true} {
			k.SetWakeup(fill, tx)
			if s.NeedWakeupFill() != fill || s.NeedWakeupTX() != tx {
				t.Errorf("flags %v %v: %v %v", fill, tx, s.NeedWakeupFill(), s.NeedWakeupTX())
			}
		}
	}
}

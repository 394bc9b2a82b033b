package xsk_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

func open(t *testing.T, m *xsk.Memory, r xsk.Region, l netlink.Link, o xsk.Options) *xsk.Socket {
	t.Helper()
	o.IfIndex = l.Attrs().Index
	s, err := xsk.Open(m, r, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// slot puts s into the XSKMAP.
func slot(t *testing.T, xsks *ebpf.Map, s *xsk.Socket) {
	t.Helper()
	if err := xsks.Put(uint32(0), uint32(s.FD())); err != nil {
		t.Fatal(err)
	}
}

// chunks is n chunks of r from the i-th.
func chunks(r xsk.Region, i, n int) []xsk.Addr {
	out := make([]xsk.Addr, n)
	for j := range out {
		out[j] = r.Base() + xsk.Addr((i+j)*xsk.ChunkSize)
	}
	return out
}

func receiveOne(t *testing.T, s *xsk.Socket) xsk.Desc {
	t.Helper()
	var d [1]xsk.Desc
	eventually(t, "frame in the rx ring", func() bool { return s.Receive(d[:]) == 1 })
	return d[0]
}

func write(m *xsk.Memory, a xsk.Addr, b []byte) xsk.Desc {
	copy(m.Frame(a, len(b)), b)
	return xsk.Desc{Addr: a, Len: uint32(len(b))}
}

// completeAll reaps until n completions came.
func completeAll(t *testing.T, s *xsk.Socket, n int) (done []xsk.Addr) {
	t.Helper()
	var out [64]xsk.Addr
	eventually(t, "completion", func() bool {
		done = append(done, out[:s.Complete(out[:])]...)
		return len(done) >= n
	})
	if len(done) != n {
		t.Fatalf("%d completions, want %d", len(done), n)
	}
	return done
}

// drain kicks and reaps until n frames are completed, as a worker does.
func drain(t *testing.T, s *xsk.Socket, n int) (done []xsk.Addr) {
	t.Helper()
	var out [64]xsk.Addr
	eventually(t, "drained tx ring", func() bool {
		if k := s.Kick(); k != xsk.KickOK && k != xsk.KickAgain {
			t.Fatalf("kick: %v (%v)", k, s.Errno())
		}
		done = append(done, out[:s.Complete(out[:])]...)
		return len(done) >= n
	})
	return done
}

// A workload socket registers its shard, an uplink socket the whole mapping;
// a frame received by one leaves by the other without a copy, both ways.
func TestShardAndWholeTogether(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 3, 64)
	pod, podPeer := veth(t, "pod", 1, 1500)
	uplink, uplinkPeer := veth(t, "up", 1, 1500)
	shard, whole := m.Shard(1), m.Whole()
	podXSK := open(t, m, shard, pod, xsk.Options{})
	upXSK := open(t, m, whole, uplink, xsk.Options{})
	slot(t, redirector(t, pod, false), podXSK)
	slot(t, redirector(t, uplink, false), upXSK)
	podApp, upApp := openPacket(t, podPeer), openPacket(t, uplinkPeer)

	if n := podXSK.Fill(chunks(shard, 0, 32)); n != 32 {
		t.Fatalf("filled %d", n)
	}
	for seq := range 100 { // more than the fill ring held: chunks come round
		want := frame(seq, 60+seq)
		podApp.send(t, want)
		in := receiveOne(t, podXSK)
		if !shard.Contains(in.Addr) || !bytes.Equal(m.Frame(in.Addr, int(in.Len)), want) {
			t.Fatalf("frame %d at %d: % x", seq, in.Addr, m.Frame(in.Addr, int(in.Len)))
		}
		// Grow to the left as encapsulation does, and send from there.
		out := xsk.Desc{Addr: in.Addr - 54, Len: in.Len + 54}
		copy(m.Frame(out.Addr, 54), frame(seq, 54))
		whole := append(frame(seq, 54), want...)
		if upXSK.Transmit([]xsk.Desc{out}) != 1 || upXSK.Outstanding() != 1 {
			t.Fatal("not transmitted")
		}
		if done := drain(t, upXSK, 1); done[0] != out.Addr {
			t.Fatalf("completion %d of frame %d, want the exact address %d", done[0], seq, out.Addr)
		}
		if got := upApp.receive(t); !bytes.Equal(got, whole) {
			t.Fatalf("frame %d left as % x", seq, got)
		}
		if podXSK.Fill([]xsk.Addr{out.Addr}) != 1 { // any address of the chunk
			t.Fatal("not filled again")
		}
	}

	// uplink -> pod: received anywhere, copied into the pod's shard.
	if n := upXSK.Fill(chunks(m.Shard(2), 0, 8)); n != 8 {
		t.Fatalf("filled %d", n)
	}
	want := frame(7, 200)
	upApp.send(t, want)
	in := receiveOne(t, upXSK)
	if !m.Shard(2).Contains(in.Addr) {
		t.Fatalf("received at %d, outside of what was filled", in.Addr)
	}
	if podXSK.Transmit([]xsk.Desc{in}) != 0 || podXSK.Faults().RejectedTX != 1 {
		t.Fatal("a frame of another shard was taken")
	}
	out := write(m, shard.Base()+40*xsk.ChunkSize+300, m.Frame(in.Addr, int(in.Len)))
	podXSK.Transmit([]xsk.Desc{out})
	if done := drain(t, podXSK, 1); done[0] != out.Addr {
		t.Fatalf("completion %d, want %d", done[0], out.Addr)
	}
	if got := podApp.receive(t); !bytes.Equal(got, want) {
		t.Fatalf("pod got % x", got)
	}
	noFaults(t, upXSK)
}

func noFaults(t *testing.T, s *xsk.Socket) {
	t.Helper()
	if f := s.Faults(); f != (xsk.Faults{}) {
		t.Errorf("faults: %+v", f)
	}
	st, err := s.Stats()
	if err != nil || st.RXInvalid != 0 || st.TXInvalid != 0 {
		t.Errorf("statistics: %+v, %v", st, err)
	}
}

// asavie/xdp#9: TX stops after 16, now 32, frames. One kick takes the budget;
// the loop drains the rest.
func TestKickBudgetAndRekick(t *testing.T) {
	for _, budget := range []int{0, 64, 256} {
		inNetns(t)
		m := xsktest.Memory(t, 1, 512)
		a, b := veth(t, "v", 1, 1500)
		s := open(t, m, m.Whole(), a, xsk.Options{TX: 512, Completion: 512, TXBudget: budget})
		app := openPacket(t, b)
		if budget != 0 && len(s.Options().Fallbacks) > 0 {
			t.Logf("kernel without XDP_MAX_TX_SKB_BUDGET: %v", s.Options().Fallbacks)
		}
		const n = 300
		for i := range n {
			d := write(m, xsk.Addr(i*xsk.ChunkSize), frame(i, 64))
			if s.Transmit([]xsk.Desc{d}) != 1 {
				t.Fatal("ring full")
			}
		}
		first := s.Kick()
		took := n - s.TXQueued()
		t.Logf("budget %d: first kick %v (%v), %d taken", budget, first, s.Errno(), took)
		if took != s.Options().TXBudget {
			t.Errorf("budget %d: one kick took %d, want %d", budget, took, s.Options().TXBudget)
		}
		done := drain(t, s, n)
		slices.Sort(done)
		if !slices.Equal(done, chunks(m.Whole(), 0, n)) {
			t.Errorf("budget %d: completions are not the addresses sent", budget)
		}
		for i := range n {
			if got := app.receive(t); seqOf(got) != i {
				t.Fatalf("frame %d came when %d was due", seqOf(got), i)
			}
		}
		if s.Outstanding() != 0 || s.TXQueued() != 0 || s.TXFree() != 512 {
			t.Errorf("outstanding %d queued %d free %d", s.Outstanding(), s.TXQueued(), s.TXFree())
		}
		noFaults(t, s)
	}
}

// asavie/xdp#21, #31: the link goes down under us. ENETDOWN, no crash, and the
// same socket works once it is up again.
func TestKickDownAndUpAgain(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, b := veth(t, "v", 1, 1500)
	s := open(t, m, m.Whole(), a, xsk.Options{})
	slot(t, redirector(t, a, false), s)
	app := openPacket(t, b)
	s.Fill(chunks(m.Whole(), 32, 16))
	down(t, a)
	s.Transmit([]xsk.Desc{write(m, 256, frame(1, 64))})
	if k := s.Kick(); k != xsk.KickDown || s.Errno() != unix.ENETDOWN {
		t.Fatalf("kick on a device that is down: %v (%v)", k, s.Errno())
	}
	if s.TXQueued() != 1 || s.Outstanding() != 1 {
		t.Fatalf("queued %d outstanding %d: the frame should wait", s.TXQueued(), s.Outstanding())
	}
	up(t, a)
	eventually(t, "carrier", func() bool { return linkNamed(t, "v0").Attrs().OperState == netlink.OperUp })
	if done := drain(t, s, 1); done[0] != 256 {
		t.Fatalf("completion %d", done[0])
	}
	app.receive(t)
	// The peer's queue starts a little after its carrier is back: send again
	// until one came.
	var in [1]xsk.Desc
	eventually(t, "frame received after the flap", func() bool {
		unix.Write(app.fd, frame(2, 64))
		return s.Receive(in[:]) == 1
	})
	noFaults(t, s)
}

// EBUSY: the device drops a frame, and completes it. Without carrier that is
// every frame.
func TestKickBusyDropsOneAndCompletesIt(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, b := veth(t, "v", 1, 1500)
	s := open(t, m, m.Whole(), a, xsk.Options{})
	down(t, b) // a loses its carrier
	for i := range 3 {
		s.Transmit([]xsk.Desc{write(m, xsk.Addr(i*xsk.ChunkSize), frame(i, 64))})
	}
	for i := range 3 {
		if k := s.Kick(); k != xsk.KickBusy || s.Errno() != unix.EBUSY {
			t.Fatalf("kick without carrier: %v (%v)", k, s.Errno())
		}
		if s.TXQueued() != 2-i {
			t.Fatalf("kick %d left %d in the ring: want one dropped a kick", i, s.TXQueued())
		}
		if done := completeAll(t, s, 1); done[0] != xsk.Addr(i*xsk.ChunkSize) {
			t.Fatalf("completion %d", done[0])
		}
	}
	if k := s.Kick(); k != xsk.KickOK {
		t.Fatalf("kick of an empty ring: %v", k)
	}
}

// EAGAIN without progress: the completion ring is full. Nothing is lost, and
// reaping lets it go on.
func TestKickAgainOnFullCompletionRing(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 256)
	a, b := veth(t, "v", 1, 1500)
	s := open(t, m, m.Whole(), a, xsk.Options{Completion: 32, TX: 256})
	app := openPacket(t, b)
	for i := range 100 {
		s.Transmit([]xsk.Desc{write(m, xsk.Addr(i*xsk.ChunkSize), frame(i, 64))})
	}
	eventually(t, "full completion ring", func() bool { s.Kick(); return s.TXQueued() == 68 })
	for range 5 {
		if k := s.Kick(); k != xsk.KickAgain || s.Errno() != unix.EAGAIN || s.TXQueued() != 68 {
			t.Fatalf("kick: %v (%v), %d queued", k, s.Errno(), s.TXQueued())
		}
	}
	drain(t, s, 100)
	for i := range 100 {
		if got := app.receive(t); seqOf(got) != i {
			t.Fatalf("frame %d, want %d", seqOf(got), i)
		}
	}
}

// ENXIO: the device is deleted under a socket. It stays so; Close works.
func TestKickGoneAfterDeletion(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, _ := veth(t, "v", 1, 1500)
	s := open(t, m, m.Whole(), a, xsk.Options{})
	slot(t, redirector(t, a, false), s)
	s.Fill(chunks(m.Whole(), 32, 16))
	if err := netlink.LinkDel(a); err != nil {
		t.Fatal(err)
	}
	s.Transmit([]xsk.Desc{write(m, 256, frame(1, 64))})
	eventually(t, "ENXIO", func() bool { return s.Kick() == xsk.KickGone && s.Errno() == unix.ENXIO })
	if k := s.WakeFill(); k != xsk.KickGone {
		t.Errorf("WakeFill: %v (%v)", k, s.Errno())
	}
	if _, err := s.Stats(); err != nil {
		t.Errorf("statistics of a socket without a device: %v", err)
	}
	var out [4]xsk.Addr
	var in [4]xsk.Desc
	s.Complete(out[:])
	s.Receive(in[:])
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// EINVAL: bad TX metadata poisons the head of the ring; every kick fails and
// the frames behind it never leave.
func TestKickPoisonedByBadMetadata(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, b := veth(t, "v", 1, 1500)
	s := open(t, m, m.Whole(), a, xsk.Options{TXMetadata: true})
	app := openPacket(t, b)
	good := write(m, 256, frame(1, 64))
	s.Transmit([]xsk.Desc{good})
	drain(t, s, 1)
	app.receive(t)

	bad := write(m, xsk.ChunkSize+256, frame(2, 64))
	bad.Options = xsk.OptionTXMetadata
	for i := range m.Frame(bad.Addr-xsk.TXMetadataLen, 8) {
		m.Frame(bad.Addr-xsk.TXMetadataLen, 8)[i] = 0xff // flags nobody knows
	}
	behind := write(m, 2*xsk.ChunkSize+256, frame(3, 64))
	s.Transmit([]xsk.Desc{bad, behind})
	var out [64]xsk.Addr
	completions := 0
	for range 5 {
		if k := s.Kick(); k != xsk.KickPoisoned || s.Errno() != unix.EINVAL {
			t.Fatalf("kick: %v (%v)", k, s.Errno())
		}
		if s.TXQueued() != 2 {
			t.Fatalf("%d queued: the head moved", s.TXQueued())
		}
		for _, a := range out[:s.Complete(out[:])] {
			if a != bad.Addr {
				t.Errorf("completion %d, the head is %d", a, bad.Addr)
			}
			completions++
		}
	}
	if completions < 2 || s.Faults().ExcessCompletions == 0 {
		t.Errorf("5 kicks gave %d completions of one frame, faults %+v: this kernel does not repeat them", completions, s.Faults())
	}
	if got := app.tryReceive(); got != nil {
		t.Errorf("a frame passed the poisoned head: %d", seqOf(got))
	}
	fd := dup(t, s.FD())
	adopted, err := xsk.FromFD(fd, m, m.Whole(), xsk.Options{TXMetadata: true})
	if err != nil {
		t.Fatal(err)
	}
	if n := adopted.Outstanding(); n != 0 {
		t.Errorf("%d outstanding after excess completions", n)
	}
	adopted.Close()
	// The rule: rebuild the socket.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, m.Whole(), a, xsk.Options{TXMetadata: true})
	s.Transmit([]xsk.Desc{behind})
	drain(t, s, 1)
	app.receive(t)
}

package xsk_test

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

// xdp-tutorial#458, RTC-Testbench#57: opening the queue again says EBUSY. Close
// frees it, and Open waits for the rest.
func TestReopenSameQueue(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 128)
	a, b := veth(t, "v", 1, 1500)
	app := openPacket(t, b)
	for i := range 20 {
		start := time.Now()
		s := open(t, m, m.Whole(), a, xsk.Options{})
		t.Logf("open %d took %v", i, time.Since(start).Round(10*time.Microsecond))
		for j := range 20 { // frames in flight hold the socket too
			s.Transmit([]xsk.Desc{write(m, xsk.Addr(j*xsk.ChunkSize), frame(j, 64))})
		}
		s.Kick()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); !errors.Is(err, os.ErrClosed) {
			t.Fatalf("second close: %v", err)
		}
		if s.FD() != -1 || s.Transmit([]xsk.Desc{{Addr: 0, Len: 64}}) != 0 || s.Fill([]xsk.Addr{0}) != 0 {
			t.Fatal("a closed socket takes frames")
		}
	}
	for app.tryReceive() != nil {
	}
}

// The queue is somebody's: a clear error, and no socket or descriptor left.
func TestOpenBusyQueue(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 2, 64)
	a, _ := veth(t, "v", 1, 1500)
	s := open(t, m, m.Shard(0), a, xsk.Options{})
	o := xsk.Options{IfIndex: a.Attrs().Index, BindTimeout: 20 * time.Millisecond}
	_, err := xsk.Open(m, m.Shard(1), o)
	if !errors.Is(err, xsk.ErrQueueBusy) || !errors.Is(err, unix.EBUSY) {
		t.Fatalf("second socket on the queue: %v", err)
	}
	// The control: a mapped ring alone holds the queue, so unmapping first is
	// what frees it.
	mem, err := unix.Mmap(s.FD(), unix.XDP_PGOFF_TX_RING, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	o.BindTimeout = 100 * time.Millisecond
	if _, err := xsk.Open(m, m.Shard(1), o); !errors.Is(err, xsk.ErrQueueBusy) {
		t.Fatalf("queue with a mapped ring: %v", err)
	}
	unix.Munmap(mem)
	open(t, m, m.Shard(1), a, xsk.Options{})
}

// The wait for a queue ends as soon as it is free.
func TestOpenWaitsForQueue(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 2, 64)
	a, _ := veth(t, "v", 1, 1500)
	s := open(t, m, m.Shard(0), a, xsk.Options{})
	go func() {
		time.Sleep(50 * time.Millisecond)
		s.Close()
	}()
	open(t, m, m.Shard(1), a, xsk.Options{BindTimeout: 10 * time.Second})
}

// A socket handed over keeps its rings: frames that wait in each of the four
// are found by the adopter, and no chunk is lost.
func TestFromFDCarriesOn(t *testing.T) {
	for name, early := range map[string]bool{"adopted when the other has stopped": false, "before, and reloaded": true} {
		t.Run(name, func(t *testing.T) { carriesOn(t, early) })
	}
}

func carriesOn(t *testing.T, early bool) {
	inNetns(t)
	m := xsktest.Memory(t, 2, 64)
	a, b := veth(t, "v", 1, 1500)
	o := xsk.Options{IfIndex: a.Attrs().Index, Fill: 64, Completion: 64, RX: 32, TX: 128, TXBudget: 64}
	r := m.Shard(1)
	old := open(t, m, r, a, o)
	slot(t, redirector(t, a, false), old)
	app := openPacket(t, b)

	// Both descriptors travel, as over SCM_RIGHTS.
	m2, err := xsk.MemoryFromFD(dup(t, m.FD()), xsk.MemoryOptions{Shards: 2, ChunksPerShard: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer m2.Close()
	if err := m2.Populate(); err != nil {
		t.Error(err)
	}
	sockFD := dup(t, old.FD())
	adopt := func() *xsk.Socket {
		s, err := xsk.FromFD(sockFD, m2, m2.Shard(1), o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var s *xsk.Socket
	if early {
		s = adopt()
	}

	old.Fill(chunks(r, 0, 32))
	for i := range 5 {
		app.send(t, frame(i, 64))
	}
	eventually(t, "five frames", func() bool { return old.Received() == 5 })
	receiveOne(t, old)
	for i := range 4 {
		old.Transmit([]xsk.Desc{write(m, r.Base()+xsk.Addr((40+i)*xsk.ChunkSize), frame(100+i, 64))})
	}
	old.Kick() // four completions wait
	old.Transmit([]xsk.Desc{write(m, r.Base()+50*xsk.ChunkSize, frame(104, 64))})
	if old.Outstanding() != 5 {
		t.Fatalf("outstanding %d", old.Outstanding())
	}

	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if early {
		s.Reload()
	} else {
		s = adopt()
	}
	defer s.Close()

	if s.Outstanding() != 5 || s.TXQueued() != 1 || s.Received() != 4 || s.FillFree() != 64-32+5 {
		t.Errorf("outstanding %d, queued %d, received %d, fill free %d", s.Outstanding(), s.TXQueued(), s.Received(), s.FillFree())
	}
	for i := range 4 {
		d := receiveOne(t, s)
		if got := m2.Frame(d.Addr, int(d.Len)); !bytes.Equal(got, frame(i+1, 64)) {
			t.Errorf("frame %d: % x", i+1, got)
		}
	}
	app.send(t, frame(9, 64)) // still in the XSKMAP
	if d := receiveOne(t, s); seqOf(m2.Frame(d.Addr, 64)) != 9 {
		t.Error("not the frame sent after the handover")
	}
	drain(t, s, 5)
	for i := range 5 {
		if got := app.receive(t); seqOf(got) != 100+i {
			t.Errorf("frame %d left when %d was due", seqOf(got), 100+i)
		}
	}
	if s.Outstanding() != 0 {
		t.Errorf("outstanding %d after all completions", s.Outstanding())
	}
	noFaults(t, s)
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestFromFDRefusesOthers(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, _ := veth(t, "v", 1, 1500)
	s := open(t, m, m.Whole(), a, xsk.Options{Fill: 64, Completion: 64, RX: 64, TX: 64})
	pipe := make([]int, 2)
	if err := unix.Pipe2(pipe, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	for name, try := range map[string]struct {
		fd int
		o  xsk.Options
	}{
		"a pipe":            {pipe[0], xsk.Options{}},
		"the memfd":         {m.FD(), xsk.Options{}},
		"a closed fd":       {1 << 20, xsk.Options{}},
		"rings too large":   {s.FD(), xsk.Options{Fill: 8192, Completion: 64, RX: 64, TX: 64}},
		"tx ring too large": {s.FD(), xsk.Options{Fill: 64, Completion: 64, RX: 64, TX: 8192}},
	} {
		if _, err := xsk.FromFD(try.fd, m, m.Whole(), try.o); !errors.Is(err, xsk.ErrNotSocket) {
			t.Errorf("%s adopted: %v", name, err)
		}
	}
	if _, err := xsk.FromFD(s.FD(), m, xsk.Region{}, xsk.Options{}); !errors.Is(err, xsk.ErrMemoryGeometry) {
		t.Errorf("empty region: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, _ := veth(t, "v", 1, 1500)
	index := a.Attrs().Index
	for name, o := range map[string]xsk.Options{
		"no device":            {},
		"negative queue":       {IfIndex: index, Queue: -1},
		"ring of 3":            {IfIndex: index, RX: 3},
		"negative ring":        {IfIndex: index, TX: -64},
		"huge ring":            {IfIndex: index, Fill: 1 << 21},
		"headroom of a chunk":  {IfIndex: index, Headroom: xsk.MaxFrame},
		"budget below kernel":  {IfIndex: index, TXBudget: 16},
		"budget over ring":     {IfIndex: index, TX: 64, TXBudget: 128},
		"no such zero-copy":    {IfIndex: index, ZeroCopy: 9},
		"negative send buffer": {IfIndex: index, SndBuf: -1},
	} {
		if _, err := xsk.Open(m, m.Whole(), o); !errors.Is(err, xsk.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, try := range map[string]struct {
		o    xsk.Options
		want error
	}{
		"queue beyond the device": {xsk.Options{IfIndex: index, Queue: 7}, unix.EINVAL},
		"device of another netns": {xsk.Options{IfIndex: 1 << 20}, unix.ENODEV},
	} {
		if _, err := xsk.Open(m, m.Whole(), try.o); !errors.Is(err, try.want) {
			t.Errorf("%s: %v, want %v", name, err, try.want)
		}
	}
	if _, err := xsk.Open(m, m.Shard(1), xsk.Options{IfIndex: index}); !errors.Is(err, xsk.ErrMemoryGeometry) {
		t.Errorf("shard that is not there: %v", err)
	}
}

// A socket belongs to the network namespace of the thread that makes it.
func TestOpenInWrongNetns(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, _ := veth(t, "v", 1, 1500)
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- err
			return
		}
		_, err := xsk.Open(m, m.Whole(), xsk.Options{IfIndex: a.Attrs().Index})
		result <- err
	}()
	if err := <-result; !errors.Is(err, unix.ENODEV) {
		t.Fatalf("opened: %v", err)
	}
}

// A socket whose device is gone cannot be adopted, and says so by EBUSY: another
// process may try again once its owner has closed it.
func TestAdoptWithoutDevice(t *testing.T) {
	inNetns(t)
	m := xsktest.Memory(t, 1, 64)
	a, _ := veth(t, "g", 1, 1500)
	o := xsk.Options{IfIndex: a.Attrs().Index, Fill: 64, Completion: 64, RX: 32, TX: 32}
	s := open(t, m, m.Whole(), a, o)
	if err := netlink.LinkDel(a); err != nil {
		t.Fatal(err)
	}
	fd := dup(t, s.FD())
	defer unix.Close(fd)
	if _, err := xsk.FromFD(fd, m, m.Whole(), o); !errors.Is(err, unix.EBUSY) || !errors.Is(err, xsk.ErrNotSocket) {
		t.Errorf("adopted: %v", err)
	}
}

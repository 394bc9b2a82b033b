package xdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/link"

	"picot.dev/picot/internal/testnet"
	"picot.dev/picot/xsk"
)

// socket is an AF_XDP socket in one slot, with all its frames in the fill ring.
type socket struct {
	mem    *xsk.Memory
	sock   *xsk.Socket
	closed bool
}

// openSocket must run in the device's network namespace.
func openSocket(p *Program, ifindex, queue int) (*socket, error) {
	mem, err := xsk.NewMemory(xsk.MemoryOptions{Shards: 1, ChunksPerShard: 512})
	if err != nil {
		return nil, err
	}
	s := &socket{mem: mem}
	s.sock, err = xsk.Open(mem, mem.Whole(), xsk.Options{IfIndex: ifindex, Queue: queue, MultiBuffer: true})
	if err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	addrs := make([]xsk.Addr, 512)
	for i := range addrs {
		addrs[i] = xsk.Addr(i * xsk.ChunkSize)
	}
	if n := s.sock.Fill(addrs); n != len(addrs) {
		return nil, errors.Join(fmt.Errorf("filled %d of %d", n, len(addrs)), s.close())
	}
	if err := p.SetSocket(queue, s.sock.FD()); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *socket) close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(s.sock.Close(), s.mem.Close())
}

func (w *wire) open(t *testing.T, p *Program, queue int) *socket {
	t.Helper()
	var s *socket
	err := w.hostNS.Do(func() (err error) {
		s, err = openSocket(p, w.port, queue)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// receive waits for n frames; those of several buffers are put together.
func (s *socket) receive(t *testing.T, n int) [][]byte {
	t.Helper()
	var frames [][]byte
	var partial []byte
	descs := make([]xsk.Desc, 64)
	testnet.Eventually(t, patience, "frames in the socket", func() error {
		got := s.sock.Receive(descs)
		for _, d := range descs[:got] {
			partial = append(partial, s.mem.Frame(d.Addr, int(d.Len))...)
			if d.Options&xsk.OptionContinues == 0 {
				frames, partial = append(frames, partial), nil
			}
		}
		if len(frames) < n {
			return fmt.Errorf("%d of %d", len(frames), n)
		}
		return nil
	})
	return frames
}

func TestWorkloadRedirectsToTheSlot(t *testing.T) {
	w := newWire(t, 1500, 1)
	p := w.attach(t, w.options(Workload))
	s := w.open(t, p, 0)
	if slots := p.Slots(); slots[0] != s.sock.FD() || slots[1] != -1 {
		t.Errorf("slots %v, want the socket in slot 0 only", slots)
	}
	for i := range 20 {
		w.send(t, frame(fmt.Sprintf("frame %2d", i)))
	}
	for i, got := range s.receive(t, 20) {
		if want := frame(fmt.Sprintf("frame %2d", i)); !bytes.Equal(got, want) {
			t.Errorf("frame %d: %x, want %x", i, got, want)
		}
	}
	wantCounters(t, p, Counters{Redirected: 20})

	if err := p.ClearSocket(0); err != nil {
		t.Fatal(err)
	}
	if err := p.ClearSocket(0); err != nil {
		t.Errorf("clear an empty slot: %v", err)
	}
	w.send(t, repeat(frame("frame"), 5)...)
	wantCounters(t, p, Counters{Redirected: 20, DroppedEmpty: 5})

	if err := p.SetSocket(0, s.sock.FD()); err != nil {
		t.Fatal(err)
	}
	w.send(t, frame("frame"))
	wantCounters(t, p, Counters{Redirected: 21, DroppedEmpty: 5})
	// A closed socket leaves its slot empty.
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	w.send(t, frame("frame"))
	wantCounters(t, p, Counters{Redirected: 21, DroppedEmpty: 6})
	if n := w.stackSaw(t, "frame"); n != 0 {
		t.Errorf("%d frames reached the stack", n)
	}
	for _, queue := range []int{-1, len(p.Slots())} {
		if err := p.SetSocket(queue, 0); err == nil {
			t.Errorf("queue %d accepted", queue)
		}
	}
	if err := p.SetSocket(1, w.sender); err == nil {
		t.Error("a packet socket accepted as an AF_XDP socket")
	}
}

// A queue whose own slot is empty drops, whatever the other slots hold.
func TestSlotIsThatOfTheReceiveQueue(t *testing.T) {
	w := newWire(t, 1500, 4)
	p := w.attach(t, w.options(Workload))
	w.open(t, p, 2)
	const perQueue = 10
	for queue := range 4 {
		stop := w.steer(t, queue)
		w.send(t, repeat(frame("steered"), perQueue)...)
		want := Counters{DroppedEmpty: perQueue * uint64(queue+1)}
		if queue >= 2 {
			want = Counters{Redirected: perQueue, DroppedEmpty: perQueue * uint64(queue)}
		}
		wantCounters(t, p, want)
		stop()
	}
}

func TestUplinkRedirectsTheLocatorToTheSlot(t *testing.T) {
	w := newWire(t, 1500, 1)
	o := w.options(Uplink)
	o.Locator = netip.MustParsePrefix("2001:db8:0:1::/64")
	p := w.attach(t, o)
	s := w.open(t, p, 0)
	inside := ipv6Frame(netip.MustParseAddr("2001:db8:0:1:d20::1"), "inside")
	w.send(t, ipv6Frame(netip.MustParseAddr("2001:db8::1"), "outside"), inside, frame("outside"))
	if got := s.receive(t, 1); !bytes.Equal(got[0], inside) {
		t.Errorf("got %x, want %x", got[0], inside)
	}
	wantCounters(t, p, Counters{Redirected: 1, Passed: 2})
}

func TestJumboFramesReachTheSlot(t *testing.T) {
	w := newWire(t, 9000, 1)
	p := w.attach(t, w.options(Workload))
	s := w.open(t, p, 0)
	jumbo := frame("jumbo")
	for len(jumbo) < 9014 {
		jumbo = binary.BigEndian.AppendUint16(jumbo, uint16(len(jumbo)))
	}
	w.send(t, jumbo)
	if got := s.receive(t, 1); !bytes.Equal(got[0], jumbo) {
		t.Errorf("got %d bytes, want the %d sent", len(got[0]), len(jumbo))
	}
	stop := w.pushOffloaded(t, 0x8100, 9)
	w.send(t, jumbo)
	stop()
	if got, want := s.receive(t, 1), tagged(jumbo, 0x8100, 9); !bytes.Equal(got[0], want) {
		t.Errorf("tagged: got %d bytes, want %d", len(got[0]), len(want))
	}
	wantCounters(t, p, Counters{Redirected: 2, VLANReinserted: 1})
}

func TestOffloadedVLANTagIsPutBack(t *testing.T) {
	plain := frame("tagged")
	for _, tc := range []struct {
		name      string
		tpid, tci uint16
		sent      []byte
	}{
		{"802.1Q", 0x8100, 100, plain},
		{"802.1Q with priority and DEI", 0x8100, 0xf064, plain},
		{"802.1Q VLAN 0", 0x8100, 0xe000, plain},
		{"802.1ad", 0x88a8, 0x0fff, plain},
		{"802.1ad over an inline tag", 0x88a8, 7, tagged(plain, 0x8100, 42)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWire(t, 1500, 1)
			p := w.attach(t, w.options(Workload))
			s := w.open(t, p, 0)
			stop := w.pushOffloaded(t, tc.tpid, tc.tci)
			w.send(t, tc.sent)
			stop()
			want := tagged(tc.sent, tc.tpid, tc.tci)
			if got := s.receive(t, 1); !bytes.Equal(got[0], want) {
				t.Errorf("got  %x\nwant %x", got[0], want)
			}
			wantCounters(t, p, Counters{Redirected: 1, VLANReinserted: 1})
		})
	}
}

func TestInlineVLANTagsPassUnchanged(t *testing.T) {
	w := newWire(t, 1500, 1)
	p := w.attach(t, w.options(Workload))
	s := w.open(t, p, 0)
	one := tagged(frame("inline"), 0x8100, 3)
	two := tagged(one, 0x88a8, 4)
	w.send(t, one, two)
	got := s.receive(t, 2)
	if !bytes.Equal(got[0], one) || !bytes.Equal(got[1], two) {
		t.Errorf("got %x and %x", got[0], got[1])
	}
	// The sending kernel or the veth may have moved a tag beside the frame;
	// then it was put back. Either way the frame is whole.
	if c, err := p.Counters(); err != nil || c.Redirected != 2 || c.Errors != 0 {
		t.Errorf("counters %+v, %v", c, err)
	}
}

// The control of the tests above: without re-insertion the frame enters the
// untagged network.
func TestControlWithoutReinsertionTheTagIsLost(t *testing.T) {
	w := newWire(t, 1500, 1)
	o := w.options(Workload)
	objs, err := loadVariant(&o, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	var l link.Link
	w.hostNS.Run(t, func() {
		l, err = link.AttachXDP(link.XDPOptions{Program: objs.program, Interface: w.port, Flags: link.XDPDriverMode})
	})
	if err != nil {
		t.Fatal(err)
	}
	p := newProgram(&o, filepath.Join(w.pinDir, "control"), objs, l, Native, false)
	defer p.Close()
	s := w.open(t, p, 0)
	stop := w.pushOffloaded(t, 0x8100, 100)
	w.send(t, frame("tagged"))
	stop()
	if got := s.receive(t, 1); !bytes.Equal(got[0], frame("tagged")) {
		t.Errorf("got %x: the plain program did not lose the tag, so the tests above show nothing", got[0])
	}
}

// Generic mode cannot see a tag beside the frame; its mend is to have the sender
// put the tag into the frame.
func TestGenericModeNeedsTheTagInTheFrame(t *testing.T) {
	w := newWire(t, 1500, 1)
	o := w.options(Workload)
	o.Mode = Generic
	p := w.attach(t, o)
	if p.ReadsTags() {
		t.Error("says that it reads tags")
	}
	s := w.open(t, p, 0)
	stop := w.pushOffloaded(t, 0x8100, 100)
	defer stop()
	w.send(t, frame("tagged"))
	if got := s.receive(t, 1); !bytes.Equal(got[0], frame("tagged")) {
		t.Errorf("got %x: the tag is not lost any more, the mend is not needed", got[0])
	}
	w.podNS.Exec(t, "ethtool", "-K", podDev, "tx-vlan-offload", "off")
	w.send(t, frame("tagged"))
	if got, want := s.receive(t, 1), tagged(frame("tagged"), 0x8100, 100); !bytes.Equal(got[0], want) {
		t.Errorf("got %x, want %x", got[0], want)
	}
}

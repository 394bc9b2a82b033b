package xdp

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"picot.dev/picot/internal/testnet"
)

func ids(t *testing.T, p *Program) (linkID, programID uint32) {
	t.Helper()
	l, prog, err := p.IDs()
	if err != nil {
		t.Fatal(err)
	}
	return l, prog
}

func TestReuseKeepsLinkProgramAndCounters(t *testing.T) {
	w := newWire(t, 1500, 1)
	first := w.attach(t, w.options(Workload))
	w.send(t, repeat(frame("x"), 3)...)
	wantCounters(t, first, Counters{DroppedEmpty: 3})
	l1, p1 := ids(t, first)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := w.attach(t, w.options(Workload))
	l2, p2 := ids(t, second)
	if l1 != l2 || p1 != p2 || !second.Reused() {
		t.Errorf("link %d -> %d, program %d -> %d, reused %v", l1, l2, p1, p2, second.Reused())
	}
	wantCounters(t, second, Counters{DroppedEmpty: 3})
}

// A changed locator or more queues exchange the program inside the link; no
// frame passes in between.
func TestChangeExchangesTheProgramWithoutAGap(t *testing.T) {
	w := newWire(t, 1500, 1)
	o := w.options(Uplink)
	o.Locator = netip.MustParsePrefix("2001:db8:0:1::/64")
	first := w.attach(t, o)
	l1, p1 := ids(t, first)

	o.Locator = netip.MustParsePrefix("2001:db8:0:2::/64")
	second := w.attach(t, o)
	l2, p2 := ids(t, second)
	if l1 != l2 || p1 == p2 {
		t.Errorf("link %d -> %d, program %d -> %d; want the same link, another program", l1, l2, p1, p2)
	}
	w.send(t, ipv6Frame(netip.MustParseAddr("2001:db8:0:2::1"), "now ours"))
	wantCounters(t, second, Counters{DroppedEmpty: 1})

	o.Queues = 16
	third := w.attach(t, o)
	if l3, _ := ids(t, third); l3 != l1 || len(third.Slots()) != 16 {
		t.Errorf("link %d -> %d, %d slots; want the same link, 16 slots", l1, l3, len(third.Slots()))
	}
	o.Queues = 2 // fewer fit into what is there
	fourth := w.attach(t, o)
	if l4, p4 := ids(t, fourth); l4 != l1 || len(fourth.Slots()) != 16 {
		t.Errorf("link %d -> %d, program %d, %d slots; want the same link, 16 slots", l1, l4, p4, len(fourth.Slots()))
	}
}

// A planned upgrade: the sockets stay in the map while the program under it
// is taken over, or exchanged.
func TestSocketsStayWhileTheProgramIsTakenOver(t *testing.T) {
	w := newWire(t, 1500, 1)
	o := w.options(Uplink)
	o.Locator = netip.MustParsePrefix("2001:db8:0:1::/64")
	first := w.attach(t, o)
	s := w.open(t, first, 0)
	inside := ipv6Frame(netip.MustParseAddr("2001:db8:0:1::1"), "x")
	for _, o.Locator = range []netip.Prefix{o.Locator, netip.MustParsePrefix("2001:db8::/60")} {
		next := w.attach(t, o)
		if !next.Reused() || next.Slots()[0] != -1 {
			t.Errorf("reused %v, slots %v", next.Reused(), next.Slots())
		}
		w.send(t, inside)
		if got := s.receive(t, 1); !bytes.Equal(got[0], inside) {
			t.Errorf("got %x, want %x", got[0], inside)
		}
	}
}

func TestAttachWantsABPFFS(t *testing.T) {
	w := newWire(t, 1500, 1)
	o := w.options(Workload)
	o.PinDir = t.TempDir()
	if _, err := w.try(o); !errors.Is(err, ErrNotBPFFS) {
		t.Errorf("attach with a pin directory on disk: %v", err)
	}
}

func TestWorkloadStaysShutWhileProgramsAreExchanged(t *testing.T) {
	w := newWire(t, 1500, 1)
	o := w.options(Workload)
	p := w.attach(t, o)
	stop := w.stream(t, frame("shut"))
	for range 30 {
		o.Queues++ // more slots: another map, another program
		c, err := p.Counters()
		if err != nil {
			t.Fatal(err)
		}
		next := w.attach(t, o)
		w.pinnedCounters(t, seen(c)+20)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		p = next
	}
	if c := wantSeen(t, p, stop()); c.DroppedEmpty != seen(c) {
		t.Errorf("counters %+v, want only drops", c)
	}
	if n := w.stackSaw(t, "shut"); n != 0 {
		t.Errorf("%d frames reached the stack", n)
	}
}

func TestStalePinOfARecreatedDevice(t *testing.T) {
	w := newWire(t, 1500, 1)
	first := w.attach(t, w.options(Workload))
	l1, _ := ids(t, first)
	index := w.port
	w.hostNS.IP(t, "link delete "+portDev)
	pins, err := List(w.pinDir)
	if err != nil || len(pins) != 1 || pins[0].Alive || pins[0].IfIndex != 0 || pins[0].Name != portDev {
		t.Fatalf("pins of a deleted device: %+v, %v", pins, err)
	}
	if _, err := w.try(w.options(Workload)); !errors.Is(err, ErrNoDevice) {
		t.Errorf("attach to a deleted device: %v", err)
	}

	// Same name and, as after a reboot of a pod, the very same index.
	w.hostNS.IP(t, fmt.Sprintf("link add %s index %d type veth peer name %s netns %s", portDev, index, podDev, w.podNS.Name))
	w.podNS.Up(t, podDev)
	w.hostNS.Up(t, portDev)
	if got := w.hostNS.Link(t, portDev).Attrs().Index; got != index {
		t.Fatalf("index %d, want %d again", got, index)
	}
	w.sender = packetSocket(t, w.podNS, w.podNS.Link(t, podDev).Attrs().Index)
	w.stack = packetSocket(t, w.hostNS, index)

	p := w.attach(t, w.options(Workload))
	if l2, _ := ids(t, p); l1 == l2 || p.Reused() {
		t.Errorf("link %d -> %d, reused %v; want a new one", l1, l2, p.Reused())
	}
	w.send(t, repeat(frame("again"), 5)...)
	wantCounters(t, p, Counters{DroppedEmpty: 5})
	if n := w.stackSaw(t, "again"); n != 0 {
		t.Errorf("%d frames reached the stack", n)
	}
	// The old handle is harmless.
	if err := first.Close(); err != nil {
		t.Error(err)
	}
}

func TestForeignProgramIsLeftAlone(t *testing.T) {
	w := newWire(t, 1500, 1)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "someones", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	var l link.Link
	w.hostNS.Run(t, func() {
		l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: w.port, Flags: link.XDPDriverMode})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := w.options(Workload)
	for _, o.AllowGeneric = range []bool{false, true} {
		_, err = w.try(o)
		if !errors.Is(err, ErrForeignProgram) {
			t.Fatalf("attach over a foreign program: %v", err)
		}
	}
	t.Log(err)
	w.send(t, frame("theirs"))
	testnet.Eventually(t, patience, "the foreign program still passes frames", func() error {
		if w.stackSaw(t, "theirs") == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	if info, err := l.Info(); err != nil || int(info.XDP().Ifindex) != w.port {
		t.Errorf("foreign link after the attempt: %+v, %v", info, err)
	}
	// Nor is its pin touched, if it happens to stand where ours would.
	dir := filepath.Join(w.pinDir, "theirs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Pin(filepath.Join(dir, pinLink)); err != nil {
		t.Fatal(err)
	}
	o.Name = "theirs"
	if _, err := w.try(o); !errors.Is(err, ErrForeignProgram) {
		t.Errorf("attach over a foreign pin: %v", err)
	}
	if pins, err := List(w.pinDir); err != nil || len(pins) != 0 {
		t.Errorf("listed a foreign pin: %+v, %v", pins, err)
	}
	if _, err := os.Stat(filepath.Join(dir, pinLink)); err != nil {
		t.Errorf("foreign pin: %v", err)
	}
}

func TestPinOfAnotherLiveDeviceIsKept(t *testing.T) {
	w := newWire(t, 1500, 1)
	p := w.attach(t, w.options(Workload))
	w.hostNS.IP(t, "link add other type veth peer name other-peer")
	o := w.options(Workload)
	o.IfIndex = w.hostNS.Link(t, "other").Attrs().Index
	if _, err := w.try(o); !errors.Is(err, ErrPinBusy) {
		t.Errorf("attach another device under the same name: %v", err)
	}
	// The same index in another namespace is another device.
	elsewhere := testnet.New(t, "elsewhere")
	elsewhere.IP(t, fmt.Sprintf("link add twin index %d type ifb", w.port))
	err := elsewhere.Do(func() error { _, err := Attach(w.options(Workload)); return err })
	if !errors.Is(err, ErrPinBusy) {
		t.Errorf("attach the same index of another namespace: %v", err)
	}
	w.send(t, frame("kept"))
	wantCounters(t, p, Counters{DroppedEmpty: 1})
}

func TestModeOfAPinIsNotChangedSilently(t *testing.T) {
	w := newWire(t, 1500, 1)
	o := w.options(Workload)
	p := w.attach(t, o)
	o.Mode = Generic
	if _, err := w.try(o); !errors.Is(err, ErrMode) {
		t.Errorf("generic over native: %v", err)
	}
	if err := p.Detach(); err != nil {
		t.Fatal(err)
	}
	p = w.attach(t, o)
	o.Mode = Native
	if _, err := w.try(o); !errors.Is(err, ErrMode) {
		t.Errorf("native over generic: %v", err)
	}
	if err := p.Detach(); err != nil {
		t.Fatal(err)
	}
}

func TestDetachAndRemoveLeaveNothing(t *testing.T) {
	w := newWire(t, 1500, 1)
	p := w.attach(t, w.options(Workload))
	if err := p.Detach(); err != nil {
		t.Fatal(err)
	}
	p = w.attach(t, w.options(Workload))
	l, prog := ids(t, p)
	pins, err := List(w.pinDir)
	if err != nil || len(pins) != 1 {
		t.Fatalf("pins %+v, %v; want one", pins, err)
	}
	got := pins[0]
	got.dir = ""
	if want := (Pin{Name: portDev, Kind: Workload, IfIndex: w.port, Alive: true, LinkID: l, ProgramID: prog}); got != want {
		t.Errorf("pin %+v, want %+v", got, want)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pins[0].Remove(); err != nil {
		t.Fatal(err)
	}
	// A process that died between pinning the maps and the link leaves this.
	p = w.attach(t, w.options(Workload))
	if err := removeFile(filepath.Join(p.dir, pinLink)); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if pins, err = List(w.pinDir); err != nil || len(pins) != 1 || pins[0].Alive {
		t.Fatalf("pins %+v, %v; want one half-made", pins, err)
	}
	if err := pins[0].Remove(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(w.pinDir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	w.wantNoProgram(t)
}

// wantNoProgram waits until the port has no program: the kernel detaches a
// little after the last reference to a link.
func (w *wire) wantNoProgram(t *testing.T) {
	t.Helper()
	testnet.Eventually(t, patience, "device without a program", func() error {
		return w.hostNS.Do(func() error {
			d, err := queryDevice(w.port)
			if err == nil && len(d.programs) != 0 {
				err = fmt.Errorf("runs %v", d.programs)
			}
			return err
		})
	})
}

package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// inodes are those of a pin directory's files: a pin made anew has another.
func inodes(t *testing.T, dir string) map[string]uint64 {
	t.Helper()
	m := map[string]uint64{}
	for _, file := range pinFiles {
		info, err := os.Stat(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		m[file] = info.Sys().(*syscall.Stat_t).Ino
	}
	return m
}

// keep runs Keep and wants it to mend exactly this, and nothing the next time.
func (w *wire) keep(t *testing.T, p *Program, want ...string) {
	t.Helper()
	for _, want := range [][]string{want, nil} {
		got, err := p.Keep()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("mended %q, want %q", got, want)
		}
	}
}

func TestKeepMakesMissingPinsAgain(t *testing.T) {
	all := []string{"pin " + pinProgram, "pin " + pinXSKs, "pin " + pinCounters, "pin " + pinLink}
	for _, reused := range []bool{false, true} {
		t.Run(fmt.Sprintf("reused=%v", reused), func(t *testing.T) {
			w := newWire(t, 1500, 1)
			p := w.attach(t, w.options(Workload))
			if reused {
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
				p = w.attach(t, w.options(Workload))
			}
			linkID, programID := ids(t, p)
			before := inodes(t, p.dir)
			w.keep(t, p)
			if after := inodes(t, p.dir); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("nothing was wrong, yet the pins are others: %v, were %v", after, before)
			}
			// Twice each: the handle must not believe in its earlier pin.
			for range 2 {
				for i, file := range []string{pinProgram, pinXSKs, pinCounters, pinLink} {
					if err := os.Remove(filepath.Join(p.dir, file)); err != nil {
						t.Fatal(err)
					}
					w.keep(t, p, all[i])
				}
				if err := removePins(p.dir); err != nil {
					t.Fatal(err)
				}
				w.keep(t, p, all...)
			}
			// What is pinned holds what runs: a fresh process takes it over.
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			next := w.attach(t, w.options(Workload))
			if l, prog := ids(t, next); !next.Reused() || l != linkID || prog != programID {
				t.Errorf("reused %v, link %d, program %d; want true, %d, %d", next.Reused(), l, prog, linkID, programID)
			}
		})
	}
}

// A restart with the same state writes nothing.
func TestSameProgramKeepsItsPins(t *testing.T) {
	w := newWire(t, 1500, 1)
	p := w.attach(t, w.options(Workload))
	before := inodes(t, p.dir)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if after := inodes(t, w.attach(t, w.options(Workload)).dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pins %v, were %v", after, before)
	}
}

func TestKeepPutsOurProgramBack(t *testing.T) {
	w := newWire(t, 1500, 1)
	p := w.attach(t, w.options(Workload))
	o := w.options(Uplink) // passes all but frames for a locator
	o.Locator = netip.MustParsePrefix("2001:db8:0:1::/64")
	var opening *objects
	w.hostNS.Run(t, func() {
		var err error
		if opening, err = load(&o, Native, nil); err != nil {
			t.Fatal(err)
		}
	})
	defer opening.close()
	l, err := link.LoadPinnedLink(filepath.Join(p.dir, pinLink), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Update(opening.program); err != nil {
		t.Fatal(err)
	}
	if err := opening.program.Pin(filepath.Join(p.dir, "other")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(p.dir, "other"), filepath.Join(p.dir, pinProgram)); err != nil {
		t.Fatal(err)
	}
	w.keep(t, p, "program of the link", "pin "+pinProgram)
	w.send(t, repeat(frame("closed"), 10)...)
	wantCounters(t, p, Counters{DroppedEmpty: 10})
	if n := w.stackSaw(t, "closed"); n != 0 {
		t.Errorf("%d frames reached the stack", n)
	}
}

func TestKeepSaysThatTheLinkIsLost(t *testing.T) {
	w := newWire(t, 1500, 1)
	p := w.attach(t, w.options(Workload))
	l, err := link.LoadPinnedLink(filepath.Join(p.dir, pinLink), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Keep(); !errors.Is(err, ErrLost) {
		t.Errorf("after a forced detach: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = w.attach(t, w.options(Workload))
	w.keep(t, p)
	w.hostNS.IP(t, "link delete "+portDev)
	if _, err := p.Keep(); !errors.Is(err, ErrLost) {
		t.Errorf("after the device went: %v", err)
	}
}

// Somebody else's link in the place of our pin is not ours to remove.
func TestKeepLeavesAnotherLinksPin(t *testing.T) {
	w := newWire(t, 1500, 1)
	p := w.attach(t, w.options(Workload))
	w.hostNS.IP(t, "link add other type veth peer name other-peer")
	o := w.options(Workload)
	o.IfIndex, o.Name = w.hostNS.Link(t, "other").Attrs().Index, "other"
	other := w.attach(t, o)
	if err := os.Rename(filepath.Join(other.dir, pinLink), filepath.Join(p.dir, pinLink)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Keep(); !errors.Is(err, ErrPinBusy) {
		t.Errorf("keep over another link's pin: %v", err)
	}
}

func TestKeepSocketFillsAnEmptiedSlot(t *testing.T) {
	w := newWire(t, 1500, 1)
	p := w.attach(t, w.options(Workload))
	s := w.open(t, p, 0)
	pinned, err := ebpf.LoadPinnedMap(filepath.Join(p.dir, pinXSKs), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pinned.Close()
	check := func(want bool) {
		t.Helper()
		mended, err := p.KeepSocket(0, s.sock.FD())
		if err != nil || mended != want {
			t.Errorf("mended %v, %v; want %v", mended, err, want)
		}
	}
	check(false)
	if err := pinned.Delete(uint32(0)); err != nil {
		t.Fatal(err)
	}
	w.send(t, frame("lost"))
	wantCounters(t, p, Counters{DroppedEmpty: 1})
	check(true)
	check(false)
	w.send(t, frame("back"))
	s.receive(t, 1)
	for _, bad := range []struct{ queue, fd int }{{-1, s.sock.FD()}, {4, s.sock.FD()}, {0, -1}} {
		if _, err := p.KeepSocket(bad.queue, bad.fd); err == nil {
			t.Errorf("queue %d, descriptor %d: no error", bad.queue, bad.fd)
		}
	}
}

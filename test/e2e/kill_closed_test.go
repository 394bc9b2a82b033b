package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/testnet"
	"picot.dev/picot/xsk/xdp"
)

func mac(t *testing.T, text string) []byte {
	t.Helper()
	m, err := net.ParseMAC(text)
	must(t, err)
	return m
}

// hostMAC is the MAC of a device in node 1.
func (s *site) hostMAC(device string) []byte {
	s.t.Helper()
	_, rest, _ := strings.Cut(s.ip(s.n1.Netns(), "-o link show "+device), "link/ether ")
	text, _, _ := strings.Cut(rest, " ")
	return mac(s.t, text)
}

const (
	alive = "alive-marker-"
	dead  = "dead--marker-"
)

// sendDead sends frames of every kind until the program has dropped 500 more, by
// its own count, or the sender has had 50 rounds.
func (s *site) sendDead() (dropped uint64) {
	s.t.Helper()
	_, pinned := s.pinNames(s.n1)[s.a1.Device]
	before := uint64(0)
	if pinned {
		before = s.pinnedCounters(s.n1, s.a1.Device).DroppedEmpty
	}
	for range 50 {
		s.sendFromA1(s.everyKind(dead))
	}
	if pinned {
		dropped = s.pinnedCounters(s.n1, s.a1.Device).DroppedEmpty - before
	}
	return dropped
}

// ids are the kernel's IDs of link and program of every pin.
func ids(pins []xdp.Pin) map[string][2]uint32 {
	m := map[string][2]uint32{}
	for _, p := range pins {
		m[p.Name] = [2]uint32{p.LinkID, p.ProgramID}
	}
	return m
}

// While the agent is dead nothing of a workload port comes out anywhere, in either
// family, however it died; an agent that starts again takes over the very same
// programs and forwards, unaided, while the floods never stop.
func TestDeadAgentIsClosed(t *testing.T) {
	for _, end := range []struct {
		name string
		stop func(*site) error
	}{
		{"SIGKILL", func(s *site) error { return s.n1.Kill() }},
		{"SIGTERM", func(s *site) error { return s.n1.Stop(s.ctx) }},
	} {
		t.Run(end.name, func(t *testing.T) {
			s := newSite(t)
			s.reachAll()
			floods := s.floodAll()
			before := ids(s.pins(s.n1))
			if len(before) != 3 {
				t.Fatalf("pins: %v", before)
			}
			s.must(end.stop(s))

			marks := []string{dead}
			for _, f := range families {
				marks = append(marks, f.mark(alive))
			}
			watches := s.watchAll(marks...)
			dropped := s.sendDead()
			time.Sleep(300 * time.Millisecond) // let anything on its way arrive
			for _, w := range watches {
				for _, m := range marks {
					// Node 2 is alive, and b1 may still answer what came before.
					if n, _ := w.count(m); n > 0 && !(m != dead && w.name != watches[0].name && n < 50) {
						t.Errorf("%s: %d frames with %q while the agent is dead", w.name, n, m)
					}
				}
			}
			if dropped < 500 {
				t.Errorf("the program dropped %d frames: they never got there", dropped)
			}
			if after := ids(s.pins(s.n1)); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("link and program IDs with a dead agent: %v, were %v", after, before)
			}
			var closed lab.Sample
			quiet := func() { closed = s.quiet(s.n1) }
			for _, f := range floods {
				inner := quiet
				quiet = func() { f.pause(inner) }
			}
			quiet()

			again := s.watchFloods()
			started := time.Now()
			s.must(s.n1.Start(s.ctx))
			for _, w := range again {
				for _, f := range families {
					first := w.flows(s.t, f, 1)
					t.Logf("gap from process start to the first %s frame at %s: %v", f.name, w.name, first.Sub(started).Round(time.Millisecond))
				}
			}
			if after := ids(s.pins(s.n1)); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("link and program IDs after the restart: %v, were %v", after, before)
			}
			s.ready()
			s.reachAll()
			for _, f := range floods {
				f.stop()
			}
			s.reopen(s.n1, closed)
			s.books()
		})
	}
}

// floodAll floods from a1 over the local and the remote way in both families, and
// waits until all four flow.
func (s *site) floodAll() (floods []*flood) {
	s.t.Helper()
	for _, to := range []*lab.Pod{s.a2, s.b1} {
		for _, f := range families {
			floods = append(floods, s.flood(f, s.a1, to, alive))
		}
	}
	for _, w := range s.watchFloods() {
		for _, f := range families {
			w.flows(s.t, f, 100)
		}
	}
	return floods
}

// watchFloods watches where the floods of floodAll end.
func (s *site) watchFloods() (all []*watch) {
	s.t.Helper()
	for _, p := range []*lab.Pod{s.a2, s.b1} {
		all = append(all, watchNetns(s.t, p.Name, p.Netns(), families[0].mark(alive), families[1].mark(alive)))
	}
	return all
}

// flows waits for so many frames of a family's flood, and says when the first came.
func (w *watch) flows(t *testing.T, f family, frames int) (first time.Time) {
	t.Helper()
	testnet.Eventually(t, patience, f.name+" flows to "+w.name, func() error {
		var n int
		if n, first = w.count(f.mark(alive)); n < frames {
			return fmt.Errorf("%d frames", n)
		}
		return nil
	})
	return first
}

// The control: without the pin the death of the process opens the port, and the
// watches see it in both families.
func TestControlUnpinnedDeadAgentLeaks(t *testing.T) {
	s := newSite(t)
	s.reachAll()
	s.must(unix.Kill(s.n1.PID(), unix.SIGSTOP)) // else it would be mended
	s.must(os.Remove(filepath.Join(s.pinDir(s.n1), s.a1.Device, "link")))
	s.must(s.n1.Kill())
	w := watchNetns(t, "node1's stack", s.n1.Netns(), families[0].mark(dead), families[1].mark(dead))
	for _, f := range families {
		testnet.Eventually(t, patience, f.name+" frames leak into the stack", func() error {
			s.sendFromA1(s.everyKind(dead))
			if n, _ := w.count(f.mark(dead)); n == 0 {
				return errNone
			}
			return nil
		})
	}
}

// A port plugged while the agent is down stays shut, and comes up with the agent.
func TestPortPluggedWhileAgentIsDownStaysShut(t *testing.T) {
	for name, stop := range map[string]func(*site) error{
		"SIGKILL": func(s *site) error { return s.n1.Kill() },
		"SIGTERM": func(s *site) error { return s.n1.Stop(s.ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.must(stop(s))
			// One more pod, and one whose device is another by now.
			added := s.addPod(s.n1, 4)
			s.must(s.a2.DelDevice(s.ctx))
			s.remake(s.a2)
			w := watchNetns(t, "node1's stack", s.n1.Netns(), dead)
			for _, p := range []*lab.Pod{added, s.a2} {
				out := s.ip(s.n1.Netns(), "-o link show "+p.Device)
				if strings.Contains(out, "UP,") || strings.Contains(out, ",UP") {
					t.Errorf("%s is up: %s", p.Device, out)
				}
				for _, f := range s.everyKind(dead) {
					copy(f[6:12], mac(t, p.MAC))
					sendRaw(t, p.Netns(), lab.PodDevice, f)
				}
				s.cutOff(p, s.b1)
			}
			time.Sleep(200 * time.Millisecond)
			if n, _ := w.count(dead); n > 0 {
				t.Errorf("%d frames passed", n)
			}
			s.must(s.n1.Start(s.ctx))
			s.ready()
			s.reach(added, s.b1)
			s.reach(s.b1, added)
			s.reachAll()
		})
	}
}

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

// While the agent is dead nothing of a workload port comes out anywhere, however
// it died; an agent that starts again takes over the very same programs and
// forwards, unaided, while the flood never stops.
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
			floods := []*flood{s.flood(s.a1, s.a2, false, alive), s.flood(s.a1, s.b1, true, alive)}
			testnet.Eventually(t, patience, "the floods flow", func() error {
				if p, _ := port(s.status(s.n1), s.a1.Device); p.Local < 100 || p.Remote < 100 {
					return fmt.Errorf("%d local, %d remote", p.Local, p.Remote)
				}
				return nil
			})
			before := ids(s.pins(s.n1))
			if len(before) != 3 {
				t.Fatalf("pins: %v", before)
			}
			s.must(end.stop(s))

			watches := s.watchAll(alive, dead)
			dropped := s.sendDead()
			time.Sleep(300 * time.Millisecond) // let anything on its way arrive
			for _, w := range watches {
				for _, m := range []string{alive, dead} {
					// Node 2 is alive, and b1 may still answer what came before.
					if n, _ := w.count(m); n > 0 && !(m == alive && w.name != watches[0].name && n < 50) {
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
			floods[0].pause(func() { floods[1].pause(func() { closed = s.quiet(s.n1) }) })

			again := []*watch{watchNetns(t, "a2", s.a2.Netns(), alive), watchNetns(t, "b1", s.b1.Netns(), alive)}
			started := time.Now()
			s.must(s.n1.Start(s.ctx))
			for _, w := range again {
				var first time.Time
				testnet.Eventually(t, patience, "the flood flows again to "+w.name, func() error {
					n, at := w.count(alive)
					if n == 0 {
						return errNone
					}
					first = at
					return nil
				})
				t.Logf("gap from process start to the first frame at %s: %v", w.name, first.Sub(started).Round(time.Millisecond))
			}
			if after := ids(s.pins(s.n1)); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("link and program IDs after the restart: %v, were %v", after, before)
			}
			s.ready()
			s.reachAll()
			for _, f := range floods {
				sent, answered := f.stop()
				t.Logf("flood: %d sent, %d answered", sent, answered)
			}
			s.reopen(s.n1, closed)
			s.books()
		})
	}
}

// The control: without the pin the death of the process opens the port, and the
// watches see it.
func TestControlUnpinnedDeadAgentLeaks(t *testing.T) {
	s := newSite(t)
	s.reachAll()
	s.must(unix.Kill(s.n1.PID(), unix.SIGSTOP)) // else it would be mended
	s.must(os.Remove(filepath.Join(s.pinDir(s.n1), s.a1.Device, "link")))
	s.must(s.n1.Kill())
	w := watchNetns(t, "node1's stack", s.n1.Netns(), dead)
	testnet.Eventually(t, patience, "frames leak into the stack", func() error {
		s.sendFromA1(s.everyKind(dead))
		if n, _ := w.count(dead); n == 0 {
			return errNone
		}
		return nil
	})
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

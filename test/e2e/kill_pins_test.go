package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
)

// quickly has an agent look at the kernel often, so that a test need not wait.
var quickly = lab.NodeOptions{Args: []string{"--refresh", "200ms"}}

// A pin somebody removed is back, of the very same link; so the death of the agent
// opens nothing. The watch of the pins tells at once, without a refresh.
func TestRemovedPinIsMadeAgainAndDeathOpensNothing(t *testing.T) {
	for what, path := range map[string]func(dir string) string{
		"link":      func(dir string) string { return filepath.Join(dir, "link") },
		"directory": func(dir string) string { return dir },
	} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t, lab.NodeOptions{Args: []string{"--refresh", "1h"}})
			s.reachAll()
			before := ids(s.pins(s.n1))
			dir := filepath.Join(s.pinDir(s.n1), s.a1.Device)
			// Moved first: it goes in one step, whatever is mended meanwhile.
			taken := filepath.Join(s.BPFFS(), "taken")
			s.must(errors.Join(os.Rename(path(dir), taken), os.RemoveAll(taken)))
			testnet.Eventually(t, patience, "the pin is back", func() error {
				_, err := os.Stat(filepath.Join(dir, "link"))
				return err
			})
			// The pins of program and maps come first, so all are there.
			if after := ids(s.pins(s.n1)); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("link and program IDs %v, were %v", after, before)
			}
			s.must(s.n1.Kill())
			watches := s.watchAll(dead)
			if dropped := s.sendDead(); dropped < 500 {
				t.Errorf("the program dropped %d frames: they never got there", dropped)
			}
			time.Sleep(300 * time.Millisecond) // let anything on its way arrive
			for _, w := range watches {
				if n, _ := w.count(dead); n > 0 {
					t.Errorf("%s: %d frames while the agent is dead", w.name, n)
				}
			}
			s.must(s.n1.Start(s.ctx))
			s.ready()
			s.reachAll()
		})
	}
}

// SIGTERM looks at the pins a last time.
func TestOrderlyEndMakesAMissingPinAgain(t *testing.T) {
	s := newSite(t, lab.NodeOptions{Args: []string{"--refresh", "1h"}})
	path := filepath.Join(s.pinDir(s.n1), s.a1.Device, "link")
	s.must(os.Remove(path))
	s.must(s.n1.Stop(s.ctx))
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	w := watchNetns(t, "node1's stack", s.n1.Netns(), dead)
	if dropped := s.sendDead(); dropped < 500 {
		t.Errorf("the program dropped %d frames: they never got there", dropped)
	}
	if n, _ := w.count(dead); n > 0 {
		t.Errorf("%d frames passed", n)
	}
}

// A slot somebody emptied is filled again within one refresh, of a port as of an
// uplink.
func TestEmptiedSlotIsFilledAgain(t *testing.T) {
	s := newSite(t, quickly)
	s.reachAll()
	for _, device := range []string{s.a1.Device, lab.UplinkDevice} {
		slots, err := ebpf.LoadPinnedMap(filepath.Join(s.pinDir(s.n1), device, "xsks"), nil)
		s.must(err)
		before := s.status(s.n1).Repairs
		s.must(errors.Join(slots.Delete(uint32(0)), slots.Close()))
		s.at(s.n1, "the slot of "+device+" is filled", func(st status.Status) error {
			if st.Repairs == before {
				return fmt.Errorf("%d repairs", st.Repairs)
			}
			return nil
		})
		s.reachAll()
	}
}

// A program taken off by force leaves the device open to the host's stack: it is
// set down and made anew.
func TestProgramTakenOffByForceComesBack(t *testing.T) {
	s := newSite(t, quickly)
	s.reachAll()
	before := ids(s.pins(s.n1))
	l, err := link.LoadPinnedLink(filepath.Join(s.pinDir(s.n1), s.a1.Device, "link"), nil)
	s.must(err)
	s.must(errors.Join(l.Detach(), l.Close()))
	testnet.Eventually(t, patience, "another program is there", func() error {
		if now, ok := s.pinNames(s.n1)[s.a1.Device]; !ok || !now.Alive || now.LinkID == before[s.a1.Device][0] {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
	s.ready()
	s.reachAll()
	s.must(s.n1.Kill())
	w := watchNetns(t, "node1's stack", s.n1.Netns(), dead)
	if dropped := s.sendDead(); dropped < 500 {
		t.Errorf("the program dropped %d frames: they never got there", dropped)
	}
	if n, _ := w.count(dead); n > 0 {
		t.Errorf("%d frames passed", n)
	}
}

// A pin that cannot be made again, since somebody's link is in its place, is named;
// the port goes on. At the end its device is down, for nothing would hold it closed.
func TestPinThatCannotBeMadeAgainIsClosedAtTheEnd(t *testing.T) {
	s := newSite(t, quickly)
	s.reachAll()
	s.ip(s.n1.Netns(), "link add other0 type veth peer name other0p")
	theirs := filepath.Join(s.BPFFS(), "theirs")
	s.plantOlder("other0", "someones", ebpf.PerCPUArray, theirs)
	place := filepath.Join(s.pinDir(s.n1), s.a1.Device, "link")
	s.must(os.Rename(filepath.Join(theirs, "link"), place))
	s.at(s.n1, "the pin is named", func(st status.Status) error {
		if text := strings.Join(st.Waiting, "\n"); !strings.Contains(text, s.a1.Device) || !strings.Contains(text, "pin holds another live device") {
			return fmt.Errorf("waiting: %s", text)
		}
		return nil
	})
	s.reachAll()
	s.must(s.n1.Stop(s.ctx))
	w := watchNetns(t, "node1's stack", s.n1.Netns(), dead)
	for range 50 {
		s.sendFromA1(s.everyKind(dead))
	}
	time.Sleep(300 * time.Millisecond) // let anything on its way arrive
	if n, _ := w.count(dead); n > 0 {
		t.Errorf("%d frames passed", n)
	}
	if out := s.ip(s.n1.Netns(), "link show other0"); !strings.Contains(out, "prog/xdp") {
		t.Errorf("the foreign program is gone: %s", out)
	}
	// Once the place is free, all comes back.
	s.must(os.Rename(place, filepath.Join(theirs, "link")))
	s.must(s.n1.Start(s.ctx))
	s.ready()
	s.reachAll()
}

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
)

// Pods that come and go, and links that flap, leave nothing behind in the agent:
// no descriptor, thread, pin or memory.
func TestTwentyRoundsLeaveNothing(t *testing.T) {
	s := newSite(t)
	s.reachAll()
	round := func() {
		t.Helper()
		p := s.addPod(s.n1, 9)
		s.ready()
		if err := pingBoth(s.ctx, p, s.b1, "-c3", "-i0.02", "-W5"); err != nil {
			t.Errorf("the new pod does not reach b1: %v", err)
		}
		s.ip(s.n1.Netns(), "link set "+p.Device+" down")
		s.ip(s.n1.Netns(), "link set "+p.Device+" up")
		s.must(s.DeletePod(s.ctx, p))
		s.at(s.n1, "the port is gone", func(st status.Status) error {
			if pt, there := port(st, p.Device); there {
				return fmt.Errorf("%+v", pt)
			}
			return nil
		})
	}
	round() // what is made once is made now
	before := s.held(s.n1)
	spaces := len(netnsNames(t))
	for range 20 {
		round()
	}
	s.holdsNoMore(s.n1, before)
	after := s.held(s.n1)
	t.Logf("before %+v, after %+v", before, after)
	if after.threads > before.threads+4 { // the Go runtime makes some as it likes
		t.Errorf("%d threads, were %d", after.threads, before.threads)
	}
	if after.rss > before.rss+16<<10 {
		t.Errorf("%d KiB resident, were %d", after.rss, before.rss)
	}
	if pins := s.pinNames(s.n1); len(pins) != 3 {
		t.Errorf("pins: %v", pins)
	}
	if n := len(netnsNames(t)); n != spaces {
		t.Errorf("%d namespaces, were %d", n, spaces)
	}
	s.reachAll()
	s.books()
}

func netnsNames(t *testing.T) []string {
	t.Helper()
	var ours []string
	entries, err := os.ReadDir("/run/netns")
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), fmt.Sprintf("picot-lab-%d-", os.Getpid())) {
			ours = append(ours, e.Name())
		}
	}
	return ours
}

// A pod that goes and comes back under the same name and device on the same
// node, and one that moves to the other node, work at once.
func TestPodComesBackAndMoves(t *testing.T) {
	s := newSite(t)
	s.reachAll()
	var floods []*flood
	for _, f := range families {
		floods = append(floods, s.flood(f, s.b1, s.a2, "picot"))
	}
	for _, n := range []*lab.Node{s.n1, s.n2, s.n1} {
		s.must(s.DeletePod(s.ctx, s.a1))
		s.a1 = s.addPod(n, 1)
		s.ready()
		s.reachAll()
	}
	for _, f := range floods {
		f.stop()
	}
	s.books()
	testnet.Eventually(t, patience, "no pin without a device", func() error {
		for _, n := range s.Nodes() {
			for _, p := range s.pins(n) {
				if !p.Alive {
					return fmt.Errorf("%s: %+v", n.Name, p)
				}
			}
		}
		return nil
	})
}

package e2e

import (
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
)

// A link that goes down and up, at either end, costs what was under way and
// nothing else: the agent lives, traffic resumes, every frame is accounted for.
func TestLinkFlapUnderTraffic(t *testing.T) {
	s := newSite(t)
	pid1, pid2 := s.n1.PID(), s.n2.PID()
	s.reachAll()
	before1, before2 := s.held(s.n1), s.held(s.n2)
	flaps := []struct{ name, netns, device string }{
		{"host end", s.n1.Netns(), s.a1.Device},
		{"pod end", s.a1.Netns(), lab.PodDevice},
		{"uplink", s.n1.Netns(), lab.UplinkDevice},
		{"uplink's far end", s.UnderlayNetns(), s.n1.RouterIf},
	}
	for _, f := range flaps {
		t.Run(f.name, func(t *testing.T) {
			s := *s
			s.t = t
			stop := s.everywhere()
			for range 4 {
				s.ip(f.netns, "link set "+f.device+" down")
				time.Sleep(30 * time.Millisecond) // a while of traffic against the closed door
				s.ip(f.netns, "link set "+f.device+" up")
				time.Sleep(70 * time.Millisecond)
			}
			s.ready()
			s.reachAll()
			stop()
			s.books()
		})
	}
	if s.n1.PID() != pid1 || s.n2.PID() != pid2 || pid1 == 0 || pid2 == 0 {
		t.Error("an agent ended")
	}
	s.holdsNoMore(s.n1, before1)
	s.holdsNoMore(s.n2, before2)
}

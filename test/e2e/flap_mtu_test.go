package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
)

var mtuSaid = regexp.MustCompile(`mtu[ =:]+(\d+)`)

// A device's new MTU counts from the next frame on: what does not fit is dropped,
// counted, and its sender told how much fits; when the MTU is back, all fits.
func TestMTUChangeUnderTraffic(t *testing.T) {
	s := newSite(t)
	s.reachAll()
	stop := s.everywhere()
	for _, c := range []struct {
		name, device string
		mtu, fits    int // fits: the longest inner IP packet
		back         int
		to           *lab.Pod
	}{
		{"port", s.a2.Device, 1300, 1300, 1446, s.a2},
		{"uplink", lab.UplinkDevice, 1400, 1400 - 54, 1500, s.b1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := *s
			s.t = t
			dropped := func() uint64 {
				p, _ := port(s.status(s.n1), s.a1.Device)
				return p.Drops["too_big"]
			}
			before := dropped()
			s.ip(s.n1.Netns(), fmt.Sprintf("link set %s mtu %d", c.device, c.mtu))
			s.at(s.n1, "the MTU is seen", func(st status.Status) error {
				mtu := st.Uplinks[0].MTU
				if p, ok := port(st, c.device); ok {
					mtu = p.MTU
				}
				if mtu != c.mtu {
					return fmt.Errorf("%d", mtu)
				}
				return nil
			})
			headers := map[string]int{"v4": 28, "v6": 48} // of IP and ICMP
			probe := func(f family, length int) (string, error) {
				s.forget()
				return s.a1.Run(s.ctx, "ping", "-c1", "-W5", "-M", "do", "-s", strconv.Itoa(length-headers[f.name]), f.of(c.to).String())
			}
			for _, f := range families {
				a := f.of(c.to).String()
				testnet.Eventually(t, patience, "the sender is told what fits to "+a, func() error {
					out, err := probe(f, c.fits+1)
					if m := mtuSaid.FindStringSubmatch(out); err == nil || m == nil || m[1] != strconv.Itoa(c.fits) {
						return fmt.Errorf("%v: %s", err, out)
					}
					return nil
				})
				if out, err := probe(f, c.fits); err != nil {
					t.Errorf("%d bytes to %s: %v: %s", c.fits, a, err, out)
				}
			}
			if n := dropped() - before; n < 2 {
				t.Errorf("%d frames counted as too big", n)
			}
			s.ip(s.n1.Netns(), fmt.Sprintf("link set %s mtu %d", c.device, c.back))
			for _, f := range families {
				testnet.Eventually(t, patience, "what did not fit does again in "+f.name, func() error {
					_, err := probe(f, c.fits+1)
					return err
				})
			}
		})
	}
	stop()
	s.reachAll()
	s.books()
}

// forget makes a1's stack forget the path MTUs it was told.
func (s *site) forget() {
	s.t.Helper()
	s.ip(s.a1.Netns(), "route flush cache")
	s.ip(s.a1.Netns(), "-6 route flush cache")
}

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
)

// remake makes a pod's device anew, under the same names, as a CNI would.
func (s *site) remake(p *lab.Pod) {
	s.t.Helper()
	s.ip(p.Node.Netns(), fmt.Sprintf("link add %s mtu 1446 type veth peer name %s netns %s address %s mtu 1446",
		p.Device, lab.PodDevice, netnsOf(p.Netns()), p.MAC))
	for _, a := range p.Addresses {
		if a.Is4() {
			s.ip(p.Netns(), fmt.Sprintf("addr add %s/24 dev %s", a, lab.PodDevice))
		} else {
			s.ip(p.Netns(), fmt.Sprintf("addr add %s/64 dev %s nodad", a, lab.PodDevice))
		}
	}
	s.ip(p.Netns(), "link set "+lab.PodDevice+" up")
}

// indexOf is a device's index.
func (s *site) indexOf(netns, device string) string {
	s.t.Helper()
	index, _, _ := strings.Cut(s.ip(netns, "-o link show "+device), ":")
	return index
}

// A workload device that is deleted under traffic leaves no socket, descriptor or
// pin; its successor of the same name works unaided.
func TestPodDeviceDeletedUnderTraffic(t *testing.T) {
	s := newSite(t)
	s.reachAll()
	before := s.held(s.n1)
	stop := s.everywhere()
	for round := range 2 {
		index := s.indexOf(s.n1.Netns(), s.a1.Device)
		s.must(s.a1.DelDevice(s.ctx))
		s.at(s.n1, "the port is gone", func(st status.Status) error {
			p, _ := port(st, s.a1.Device)
			if len(p.Sockets) > 0 || !strings.Contains(p.Error, "there is no device") {
				return fmt.Errorf("%+v", p)
			}
			return nil
		})
		testnet.Eventually(t, patience, fmt.Sprintf("round %d: the pin of the deleted device is gone", round), func() error {
			if p, there := s.pinNames(s.n1)[s.a1.Device]; there {
				return fmt.Errorf("%+v", p)
			}
			return nil
		})
		s.reach(s.b1, s.a2) // the others notice nothing
		s.cutOff(s.b1, s.a1)
		s.remake(s.a1)
		if s.indexOf(s.n1.Netns(), s.a1.Device) == index {
			t.Fatal("the same index: this is no other device")
		}
		s.ready()
		s.reachAll()
	}
	stop()
	s.books()
	s.holdsNoMore(s.n1, before)
}

// The same of an uplink. Its address is the network manager's affair, the routes
// to the locators are the agent's.
func TestUplinkDeletedUnderTraffic(t *testing.T) {
	s := newSite(t)
	s.reachAll()
	before := s.held(s.n1)
	stop := s.everywhere()
	for range 2 {
		s.must(s.n1.DelDevice(s.ctx, lab.UplinkDevice))
		s.at(s.n1, "the uplink is gone", func(st status.Status) error {
			if u := st.Uplinks[0]; u.Queues > 0 || u.Error == "" || st.Ready {
				return fmt.Errorf("ready %t, %+v", st.Ready, u)
			}
			return nil
		})
		s.reach(s.a1, s.a2)
		s.ip(s.n1.Netns(), fmt.Sprintf("link add %s type veth peer name %s netns %s", lab.UplinkDevice, s.n1.RouterIf, netnsOf(s.UnderlayNetns())))
		s.ip(s.UnderlayNetns(), fmt.Sprintf("link set %s master br0 up", s.n1.RouterIf))
		s.ip(s.n1.Netns(), fmt.Sprintf("addr add %s/64 dev %s nodad", s.n1.Address, lab.UplinkDevice))
		s.ip(s.n1.Netns(), "link set "+lab.UplinkDevice+" up")
		s.ready()
		s.reachAll()
	}
	stop()
	s.holdsNoMore(s.n1, before)
	s.books()
}

package arpnd

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"picot.dev/picot/arpnd/wiretest"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/testnet"
)

func TestMain(m *testing.M) { os.Exit(testnet.Main(m)) }

// A pod's real stack on one end of a veth, this package on the other.
type station struct {
	*testnet.NS
	wire *wiretest.Wire

	mu       sync.Mutex
	bindings map[packet.IP]View
	outcomes map[Outcome]int
	heard    []Message // what was neither answered nor a request
}

func newStation(t *testing.T) *station {
	t.Helper()
	node := testnet.New(t, "node")
	node.Sysctl(t, "net.ipv6.conf.default.disable_ipv6", "1") // the host end does not speak
	pod := testnet.New(t, "pod")
	testnet.Veth(t, testnet.End{NS: node, Name: "host0"},
		testnet.End{NS: pod, Name: "eth0", MAC: asker.String(), Addrs: []string{"10.0.0.10/24", "fd00:10::a/64"}})
	s := &station{NS: pod, outcomes: map[Outcome]int{}, bindings: map[packet.IP]View{
		owner4: held(), owner6: viewed(func(v *View) { v.Router = true }),
		asker4: {Known: true, MAC: asker, OwnPort: true}, asker6: {Known: true, MAC: asker, OwnPort: true},
	}}
	s.wire = wiretest.Attach(t, node, "host0", s.answer)
	return s
}

func (s *station) answer(chunk []byte, n int) int {
	var l packet.Layout
	var m Message
	if !packet.Parse(chunk[:n], &l) || Parse(chunk[:n], &l, &m) != OK || m.Op == OpNone {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.bindings[m.Target]
	o := Decide(&m, &v)
	s.outcomes[o]++
	if o != Answer {
		s.heard = append(s.heard, m)
		return 0
	}
	mac, router := v.Answer()
	return Reply(chunk, n, &l, &m, mac, router)
}

func (s *station) count(o Outcome) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outcomes[o]
}

// neighbor waits until the pod's neighbour cache shows all of want for ip.
func (s *station) neighbor(t *testing.T, ip string, want ...string) {
	t.Helper()
	testnet.Eventually(t, 10*time.Second, "neighbour "+ip, func() error {
		out, err := s.Try("ip", "neigh", "get", ip, "dev", "eth0")
		for _, w := range want {
			if err == nil && !strings.Contains(out, w) {
				err = fmt.Errorf("no %q in %q", w, out)
			}
		}
		return err
	})
}

// resolve makes the pod resolve both owner addresses. Nobody answers its pings.
func (s *station) resolve(t *testing.T) {
	t.Helper()
	for _, ip := range []string{"10.0.0.11", "fd00:10::b"} {
		_, _ = s.Try("ping", "-c1", "-W1", ip)
	}
	s.neighbor(t, "10.0.0.11", owner.String())
	s.neighbor(t, "fd00:10::b", owner.String(), "router")
}

func TestKernelResolves(t *testing.T) {
	s := newStation(t)
	s.resolve(t)
	testnet.RequireTool(t, "arping", "ndisc6")
	for _, tc := range []struct{ command, want string }{
		{"arping -c1 -w5 -I eth0 10.0.0.11", "Unicast reply from 10.0.0.11 [" + strings.ToUpper(owner.String()) + "]"},
		{"ndisc6 -1 -r5 fd00:10::b eth0", strings.ToUpper(owner.String())},
	} {
		words := strings.Fields(tc.command)
		if out := s.Exec(t, words[0], words[1:]...); !strings.Contains(out, tc.want) {
			t.Errorf("%s: %s", tc.command, out)
		}
	}
	if out, err := s.Try("arping", "-c1", "-w2", "-I", "eth0", "10.0.0.99"); err == nil {
		t.Errorf("row 16: an unknown address answers: %s", out)
	}
	if s.count(SilentUnknown) == 0 {
		t.Error("the request for the unknown address was not seen")
	}
}

// TestKernelDuplicateAddress: rows 1, 3 and 4 on a real stack. A pod that takes
// another's address is told; one that takes its own is not.
func TestKernelDuplicateAddress(t *testing.T) {
	for _, optimistic := range []string{"0", "1"} {
		t.Run("optimistic "+optimistic, func(t *testing.T) {
			s := newStation(t)
			for _, where := range []string{"all", "eth0"} {
				s.Sysctl(t, "net.ipv6.conf."+where+".accept_dad", "1")
				s.Sysctl(t, "net.ipv6.conf."+where+".optimistic_dad", optimistic)
			}
			s.IP(t, "-6 addr del fd00:10::a/64 dev eth0")
			s.IP(t, "-6 addr add fd00:10::a/64 dev eth0")
			s.IP(t, "-6 addr add fd00:10::b/64 dev eth0")
			testnet.Eventually(t, 15*time.Second, "duplicate address detection", func() error {
				out := s.IP(t, "-6 -o addr show dev eth0")
				for line := range strings.Lines(out) {
					taken := strings.Contains(line, "fd00:10::b/")
					own := strings.Contains(line, "fd00:10::a/")
					failed := strings.Contains(line, "dadfailed")
					tentative := strings.Contains(line, "tentative") || strings.Contains(line, "optimistic")
					if taken && !failed || own && (failed || tentative) {
						return fmt.Errorf("%s", line)
					}
				}
				return nil
			})
			if s.count(SilentOwnPort) == 0 {
				t.Error("the DAD of the pod's own address was not seen")
			}
		})
	}
	t.Run("arping -D", func(t *testing.T) {
		s := newStation(t)
		testnet.RequireTool(t, "arping")
		out, err := s.Try("arping", "-D", "-c2", "-w5", "-I", "eth0", "10.0.0.11")
		if err == nil || !strings.Contains(out, strings.ToUpper(owner.String())) {
			t.Errorf("the owner is not reported: %v %s", err, out)
		}
		if out, err := s.Try("arping", "-D", "-c2", "-w3", "-I", "eth0", "10.0.0.10"); err != nil {
			t.Errorf("the owner is told of itself: %v %s", err, out)
		}
	})
}

// TestKernelCacheIsRepaired: row 13, the part a guest sees.
func TestKernelCacheIsRepaired(t *testing.T) {
	s := newStation(t)
	s.resolve(t)
	frame := make([]byte, 256)
	s.wire.Send(t, frame[:BuildGARP(frame, owner4, third)])
	s.neighbor(t, "10.0.0.11", third.String())
	s.wire.Send(t, frame[:BuildUnsolicitedNA(frame, owner6, third, false)])
	s.neighbor(t, "fd00:10::b", third.String())
	if out := s.IP(t, "-6 neigh show fd00:10::b dev eth0"); strings.Contains(out, "router") {
		t.Errorf("still a router: %s", out)
	}
}

// TestKernelAnswersProbes: each form of the probe makes a silent host prove that
// it lives. Linux answers a unicast NS without TLLAO and with O=0, which is weak
// evidence: it refreshes, and that is all a probe is for.
func TestKernelAnswersProbes(t *testing.T) {
	s := newStation(t)
	for _, tc := range []struct {
		name string
		from Prober
		ip   packet.IP
		op   Op
		want Class
	}{
		{"ARP", Prober{MAC: ProbeMAC()}, asker4, ARPReply, Strong},
		{"ARP from the gateway", Prober{MAC: gateway, IP: addr("10.0.0.1")}, asker4, ARPReply, Strong},
		{"NS", Prober{MAC: ProbeMAC()}, asker6, NA, Weak},
		{"NS from the gateway", Prober{MAC: gateway, IP: addr("fe80::1")}, asker6, NA, Weak},
	} {
		t.Run(tc.name, func(t *testing.T) {
			frame := make([]byte, 256)
			n := BuildProbe(frame, tc.from, tc.ip, asker)
			testnet.Eventually(t, 10*time.Second, "answer", func() error {
				// Again and again: a link just up may not answer at once.
				s.wire.Send(t, frame[:n])
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, m := range s.heard {
					class, ip, ok := Evidence(&m)
					if m.Op == tc.op && m.EtherDst == tc.from.MAC && class >= tc.want && ok && ip == tc.ip {
						return nil
					}
				}
				return fmt.Errorf("heard %+v", s.heard)
			})
		})
	}
	if out := s.IP(t, "-4 neigh show dev eth0"); strings.Contains(out, ProbeMAC().String()) {
		t.Errorf("the pod remembers who probed without an address: %s", out)
	}
}

package icmperr

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/arpnd/wiretest"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/testnet"
)

func TestMain(m *testing.M) { os.Exit(testnet.Main(m)) }

// newPod is a real stack whose every IP frame toward the peer is answered by w.
func newPod(t *testing.T, w4, w6 writer) *testnet.NS {
	t.Helper()
	node, pod := testnet.New(t, "node"), testnet.New(t, "pod")
	node.Sysctl(t, "net.ipv6.conf.default.disable_ipv6", "1")
	testnet.Veth(t, testnet.End{NS: node, Name: "host0"},
		testnet.End{NS: pod, Name: "eth0", MAC: podMAC, Addrs: []string{"10.0.0.10/16", "fd00:10::a/16"}})
	for _, ip := range []string{"10.0.1.11", "fd00:11::b"} {
		pod.IP(t, "neigh replace "+ip+" lladdr "+peer.String()+" nud permanent dev eth0")
	}
	wiretest.Attach(t, node, "host0", func(chunk []byte, n int) int {
		var l packet.Layout
		if !packet.Parse(chunk[:n], &l) || packet.MAC(chunk[:6]) != peer {
			return 0
		}
		if l.IsIPv4() {
			return w4(chunk, n, &l)
		}
		return w6(chunk, n, &l)
	})
	return pod
}

// podMAC is taken here because newPod has a pod of its own.
var podMAC = pod.String()

func first(out string, _ error) string { return out }

func wantIn(out, want string) error {
	if !strings.Contains(out, want) {
		return fmt.Errorf("no %q in %q", want, out)
	}
	return nil
}

// TestKernelHeeds: a real stack takes each error for what it is. The path MTU
// must end in its routing cache, the others in the sender's socket.
func TestKernelHeeds(t *testing.T) {
	k4, k6 := kinds4(from4), kinds6(from6)
	for _, tc := range []struct{ name, want4, want6 string }{
		{"time exceeded", "From 10.0.0.1 icmp_seq=1 Time to live exceeded", "From fd00:10::1 icmp_seq=1 Time exceeded: Hop limit"},
		{"host unreachable", "From 10.0.0.1 icmp_seq=1 Destination Host Unreachable", "From fd00:10::1 icmp_seq=1 Destination unreachable: Address unreachable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := newPod(t, k4[tc.name].write, k6[tc.name].write)
			for ip, want := range map[string]string{"10.0.1.11": tc.want4, "fd00:11::b": tc.want6} {
				testnet.Eventually(t, 10*time.Second, "ping "+ip, func() error {
					return wantIn(first(ns.Try("ping", "-n", "-c1", "-W2", "-s1300", ip)), want)
				})
			}
		})
	}
	t.Run("too big", func(t *testing.T) {
		ns := newPod(t, k4["too big"].write, k6["too big"].write)
		for ip, want := range map[string]string{
			"10.0.1.11":  "From 10.0.0.1 icmp_seq=1 Frag needed and DF set (mtu = 1446)",
			"fd00:11::b": "From fd00:10::1 icmp_seq=1 Packet too big: mtu=1446",
		} {
			testnet.Eventually(t, 10*time.Second, "ping "+ip, func() error {
				return wantIn(first(ns.Try("ping", "-n", "-c1", "-W2", "-Mdo", "-s1440", ip)), want)
			})
			testnet.Eventually(t, 10*time.Second, "path MTU to "+ip, func() error {
				return wantIn(ns.IP(t, "route get "+ip), "mtu 1446")
			})
		}
	})
	t.Run("too big without DF", func(t *testing.T) {
		ns := newPod(t, k4["too big"].write, k6["too big"].write)
		testnet.Eventually(t, 10*time.Second, "path MTU", func() error {
			_, _ = ns.Try("ping", "-n", "-c1", "-W1", "-Mdont", "-s1440", "10.0.1.11")
			return wantIn(ns.IP(t, "route get 10.0.1.11"), "mtu 1446")
		})
	})
}

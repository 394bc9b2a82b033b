package testnet

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
)

// End describes one end of a veth pair. Offload settings stay at the kernel's
// defaults.
type End struct {
	NS     *NS
	Name   string
	MAC    string   // empty: the kernel draws one
	MTU    int      // 0: 1500
	Queues int      // rx and tx queues, 0: 1
	Addrs  []string // CIDR form
	Down   bool     // leave the link administratively down
}

// Veth joins two namespaces (or one with itself) by a veth pair. The pair goes
// with its namespaces.
func Veth(t testing.TB, a, b End) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a.Name
	attrs.MTU = a.MTU
	attrs.HardwareAddr = parseMAC(t, a.MAC)
	attrs.NumTxQueues, attrs.NumRxQueues = queues(a), queues(a)
	v := &netlink.Veth{
		LinkAttrs:        attrs,
		PeerName:         b.Name,
		PeerMTU:          uint32(b.MTU),
		PeerHardwareAddr: parseMAC(t, b.MAC),
		PeerNumTxQueues:  uint32(queues(b)),
		PeerNumRxQueues:  uint32(queues(b)),
		PeerNamespace:    netlink.NsFd(b.NS.FD()),
	}
	if err := a.NS.Netlink().LinkAdd(v); err != nil {
		t.Fatalf("make veth %s (%s) - %s (%s): %v", a.Name, a.NS.Name, b.Name, b.NS.Name, err)
	}
	for _, e := range []End{a, b} {
		if !e.Down {
			e.NS.Up(t, e.Name)
		}
		e.NS.Addr(t, e.Name, e.Addrs...)
	}
}

func queues(e End) int { return max(e.Queues, 1) }

func parseMAC(t testing.TB, s string) net.HardwareAddr {
	t.Helper()
	if s == "" {
		return nil
	}
	mac, err := net.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

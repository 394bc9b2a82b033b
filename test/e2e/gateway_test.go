package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
)

const gatewaySpec = `gateway:
  addresses: ["10.0.0.1", "10.0.1.1", "fd00:10::1", "fd00:11::1"]
  mac: "02:00:00:00:00:fe"`

// newRouted is a duo whose pods a, b are in one pair of prefixes and c, d in
// another, with the network's gateway as their default route.
func newRouted(t *testing.T) *duo {
	t.Helper()
	d := &duo{Lab: newLab(t, lab.Routed), t: t}
	must(t, d.AddNetwork("red", 100, []string{"10.0.0.0/24", "10.0.1.0/24", "fd00:10::/64", "fd00:11::/64"}, gatewaySpec))
	var err error
	for i, n := range []**lab.Node{&d.n1, &d.n2} {
		*n, err = d.AddNode(lab.NodeOptions{Name: fmt.Sprintf("node%d", i+1)})
		must(t, err)
	}
	for i, p := range []**lab.Pod{&d.a, &d.b, &d.c, &d.d} {
		name := string(rune('a' + i))
		*p, err = d.AddPod(lab.PodOptions{
			Name: name, Node: []*lab.Node{d.n1, d.n1, d.n2, d.n2}[i], Network: "red", Segment: 1,
			MAC:       fmt.Sprintf("02:00:00:00:00:0%s", name),
			Addresses: []string{fmt.Sprintf("10.0.%d.%d", i%2, 10+i), fmt.Sprintf("fd00:1%d::%s", i%2, name)},
		})
		must(t, err)
	}
	for _, n := range []*lab.Node{d.n1, d.n2} {
		must(t, n.Start(within(t, 20*time.Second)))
	}
	for _, n := range []*lab.Node{d.n1, d.n2} {
		must(t, n.WaitReady(within(t, 20*time.Second), 2))
	}
	for i, p := range d.Pods() {
		d.run(p, "ip", "route", "add", "default", "via", fmt.Sprintf("10.0.%d.1", i%2))
		d.run(p, "ip", "-6", "route", "add", "default", "via", fmt.Sprintf("fd00:1%d::1", i%2))
	}
	return d
}

// TestGatewayRoutes: IP -> Neighbor -> FDB -> port or node, on every node.
func TestGatewayRoutes(t *testing.T) {
	d := newRouted(t)
	d.watchOthers()
	// a is in the first prefixes, b and d in the second: same node, other node.
	for _, to := range []*lab.Pod{d.b, d.d, d.c} {
		d.run(d.a, "ping", "-c", "2", "-W", "2", to.IP4().String())
		d.run(d.a, "ping", "-6", "-c", "2", "-W", "2", to.IP6().String())
	}
	// One hop is used.
	out := d.run(d.a, "ping", "-c", "1", "-W", "2", d.d.IP4().String())
	if !strings.Contains(out, "ttl=62") && !strings.Contains(out, "ttl=63") {
		t.Errorf("no hop was counted:\n%s", out)
	}
	for _, to := range []netip.Addr{d.d.IP4(), d.d.IP6()} {
		gw := map[bool]string{true: "10.0.0.1", false: "fd00:10::1"}[to.Is4()]
		out, err := d.a.Run(within(t, 20*time.Second), "ping", "-t", "1", "-c", "1", "-W", "2", to.String())
		if err == nil || !strings.Contains(out, gw) || !strings.Contains(strings.ToLower(out), "exceeded") {
			t.Errorf("hop limit 1 to %s: %v\n%s", to, err, out)
		}
	}
	for _, to := range []string{"10.0.1.99", "fd00:11::99"} {
		out, err := d.a.Run(within(t, 20*time.Second), "ping", "-c", "1", "-W", "2", to)
		if err == nil || !strings.Contains(strings.ToLower(out), "unreachable") {
			t.Errorf("ping %s, which nobody has: %v\n%s", to, err, out)
		}
	}
	// The gateway itself answers, on each node.
	for _, p := range []*lab.Pod{d.a, d.d} {
		for _, gw := range []string{"10.0.0.1", "10.0.1.1", "fd00:10::1", "fd00:11::1"} {
			d.run(p, "ping", "-c", "1", "-W", "2", gw)
		}
	}
	if rate := d.iperf(d.a, d.d, "-c", d.d.IP4().String(), "-t", "2"); rate < 1e6 {
		t.Errorf("TCP through the gateway: %.0f bit/s", rate)
	}
}

// TestGatewayIsConfirmedByUnicast: NUD of the gateway, with timers 30 times as
// short as usual: two minutes stand for an hour. Each probe is answered with
// the router flag, so that the route through it stays.
func TestGatewayIsConfirmedByUnicast(t *testing.T) {
	d := newRouted(t)
	for _, f := range []string{"ipv4", "ipv6"} {
		for name, value := range map[string]string{"base_reachable_time_ms": "1000", "delay_first_probe_time": "1", "retrans_time_ms": "200"} {
			d.run(d.a, "sysctl", "-qw", fmt.Sprintf("net.%s.neigh.%s.%s=%s", f, lab.PodDevice, name, value))
		}
	}
	c := startCapture(t, d.a.Netns(), lab.PodDevice)
	d.run(d.a, "ping", "-6", "-c", "1", "-W", "2", d.d.IP6().String())
	end := time.Now().Add(2 * time.Minute)
	for time.Now().Before(end) {
		// UDP gives the stack no hint that the way works: it must probe.
		for _, to := range []string{d.d.IP4().String(), d.d.IP6().String()} {
			d.run(d.a, "bash", "-c", fmt.Sprintf("echo x >/dev/udp/%s/9", to))
		}
		state := d.run(d.a, "ip", "neigh", "show", "dev", lab.PodDevice)
		if strings.Contains(state, "FAILED") || strings.Contains(state, "INCOMPLETE") {
			t.Fatalf("neighbours:\n%s", state)
		}
		time.Sleep(500 * time.Millisecond)
	}
	gw := macBytes(t, "02:00:00:00:00:fe")
	probes := c.all(func(f captured) bool {
		return f.outgoing && string(f.data[:6]) == string(gw) && (isARP(f.data) || icmp6(f.data) == 135)
	})
	answers := c.all(func(f captured) bool {
		return !f.outgoing && string(f.data[6:12]) == string(gw) && (isARP(f.data) || icmp6(f.data) == 136)
	})
	if len(probes) < 50 || len(answers) < len(probes) {
		t.Errorf("%d unicast probes, %d answers", len(probes), len(answers))
	}
	for _, f := range answers {
		if icmp6(f.data) == 136 && f.data[58]&0x80 == 0 {
			t.Fatalf("NA without the router flag: %x", f.data)
		}
	}
	if out := d.run(d.a, "ip", "-6", "neigh", "show", "dev", lab.PodDevice); !strings.Contains(out, "router") {
		t.Errorf("the gateway is no router:\n%s", out)
	}
	t.Logf("%d unicast probes, %d answers", len(probes), len(answers))
}

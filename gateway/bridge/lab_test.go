package bridge_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/gateway/bridge"
	"picot.dev/picot/gateway/flows"
	"picot.dev/picot/test/lab/ovn"
)

// rig is a lab with a driver for one of its bridges.
type rig struct {
	*ovn.Lab
	t      *testing.T
	bridge string
	opts   ovn.Options
	driver *bridge.Driver
}

func newRig(t *testing.T, br string, o ovn.Options) *rig {
	t.Helper()
	l := ovn.Start(t, o)
	return &rig{l, t, br, o, bridge.New(bridge.Options{Bridge: br, Socket: l.Mgmt(br)})}
}

// input describes the bridge as the gateway controller would.
func (r *rig) input(gate bool, change ...func(*flows.Input)) flows.Input {
	r.t.Helper()
	in := flows.Input{
		Bridge: r.bridge, Gate: gate, Segmentation: true, IPv4: true, IPv6: true, VLAN: uint16(r.opts.VLAN),
	}
	mac, uplink, ips := ovn.NodeMAC, "phys0", []string{ovn.NodeIP4, ovn.NodeIP6}
	nets := []string{"0"}
	for i := range r.opts.UDNs {
		nets = append(nets, fmt.Sprint(i+1))
	}
	if r.bridge == "br-up1" {
		mac, uplink, ips, nets = ovn.UplinkMAC, "phys1", []string{ovn.UplinkNodeIP4, ovn.UplinkNodeIP6}, nil
		for i := range r.opts.Uplinks {
			nets = append(nets, fmt.Sprintf("u%d", i+1))
		}
	}
	in.MAC, _ = net.ParseMAC(mac)
	for _, ip := range ips {
		in.NodeIPs = append(in.NodeIPs, netip.MustParseAddr(ip))
	}
	in.Uplink = flows.Port{Name: uplink, OFPort: r.ofport(uplink)}
	ports := r.Patches(r.bridge)
	for i, n := range nets {
		name := ovn.PatchName(r.bridge, n)
		mark := uint32(i + 1)
		if n[0] == 'u' {
			mark += 4001
		}
		in.Patches = append(in.Patches, flows.Patch{
			Port: flows.Port{Name: name, OFPort: ports[name]}, Network: n,
			Default: n == "0", Source: i == 0, CTMark: mark,
		})
	}
	for name, n := range ports {
		if strings.Contains(name, "_ovn_localnet_port-to-br-int") {
			in.Ingress = append(in.Ingress, flows.Port{Name: name, OFPort: n})
		}
	}
	for _, f := range change {
		f(&in)
	}
	if err := in.Validate(); err != nil {
		r.t.Fatal(err)
	}
	return in
}

func (r *rig) ofport(iface string) uint32 {
	r.t.Helper()
	var n uint32
	if _, err := fmt.Sscan(r.VSCtl("get", "interface", iface, "ofport"), &n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// apply renders and installs.
func (r *rig) apply(in flows.Input) bridge.Changes {
	r.t.Helper()
	r.driver.SetHost(flows.Host(in))
	c, err := r.driver.Apply(r.t.Context(), flows.Render(in), flows.NoFlood(in))
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) read() bridge.State {
	r.t.Helper()
	s, err := r.driver.Read(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// same fails the test unless two sets hold the same flows, and shows those only one has.
func same(t *testing.T, what string, got, want flows.Set) {
	t.Helper()
	count := map[flows.Flow]int{}
	for _, f := range got {
		count[f]++
	}
	for _, f := range want {
		count[f]--
	}
	var unexpected, missing flows.Set
	for f, n := range count {
		if n > 0 {
			unexpected = append(unexpected, f)
		} else if n < 0 {
			missing = append(missing, f)
		}
	}
	if len(unexpected)+len(missing) > 0 {
		t.Errorf("%s:\n--- unexpected\n%s--- missing\n%s", what, sorted(unexpected), sorted(missing))
	}
}

func sorted(s flows.Set) flows.Set {
	s = append(flows.Set(nil), s...)
	s.Sort()
	return s
}

// eventually polls until ok or the deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

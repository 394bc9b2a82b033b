package bridge_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/gateway/bridge"
	"picot.dev/picot/gateway/flows"
	"picot.dev/picot/test/lab/ovn"
)

// arpReply is what the external host sends a gateway router that asked for its address.
func arpReply(inPort uint32) string {
	return fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s,arp,arp_op=2,arp_spa=%s,arp_tpa=%s,arp_sha=%[2]s,arp_tha=%[3]s",
		inPort, ovn.ExtMAC, ovn.NodeMAC, ovn.ExtIP4, ovn.NodeIP4)
}

// advertisement is its IPv6 counterpart.
func advertisement(inPort uint32, dst string) string {
	return fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s,icmp6,icmpv6_type=136,ipv6_src=%s,ipv6_dst=%s,nw_ttl=255,nd_target=%[4]s,nd_tll=%[2]s",
		inPort, ovn.ExtMAC, dst, ovn.ExtIP6, ovn.NodeIP6)
}

// sent returns how many frames the bridge sent out of each port, by OpenFlow number (LOCAL is 65534).
func (r *rig) sent() map[uint32]int {
	r.t.Helper()
	out := map[uint32]int{}
	port := uint32(0)
	for line := range strings.Lines(r.Run("ovs-ofctl", "dump-ports", "unix:"+r.Mgmt(r.bridge))) {
		f := strings.Fields(strings.NewReplacer(",", " ", "=", " ", ":", " ").Replace(line))
		switch {
		case len(f) > 1 && f[0] == "port" && f[1] == "LOCAL":
			port = flows.PortLocal
		case len(f) > 1 && f[0] == "port":
			n, _ := strconv.ParseUint(f[1], 10, 32)
			port = uint32(n)
		case len(f) > 2 && f[0] == "tx" && f[1] == "pkts":
			out[port], _ = strconv.Atoi(f[2])
		}
	}
	return out
}

// packets returns the packet counter of the flow with this match.
func (r *rig) packets(match string) int {
	r.t.Helper()
	for line := range strings.Lines(r.Run("ovs-ofctl", "-O", "OpenFlow13", "--no-names", "dump-flows", "unix:"+r.Mgmt(r.bridge))) {
		f, err := flows.Parse(line)
		if err != nil || f.Match != match || !flows.Owned(f.Cookie) {
			continue
		}
		_, after, _ := strings.Cut(line, "n_packets=")
		n, err := strconv.Atoi(after[:strings.IndexByte(after, ',')])
		if err != nil {
			r.t.Fatal(err)
		}
		return n
	}
	r.t.Fatalf("no flow of ours matches %q", match)
	return 0
}

// bind writes the binding the mirror would give a follower.
func (r *rig) bind(net, ip string) {
	r.t.Helper()
	port := "rtoe-GR_net" + net + "_node1"
	dp := strings.TrimSpace(r.Run("ovn-sbctl", "--bare", "--columns=datapath", "find", "Port_Binding", "logical_port="+port))
	r.Run("ovn-sbctl", "create", "MAC_Binding", "logical_port="+port, "ip="+strconv.Quote(ip),
		"mac="+strconv.Quote(ovn.ExtMAC), "datapath="+dp, fmt.Sprintf("timestamp=%d", time.Now().UnixMilli()))
}

// An external host's unicast ARP reply and NA reach the source router and the host, and no
// follower, whatever port they come in by. Real frames: pods ping, kernels answer.
func TestUnicastReplyReachesSourceAndHostOnly(t *testing.T) {
	r := newRig(t, "br-ex", ovn.Options{UDNs: 10, Localnets: 1})
	r.Script("flows", "rest")
	reach := func(in flows.Input) (sent map[uint32]int) {
		r.apply(in)
		r.Run("ovn-sbctl", "--all", "destroy", "MAC_Binding")
		before := r.sent()
		for _, ext := range []string{ovn.ExtIP4, ovn.ExtIP6} {
			if !r.Ping("0", ext, 2) {
				t.Errorf("the default network does not reach %s", ext)
			}
		}
		sent = r.sent()
		for port, n := range before {
			sent[port] -= n
		}
		return sent
	}
	sent := reach(r.input(false))
	for _, p := range r.input(false).Patches {
		if sent[p.OFPort] == 0 {
			t.Fatalf("gate off: %s got no frame, so that none proves nothing", p.Name)
		}
	}
	in := r.input(true)
	sent = reach(in)
	for _, m := range []string{"arp,in_port=%d,dl_dst=%s", "icmp6,in_port=%d,dl_dst=%s,icmp_type=136"} {
		match := fmt.Sprintf(m, in.Uplink.OFPort, ovn.NodeMAC)
		if n := r.packets(match); n == 0 {
			t.Errorf("no frame took the flow %s", match)
		}
	}
	for _, p := range in.Patches {
		if n := sent[p.OFPort]; p.Source != (n > 0) {
			t.Errorf("%s got %d frames", p.Name, n)
		}
	}
	if n := sent[flows.PortLocal]; n < 2 {
		t.Errorf("the host got %d frames, want the reply and the advertisement", n)
	}
	for name, packet := range map[string]string{
		"ARP reply":           arpReply(in.Uplink.OFPort),
		"NA":                  advertisement(in.Uplink.OFPort, ovn.NodeMAC),
		"ARP reply, localnet": arpReply(in.Ingress[0].OFPort),
		"NA, localnet":        advertisement(in.Ingress[0].OFPort, ovn.NodeMAC),
	} {
		if _, text := r.Trace("br-ex", packet); strings.Count(text, `bridge("br-int")`) != 1 || !strings.Contains(text, fmt.Sprintf("output:%d\n", in.Patches[0].OFPort)) {
			t.Errorf("%s enters br-int %d times:\n%s", name, strings.Count(text, `bridge("br-int")`), text)
		}
	}
	// A follower has no binding yet; with the mirror's row it reaches the host outside.
	r.bind("7", ovn.ExtIP4)
	r.bind("7", ovn.ExtIP6)
	for _, ext := range []string{ovn.ExtIP4, ovn.ExtIP6} {
		eventually(t, "network 7 reaches "+ext, func() bool { return r.Ping("7", ext, 2) })
	}
}

// The same with a gateway VLAN: the tag is matched and left on, or the host is not reached.
func TestVLANReachesSourceAndHost(t *testing.T) {
	r := newRig(t, "br-ex", ovn.Options{UDNs: 2, VLAN: 100})
	r.Script("flows", "rest")
	in := r.input(true)
	r.apply(in)
	if out, err := r.Try("ip", "netns", "exec", r.NodeNS(), "ip", "neigh", "flush", "all"); err != nil {
		t.Fatal(out)
	}
	before := r.sent()
	for _, ext := range []string{ovn.ExtIP4, ovn.ExtIP6} {
		if !r.Ping("0", ext, 2) {
			t.Errorf("the default network does not reach %s", ext)
		}
		if out, err := r.Try("ip", "netns", "exec", r.NodeNS(), "ping", "-c2", "-i0.2", "-W2", ext); err != nil {
			t.Errorf("the host does not reach %s:\n%s", ext, out)
		}
	}
	if n := r.packets(fmt.Sprintf("arp,in_port=%d,dl_vlan=100,dl_dst=%s", in.Uplink.OFPort, ovn.NodeMAC)); n == 0 {
		t.Error("no tagged ARP reply was steered")
	}
	after := r.sent()
	for _, p := range in.Patches[1:] {
		if n := after[p.OFPort] - before[p.OFPort]; n != 0 {
			t.Errorf("%s got %d frames", p.Name, n)
		}
	}
}

// On an uplink bridge a designated router is the source, and another takes over.
func TestUplinkBridge(t *testing.T) {
	r := newRig(t, "br-up1", ovn.Options{Uplinks: 3})
	r.Script("flows", "rest")
	for _, source := range []int{0, 2} {
		in := r.input(true, func(in *flows.Input) {
			for i := range in.Patches {
				in.Patches[i].Source = i == source
			}
		})
		r.apply(in)
		before := r.sent()
		for _, ext := range []string{ovn.UplinkExtIP4, ovn.UplinkExtIP6} {
			if net := in.Patches[source].Network; !r.Ping(net, ext, 2) {
				t.Errorf("%s, the source, does not reach %s", net, ext)
			}
		}
		after := r.sent()
		for _, p := range in.Patches {
			if n := after[p.OFPort] - before[p.OFPort]; !p.Source && n != 0 {
				t.Errorf("source %d: %s got %d frames", source, p.Name, n)
			}
		}
	}
}

// In overlay mode a stock node's flows lie below ours: neither a unicast reply nor an
// announcement to everyone reaches more than the source.
func TestOverlayHidesTheFanout(t *testing.T) {
	r := newRig(t, "br-ex", ovn.Options{UDNs: 10, NoPods: true})
	r.Script("flows", "gate-off")
	in := r.input(true, func(in *flows.Input) { in.Mode = flows.Overlay })
	announce := fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_spa=%s,arp_tpa=%[3]s,arp_sha=%[2]s", in.Uplink.OFPort, ovn.ExtMAC, ovn.ExtIP4)
	packets := map[string]string{
		"ARP reply": arpReply(in.Uplink.OFPort), "NA": advertisement(in.Uplink.OFPort, ovn.NodeMAC),
		"GARP": announce, "NA to all nodes": advertisement(in.Uplink.OFPort, "33:33:00:00:00:01"),
	}
	for name, p := range packets {
		if _, text := r.Trace("br-ex", p); strings.Count(text, `bridge("br-int")`) < 11 {
			t.Errorf("%s without us enters br-int %d times, so this proves nothing", name, strings.Count(text, `bridge("br-int")`))
		}
	}
	r.apply(in)
	for name, p := range packets {
		if _, text := r.Trace("br-ex", p); strings.Count(text, `bridge("br-int")`) != 1 {
			t.Errorf("%s enters br-int %d times", name, strings.Count(text, `bridge("br-int")`))
		}
	}
}

// What one ARP reply costs, and what that does to the last network. ovs-vswitchd gives up a
// packet after 4,096 resubmits.
func TestResubmitsDoNotGrowWithNetworks(t *testing.T) {
	cost := map[bool][]int{}
	for _, n := range []int{10, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t, "br-ex", ovn.Options{UDNs: n, NoPods: true})
			r.Script("flows", "rest")
			in := r.input(false)
			last := slices.MaxFunc(in.Patches, func(a, b flows.Patch) int { return int(a.OFPort) - int(b.OFPort) })
			if last.Default {
				t.Fatal("the default network has the last port: it would be cut off")
			}
			r.Pod(last.Network)
			for _, gate := range []bool{false, true} {
				in := r.input(gate)
				r.apply(in)
				hops, text := r.Trace("br-ex", arpReply(in.Uplink.OFPort))
				cost[gate] = append(cost[gate], hops)
				t.Logf("gate %v: %d resubmits, br-int entered %d times", gate, hops, strings.Count(text, `bridge("br-int")`))
				if over := strings.Contains(text, "over 4096 resubmit"); over != (!gate && n == 100) {
					t.Errorf("gate %v: over the limit is %v", gate, over)
				}
				r.Run("ovn-sbctl", "--all", "destroy", "MAC_Binding")
				if gate {
					r.bind(last.Network, ovn.ExtIP4)
					eventually(t, "network "+last.Network+" reaches the host outside", func() bool { return r.Ping(last.Network, ovn.ExtIP4, 2) })
				} else if ok := r.Ping(last.Network, ovn.ExtIP4, 3); ok != (n < 100) {
					t.Errorf("gate off: network %s, the last of %d, reaches the host outside: %v", last.Network, n, ok)
				}
			}
		})
	}
	if on := cost[true]; len(on) != 2 || on[0] != on[1] {
		t.Errorf("gate on: %v resubmits", on)
	}
	if off := cost[false]; len(off) != 2 || off[1] < 4096 {
		t.Errorf("gate off: %v resubmits, want over 4096 at 100", off)
	}
}

// 500 networks on one bridge, without OVN: rendered, installed, traced, re-installed.
func TestFiveHundredPatchPorts(t *testing.T) {
	few := newRig(t, "br-ex", ovn.Options{UDNs: 10, Bare: true})
	few.apply(few.input(true))
	want, _ := few.Trace("br-ex", arpReply(few.input(true).Uplink.OFPort))

	r := newRig(t, "br-ex", ovn.Options{UDNs: 500, Bare: true})
	in := r.input(true)
	step := func(what string, do func()) {
		began := time.Now()
		do()
		t.Logf("%-40s %v", what, time.Since(began).Round(time.Millisecond))
	}
	var set flows.Set
	step("render", func() { set = flows.Render(in) })
	t.Logf("%d flows, %d NO_FLOOD bits", len(set), len(flows.NoFlood(in)))
	step("install gate off", func() { r.apply(r.input(false)) })
	step("gate on", func() { r.apply(in) })
	step("unchanged", func() {
		if c := r.apply(in); !c.Empty() {
			t.Errorf("unchanged input: %d added, %d replaced", len(c.Added), len(c.Replaced))
		}
	})
	if !carries(r.read(), set) {
		t.Error("the bridge does not carry the rendered set")
	}
	if got, text := r.Trace("br-ex", arpReply(in.Uplink.OFPort)); got != want || strings.Count(text, `bridge("br-int")`) != 1 {
		t.Errorf("%d resubmits with 500 networks, %d with 10; br-int entered %d times", got, want, strings.Count(text, `bridge("br-int")`))
	}
	step("re-install after all flows were lost", func() {
		r.ofctl("del-flows")
		if c := r.apply(in); len(c.Added) != len(set) {
			t.Errorf("%d flows added, want %d", len(c.Added), len(set))
		}
	})
	r.watch(nil)
	step("restart of the switch, until all is back", func() {
		r.Script("restart", "ovs-vswitchd")
		eventually(t, "flows and bits are back", func() bool {
			s, err := r.driver.Read(t.Context())
			if err != nil || !carries(s, set) {
				return false
			}
			for n, bit := range flows.NoFlood(in) {
				if s.Ports[n].NoFlood != bit {
					return false
				}
			}
			return true
		})
	})
}

// A DPU reaches its host by a representor, here a veth: table 1 and NORMAL deliver there.
func TestDPURepresentor(t *testing.T) {
	r := newRig(t, "br-ex", ovn.Options{UDNs: 2, Bare: true})
	r.Run("ip", "-n", r.NodeNS(), "link", "add", "pf0hpf", "type", "veth", "peer", "name", "p0")
	r.Run("ip", "-n", r.NodeNS(), "link", "set", "pf0hpf", "up")
	r.Run("ip", "-n", r.NodeNS(), "link", "set", "p0", "up")
	r.VSCtl("add-port", "br-ex", "pf0hpf")
	in := r.input(true, func(in *flows.Input) {
		in.Role, in.Host = flows.DPU, flows.Port{Name: "pf0hpf", OFPort: r.ofport("pf0hpf")}
	})
	r.driver = bridge.New(bridge.Options{Bridge: "br-ex", Socket: r.Mgmt("br-ex")})
	r.apply(in)
	before := r.sent()
	frame := strings.ReplaceAll(ovn.NodeMAC, ":", "") + "0638d600000108004500001c000000004011c2adac120001ac12000200350035000800000000"
	r.Run("ovs-ofctl", "-O", "OpenFlow13", "packet-out", "unix:"+r.Mgmt("br-ex"), fmt.Sprintf("in_port=%d packet=%s actions=TABLE", in.Uplink.OFPort, frame))
	eventually(t, "an IP packet for the bridge MAC leaves by the representor", func() bool {
		return r.sent()[in.Host.OFPort] > before[in.Host.OFPort]
	})
	// By trace, not by LOCAL's counter: kernels send a router solicitation whenever they like.
	packet := fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s,udp,nw_src=%s,nw_dst=%s,nw_ttl=64,udp_src=53,udp_dst=53",
		in.Uplink.OFPort, ovn.ExtMAC, ovn.NodeMAC, ovn.ExtIP4, ovn.NodeIP4)
	if _, text := r.Trace("br-ex", packet); strings.Contains(text, "LOCAL") || !strings.Contains(text, fmt.Sprintf("output:%d\n", in.Host.OFPort)) {
		t.Errorf("want it at the representor only:\n%s", text)
	}
}

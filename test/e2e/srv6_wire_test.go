package e2e

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
)

// What stands on the underlay reads, for tshark, as Ethernet in IPv6: nothing
// malformed, no warning, for every kind of inner frame.
func TestTsharkReadsOurEncapsulation(t *testing.T) {
	c := fourPods(t)
	pods := c.Pods()
	from, to := pods[0], pods[2]
	// Neighbours first, so that what is captured is what is sent below.
	for _, a := range to.Addresses {
		c.ping(from, 1, a.String())
	}
	k := c.dump(c.underlay(), from.Node.RouterIf, "ip6 dst net "+to.Node.Locator.String())
	const dscp = 46
	for _, a := range to.Addresses {
		c.ping(from, 3, "-i", "0.01", "-Q", fmt.Sprint(dscp<<2), a.String())
	}
	ask := unicastARP(t, from, to)
	frames := append([][]byte{ask, withTags(ask, vlanTag{cTag, 9})}, probes(t, from, to, 0)...)
	for _, f := range probes(t, from, to, 1) {
		frames = append(frames, withTags(f, vlanTag{cTag, 100}), withTags(f, vlanTag{sTag, 100}, vlanTag{cTag, 200}))
	}
	sendRaw(t, from.Netns(), lab.PodDevice, frames...)
	rows := k.tshark("", "frame.protocols", "ipv6.nxt", "ipv6.flow", "ipv6.tclass.dscp", "ipv6.src", "ipv6.hlim",
		"ipv6.plen", "frame.len", "_ws.expert.severity", "_ws.malformed", "arp.opcode", "vlan.id", "ip.dsfield.dscp")
	const pings = 6
	if len(rows) < pings+len(frames) {
		t.Fatalf("captured %d frames, sent %d", len(rows), pings+len(frames))
	}
	kinds := map[string]int{}
	for _, r := range rows {
		protocols, first := r[0], func(i int) string { v, _, _ := strings.Cut(r[i], ","); return v }
		if !strings.HasPrefix(protocols, "eth:ethertype:ipv6:eth:ethertype:") {
			t.Errorf("read as %s", protocols)
		}
		kinds[strings.TrimPrefix(protocols, "eth:ethertype:ipv6:eth:ethertype:")]++
		if first(1) != "143" || first(5) != "64" {
			t.Errorf("%s: next header %s, hop limit %s", protocols, first(1), first(5))
		}
		if label := atoi(t, first(2)); label == 0 {
			t.Errorf("%s: flow label 0", protocols)
		}
		if want := atoi(t, r[7]) - 14 - 40; atoi(t, first(6)) != want {
			t.Errorf("%s: payload length %s, want %d", protocols, first(6), want)
		}
		src := netip.MustParseAddr(first(4))
		if b := src.As16(); !from.Node.Locator.Contains(src) || b[8] != 0 || b[9] != 0 || b[14] == 0 && b[15] == 0 {
			t.Errorf("%s: source %s: want function 0 and entropy in %s", protocols, src, from.Node.Locator)
		}
		// Severity above "note": a ping without its answer in the capture is one.
		for s := range strings.SplitSeq(r[8], ",") {
			if s != "" && atoi(t, s) >= 0x00600000 {
				t.Errorf("%s: expert mark %s", protocols, r[8])
			}
		}
		if r[9] != "" {
			t.Errorf("%s: malformed", protocols)
		}
		inner := r[12] // IPv4's; IPv6's is the second value of the class
		if outer, v6, ok := strings.Cut(r[3], ","); ok {
			inner = v6
			if outer != v6 {
				t.Errorf("%s: DSCP %s outside, %s inside", protocols, outer, v6)
			}
		} else if inner != "" && outer != inner {
			t.Errorf("%s: DSCP %s outside, %s inside", protocols, outer, inner)
		}
		if strings.Contains(protocols, "icmp") && !strings.Contains(r[0], "vlan") && inner == fmt.Sprint(dscp) {
			kinds["marked ping"]++
		}
	}
	for kind, least := range map[string]int{
		"ip:icmp:data": 3, "ipv6:icmpv6:data": 3, "marked ping": pings, "arp": 1, "vlan:ethertype:arp": 1,
		"ip:udp:data": 1, "ipv6:udp:data": 1, "vlan:ethertype:ip:udp:data": 1, "vlan:ethertype:ipv6:udp:data": 1,
		"ieee8021ad:ethertype:vlan:ethertype:ip:udp:data": 1, "ieee8021ad:ethertype:vlan:ethertype:ipv6:udp:data": 1,
	} {
		if kinds[kind] < least {
			t.Errorf("%d frames read as %s, want %d: %v", kinds[kind], kind, least, kinds)
		}
	}
	c.account()
}

// unicastARP is a request as a stack sends it to confirm a neighbour: it is
// forwarded, and the owner answers.
func unicastARP(t *testing.T, from, to *lab.Pod) []byte {
	t.Helper()
	b := []byte{0, 1, 8, 0, 6, 4, 0, 1}
	frame := ether(t, from, to, 0x0806, nil)
	b = append(append(b, frame[6:12]...), from.IP4().AsSlice()...)
	b = append(append(b, make([]byte, 6)...), to.IP4().AsSlice()...)
	return append(frame, b...)
}

// One flow keeps one label and one outer source, so that no router takes it
// apart; many flows show many of both, so that routers and NICs that hash either
// spread them, and the receiver's queues share the work.
func TestFlowEntropy(t *testing.T) {
	const flows, each, queues = 64, 5, 4
	c := fourPods(t, lab.NodeOptions{Queues: queues, Workers: 2}, lab.NodeOptions{Queues: queues, Workers: 2})
	pods := c.Pods()
	from, to := pods[0], pods[2]
	k := c.dump(c.underlay(), from.Node.RouterIf, "ip6 dst net "+to.Node.Locator.String())
	before := queuesOf(c.status(to.Node).Uplinks[0].Sockets)
	var frames [][]byte
	for i := range flows {
		f := probes(t, from, to, i)[i%2]
		port := 14 + 20
		if i%2 == 1 {
			port = 14 + 40
		}
		binary.BigEndian.PutUint16(f[port:], uint16(20000+i))
		frames = append(frames, f)
	}
	// A busy machine may lose some of a burst: send until enough arrived.
	eventually(t, 20*time.Second, "the frames", func() error {
		sendRaw(t, from.Netns(), lab.PodDevice, frames...)
		if n := portOf(t, c.status(to.Node), to.Device).TX; n < flows*each {
			return fmt.Errorf("%d of %d", n, flows*each)
		}
		return nil
	})
	labels, sources, perFlow, count := map[string]bool{}, map[string]bool{}, map[string]string{}, map[string]int{}
	for _, r := range k.tshark("udp", "udp.srcport", "ipv6.flow", "ipv6.src") {
		label, _, _ := strings.Cut(r[1], ",")
		source, _, _ := strings.Cut(r[2], ",")
		if old, ok := perFlow[r[0]]; ok && old != label+source {
			t.Errorf("flow %s has two faces: %s and %s", r[0], old, label+source)
		}
		perFlow[r[0]] = label + source
		labels[label], sources[source] = true, true
		count[r[0]]++
	}
	if len(perFlow) != flows {
		t.Errorf("captured %d flows, want %d", len(perFlow), flows)
	}
	for flow, n := range count {
		if n < 2 {
			t.Errorf("captured %d frame of flow %s: too few to compare", n, flow)
		}
	}
	if len(labels) < 60 || len(sources) < 60 {
		t.Errorf("%d labels and %d sources of %d flows, want 60 of each", len(labels), len(sources), flows)
	}
	after, used := queuesOf(c.status(to.Node).Uplinks[0].Sockets), 0
	for q := range after {
		if after[q].received > before[q].received {
			used++
		}
	}
	if used < 3 {
		t.Errorf("%d of the receiver's %d queues had frames, want 3: %v", used, queues, after)
	}
	t.Logf("%d labels, %d sources, %d queues", len(labels), len(sources), used)
	c.account()
}

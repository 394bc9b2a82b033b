package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/icmperr"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
)

// overhead is what the way to a node adds to an inner IP packet, as the data path
// has it, and the sum as text: inner Ethernet, outer IPv6, and an SRH where there
// are SIDs to pass on the way.
func overhead(n desired.Node) (bytes int, text string) {
	bytes, text = srv6.BaseOverhead, "14 Ethernet + 40 IPv6"
	mac := packet.MAC{2, 0, 0, 0, 0, 1}
	l, err := srv6.LocatorFrom(n.Locator)
	if err != nil {
		return bytes, text
	}
	e, err := srv6.NewEncap(srv6.EncapConfig{SrcMAC: mac, DstMAC: mac, Source: l, Dest: l, Function: srv6.DefaultFunction, Via: n.Via})
	if err != nil {
		return bytes, text
	}
	if srh := e.Overhead() - bytes; srh > 0 {
		bytes, text = e.Overhead(), fmt.Sprintf("%s + %d SRH", text, srh)
	}
	return bytes, text
}

// widest is the largest overhead to any other node.
func widest(c *Config, w *Wanted) (bytes int, text string) {
	bytes, text = overhead(desired.Node{})
	if w == nil {
		return bytes, text
	}
	for name, n := range w.State.Nodes {
		if b, t := overhead(n); name != c.Node && b > bytes {
			bytes, text = b, t+", to node "+name
		}
	}
	return bytes, text
}

// here are the networks with endpoints on this node.
func here(c *Config, w *Wanted) map[string]desired.Network {
	out := map[string]desired.Network{}
	if w == nil {
		return out
	}
	for _, e := range w.State.Endpoints {
		if n, ok := w.State.Networks[e.Network]; ok && e.Node == c.Node {
			out[n.Name] = n
		}
	}
	return out
}

// neededHere is the longest inner IP packet that a network of this node's endpoints
// wants carried, and which says so; 0: none says anything.
func neededHere(c *Config, w *Wanted) (bytes int, why string) {
	networks := here(c, w)
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		n := networks[name]
		if n.Has6() && n.MTU == 0 && icmperr.MinMTU6 > bytes {
			bytes, why = icmperr.MinMTU6, "the least of IPv6, network "+name
		}
		if n.MTU > bytes {
			bytes, why = n.MTU, "mtu of network "+name
		}
	}
	return bytes, why
}

// longestEcho is of a packet that arrives in one chunk, and is answered.
const longestEcho = 3800

// packetSize is how long a packet the way to a node should take: what the networks
// need, else what the uplinks carry. An echo does not pass the SIDs of spec.via.
func packetSize(c *Config, f *Facts, node string, w Way) int {
	n := f.Wanted.State.Nodes[node]
	if len(n.Via) > 0 || len(w.Hops) == 0 {
		return 0
	}
	size := longestEcho
	if need, _ := neededHere(c, f.Wanted); need > 0 {
		head, _ := overhead(n)
		size = min(size, need+head)
	}
	for _, h := range w.Hops {
		size = min(size, h.MTU)
	}
	if size <= shortest {
		return 0
	}
	return size
}

func mtuChecks(c *Config, f *Facts) []Check {
	var out []Check
	head, text := widest(c, f.Wanted)
	seen := map[int][]string{}
	for _, name := range c.Uplinks {
		d := f.Devices[name]
		if !d.Exists {
			continue
		}
		seen[d.MTU] = append(seen[d.MTU], name)
		out = append(out, uplinkMTU(c, f, &d, head, text))
	}
	if len(seen) > 1 {
		var each []string
		for _, mtu := range slices.Sorted(maps.Keys(seen)) {
			each = append(each, fmt.Sprintf("%s: %d", strings.Join(seen[mtu], ", "), mtu))
		}
		most := slices.Max(slices.Collect(maps.Keys(seen)))
		out = append(out, about{"mtu", ""}.warn("equal", fmt.Sprintf("ip link set dev DEVICE mtu %d, on each uplink", most), "%s: a flow's limit depends on the uplink it takes", strings.Join(each, "; ")))
	} else if len(c.Uplinks) > 1 && len(seen) == 1 {
		out = append(out, about{"mtu", ""}.ok("equal", "all uplinks have the same"))
	}
	for _, n := range f.Agent.Status.Nodes {
		if n.PathMTU > 0 {
			out = append(out, about{"mtu", n.Node}.warn("path", "raise the MTU of the underlay's links on the way there; the agent tries larger packets again after ten minutes",
				"the underlay said Packet Too Big: %d on the way to its locator, not more", n.PathMTU))
		}
	}
	return append(out, workloadMTUs(c, f, head)...)
}

func uplinkMTU(c *Config, f *Facts, d *Device, head int, text string) Check {
	a := about{"mtu", d.Name}
	set := func(mtu int) string {
		return fmt.Sprintf("ip link set dev %s mtu %d, and the same in the underlay (%d for frames with a VLAN tag)", d.Name, mtu, mtu+4)
	}
	need, why := neededHere(c, f.Wanted)
	if need == 0 {
		return a.ok("uplink", "%d carries inner packets of %d: %d - %d (%s)", d.MTU, d.MTU-head, d.MTU, head, text)
	}
	sum := fmt.Sprintf("%d (%s) + %d (%s) = %d", need, why, head, text, need+head)
	if d.MTU < need+head {
		return a.fail("uplink", set(need+head)+fmt.Sprintf("; or mtu: %d in the network", max(d.MTU-head, 0)), "%d; needed: %s", d.MTU, sum)
	}
	return a.ok("uplink", "%d; needed: %s", d.MTU, sum)
}

// workloadMTUs: a pod that sends longer packets than the way carries is told so,
// packet by packet.
func workloadMTUs(c *Config, f *Facts, head int) []Check {
	least := 0
	for _, name := range c.Uplinks {
		if d := f.Devices[name]; d.Exists && (least == 0 || d.MTU < least) {
			least = d.MTU
		}
	}
	var out []Check
	for _, name := range slices.Sorted(maps.Keys(f.Devices)) {
		d := f.Devices[name]
		if d.uplink || !d.Exists || least == 0 {
			continue
		}
		a := about{"mtu", name}
		if d.MTU+head > least {
			out = append(out, a.warn("workload", fmt.Sprintf("ip link set dev %s mtu %d, at both ends; or the uplinks' to %d", name, least-head, d.MTU+head),
				"%d + %d = %d, the uplinks carry %d: long packets to other nodes are answered with Packet Too Big", d.MTU, head, d.MTU+head, least))
			continue
		}
		out = append(out, a.ok("workload", "%d + %d = %d, the uplinks carry %d", d.MTU, head, d.MTU+head, least))
	}
	return out
}

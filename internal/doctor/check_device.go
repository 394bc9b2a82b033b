package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"picot.dev/picot/internal/routes"
	"picot.dev/picot/internal/status"
)

func deviceChecks(c *Config, f *Facts) []Check {
	var out []Check
	if len(c.Uplinks) == 0 {
		out = append(out, about{"device", ""}.none("uplinks", "none given: give --uplink as to the agent"))
	}
	for _, name := range c.Uplinks {
		d := f.Devices[name]
		out = append(out, oneDevice(c, f, &d)...)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Devices)) {
		if d := f.Devices[name]; !d.uplink {
			out = append(out, oneDevice(c, f, &d)...)
		}
	}
	return out
}

func oneDevice(c *Config, f *Facts, d *Device) []Check {
	a := about{"device", d.Name}
	if !d.Exists && d.Err != nil {
		return []Check{a.unmade("exists", d.Err)}
	}
	if !d.Exists && d.uplink {
		return []Check{a.fail("exists", "correct --uplink (ip -br link lists what there is), or bring the device into this network namespace", "there is no such device here")}
	}
	if !d.Exists {
		return []Check{a.fail("exists", "correct spec.interface of the endpoint (or --workload), or plug the device", "there is no such device here")}
	}
	kind := d.Kind
	if d.Driver != "" && d.Driver != kind {
		kind += " of driver " + d.Driver
	}
	out := []Check{a.ok("exists", "%s", strings.TrimSpace(kind))}
	if d.uplink {
		out = append(out, uplinkKind(a, d), uplinkUp(a, d), uplinkIPv6(a, d))
	} else {
		out = append(out, workloadUp(a, f, d))
	}
	out = append(out, foreignProgram(a, d), foreignSocket(a, f, d), nativeXDP(a, c, d))
	out = append(out, queueChecks(a, c, f, d)...)
	return append(out, offloadChecks(a, c, d)...)
}

func uplinkKind(a about, d *Device) Check {
	if d.Uplink == nil {
		return a.ok("uplink", "frames on it are those on the wire")
	}
	what, mend, _ := strings.Cut(d.Uplink.Error(), routes.ErrUplink.Error()+": ")
	if !errors.Is(d.Uplink, routes.ErrUplink) {
		return a.unmade("uplink", d.Uplink)
	}
	return a.fail("uplink", mend, "%s%v", what, routes.ErrUplink)
}

func uplinkUp(a about, d *Device) Check {
	switch {
	case !d.Up:
		return a.fail("up", "ip link set dev "+d.Name+" up", "it is down")
	case !d.Carrier:
		return a.fail("up", "set its other end up: the cable, the switch's port, of a veth the peer", "it is up, but has no carrier")
	}
	return a.ok("up", "up, with carrier")
}

// uplinkIPv6: without an address of its own the node cannot ask for its next hops.
func uplinkIPv6(a about, d *Device) Check {
	if d.NoIPv6 {
		return a.fail("source address", "sysctl -w "+deviceKnob(d.Name, "disable_ipv6")+"=0", "IPv6 is disabled on it")
	}
	var bad, early []string
	for _, x := range d.Addresses {
		switch {
		case x.Failed:
			bad = append(bad, x.Prefix.String()+" is somebody else's, too (duplicate)")
		case x.Tentative:
			early = append(early, x.Prefix.String())
		default:
			return a.ok("source address", "neighbours are asked from %s", x.Prefix.Addr())
		}
	}
	if len(early) > 0 {
		return a.warn("source address", "look again in a second", "not ready yet (tentative): %s", strings.Join(early, ", "))
	}
	if len(bad) > 0 {
		return a.fail("source address", "give it an address of its own: ip -6 addr add ADDRESS/LENGTH dev "+d.Name, "%s", strings.Join(bad, "; "))
	}
	return a.fail("source address", "ip link set dev "+d.Name+" up addrgenmode eui64, or: ip -6 addr add ADDRESS/LENGTH dev "+d.Name, "it has no IPv6 address: next hops cannot be asked for")
}

func workloadUp(a about, f *Facts, d *Device) Check {
	ours := slices.ContainsFunc(d.Programs, func(p Program) bool { return p.Ours })
	switch {
	case d.Up && !ours && d.WhoseErr != nil:
		return a.unmade("up", d.WhoseErr)
	case d.Up && !ours:
		return a.warn("up", "ip link set dev "+d.Name+" down: the agent sets it up when its program is on it", "it is up, and its frames do not meet picot's program: the host hears them")
	case !d.Up && f.Agent.Runs && f.Agent.uses(d.Name):
		return a.fail("up", "picot show ports says why the agent does not set it up", "it is down, though it is a port")
	case !d.Up:
		return a.ok("up", "down until an agent has its program on it")
	}
	return a.ok("up", "up, with picot's program on it")
}

func foreignProgram(a about, d *Device) Check {
	for _, p := range d.Programs {
		if !p.Ours && d.WhoseErr != nil {
			return a.unmade("xdp program", fmt.Errorf("whose XDP program %d is: %w", p.ID, d.WhoseErr))
		}
		if !p.Ours {
			return a.fail("xdp program", takeOff(d, p)+" (an agent of another --node-name or --bpffs: picot cleanup with its settings)",
				"XDP program %d (%s) is on it, which is not pinned for this node; %s", p.ID, p.Name, p.By)
		}
	}
	if len(d.Programs) > 0 {
		return a.ok("xdp program", "picot's, %s", d.Programs[0].Name)
	}
	return a.ok("xdp program", "none")
}

// takeOff says how a stranger's program goes. The kernel lets nobody set another one
// where a link is, and takes off only what was set in the mode that is named.
func takeOff(d *Device, p Program) string {
	if p.Link != 0 {
		return fmt.Sprintf("end its owner, or remove its link's pin (bpftool -f link show id %d names it)", p.Link)
	}
	mode := "xdp"
	switch p.Mode {
	case xdpAttachedSKB:
		mode = "xdpgeneric"
	case xdpAttachedHW:
		mode = "xdpoffload"
	}
	return "remove it with its owner's tool, or: ip link set dev " + d.Name + " " + mode + " off"
}

func foreignSocket(a about, f *Facts, d *Device) Check {
	switch {
	case f.Agent.Runs && f.Agent.uses(d.Name):
		var modes []string
		for _, s := range socketsOf(&f.Agent, d.Name) {
			mode := "copy"
			if s.ZeroCopy {
				mode = "zero-copy"
			}
			modes = append(modes, fmt.Sprintf("queue %d: %s", s.Queue, mode))
		}
		if len(modes) == 0 {
			return a.fail("af_xdp sockets", "picot show status says why", "the agent has none on it")
		}
		return a.ok("af_xdp sockets", "the agent's, %s", strings.Join(modes, ", "))
	case f.Agent.Runs:
		return a.none("af_xdp sockets", "the running agent does not use this device")
	case len(d.Held) > 0 && f.Agent.elsewhere():
		return a.warn("af_xdp sockets", "give doctor the agent's --run-dir", "a socket has queue %s, the agent's or another; %s", numbers(d.Held), d.HeldBy)
	case len(d.Held) > 0:
		return a.fail("af_xdp sockets", "stop who has them", "another AF_XDP socket has queue %s; %s", numbers(d.Held), d.HeldBy)
	case d.HeldErr != nil:
		return a.unmade("af_xdp sockets", d.HeldErr)
	}
	mode := "copy mode"
	if d.ZeroCopy {
		mode = "zero-copy"
	}
	return a.ok("af_xdp sockets", "no other has its queues; the driver offers %s", mode)
}

func socketsOf(g *Agent, device string) []status.Socket {
	for _, u := range g.Status.Uplinks {
		if u.Device == device {
			return u.Sockets
		}
	}
	for _, p := range g.Status.Ports {
		if p.Device == device {
			return p.Sockets
		}
	}
	return nil
}

func numbers(list []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(list)), ", "), "[]")
}

func nativeXDP(a about, c *Config, d *Device) Check {
	if !d.XDPKnown {
		return a.none("xdp mode", "the kernel does not tell (Linux >= 6.3 does): the agent finds out when it attaches")
	}
	if d.Generic {
		return a.warn("xdp mode", "use a device whose driver has native XDP, and start the agent without --allow-generic-xdp", "the program on it runs in generic mode: slower, and blind to offloaded VLAN tags")
	}
	if d.Native {
		return a.ok("xdp mode", "native")
	}
	mend := "use a device whose driver has native XDP, or start the agent with --allow-generic-xdp"
	why := "the driver has no native XDP"
	if d.Kind == "veth" {
		mend = fmt.Sprintf("make the pair anew with as many receive queues here as the other end has transmit queues (ip link add %s numrxqueues N type veth peer numtxqueues N), or start the agent with --allow-generic-xdp", d.Name)
		why = fmt.Sprintf("no native XDP: the other end has more transmit queues than the %d receive queues here", max(d.Queues, 1))
	}
	if c.AllowGeneric {
		return a.warn("xdp mode", mend, "%s: the agent uses generic mode, which is slower", why)
	}
	return a.fail("xdp mode", mend, "%s", why)
}

// maxUplinkQueues is how many queues of an uplink an agent uses.
const maxUplinkQueues = 64

func queueChecks(a about, c *Config, f *Facts, d *Device) []Check {
	n := d.Queues
	if n == 0 {
		n = d.RXQueues
	}
	if !d.uplink {
		return []Check{workloadQueues(a, f, d, n)}
	}
	for _, u := range f.Agent.Status.Uplinks {
		if u.Device == d.Name && u.Queues > 0 && u.Queues < n {
			return []Check{a.fail("queues", fmt.Sprintf("start the agent anew, or: ethtool -L %s combined %d (of a veth: rx %d)", d.Name, u.Queues, u.Queues),
				"%d receive queues, the agent has sockets on %d: what arrives on the others for the locator is dropped", n, u.Queues)}
		}
	}
	switch {
	case n > maxUplinkQueues:
		return []Check{a.fail("queues", fmt.Sprintf("ethtool -L %s combined %d", d.Name, maxUplinkQueues), "%d receive queues, an agent uses %d: what arrives on the others is dropped", n, maxUplinkQueues)}
	case n < c.Workers:
		return []Check{a.warn("queues", fmt.Sprintf("ethtool -L %s combined %d, or --workers %d", d.Name, c.Workers, n), "%d queues for %d workers: the others hand their frames over", n, c.Workers)}
	}
	return []Check{a.ok("queues", "%d for %d workers", n, c.Workers)}
}

func workloadQueues(a about, f *Facts, d *Device, n int) Check {
	if !f.Agent.uses(d.Name) {
		return a.none("queues", "%d: the agent makes a socket for each", n)
	}
	if has := len(socketsOf(&f.Agent, d.Name)); has < n {
		return a.fail("queues", "picot show status says why; ethtool -L "+d.Name+" rx "+fmt.Sprint(max(has, 1))+" takes the others out of use", "%d receive queues, the agent has sockets on %d: what arrives on the others is dropped", n, has)
	}
	return a.ok("queues", "%d, with a socket each", n)
}

func offloadChecks(a about, c *Config, d *Device) []Check {
	if d.Features == nil {
		return []Check{a.unmade("offloads", d.Err)}
	}
	var out []Check
	on := func(names ...string) (is []string) {
		for _, n := range names {
			if d.Features[n] {
				is = append(is, n)
			}
		}
		return is
	}
	generic := d.Generic || c.AllowGeneric && d.XDPKnown && !d.Native
	if merged := on("rx-lro", "rx-gro-hw"); len(merged) > 0 {
		out = append(out, a.warn("receive merging", "ethtool -K "+d.Name+" lro off rx-gro-hw off", "%s is on: the driver refuses native XDP, or merged frames reach the sockets", strings.Join(merged, ", ")))
	} else if generic && d.Features["rx-gro"] {
		out = append(out, a.warn("receive merging", "ethtool -K "+d.Name+" gro off", "in generic mode GRO merges frames before the program sees them"))
	} else {
		out = append(out, a.ok("receive merging", "none before the program (LRO, hardware GRO off)"))
	}
	switch stripped := d.Features["rx-vlan-hw-parse"] || d.Kind == "veth"; {
	case !d.XDPKnown:
		out = append(out, a.none("vlan tags", "the kernel does not tell what the driver can (Linux >= 6.8 does)"))
	case !generic && !d.Native:
		out = append(out, a.none("vlan tags", "no program runs on it like that"))
	case d.Tags && !generic:
		out = append(out, a.ok("vlan tags", "the driver tells the program of offloaded tags"))
	case !stripped:
		out = append(out, a.ok("vlan tags", "they are left in the frame"))
	case d.Kind == "veth":
		out = append(out, a.warn("vlan tags", "ethtool -K DEVICE tx-vlan-offload off, at the other end", "in generic mode the program does not see an offloaded tag: tagged frames enter the untagged network"))
	default:
		out = append(out, a.warn("vlan tags", "ethtool -K "+d.Name+" rx-vlan-offload off", "the device takes tags out of the frame, and its driver does not tell the program: a tagged frame counts as untagged"))
	}
	return append(out, redirectTarget(a, d))
}

// redirectTarget: docs/decisions/0023. Only an uplink that an XDP program of
// somebody else feeds needs it.
func redirectTarget(a about, d *Device) Check {
	switch {
	case d.Kind != "veth":
		return a.none("redirect target", "no veth")
	case !d.XDPKnown:
		return a.none("redirect target", "the kernel does not tell (Linux >= 6.3 does)")
	case d.Target:
		return a.ok("redirect target", "its other end receives in NAPI (an XDP program or GRO)")
	case !d.uplink:
		return a.none("redirect target", "its other end has GRO off and no XDP program: picot's own frames need neither; with GRO the pod's stack merges what it gets")
	}
	return a.warn("redirect target", "ethtool -K PEER gro on, at the other end, while it is up",
		"its other end has GRO off and no XDP program: what an XDP program redirects to %s vanishes without a trace", d.Name)
}

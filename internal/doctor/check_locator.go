package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/routes"
	"picot.dev/picot/k8s/api/v1alpha1"
)

func locatorChecks(c *Config, f *Facts) []Check {
	out := wantedChecks(c, f)
	if f.Routing.Err != nil {
		return append(out, about{"locator", ""}.unmade("routes", f.Routing.Err))
	}
	out = append(out, tableChecks(c, f)...)
	out = append(out, guardCheck(c, f))
	for _, name := range slices.Sorted(maps.Keys(f.Routing.Ways)) {
		out = append(out, wayChecks(c, f, name, f.Routing.Ways[name])...)
	}
	return out
}

// wantedChecks are about the objects.
func wantedChecks(c *Config, f *Facts) []Check {
	a := about{"locator", c.Node}
	w := f.Wanted
	switch {
	case w == nil:
		return []Check{a.none("own", "give --manifests or --kubeconfig as to the agent to have locators, networks and ways looked at")}
	case w.Err != nil:
		return []Check{a.fail("own", "give a --kubeconfig whose server answers and that may list picot's objects (deploy has the rights)", "%v", w.Err)}
	}
	var out []Check
	self, known := w.State.Nodes[c.Node]
	node := func(t Trouble) bool { return t.Object.Kind == v1alpha1.KindSRv6Node }
	mine := slices.IndexFunc(w.Problems, func(t Trouble) bool {
		return node(t) && (t.Object.Name == c.Node || t.Holder.Name == c.Node)
	})
	switch {
	case mine >= 0:
		t := w.Problems[mine]
		out = append(out, a.fail("own", or(t.Mend, "give each node a locator of its own"), "%s", t.Text))
	case !known:
		out = append(out, a.fail("own", "add an SRv6Node "+c.Node+" with this node's locator, or give another --node-name", "there is no SRv6Node %s", c.Node))
	case f.Agent.Runs && f.Agent.Status.Locator != "" && f.Agent.Status.Locator != self.Locator.String():
		out = append(out, a.fail("own", "give doctor the agent's --manifests or --kubeconfig; if it has them, picot show status says what the agent waits for",
			"%s, and the agent uses %s", self.Locator, f.Agent.Status.Locator))
	default:
		out = append(out, a.ok("own", "%s, no other node's", self.Locator))
		out = append(out, hostInLocator(a, f, self.Locator))
	}
	for i, t := range w.Problems {
		if i != mine {
			out = append(out, about{"locator", t.Object.String()}.warn("object", or(t.Mend, "correct the object"), "not taken as it is: %s", t.Text))
		}
	}
	return out
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// hostInLocator: the locator is picot's alone; what is for an address in it never
// reaches the host.
func hostInLocator(a about, f *Facts, locator netip.Prefix) Check {
	for _, x := range f.Routing.Local {
		if locator.Contains(x.Prefix.Addr()) {
			return a.fail("host address", fmt.Sprintf("ip -6 addr del %s dev %s, and give the host one outside the locator", x.Prefix, x.Device),
				"the host has %s on %s, which is in its locator: what is sent to it goes to picot", x.Prefix, x.Device)
		}
	}
	return a.ok("host address", "the host has none in the locator")
}

// protocols are of linux/rtnetlink.h and /etc/iproute2/rt_protos.
var protocols = map[uint8]string{
	unix.RTPROT_KERNEL: "the kernel", unix.RTPROT_BOOT: "a static route (boot)", unix.RTPROT_STATIC: "a static route",
	unix.RTPROT_RA: "a router advertisement", unix.RTPROT_ZEBRA: "zebra", unix.RTPROT_BIRD: "bird", unix.RTPROT_BGP: "bgp",
	unix.RTPROT_ISIS: "isis", unix.RTPROT_OSPF: "ospf", unix.RTPROT_DHCP: "dhcp", 18: "keepalived",
}

func protocol(o routes.Owner, p uint8) string {
	if p == o.Protocol {
		return "picot"
	}
	if name, ok := protocols[p]; ok {
		return name
	}
	return fmt.Sprintf("protocol %d", p)
}

// tableChecks look for somebody else in the tables, priorities and the protocol
// that are ours.
func tableChecks(c *Config, f *Facts) []Check {
	a, o := about{"locator", ""}, c.Owner
	var out []Check
	taken := ""
	for _, r := range f.Routing.Routes {
		if r.Table != unix.RT_TABLE_MAIN && r.Protocol != o.Protocol {
			taken = fmt.Sprintf("table %d has a route to %s of %s", r.Table, r.Prefix, protocol(o, r.Protocol))
		}
	}
	if taken != "" {
		out = append(out, a.fail("tables", "remove it, or give picot other tables with --route-table and --guard-table", "%s", taken))
	} else {
		out = append(out, a.ok("tables", "%d and %d are nobody else's", o.Table, o.GuardTable))
	}
	foreign := ""
	for _, r := range f.Routing.Routes {
		if r.Table == unix.RT_TABLE_MAIN && r.Protocol == o.Protocol {
			foreign = fmt.Sprintf("the main table has a route to %s of protocol %d, where picot makes none", r.Prefix, o.Protocol)
		}
	}
	if foreign != "" {
		out = append(out, a.fail("protocol", "give picot another --route-protocol, or the other daemon", "%s: another daemon has that number", foreign))
	} else {
		out = append(out, a.ok("protocol", "%d is nobody else's", o.Protocol))
	}
	before := ""
	for _, r := range f.Routing.Rules {
		if r.Protocol != o.Protocol && r.Priority > 0 && r.Priority <= o.Priority+2 {
			before = fmt.Sprintf("rule %d (table %d)", r.Priority, r.Table)
		}
	}
	if before != "" {
		out = append(out, a.warn("rules", "move it behind picot's, or picot's before it with --rule-priority", "%s is asked before the guard, or beside it", before))
	} else {
		out = append(out, a.ok("rules", "no other is asked before %d to %d", o.Priority, o.Priority+2))
	}
	return out
}

// guardCheck: with an agent, no locator is to be reached by the host.
func guardCheck(c *Config, f *Facts) Check {
	a, o := about{"locator", ""}, c.Owner
	if f.Agent.Denied {
		return a.unmade("guard", f.Agent.Err)
	}
	if !f.Agent.Runs {
		return a.none("guard", "no agent answers: it makes the rules")
	}
	mend := "the agent makes it anew within its --refresh; if it goes again, find who removes it: ip monitor rule route"
	var missing []string
	for offset, table := range map[int]int{0: o.GuardTable, 1: o.Table, 2: unix.RT_TABLE_MAIN} {
		has := slices.ContainsFunc(f.Routing.Rules, func(r routes.Rule) bool {
			return r.Priority == o.Priority+offset && r.Protocol == o.Protocol && r.Table == table && r.Mark == o.Mark && r.Not == (offset == 0)
		})
		if !has {
			missing = append(missing, fmt.Sprintf("rule %d to table %d", o.Priority+offset, table))
		}
	}
	if self, err := netip.ParsePrefix(f.Agent.Status.Locator); err == nil {
		has := slices.ContainsFunc(f.Routing.Routes, func(r routes.Route) bool { return r.Table == o.Table && r.Unreachable && r.Prefix == self })
		if !has {
			missing = append(missing, fmt.Sprintf("unreachable %s in table %d", self, o.Table))
		}
	}
	for _, locator := range locators(f) {
		has := slices.ContainsFunc(f.Routing.Routes, func(r routes.Route) bool {
			return r.Table == o.GuardTable && r.Unreachable && r.Prefix == locator
		})
		if !has {
			missing = append(missing, fmt.Sprintf("unreachable %s in table %d", locator, o.GuardTable))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return a.fail("guard", mend, "missing: %s", strings.Join(missing, ", "))
	}
	return a.ok("guard", "rules and unreachable locators are there: the host reaches none")
}

// locators are those that are known: of the objects, else what the agent says.
func locators(f *Facts) (out []netip.Prefix) {
	if f.Wanted != nil && f.Wanted.Err == nil {
		for _, n := range f.Wanted.State.Nodes {
			out = append(out, n.Locator)
		}
		return out
	}
	texts := []string{f.Agent.Status.Locator}
	for _, n := range f.Agent.Status.Nodes {
		texts = append(texts, n.Locator)
	}
	for _, t := range texts {
		if p, err := netip.ParsePrefix(t); err == nil {
			out = append(out, p)
		}
	}
	return out
}

func wayChecks(c *Config, f *Facts, node string, w Way) []Check {
	a := about{"locator", node}
	n := f.Wanted.State.Nodes[node]
	static := fmt.Sprintf("ip -6 route add %s via ROUTER dev UPLINK (or a routing daemon's), or spec.nextHop in the SRv6Node", n.Locator)
	if w.Err != nil {
		return []Check{a.fail("route", static, "to %s: %v", n.Locator, w.Err)}
	}
	var out, resolved []Check
	var through, astray []string
	for _, h := range w.Hops {
		if !slices.Contains(c.Uplinks, h.Device) {
			astray = append(astray, fmt.Sprintf("%s dev %s", h.Gateway, h.Device))
			continue
		}
		through = append(through, fmt.Sprintf("%s dev %s", h.Gateway, h.Device))
		resolved = append(resolved, neighbourCheck(a, f, h))
	}
	switch {
	case len(through) == 0 && len(w.Hops) > 0:
		h := w.Hops[0]
		return append(out, a.fail("route", static+"; or name "+h.Device+" in --uplink", "to %s via %s dev %s, which is no uplink; made by %s", n.Locator, h.Gateway, h.Device, protocol(c.Owner, w.Owner)))
	case len(w.Hops) == 0:
		return append(out, a.fail("route", static, "to %s: no next hop", n.Locator))
	}
	by := protocol(c.Owner, w.Owner)
	if n.NextHop.IsValid() && !f.Agent.Runs {
		by += "; the agent makes the route to the locator"
	}
	if len(astray) > 0 {
		out = append(out, a.warn("ecmp", "name its device in --uplink, or take it out of the route", "a next hop is over no uplink and is not used: %s", strings.Join(astray, ", ")))
	}
	out = append(out, a.ok("route", "to %s via %s; made by %s", n.Locator, strings.Join(through, ", "), by))
	out = append(out, resolved...)
	out = append(out, pingCheck(a, f, w))
	if w.Pinged && w.PingErr == nil && w.Size > 0 {
		out = append(out, sizeCheck(a, w))
	}
	return out
}

func sizeCheck(a about, w Way) Check {
	if w.SizeErr == nil {
		return a.ok("packet size", "packets of %d bytes arrive", w.Size)
	}
	return a.fail("packet size", fmt.Sprintf("raise the MTU of the underlay's links on the way there to %d, in both directions; or lower the networks' mtu", w.Size),
		"short packets are answered, those of %d bytes are not: %v", w.Size, w.SizeErr)
}

func neighbourCheck(a about, f *Facts, h Hop) Check {
	if h.Usable {
		return a.ok("next hop", "%s is %s on %s", h.Gateway, h.MAC, h.Device)
	}
	mend := fmt.Sprintf("ping -c 1 -I %s %s; if that fails, look at the router, at filters for ICMPv6, and at the route", h.Device, h.Gateway)
	if f.Agent.Runs {
		return a.fail("next hop", mend, "%s on %s does not answer: no frame leaves that way", h.Gateway, h.Device)
	}
	return a.warn("next hop", mend, "%s on %s is not resolved: nobody asked for it yet, or it does not answer", h.Gateway, h.Device)
}

func pingCheck(a about, f *Facts, w Way) Check {
	switch {
	case !w.Pinged:
		return a.none("echo", "not asked: an agent must run here and there; --ping asks all the same")
	case w.PingErr == nil:
		return a.ok("echo", "SID %s answers (RFC 9259)", w.Target)
	case isPermission(w.PingErr) && f.Host.Capabilities != nil: // else a filter or a route forbids it
		return a.unmade("echo", w.PingErr)
	}
	return a.fail("echo", "see whether an agent runs there (picot doctor on that node), whether its router has a route to its locator, and whether filters drop IPv6 to it",
		"SID %s does not answer: %v", w.Target, w.PingErr)
}

package flows

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Priorities of the section.
const (
	PrioritySteer = 52 // to the source router
	prioConntrack = 50
	prioNodeIP    = 12
	prioAnnounce  = 11
	prioFanout    = 10
	prioEgress    = 10
	prioSpoof     = 9
)

// Priorities of table 1.
const (
	prioKnown  = 100
	prioND     = 14
	prioBFD    = 13
	prioToHost = 10
)

const (
	ctZone    = 64000
	broadcast = "ff:ff:ff:ff:ff:ff"
	allNodes  = "33:33:00:00:00:01"
	groupMask = "01:00:00:00:00:00/01:00:00:00:00:00"
	bfdPort   = 3784 // RFC 5881 section 4
)

// ICMPv6 types of neighbour discovery (RFC 4861 section 4).
const (
	typeRA = 134
	typeNS = 135
	typeNA = 136
)

// Render returns the flows the bridge should carry, sorted. It returns nothing for a DPU host,
// and never a flow that names a port without a number. The input must be valid ([Input.Validate]).
func Render(in Input) Set {
	if in.Role == DPUHost {
		return nil
	}
	r := newRenderer(in)
	switch {
	case in.Mode == Overlay && !in.Gate:
	case in.Mode == Overlay:
		r.steer()
		r.steerGroups()
	default:
		r.common()
		if in.Gate {
			r.steer()
		} else {
			r.fanout()
		}
	}
	r.out.Sort()
	return r.out
}

// NoFlood returns what the NO_FLOOD bit of the bridge's patch ports should be, by port number.
// Followers have it and the source never does, so that NORMAL reaches the source alone; localnet
// patch ports are not spoken of. With the gate off it is today's state: set on the user-defined
// networks of a bridge that carries the default one, clear on an uplink bridge. Nil means the
// bits are another's: in overlay mode those of the default network's bridge are.
func NoFlood(in Input) map[uint32]bool {
	if in.Role == DPUHost {
		return nil
	}
	hasDefault := slices.ContainsFunc(in.Patches, func(p Patch) bool { return p.Default })
	if in.Mode == Overlay && hasDefault {
		return nil
	}
	bits := map[uint32]bool{}
	for _, p := range in.Patches {
		switch {
		case !p.Known():
		case in.Gate:
			bits[p.OFPort] = !p.Source
		default:
			bits[p.OFPort] = hasDefault && !p.Default
		}
	}
	return bits
}

// HostEntry is where the bridge MAC lives: what a static entry of the switch's MAC table holds.
type HostEntry struct {
	Port
	VLAN uint16
	MAC  net.HardwareAddr
}

// Host returns the static MAC entry the bridge should have, so that NORMAL reaches the host and
// nobody else takes the shared MAC over: the bridge's own port, or a DPU's representor. In
// overlay mode the other owner keeps it, and nil is returned.
func Host(in Input) *HostEntry {
	if in.Mode == Overlay || in.Role == DPUHost {
		return nil
	}
	h := HostEntry{Port: Port{Name: in.Bridge, OFPort: PortLocal}, VLAN: in.VLAN, MAC: in.MAC}
	switch {
	case in.Host.Known():
		h.Port = in.Host
	case in.Role == DPU: // LOCAL would be wrong, and the representor is not there yet
		return nil
	}
	return &h
}

// ingress returns the ports external frames come in by that have a number: the uplink, then
// the localnets, in port order.
func (in *Input) ingress() []Port {
	var out []Port
	seen := map[uint32]bool{}
	for _, p := range append([]Port{in.Uplink}, in.Ingress...) {
		if p.Known() && p.OFPort != PortLocal && !seen[p.OFPort] {
			seen[p.OFPort] = true
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Port) int { return cmp.Compare(a.OFPort, b.OFPort) })
	return out
}

// renderer holds what every flow of a bridge needs.
type renderer struct {
	in      Input
	v6      bool
	mac     string
	vlan    []string // the VLAN match, if any
	host    string   // the action that reaches the host, "" if nothing does yet
	patches []Patch  // those with a number, in port order
	source  *Patch
	def     *Patch
	out     Set
}

func newRenderer(in Input) *renderer {
	r := &renderer{in: in, v6: in.IPv6 && in.Role != DPU, mac: strings.ToLower(in.MAC.String()), host: "LOCAL"}
	if in.VLAN != 0 {
		r.vlan = []string{fmt.Sprintf("dl_vlan=%d", in.VLAN)}
	}
	switch {
	case in.Host.Known():
		r.host = output(in.Host.OFPort)
	case in.Role == DPU: // LOCAL would be wrong, and the representor is not there yet
		r.host = ""
	}
	for _, p := range in.Patches {
		if p.Known() {
			r.patches = append(r.patches, p)
		}
	}
	slices.SortFunc(r.patches, func(a, b Patch) int { return cmp.Compare(a.OFPort, b.OFPort) })
	for i := range r.patches {
		if r.patches[i].Source {
			r.source = &r.patches[i]
		}
		if r.patches[i].Default {
			r.def = &r.patches[i]
		}
	}
	return r
}

// add appends a flow. Actions are given in the order they are taken.
func (r *renderer) add(table uint8, priority uint16, actions []string, match ...string) {
	r.out = append(r.out, Flow{
		Table: table, Priority: priority, Cookie: Cookie,
		Match: Match(match...), Actions: Actions(strings.Join(actions, ",")),
	})
}

// tagged adds the VLAN match, if the gateway has one.
func (r *renderer) tagged(match ...string) []string { return append(match, r.vlan...) }

// outputs returns the actions that send to every patch port keep accepts, then the last one.
func (r *renderer) outputs(keep func(Patch) bool, last string) []string {
	var a []string
	for _, p := range r.patches {
		if keep(p) {
			a = append(a, output(p.OFPort))
		}
	}
	return append(a, last)
}

func every(Patch) bool            { return true }
func userDefined(p Patch) bool    { return !p.Default }
func inPort(p Port) string        { return "in_port=" + portName(p.OFPort) }
func icmp6(typ int) []string      { return []string{"icmp6", fmt.Sprintf("icmp_type=%d", typ)} }
func (r *renderer) toMAC() string { return "dl_dst=" + r.mac }

// resolution returns the matches of ARP and of the NDP messages a neighbour may send.
func (r *renderer) resolution() [][]string {
	var m [][]string
	if r.in.IPv4 {
		m = append(m, []string{"arp"})
	}
	if r.v6 {
		m = append(m, icmp6(typeRA), icmp6(typeNS), icmp6(typeNA))
	}
	return m
}

// steer renders the four flows of each ingress port: what answers a gateway router goes to
// the source router and, by NORMAL, to the host; the tag is left on, because NORMAL switches
// in the VLAN the frame carries.
func (r *renderer) steer() {
	if r.source == nil {
		return
	}
	for _, p := range r.in.ingress() {
		for _, m := range r.resolution() {
			r.add(0, PrioritySteer, []string{output(r.source.OFPort), "NORMAL"}, r.tagged(append(m, inPort(p), r.toMAC())...)...)
		}
	}
}

// steerGroups renders, for a bridge whose fan-out flows are another's, the flows that keep
// group-addressed ARP and NDP from reaching them.
func (r *renderer) steerGroups() {
	if r.source == nil {
		return
	}
	for _, p := range r.in.ingress() {
		for _, m := range r.resolution() {
			r.add(0, PrioritySteer, []string{"NORMAL"}, r.tagged(append(m, inPort(p), "dl_dst="+groupMask)...)...)
		}
	}
}

// fanout renders today's flows: everything that may concern a gateway router goes to all.
func (r *renderer) fanout() {
	if r.def != nil && r.in.Segmentation {
		toDefault := []string{output(r.def.OFPort), "NORMAL"}
		for _, ip := range r.in.NodeIPs {
			r.nodeIP(ip.Unmap(), toDefault)
		}
		if r.in.Uplink.Known() && slices.ContainsFunc(r.patches, userDefined) {
			r.announcements()
		}
	}
	if r.in.Uplink.Known() {
		r.add(0, prioFanout, r.outputs(every, "NORMAL"), r.tagged(r.toMAC())...)
		if r.v6 {
			for _, t := range []int{typeRA, typeNA} {
				r.add(1, prioND, r.outputs(userDefined, "FLOOD"), icmp6(t)...)
			}
		}
	}
}

// nodeIP renders the flow for requests for one of the node's own addresses.
func (r *renderer) nodeIP(ip netip.Addr, actions []string) {
	switch {
	case ip.Is4() && r.in.IPv4:
		r.add(0, prioNodeIP, actions, r.tagged("arp", "arp_op=1", "arp_tpa="+ip.String())...)
	case ip.Is6() && r.v6:
		r.add(0, prioNodeIP, actions, r.tagged(append(icmp6(typeNS), "nd_target="+ip.String())...)...)
	}
}

// announcements renders the flows for what a neighbour tells everyone.
func (r *renderer) announcements() {
	all := r.outputs(every, "NORMAL")
	if r.in.IPv4 {
		r.add(0, prioAnnounce, all, r.tagged("arp", inPort(r.in.Uplink), "dl_dst="+broadcast)...)
	}
	if r.v6 {
		r.add(0, prioAnnounce, all, r.tagged(append(icmp6(typeNA), inPort(r.in.Uplink), "dl_dst="+allNodes)...)...)
	}
}

// common renders what stays whatever the gate says.
func (r *renderer) common() {
	r.add(0, 0, []string{"NORMAL"})
	for _, p := range r.patches {
		r.add(0, prioEgress, []string{"NORMAL"}, inPort(p.Port), "dl_src="+r.mac)
		r.add(0, prioSpoof, []string{"drop"}, inPort(p.Port))
	}
	if !r.in.Uplink.Known() {
		return
	}
	for _, family := range r.families() {
		r.add(0, prioConntrack, []string{fmt.Sprintf("ct(zone=%d,nat,table=1)", ctZone)}, family.ip, r.toMAC())
		for _, p := range r.patches {
			r.known(family.ip, p)
		}
		if r.def != nil && r.host != "" {
			r.add(1, prioBFD, []string{output(r.def.OFPort), r.host},
				inPort(r.in.Uplink), family.udp, fmt.Sprintf("tp_dst=%d", bfdPort))
		}
	}
	if r.host != "" {
		toHost := []string{r.host}
		if r.in.VLAN != 0 {
			toHost = []string{"strip_vlan", r.host}
		}
		r.add(1, prioToHost, toHost, r.tagged(r.toMAC())...)
	}
	r.add(1, 0, []string{"NORMAL"})
}

// known renders the dispatch of a router's own connections.
func (r *renderer) known(ip string, p Patch) {
	if p.CTMark == 0 {
		return
	}
	for _, state := range []string{"+est+trk", "+rel+trk"} {
		r.add(1, prioKnown, []string{output(p.OFPort)}, ip, "ct_state="+state, fmt.Sprintf("ct_mark=%#x", p.CTMark))
	}
}

type family struct{ ip, udp string }

func (r *renderer) families() []family {
	var f []family
	if r.in.IPv4 {
		f = append(f, family{"ip", "udp"})
	}
	if r.v6 {
		f = append(f, family{"ipv6", "udp6"})
	}
	return f
}

package trace

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// Node is what an agent has at one moment. The snapshot is only read.
type Node struct {
	Name     string
	Snapshot *table.Snapshot
	Limits   fastpath.Limits
	Ports    []Port
	Uplinks  []string // devices, by number
	// How the other nodes encapsulate for this one: the SIDs a packet passes on its way
	// here (SRv6Node.spec.via), and whether the source has no entropy, as here.
	Via         []netip.Addr
	FixedSource bool
}

// Port is a device that is a port, or ought to be.
type Port struct {
	Device, Endpoint string
	ID               table.PortID // 0: not attached
	Error            string       // why not
}

// Run says what would become of the frame r is about on node n.
func Run(n Node, r Request) (*Result, error) {
	w, err := r.parse()
	if err != nil {
		return nil, err
	}
	x := &run{node: n, snap: n.Snapshot, result: &Result{Node: n.Name, Snapshot: n.Snapshot.Version, Steps: []Step{}}}
	if i := slices.Index(n.Uplinks, w.in); i >= 0 {
		err = x.uplink(&w)
	} else {
		err = x.port(&w)
	}
	if err != nil {
		return nil, err
	}
	return x.result, nil
}

// run is one trace at work.
type run struct {
	node   Node
	snap   *table.Snapshot
	result *Result
	frame  []byte // as it comes in
	trace  fastpath.Trace
	from   table.Segment // the sender's
}

func (x *run) step(name, format string, a ...any) {
	x.result.Steps = append(x.result.Steps, Step{name, fmt.Sprintf(format, a...)})
}

func (x *run) note(format string, a ...any) {
	x.result.Notes = append(x.result.Notes, fmt.Sprintf(format, a...))
}

func frameOfBytes(b []byte) Frame {
	return Frame{Length: len(b), Text: Describe(b), Hex: hex.EncodeToString(b)}
}

// find is the port that in names.
func (x *run) find(in string) (Port, error) {
	var names []string
	var waiting error
	for _, p := range x.node.Ports {
		if in != p.Device && in != p.Endpoint {
			names = append(names, p.Device)
			continue
		}
		if i := p.ID.Index(); p.ID != 0 && i < len(x.snap.Ports) && x.snap.Ports[i].ID == p.ID {
			return p, nil
		}
		why := p.Error
		if why == "" {
			why = "see picot show ports"
		}
		waiting = fmt.Errorf("%w: --in %s: it is no port yet, so nothing it sends reaches picot: %s", ErrRequest, in, why)
	}
	if waiting != nil {
		return Port{}, waiting
	}
	slices.Sort(names)
	const most = 10
	if len(names) > most {
		names = append(names[:most], "...")
	}
	return Port{}, fmt.Errorf("%w: --in %q: node %s has no such device or endpoint: its ports are [%s], its uplinks [%s]",
		ErrRequest, in, x.node.Name, strings.Join(names, " "), strings.Join(x.node.Uplinks, " "))
}

// port traces a frame from a workload port.
func (x *run) port(w *wish) error {
	if w.fromNode != "" {
		return fmt.Errorf("%w: --from-node with --in %s: another node's packets come in by an uplink: [%s]", ErrRequest, w.in, strings.Join(x.node.Uplinks, " "))
	}
	found, err := x.find(w.in)
	if err != nil {
		return err
	}
	p := &x.snap.Ports[found.ID.Index()]
	x.from = p.Segment
	in := In{
		Device: p.Name, Endpoint: found.Endpoint, NetworkID: uint32(p.Network), MAC: p.MAC.String(), Segment: uint32(p.Segment),
		Security: [...]string{"off", "mac", "mac+ip"}[p.Security],
	}
	for _, a := range p.Addresses {
		in.Addresses = append(in.Addresses, a.String())
	}
	if int(p.Net) < len(x.snap.Networks) && x.snap.Networks[p.Net].Known {
		in.Network = x.snap.Networks[p.Net].Name
	}
	x.result.In = in
	frame := w.frame
	if frame == nil {
		st := station{mac: p.MAC, known: true, name: "the endpoint " + found.Endpoint, addresses: p.Addresses, net: p.Net}
		if frame, err = frameOf(w, &st, x.snap); err != nil {
			return err
		}
	}
	x.frame, x.result.Frame = frame, frameOfBytes(frame)
	if x.trace, err = fastpath.TracePort(x.snap, p, x.node.Limits, frame); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	x.step("port", "%s of %s, network %s, segment %d, port security %s", p.Name, found.Endpoint, in.Network, p.Segment, in.Security)
	x.lookups(p.Net)
	for _, c := range x.trace.Claims {
		claim := Claim{MAC: c.MAC.String(), Evidence: c.Class.String()}
		if c.IP != (packet.IP{}) {
			claim.IP = c.IP.String()
		}
		x.result.Claims = append(x.result.Claims, claim)
	}
	if most := packet.EthernetLen + packet.VLANLen + p.MTU; p.MTU != 0 && len(frame) > most {
		x.note("%s has MTU %d: its device would not let so long a frame in", p.Name, p.MTU)
	}
	if p.Down {
		x.note("%s is down: no frame comes from it now", p.Name)
	}
	if x.trace.Verdict == fastpath.Answered || x.trace.Out != nil && x.trace.Verdict == fastpath.Dropped {
		x.note("as for the first of its kind: how much of the port's rate of answers and ICMP errors is used up is not looked at")
	}
	x.conclude()
	if x.trace.Out != nil && (x.trace.Verdict == fastpath.Answered || x.trace.Verdict == fastpath.Dropped) {
		x.result.Out = &Out{Device: p.Name, Endpoint: found.Endpoint, Frame: frameOfBytes(x.trace.Out)}
	}
	return nil
}

// conclude puts words to the verdict, and says what leaves to a port or node.
func (x *run) conclude() {
	t, r := &x.trace, x.result
	r.Verdict = t.Verdict.String()
	switch t.Verdict {
	case fastpath.Dropped:
		s := sentenceOf(t.Reason)
		r.Reason, r.Meaning, r.Look = t.Reason.String(), s.means, s.look
		if t.Out != nil {
			r.Meaning += "; its sender is told"
		}
	case fastpath.Answered:
		r.Meaning = "picot answers itself, out of the port it came from"
	case fastpath.Local:
		p := &x.snap.Ports[t.Port]
		r.Meaning = "it goes to a port of this node"
		r.Out = &Out{Device: p.Name, Endpoint: x.endpoint(t.Port), Frame: frameOfBytes(t.Out), MTU: p.MTU}
		x.note("not looked at: whether the target's rings have room then")
	case fastpath.Remote:
		r.Meaning = "it goes to another node"
		r.Out = x.remote()
		x.note("not looked at: whether the uplink's rings have room then, and the underlay beyond it")
	}
	x.step("verdict", "%s", strings.TrimSpace(r.Verdict+" "+r.Reason))
}

// remote reads what leaves to another node: as it stands on the wire.
func (x *run) remote() *Out {
	b := x.trace.Out
	h := packet.IPv6(b[packet.EthernetLen:])
	o := &Outer{
		NextHop: packet.MAC(b[0:6]).String(), Source: h.Source().String(), SID: h.Destination().String(),
		FlowLabel: binary.BigEndian.Uint32(h) & 0xfffff, Length: len(h),
	}
	final := h.Destination()
	if srh := packet.SRH(b[packet.EthernetLen+packet.IPv6Len:]); h.NextHeader() == packet.ProtoRouting && srh.Valid() {
		for i := srh.LastEntry(); i >= 0; i-- {
			o.Segments = append(o.Segments, srh.Segment(i).String())
		}
		final = srh.Segment(0)
		o.SID = final.String()
	}
	out := &Out{Device: x.uplinkName(x.trace.Uplink), Frame: frameOfBytes(b), Outer: o}
	if i, ok := x.snap.NodeBySource(final.Hi); ok {
		v := &x.snap.Nodes[i]
		out.Node = v.Name
		for _, hop := range v.NextHops {
			if _, mac := hop.Encap.MACs(); int(hop.Uplink) == x.trace.Uplink && mac == packet.MAC(b[0:6]) {
				out.MTU = hop.MTU
			}
		}
		if v.PathMTU != 0 {
			out.MTU = min(out.MTU, v.PathMTU)
		}
	}
	return out
}

// known is the node of that name.
func (x *run) known(name string) (*table.NodeView, error) {
	var names []string
	for i := range x.snap.Nodes {
		v := &x.snap.Nodes[i]
		if !v.Known || v.Name == x.node.Name {
			continue
		}
		if v.Name == name {
			return v, nil
		}
		names = append(names, v.Name)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("%w: --from-node %q: no other node is called so: there are [%s]", ErrRequest, name, strings.Join(names, " "))
}

// addresses are those that the tables have for a MAC.
func (x *run) addresses(net table.NetIndex, mac packet.MAC) (all []netip.Addr) {
	for at, n := range x.snap.AllNeighbors() {
		if at.Net == net && n.MAC() == mac {
			all = append(all, at.IP.Addr())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

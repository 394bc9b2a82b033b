package trace

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// uplink traces a frame from the underlay.
func (x *run) uplink(w *wish) error {
	x.result.In = In{Device: w.in, Uplink: true}
	frame, err := x.outside(w)
	if err != nil {
		return err
	}
	x.result.Frame = frameOfBytes(frame)
	if !x.ours(frame) {
		x.result.Verdict = "passed"
		x.result.Meaning = fmt.Sprintf("the uplink's program leaves it to the kernel: picot takes only untagged IPv6 to its own locator, %s", x.snap.Self)
		x.step("program", "not untagged IPv6 to %s: the kernel's", x.snap.Self)
		x.step("verdict", "passed")
		return nil
	}
	x.step("program", "untagged IPv6 to %s: picot's", x.snap.Self)
	if x.trace, err = fastpath.TraceUplink(x.snap, x.node.Limits, frame); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	x.outer(frame)
	for _, m := range x.trace.PathMTUs {
		x.note("it would set the path MTU to %s to %d for ten minutes, if that is lower", x.snap.Nodes[m.Node].Name, m.MTU)
	}
	if x.trace.Verdict == fastpath.Answered || x.trace.Out != nil && x.trace.Verdict == fastpath.Dropped {
		x.note("as for the first of its kind: how much of the uplinks' rate of ICMP messages is used up is not looked at")
	}
	x.conclude()
	if x.trace.Verdict == fastpath.Answered || x.trace.Out != nil && x.trace.Verdict == fastpath.Dropped {
		x.result.Out = &Out{Device: w.in, Frame: frameOfBytes(x.trace.Out)}
	}
	return nil
}

// ours says what the uplink's program does (xsk/xdp/bpf/picot.c, in_locator): the
// one part of the decision that is not in the fastpath.
func (x *run) ours(b []byte) bool {
	return len(b) >= packet.EthernetLen+packet.IPv6Len && packet.Ethernet(b).EtherType() == packet.EtherTypeIPv6 &&
		x.snap.Self.Contains(binary.BigEndian.Uint64(b[packet.EthernetLen+24:]))
}

// outside is the frame as it stands on the underlay.
func (x *run) outside(w *wish) ([]byte, error) {
	if w.fromNode == "" {
		if w.frame == nil {
			return nil, fmt.Errorf("%w: --in %s is an uplink: give an SRv6 packet with --frame or --read, or --from-node and --network", ErrRequest, w.in)
		}
		return w.frame, nil
	}
	v, err := x.known(w.fromNode)
	if err != nil {
		return nil, err
	}
	net, id, err := x.network(w.network)
	if err != nil {
		return nil, err
	}
	inner := w.frame
	if inner == nil {
		st := station{name: "the station", net: net}
		if w.srcMAC == nil && w.src.IsValid() {
			if n, ok := x.snap.Neighbor(net, packet.IPFromAddr(w.src)); ok {
				st.mac, st.known = n.MAC(), true
			}
		}
		if w.srcMAC != nil {
			st.name, st.addresses = "the station "+w.srcMAC.String(), x.addresses(net, *w.srcMAC)
		}
		if inner, err = frameOf(w, &st, x.snap); err != nil {
			return nil, err
		}
	}
	segment := uint32(0)
	if w.segment != nil {
		segment = *w.segment
	} else if len(inner) >= packet.EthernetLen {
		segment = uint32(x.snap.FDB(net, packet.Ethernet(inner).Source48()).Segment())
	}
	if len(x.node.Via) > 0 {
		x.note("as it comes after spec.via of %s, with its SRH: the last SID on the way may have taken that off", x.node.Name)
	}
	return outerOf(&x.node, v, id, segment, inner)
}

// network is the network of that name or ID; an ID may be one nobody knows.
func (x *run) network(name string) (table.NetIndex, uint32, error) {
	for i := range x.snap.Networks {
		if v := &x.snap.Networks[i]; v.Known && v.Name == name {
			return table.NetIndex(i), uint32(v.ID), nil
		}
	}
	id, err := strconv.ParseUint(name, 10, 24)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: --network %q: node %s knows no network of that name: give another, or an ID up to %d", ErrRequest, name, x.node.Name, table.MaxNetworkID)
	}
	net, _ := x.snap.NetworkByID(table.NetworkID(id))
	return net, uint32(id), nil
}

// outer tells what the walk read and looked up of an SRv6 packet.
func (x *run) outer(frame []byte) {
	o, r := &x.trace.Outer, x.trace.Reason
	if r == fastpath.ReasonRunt || o.End == 0 {
		return
	}
	from := "no other known node's"
	if i, ok := x.snap.NodeBySource(o.Src.Hi()); ok {
		from = "node " + x.snap.Nodes[i].Name + "'s"
	}
	x.step("outer", "source %s is %s, destination %s: function %#04x, network %d, segment %d, upper layer %d",
		o.Src, from, o.Dst, o.Function, o.Network, o.Arg, o.NextHeader)
	switch r {
	case fastpath.ReasonNone:
		if x.trace.Verdict != fastpath.Local {
			return // a SID answers
		}
	case fastpath.ReasonInner, fastpath.ReasonInnerGroup, fastpath.ReasonNotLocal, fastpath.ReasonPortDown, fastpath.ReasonSegment,
		fastpath.ReasonTooBig, fastpath.ReasonOuterECN:
	default:
		return
	}
	if o.End > len(frame) || o.Inner > o.End {
		return
	}
	net := x.trace.Net
	x.from = table.Segment(o.Arg)
	if int(net) < len(x.snap.Networks) {
		x.result.In.Network, x.result.In.NetworkID, x.result.In.Segment = x.snap.Networks[net].Name, o.Network, o.Arg
	}
	x.step("inner", "network %s: %s", x.result.In.Network, Describe(frame[o.Inner:o.End]))
	if r == fastpath.ReasonInner || r == fastpath.ReasonInnerGroup {
		return
	}
	x.where(net, x.trace.MAC, x.trace.FDB)
	x.allowed(net, x.trace.FDB)
	if x.trace.FDB.Kind() == table.KindLocal {
		x.way(x.trace.FDB)
	}
}

package trace

import (
	"fmt"
	"strconv"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/status"
)

// lookups tells what the walk asked the tables, if it came so far.
func (x *run) lookups(net table.NetIndex) {
	t := &x.trace
	if early(t.Reason) {
		return
	}
	if t.Message.Op != arpnd.OpNone {
		x.step("message", "%s", describeMessage(&t.Message))
		if arpnd.NeedsView(&t.Message) && !(t.Message.Unicast && t.FDB.Kind() != table.KindGateway) {
			x.question(net)
			return
		}
	}
	if grouped(t.Reason) {
		return
	}
	x.where(net, t.MAC, t.FDB)
	if t.FDB.Kind() == table.KindGateway {
		x.routed(net)
	}
	x.allowed(net, t.FDB)
	x.way(t.FDB)
}

// question tells who has the address that is asked for.
func (x *run) question(net table.NetIndex) {
	x.holder("neighbour", net, x.trace.Message.Target)
}

// holder tells who has ip and where that station is; false: nobody, or the gateway.
func (x *run) holder(step string, net table.NetIndex, ip packet.IP) (f table.Target, ok bool) {
	n, ok := x.snap.Neighbor(net, ip)
	if !ok {
		x.step(step, "%s is nobody's", ip)
		return f, false
	}
	x.neighbor(net, ip, n)
	if n.Gateway() {
		return f, false
	}
	f = x.snap.FDB(net, n.MAC48())
	x.where(net, n.MAC(), f)
	return f, true
}

// routed tells where the network's gateway sends an IP packet.
func (x *run) routed(net table.NetIndex) {
	b := x.frame
	var l packet.Layout
	if !packet.Parse(b, &l) || l.L3Len == 0 {
		return
	}
	_, _, ip := addressesOf(b, &l)
	if f, ok := x.holder("gateway", net, ip); ok {
		x.allowed(net, f)
		x.way(f)
	}
}

func (x *run) neighbor(net table.NetIndex, ip packet.IP, n table.Neighbor) {
	x.result.Neighbor = &status.Neighbor{
		Network: x.snap.Networks[net].Name, IP: ip.String(), MAC: n.MAC().String(),
		Router: n.Router(), Static: n.Static(), Gateway: n.Gateway(),
	}
	more := ", learned"
	switch {
	case n.Gateway():
		more = ", the network's gateway"
	case n.Static():
		more = ", static"
	}
	if n.Duplicate() {
		more += ", claimed by two"
	}
	x.step("neighbour", "%s has MAC %s%s", ip, n.MAC(), more)
}

// where tells where the FDB has a MAC.
func (x *run) where(net table.NetIndex, mac packet.MAC, t table.Target) {
	e := FDB{FDBEntry: status.FDBEntry{MAC: mac.String(), Kind: t.Kind().String(), Segment: uint32(t.Segment()), Static: t.Static()}}
	if int(net) < len(x.snap.Networks) {
		e.Network = x.snap.Networks[net].Name
	}
	how := "learned"
	if t.Static() {
		how = "static"
	}
	switch t.Kind() {
	case table.KindLocal:
		if t.Index() < len(x.snap.Ports) {
			e.Where = x.snap.Ports[t.Index()].Name
		}
		x.step("fdb", "%s is at port %s of this node, segment %d, %s", mac, x.portName(t.Index()), t.Segment(), how)
	case table.KindRemote:
		if t.Index() < len(x.snap.Nodes) {
			v := &x.snap.Nodes[t.Index()]
			e.Where = v.Name
			if v.Locator.Bits != 0 {
				id := uint32(x.snap.Networks[net].ID)
				e.SID = srv6.NewSID(v.Locator, x.snap.Function, id, uint32(x.from)).String()
			}
		}
		x.step("fdb", "%s is at node %s, SID %s, segment %d, %s", mac, e.Where, e.SID, t.Segment(), how)
	case table.KindGateway:
		x.step("fdb", "%s is the network's own gateway", mac)
	default:
		x.step("fdb", "%s is nowhere", mac)
	}
	x.result.FDB = &e
}

// allowed tells what the segments' rules say, where there are any.
func (x *run) allowed(net table.NetIndex, t table.Target) {
	if k := t.Kind(); int(net) >= len(x.snap.Networks) || !x.snap.Networks[net].Isolated() || k != table.KindLocal && k != table.KindRemote {
		return
	}
	may := "may not"
	if x.snap.Allowed(net, x.from, t.Segment()) {
		may = "may"
	}
	x.step("segments", "%d %s send to %d", x.from, may, t.Segment())
}

// way tells how the target is reached.
func (x *run) way(t table.Target) {
	i := t.Index()
	switch {
	case t.Kind() == table.KindLocal && i < len(x.snap.Ports):
		p := &x.snap.Ports[i]
		state := "up"
		if p.ID == 0 || p.Down {
			state = "down"
		}
		x.step("way", "%s, %s, MTU %d", x.portName(i), state, p.MTU)
	case t.Kind() == table.KindRemote && i < len(x.snap.Nodes):
		v := &x.snap.Nodes[i]
		if len(v.NextHops) == 0 {
			x.step("way", "no next hop to %s is usable", v.Name)
		}
		for _, h := range v.NextHops {
			_, mac := h.Encap.MACs()
			path := ""
			if v.PathMTU != 0 {
				path = fmt.Sprintf(", the path takes %d", v.PathMTU)
			}
			x.step("way", "%s by %s, next hop %s, MTU %d%s, outer headers of %d bytes", v.Name, x.uplinkName(int(h.Uplink)), mac, h.MTU, path, h.Encap.Overhead()-packet.EthernetLen)
		}
	}
}

func (x *run) portName(i int) string {
	if i >= len(x.snap.Ports) || x.snap.Ports[i].ID == 0 {
		return "(gone)"
	}
	if e := x.endpoint(i); e != "" {
		return x.snap.Ports[i].Name + " (" + e + ")"
	}
	return x.snap.Ports[i].Name
}

func (x *run) endpoint(i int) string {
	for _, p := range x.node.Ports {
		if p.ID == x.snap.Ports[i].ID {
			return p.Endpoint
		}
	}
	return ""
}

func (x *run) uplinkName(i int) string {
	if i < len(x.node.Uplinks) {
		return x.node.Uplinks[i]
	}
	return strconv.Itoa(i)
}

// early says that the walk ended before it asked the tables for anything that counts.
func early(r fastpath.DropReason) bool {
	return r >= fastpath.ReasonRunt && r <= fastpath.ReasonNetwork || r >= fastpath.ReasonMalformedND
}

// grouped says that the kind of the frame decided, not the tables.
func grouped(r fastpath.DropReason) bool {
	return r >= fastpath.ReasonGroupDHCP && r <= fastpath.ReasonRARP
}

package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/routes"
)

func readRouting(ctx context.Context, c *Config, f *Facts) Routing {
	r := Routing{Ways: map[string]Way{}}
	k, err := routes.Open(nil)
	if err != nil {
		return Routing{Err: err}
	}
	defer k.Close()
	if r.Rules, err = k.Rules(); err != nil {
		return Routing{Err: err}
	}
	tables := []int{unix.RT_TABLE_MAIN, c.Owner.Table, c.Owner.GuardTable}
	slices.Sort(tables)
	if r.Routes, err = k.Routes(slices.Compact(tables)...); err != nil {
		return Routing{Err: err}
	}
	if r.Local, err = localAddresses(); err != nil {
		return Routing{Err: err}
	}
	if f.Wanted == nil {
		return r
	}
	neighbors, err := k.Neighbors()
	if err != nil {
		return Routing{Err: err}
	}
	known := map[routes.NeighborKey]routes.Neighbor{}
	for _, n := range neighbors {
		known[n.NeighborKey] = n
	}
	for name, n := range f.Wanted.State.Nodes {
		if name != c.Node {
			r.Ways[name] = readWay(c, f, k, n, known, r.Routes)
		}
	}
	if c.Ping == PingAlways || c.Ping == PingAuto && f.Agent.Runs {
		pingAll(ctx, c.Owner.Mark, r.Ways, func(node string, w Way) int { return packetSize(c, f, node, w) })
	}
	return r
}

// readWay asks as the agent does: with its mark. Where the agent makes the route
// itself and none runs, the way to the next hop is asked for instead.
func readWay(c *Config, f *Facts, k *routes.Netlink, n desired.Node, known map[routes.NeighborKey]routes.Neighbor, all []routes.Route) Way {
	var w Way
	l, err := srv6.LocatorFrom(n.Locator)
	if err != nil {
		return Way{Err: err}
	}
	w.Target = srv6.NewSID(l, c.Function, 0, 0).Addr()
	first := w.Target
	if len(n.Via) > 0 {
		first = n.Via[0]
	}
	if n.NextHop.IsValid() && !f.Agent.Runs {
		first = n.NextHop
	}
	hops, err := k.Lookup(first, c.Owner.Mark)
	if err != nil {
		w.Err = err
		return w
	}
	w.Owner = ownerOf(all, first)
	for _, h := range hops {
		hop := Hop{Gateway: h.Gateway, MTU: h.MTU}
		if l, err := k.Link(h.Link); err == nil {
			hop.Device = l.Name
			if hop.MTU == 0 || l.MTU < hop.MTU {
				hop.MTU = l.MTU
			}
		}
		n := known[routes.NeighborKey{Link: h.Link, IP: h.Gateway}]
		if hop.Usable = n.Usable; n.Usable {
			hop.MAC = mac(n.MAC)
		}
		w.Hops = append(w.Hops, hop)
	}
	return w
}

func mac(m packet.MAC) string { return m.String() }

// ownerOf is the protocol of the longest route to dst.
func ownerOf(all []routes.Route, dst netip.Addr) (protocol uint8) {
	bits := -1
	for _, r := range all {
		if !r.Unreachable && r.Prefix.Contains(dst) && r.Prefix.Bits() > bits {
			bits, protocol = r.Prefix.Bits(), r.Protocol
		}
	}
	return protocol
}

func localAddresses() (out []LocalAddress, err error) {
	all, err := netlink.AddrList(nil, unix.AF_INET6)
	if err != nil {
		return nil, fmt.Errorf("this node's addresses: %w", err)
	}
	for _, a := range all {
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok {
			continue
		}
		l, err := netlink.LinkByIndex(a.LinkIndex)
		if err != nil {
			continue // gone by now, and its addresses with it
		}
		bits, _ := a.Mask.Size()
		out = append(out, LocalAddress{netip.PrefixFrom(ip, bits), l.Attrs().Name})
	}
	return out, nil
}

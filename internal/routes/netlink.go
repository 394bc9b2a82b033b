package routes

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/packet"
)

// Netlink is the [Kernel] of one network namespace. Not safe for concurrent use.
type Netlink struct {
	handle *netlink.Handle
	raw    *nl.SocketHandle // for what the library does not carry
}

// Open opens the namespace; nil: that of the calling thread.
func Open(ns *netns.NsHandle) (*Netlink, error) {
	at := netns.None()
	if ns != nil {
		at = *ns
	}
	h, err := netlink.NewHandleAt(at, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open route netlink: %w", err)
	}
	s, err := nl.GetNetlinkSocketAt(at, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("open route netlink: %w", err)
	}
	return &Netlink{handle: h, raw: &nl.SocketHandle{Socket: s}}, nil
}

// Close frees the sockets.
func (k *Netlink) Close() {
	k.handle.Close()
	k.raw.Close()
}

// Lookup asks the FIB (RTM_GETROUTE with RTM_F_FIB_MATCH, so that the answer is
// the entry with all its next hops, not the one hop a flow would take).
func (k *Netlink) Lookup(dst netip.Addr, mark uint32) ([]Hop, error) {
	found, err := k.handle.RouteGetWithOptions(dst.AsSlice(), &netlink.RouteGetOptions{Mark: mark, FIBMatch: true})
	if err != nil {
		return nil, fmt.Errorf("look up route to %s: %w", dst, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("look up route to %s: empty answer", dst)
	}
	r := found[0]
	if r.Type != unix.RTN_UNICAST {
		return nil, fmt.Errorf("route to %s is of type %d: want a unicast route toward the other node", dst, r.Type)
	}
	if len(r.MultiPath) == 0 {
		return []Hop{hop(dst, r.LinkIndex, r.Gw, r.MTU, 0)}, nil
	}
	hops := make([]Hop, 0, len(r.MultiPath))
	for _, p := range r.MultiPath {
		if p.Flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) == 0 {
			hops = append(hops, hop(dst, p.LinkIndex, p.Gw, r.MTU, p.Hops))
		}
	}
	if len(hops) == 0 {
		return nil, fmt.Errorf("route to %s: every next hop is down", dst)
	}
	return hops, nil
}

func hop(dst netip.Addr, link int, gw net.IP, mtu, hops int) Hop {
	via := addr(gw)
	if !via.IsValid() || via.IsUnspecified() {
		via = dst
	}
	return Hop{Link: link, Gateway: via, MTU: mtu, Weight: hops + 1}
}

// Link describes a device.
func (k *Netlink) Link(index int) (Link, error) {
	l, err := k.handle.LinkByIndex(index)
	if err != nil {
		return Link{}, fmt.Errorf("read link %d: %w", index, err)
	}
	a := l.Attrs()
	if len(a.HardwareAddr) != 6 {
		return Link{}, fmt.Errorf("link %s is not Ethernet (%d-byte address)", a.Name, len(a.HardwareAddr))
	}
	return Link{Name: a.Name, MAC: packet.MAC(a.HardwareAddr), MTU: a.MTU}, nil
}

// Routes lists the IPv6 routes of the tables.
func (k *Netlink) Routes(tables ...int) ([]Route, error) {
	var out []Route
	for _, table := range tables {
		found, err := retry(func() ([]netlink.Route, error) {
			return k.handle.RouteListFiltered(unix.AF_INET6, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes of table %d: %w", table, err)
		}
		for _, r := range found {
			if p, ok := prefix(r.Dst); ok {
				out = append(out, routeFrom(r, p))
			}
		}
	}
	return out, nil
}

func routeFrom(r netlink.Route, p netip.Prefix) Route {
	out := Route{Table: r.Table, Prefix: p, Metric: r.Priority, Protocol: uint8(r.Protocol), Unreachable: r.Type == unix.RTN_UNREACHABLE}
	if !out.Unreachable { // the kernel lists those on the loopback device
		out.Gateway, out.Link = addr(r.Gw), r.LinkIndex
	}
	return out
}

func routeTo(r Route) *netlink.Route {
	out := &netlink.Route{
		Family: unix.AF_INET6, Table: r.Table, Priority: r.Metric, Protocol: netlink.RouteProtocol(r.Protocol),
		Dst: &net.IPNet{IP: r.Prefix.Addr().AsSlice(), Mask: net.CIDRMask(r.Prefix.Bits(), 128)},
	}
	if r.Unreachable {
		out.Type = unix.RTN_UNREACHABLE
		return out
	}
	out.Gw, out.LinkIndex = r.Gateway.AsSlice(), r.Link
	return out
}

// AddRoute adds a route, or replaces the one with the same prefix and metric.
func (k *Netlink) AddRoute(r Route) error {
	if err := k.handle.RouteReplace(routeTo(r)); err != nil {
		return fmt.Errorf("add route %s via %s in table %d: %w", r.Prefix, via(r), r.Table, err)
	}
	return nil
}

// DeleteRoute deletes a route; it may be gone already.
func (k *Netlink) DeleteRoute(r Route) error {
	if err := k.handle.RouteDel(routeTo(r)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete route %s via %s in table %d: %w", r.Prefix, via(r), r.Table, err)
	}
	return nil
}

func via(r Route) string {
	if r.Unreachable {
		return "unreachable"
	}
	return r.Gateway.String()
}

// Rules lists the IPv6 rules.
func (k *Netlink) Rules() ([]Rule, error) {
	found, err := retry(func() ([]netlink.Rule, error) { return k.handle.RuleList(unix.AF_INET6) })
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	out := make([]Rule, len(found))
	for i, r := range found {
		out[i] = Rule{Priority: r.Priority, Protocol: r.Protocol, Mark: r.Mark, Not: r.Invert, Table: r.Table}
	}
	return out, nil
}

func ruleTo(r Rule) *netlink.Rule {
	mask := ^uint32(0)
	out := netlink.NewRule()
	out.Family, out.Priority, out.Protocol = unix.AF_INET6, r.Priority, r.Protocol
	out.Mark, out.Mask, out.Invert, out.Table = r.Mark, &mask, r.Not, r.Table
	return out
}

// AddRule adds a rule; it may be there already.
func (k *Netlink) AddRule(r Rule) error {
	if err := k.handle.RuleAdd(ruleTo(r)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add rule %d (table %d): %w", r.Priority, r.Table, err)
	}
	return nil
}

// DeleteRule deletes a rule; it may be gone already.
func (k *Netlink) DeleteRule(r Rule) error {
	if err := k.handle.RuleDel(ruleTo(r)); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete rule %d (table %d): %w", r.Priority, r.Table, err)
	}
	return nil
}

// retry repeats a dump that a concurrent change interrupted.
func retry[T any](dump func() ([]T, error)) (out []T, err error) {
	for range 10 {
		if out, err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return nil, err
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a
}

func prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0), true
	}
	bits, _ := n.Mask.Size()
	a, ok := netip.AddrFromSlice(n.IP)
	return netip.PrefixFrom(a, bits), ok
}

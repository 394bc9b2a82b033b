package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/icmperr"
	"picot.dev/picot/internal/routes"
)

// nodes keeps the ways to other nodes: our routes and rules in the kernel, and
// the next hops of every locator for the tables.
type nodes struct {
	config   *Config
	tables   *tables
	uplinks  *uplinks
	log      *slog.Logger
	resolver *routes.Resolver
	driver   *routes.Driver

	dirty    bool
	forget   bool              // without a node of our own nothing of ours stays in the kernel
	failed   error             // what of ours could not be written, or read
	said     map[string]string // node -> last trouble told
	narrow   map[string]string // node -> what its way is too narrow for
	pathMTUs map[string]pathMTU
}

// pathMTU is what the underlay reported, until it is forgotten: RFC 8201
// section 4 wants larger sizes tried again, not sooner than after 5 minutes.
type pathMTU struct {
	mtu   int
	until time.Time
}

const pathMTUFor = 10 * time.Minute

// onPathMTU takes a report of the data path in.
func (n *nodes) onPathMTU(now time.Time, s *table.Snapshot, r fastpath.PathMTU) {
	if int(r.Node) >= len(s.Nodes) || !s.Nodes[r.Node].Known {
		return
	}
	name := s.Nodes[r.Node].Name
	old := n.pathMTUs[name]
	if now.Before(old.until) && old.mtu <= r.MTU {
		return
	}
	n.pathMTUs[name] = pathMTU{mtu: r.MTU, until: now.Add(pathMTUFor)}
	n.log.Info("path MTU lowered", "node", name, "mtu", r.MTU, "for", pathMTUFor.String())
	n.dirty = true
}

// sync looks every node's next hops up. It returns when to be called again.
func (n *nodes) sync(now time.Time) (next time.Time) {
	n.dirty = false
	soonest := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	state := &n.tables.state
	self, known := state.Nodes[n.config.NodeName]
	want := routes.Desired{}
	if known {
		want.Self = self.Locator
	}
	targets := map[string]netip.Addr{}
	for name, node := range state.Nodes {
		if name == n.config.NodeName {
			continue
		}
		want.Nodes = append(want.Nodes, routes.NodeRoute{Locator: node.Locator, NextHop: node.NextHop})
		l, err := srv6.LocatorFrom(node.Locator)
		if err != nil {
			continue // said by the tables
		}
		targets[name] = srv6.NewSID(l, n.config.Function, 0, 0).Addr()
		if len(node.Via) > 0 {
			targets[name] = node.Via[0]
		}
	}
	if known || n.forget {
		var err error
		if known {
			err = n.driver.Set(want)
		} else {
			n.driver.Clear()
		}
		_, applied := n.driver.Apply(now)
		n.failed = errors.Join(append([]error{applied}, n.driver.Failures()...)...)
		n.complain("routes", errors.Join(err, n.failed))
	}
	if t, ok := n.driver.NextRetry(); ok {
		soonest(t)
	}
	var list []netip.Addr
	if known || !n.forget {
		list = slices.AppendSeq(list, maps.Values(targets))
	}
	results, err := n.resolver.Resolve(now, list)
	n.failed = errors.Join(n.failed, err)
	n.complain("next hops", err)
	if t, ok := n.resolver.NextRetry(); ok {
		soonest(t)
	}
	for name := range n.tables.hops {
		if _, ok := targets[name]; !ok {
			delete(n.tables.hops, name)
			delete(n.pathMTUs, name)
			delete(n.narrow, name)
			n.complain("node "+name, nil)
		}
	}
	for name, target := range targets {
		r := reach{}
		res, ok := results[target]
		if ok && known {
			n.complain("node "+name, res.Err)
			r.hops = n.hops(name, res)
		}
		if p := n.pathMTUs[name]; now.Before(p.until) {
			r.pathMTU = p.mtu
			soonest(p.until)
		}
		n.checkWidth(name, r)
		n.reached(name, r)
	}
	return next
}

// hops turns resolved next hops into precomputed headers; those over a device
// that is no uplink of ours are left out.
func (n *nodes) hops(name string, res routes.Result) []table.NextHop {
	var out []table.NextHop
	state := &n.tables.state
	self, _ := srv6.LocatorFrom(state.Nodes[n.config.NodeName].Locator)
	node := state.Nodes[name]
	dest, _ := srv6.LocatorFrom(node.Locator)
	for _, h := range res.NextHops {
		number, ok := n.uplinks.number(h.LinkIndex)
		if !ok {
			continue
		}
		e, err := srv6.NewEncap(srv6.EncapConfig{
			SrcMAC: h.SrcMAC, DstMAC: h.DstMAC, Source: self, Dest: dest,
			Function: n.config.Function, Via: node.Via, FixedSource: n.config.FixedSource,
		})
		if err != nil {
			n.complain("node "+name, err)
			continue
		}
		for range max(1, min(h.Weight, 16)) {
			out = append(out, table.NextHop{Uplink: uint8(number), Encap: e, MTU: h.MTU})
		}
	}
	return out
}

// checkWidth notes a way that cannot carry the smallest IPv6 MTU: a sender would
// ignore a Packet Too Big below 1280 (RFC 8201 section 4), so nobody could tell
// it, and long packets would vanish.
func (n *nodes) checkWidth(name string, r reach) {
	delete(n.narrow, name)
	has6 := false
	for _, network := range n.tables.state.Networks {
		has6 = has6 || network.Has6()
	}
	for _, h := range r.hops {
		mtu := h.MTU
		if r.pathMTU != 0 {
			mtu = min(mtu, r.pathMTU)
		}
		need := icmperr.MinMTU6 + h.Encap.Overhead()
		if has6 && mtu < need {
			n.narrow[name] = fmt.Sprintf("node %s: underlay MTU %d: networks with IPv6 prefixes need %d (%d for tagged frames): raise it", name, mtu, need, need+4)
		}
	}
}

// reached tells the tables, if anything is different.
func (n *nodes) reached(name string, r reach) {
	old, ok := n.tables.hops[name]
	same := ok && old.pathMTU == r.pathMTU && slices.EqualFunc(old.hops, r.hops, func(a, b table.NextHop) bool {
		return a.Uplink == b.Uplink && a.MTU == b.MTU && reflect.DeepEqual(a.Encap, b.Encap)
	})
	if same {
		return
	}
	n.log.Info("way to node", "node", name, "nextHops", len(r.hops), "pathMTU", r.pathMTU)
	n.tables.setReach(name, r)
}

// complain logs a trouble when it is new, and its end.
func (n *nodes) complain(about string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if n.said[about] == text {
		return
	}
	n.said[about] = text
	if err != nil {
		n.log.Warn("unresolved", "about", about, "error", err)
	} else {
		n.log.Info("resolved", "about", about)
	}
}

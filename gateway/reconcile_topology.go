package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"picot.dev/picot/gateway/bridge"
	"picot.dev/picot/gateway/flows"
	"picot.dev/picot/gateway/static"
	"picot.dev/picot/gateway/topology"
)

// topologist finds the groups, tells the other reconcilers, and keeps flows and NO_FLOOD.
type topologist struct {
	c    *Controller
	loop *loop
	book *static.Book
	// readOnly: find the groups and install nothing; set before run.
	readOnly bool
	applied  atomic.Bool // every bridge was brought to its flows once

	// owned by the loop's goroutine
	routers    []topology.Router // as last read: a dead NB database changes no group
	version    string
	haveNB     bool
	designated map[string]string
	recalled   map[string]bool // bridges whose flows were looked at for it
	bridges    map[string]*driven
	ctx        context.Context
	watchers   sync.WaitGroup
}

// driven is a bridge that carries, or may carry, flows of ours.
type driven struct {
	driver  *bridge.Driver
	input   flows.Input
	applied bool
	cancel  context.CancelFunc
	again   chan struct{} // the switch was reset: apply again whatever was applied
}

var errMirrorFirst = errors.New("the flows wait until bindings are mirrored")

func newTopologist(c *Controller) *topologist {
	t := &topologist{c: c, book: static.NewBook(c.cfg.Node), bridges: map[string]*driven{}}
	t.loop = newLoop(refresh, t.reconcile)
	return t
}

func (t *topologist) run(ctx context.Context) {
	t.ctx = ctx
	t.loop.run(ctx)
	t.watchers.Wait()
}

func (t *topologist) reconcile(ctx context.Context, periodic bool) error {
	t.loop.began()
	c := t.c
	if nb := c.nb.Session(); nb != nil {
		t.routers, t.version = readRouters(nb, c.cfg.Node)
		t.haveNB = true
	}
	ovs := c.ovs.Session()
	if ovs == nil || !t.haveNB {
		return nil // the next session kicks again
	}
	in := c.inputs.Load()
	c.health.set("nodes", errors.Join(t.book.SetNodes(in.Nodes)...))

	view := readOVS(ovs)
	t.recall(ctx, view.bridges)
	state := topology.Compute(topology.Input{
		Node: c.cfg.Node, Bridges: view.bridges, Routers: t.routers, DefaultBridge: view.mappings[c.cfg.PhysicalNetwork],
		HostPort: c.cfg.HostRepresentor, Deleting: set(in.Deleting), Previous: t.designated,
	})
	t.publish(state)
	if t.readOnly {
		return nil
	}
	return t.flows(ctx, view, state, periodic)
}

// publish tells the other reconcilers, if anything changed for them.
func (t *topologist) publish(state topology.State) {
	c := t.c
	next := &groups{State: state, own: t.book.Own(), nodes: t.book.All(), ovnVersion: t.version,
		useStatic: useStatic(c.cfg.Static, t.version), vlan: uint16(max(c.cfg.VLAN, 0))}
	if self, ok := t.book.Self(); ok && c.cfg.VLAN < 0 {
		next.vlan = uint16(self.VLAN)
	}
	for _, g := range state.Groups {
		// the router's own addresses are the node's, whatever the Node object says yet
		if g.Source != nil {
			for _, p := range g.Source.Networks {
				next.own[p.Addr()] = true
			}
		}
	}
	designated := state.Designated()
	for br, was := range t.designated {
		if now, ok := designated[br]; ok && now != was {
			c.counters.Redesignated.Add(1)
			c.cfg.Log.Info("another network is the source of an uplink bridge", "bridge", br, "was", was, "network", now)
		}
	}
	// a bridge that lost its source for a moment still remembers it
	if t.designated == nil {
		t.designated = map[string]string{}
	}
	maps.Copy(t.designated, designated)

	problems := make([]error, len(state.Problems))
	for i, p := range state.Problems {
		problems[i] = p
	}
	c.health.set("topology", errors.Join(append(problems, t.tooYoung(state))...))
	if old := c.groups.Load(); old != nil && reflect.DeepEqual(old, next) {
		return
	}
	c.groups.Store(next)
	if c.sb != nil {
		var sources []string
		for _, g := range state.Groups {
			if g.Source != nil {
				sources = append(sources, g.Source.Port)
			}
		}
		slices.Sort(sources)
		c.sb.Watch(watchSources(sources))
	}
	c.mirror.loop.kick()
	c.static.loop.kick()
}

// tooYoung compares the routers' age thresholds with the cooldown.
func (t *topologist) tooYoung(state topology.State) error {
	c := t.c
	if !c.cfg.DisableUDNARPNDPFlood {
		return nil
	}
	for _, g := range state.Groups {
		for _, m := range g.Followers {
			if m.MaxAge > 0 && c.cfg.Cooldown+c.cfg.Sweep >= m.MaxAge {
				return fmt.Errorf("router port %s: mac_binding_age_threshold is %v: %w", m.Port, m.MaxAge, ErrCooldown)
			}
		}
	}
	return nil
}

// flows brings every bridge to its flows. One bridge that fails does not stop the others.
func (t *topologist) flows(ctx context.Context, view ovsView, state topology.State, periodic bool) error {
	if t.c.cfg.DisableUDNARPNDPFlood && !t.c.mirror.ready.Load() {
		// taking the fan-out away before the mirror works would leave the followers without both
		t.c.health.set("flows", fmt.Errorf("%w: %w", errMirrorFirst, cmp.Or(t.c.sb.Err(), errors.New("its first pass is under way"))))
		return nil
	}
	t.c.health.set("flows", nil)
	var errs []error
	want := map[string]bool{}
	for _, g := range state.Groups {
		want[g.Bridge] = true
		err := t.apply(ctx, g.Bridge, t.c.flowInput(g, t.c.groups.Load().vlan, t.c.cfg.DisableUDNARPNDPFlood), periodic)
		if err != nil {
			err = fmt.Errorf("bridge %s: %w", g.Bridge, err)
			errs = append(errs, err)
		}
		t.c.health.set("flows "+g.Bridge, err)
	}
	// bridges of physical networks that have no router (any more) keep nothing of ours
	for _, br := range view.physical() {
		if !want[br] {
			errs = append(errs, t.clean(ctx, br))
		}
	}
	for br, d := range t.bridges {
		if !view.has(br) {
			d.cancel()
			delete(t.bridges, br)
			t.c.health.set("flows "+br, nil)
		}
	}
	if errors.Join(errs...) == nil {
		t.applied.Store(true)
	}
	return errors.Join(errs...)
}

// apply installs the flows of one bridge if they changed, the switch was reset or it is time to
// look for drift.
func (t *topologist) apply(ctx context.Context, br string, in flows.Input, periodic bool) error {
	d := t.drive(br)
	reset := false
	select {
	case <-d.again:
		reset = true
	default:
	}
	if d.applied && !periodic && !reset && reflect.DeepEqual(d.input, in) {
		return nil
	}
	if err := in.Validate(); err != nil {
		return err
	}
	d.driver.SetHost(flows.Host(in))
	done, err := d.driver.Apply(ctx, flows.Render(in), flows.NoFlood(in))
	t.c.count(done)
	if err != nil {
		d.applied = false
		return err
	}
	d.input, d.applied = in, true
	if done.StoodDown {
		t.c.cfg.Log.Warn("another owner steers ARP and NDP on this bridge: its flows are left to work alone", "bridge", br)
	}
	if !done.Empty() {
		t.c.cfg.Log.Info("flows installed", "bridge", br, "added", len(done.Added), "replaced", len(done.Replaced),
			"deleted", len(done.Deleted), "noFlood", len(done.NoFlood))
	}
	return nil
}

// clean removes what is ours from a bridge without routers, once.
func (t *topologist) clean(ctx context.Context, br string) error {
	d := t.drive(br)
	if d.applied && d.input.Bridge == "" {
		return nil
	}
	d.driver.SetHost(nil)
	done, err := d.driver.Clean(ctx)
	t.c.count(done)
	if err != nil {
		err = fmt.Errorf("bridge %s: %w", br, err)
	} else {
		d.input, d.applied = flows.Input{}, true
	}
	t.c.health.set("flows "+br, err)
	return err
}

func (t *topologist) newDriver(br string) *bridge.Driver {
	cfg := t.c.cfg
	return bridge.New(bridge.Options{
		Bridge: br, Socket: filepath.Join(cfg.RunDir, br+".mgmt"), Ofctl: cfg.Ofctl, Log: cfg.Log})
}

// drive gives the driver of a bridge, watching its flow table from the first time on.
func (t *topologist) drive(br string) *driven {
	if d := t.bridges[br]; d != nil {
		return d
	}
	cfg := t.c.cfg
	ctx, cancel := context.WithCancel(t.ctx)
	d := &driven{cancel: cancel, again: make(chan struct{}, 1), driver: t.newDriver(br)}
	t.bridges[br] = d
	t.watchers.Go(func() {
		for ctx.Err() == nil {
			if err := d.driver.Watch(ctx, func(e bridge.Event) { t.saw(d, e) }); err != nil && ctx.Err() == nil {
				cfg.Log.Warn("the flow table is not watched", "bridge", br, "err", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(backoffMax):
			}
		}
	})
	return d
}

// saw handles what the flow monitor reports, in its goroutine.
func (t *topologist) saw(d *driven, e bridge.Event) {
	t.c.counters.FlowsHealed.Add(uint64(e.Restored))
	if e.Reset || e.Err != nil {
		select {
		case d.again <- struct{}{}:
		default:
		}
		t.loop.kick()
	}
}

func (c *Controller) count(done bridge.Changes) {
	c.counters.FlowsAdded.Add(uint64(len(done.Added) + len(done.Replaced)))
	c.counters.FlowsDeleted.Add(uint64(len(done.Deleted)))
}

// flowInput describes a group to the renderer.
func (c *Controller) flowInput(g topology.Group, vlan uint16, gate bool) flows.Input {
	in := flows.Input{
		Bridge: g.Bridge, MAC: mac(g.MAC), VLAN: vlan, Gate: gate,
		Segmentation: c.cfg.NetworkSegmentation, IPv4: c.cfg.IPv4, IPv6: c.cfg.IPv6, Mode: c.cfg.Mode, Role: c.cfg.Role,
	}
	for i, u := range slices.Concat(g.Uplinks, g.Localnets) {
		p := flows.Port{Name: u.Name, OFPort: ofport(u.OFPort)}
		if i == 0 && len(g.Uplinks) > 0 {
			in.Uplink = p
			continue
		}
		in.Ingress = append(in.Ingress, p)
	}
	if g.Host != nil {
		in.Host = flows.Port{Name: g.Host.Name, OFPort: ofport(g.Host.OFPort)}
	}
	add := func(m topology.Member, source bool) {
		p := flows.Patch{Port: flows.Port{Name: m.Patch, OFPort: ofport(m.OFPort)},
			Network: m.Network, Default: g.Default && source, Source: source}
		if c.cfg.CTMark != nil && m.Port != "" {
			p.CTMark = c.cfg.CTMark(m.Network)
		}
		in.Patches = append(in.Patches, p)
	}
	if g.Source != nil {
		add(*g.Source, true)
		if m := mac(g.Source.MAC); m != nil {
			in.MAC = m // what external hosts see; a DPU's bridge may have another
		}
		for _, p := range g.Source.Networks {
			if !p.IsSingleIP() {
				in.NodeIPs = append(in.NodeIPs, p.Addr())
			}
		}
	}
	for _, f := range g.Followers {
		add(f, false)
	}
	return in
}

func ofport(n int) uint32 {
	if n <= 0 {
		return 0
	}
	return uint32(n)
}

func mac(s string) net.HardwareAddr {
	m, err := net.ParseMAC(s)
	if err != nil || len(m) != 6 {
		return nil
	}
	return m
}

func set(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, n := range names {
		out[n] = true
	}
	return out
}

func prefixes(texts []string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		if p, err := netip.ParsePrefix(t); err == nil {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return out
}

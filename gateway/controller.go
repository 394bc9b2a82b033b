package gateway

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"picot.dev/picot/gateway/flows"
	db "picot.dev/picot/gateway/ovsdb"
	"picot.dev/picot/gateway/topology"
)

// Controller runs the gateway of one node. Its methods are safe for several goroutines.
type Controller struct {
	cfg      Config
	counters Counters

	ovs, nb, sb *db.DB // nil where the configuration opens none
	inputs      atomic.Pointer[Inputs]
	groups      atomic.Pointer[groups]

	topology *topologist
	mirror   *mirrorer
	static   *stater

	health health
}

// groups is what the reconcilers share; never changed after it is stored.
type groups struct {
	topology.State
	own        map[netip.Addr]bool // local node's addresses: never mirrored, never static
	nodes      map[netip.Addr]bool // every node's addresses
	useStatic  bool                // node addresses are NB rows; else they are mirrored
	ovnVersion string
	vlan       uint16 // of the gateway
}

// New checks the configuration and makes a controller. Nothing is opened before Run.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{cfg: cfg}
	c.inputs.Store(&Inputs{})
	c.topology = newTopologist(c)
	c.mirror = newMirrorer(c)
	c.static = newStater(c)
	if cfg.Role == flows.DPUHost {
		return c, nil
	}
	c.ovs = db.New(db.Options{Database: db.OpenVSwitch, Remote: cfg.OVS, Changed: func(string) { c.topology.loop.kick() }},
		db.Table{Name: db.TableOpenVSwitch}, db.Table{Name: db.TableBridge}, db.Table{Name: db.TablePort}, db.Table{Name: db.TableInterface})
	c.nb = db.New(db.Options{Database: db.Northbound, Remote: cfg.NB, LeaderOnly: cfg.LeaderOnly, Changed: func(table string) {
		if table != db.TableStaticMACBinding { // which tells nothing of groups, and has many rows
			c.topology.loop.kick()
		}
		c.static.loop.kick()
	}}, db.Table{Name: db.TableNBGlobal}, db.Table{Name: db.TableRouter}, db.Table{Name: db.TableRouterPort}, db.Table{Name: db.TableStaticMACBinding})
	if cfg.DisableUDNARPNDPFlood {
		// without a source there is nothing to watch yet
		c.sb = db.New(db.Options{Database: db.Southbound, Remote: cfg.SB, LeaderOnly: cfg.LeaderOnly, Changed: func(string) { c.mirror.loop.kick() }},
			watchSources(nil)...)
	}
	return c, nil
}

// watchSources is what the SB session watches: the rows of the source ports, and the gateway
// ports' bindings. A clause-less monitor would be the whole table.
func watchSources(ports []string) []db.Table {
	bindings := db.Table{Name: db.TablePortBinding, Where: []ovsdb.Condition{ovsdb.NewCondition("type", ovsdb.ConditionEqual, "l3gateway")}}
	if len(ports) == 0 {
		return []db.Table{bindings}
	}
	rows := db.Table{Name: db.TableMACBinding}
	for _, p := range ports {
		rows.Where = append(rows.Where, ovsdb.NewCondition("logical_port", ovsdb.ConditionEqual, p))
	}
	return []db.Table{rows, bindings}
}

// Run works until ctx is done. On the host side of a DPU it does nothing.
func (c *Controller) Run(ctx context.Context) {
	if c.cfg.Role == flows.DPUHost {
		<-ctx.Done()
		return
	}
	var wg sync.WaitGroup
	for _, d := range c.databases() {
		wg.Go(func() { d.db.Run(ctx) })
	}
	wg.Go(func() { c.topology.run(ctx) })
	wg.Go(func() { c.static.loop.run(ctx) })
	if c.sb != nil {
		wg.Go(func() { c.mirror.loop.run(ctx) })
	}
	wg.Wait()
}

// observe runs the databases and the topology reconciler without letting it install anything.
func (c *Controller) observe(ctx context.Context) {
	c.topology.readOnly = true
	var wg sync.WaitGroup
	for _, d := range c.databases() {
		wg.Go(func() { d.db.Run(ctx) })
	}
	wg.Go(func() { c.topology.run(ctx) })
	wg.Wait()
}

// SetInputs replaces what Kubernetes says.
func (c *Controller) SetInputs(in Inputs) {
	c.inputs.Store(&in)
	c.topology.loop.kick()
	c.static.loop.kick()
}

// Counters gives the live counters.
func (c *Controller) Counters() *Counters { return &c.counters }

// skip tells which addresses are not mirrored.
func (c *Controller) skip(g *groups) func(netip.Addr) bool {
	return func(ip netip.Addr) bool {
		if ip.Is4() && !c.cfg.IPv4 || ip.Is6() && !c.cfg.IPv6 || g.own[ip] || g.useStatic && g.nodes[ip] {
			return true
		}
		for _, m := range c.cfg.Masquerade {
			if m.Contains(ip) {
				return true
			}
		}
		return false
	}
}

// refresh is how often a reconciler looks again without being asked, for drift nobody reported.
const refresh = 30 * time.Second

// databases lists the open databases.
func (c *Controller) databases() []namedDB {
	var out []namedDB
	for _, d := range []namedDB{{db.OpenVSwitch, c.ovs}, {db.Northbound, c.nb}, {db.Southbound, c.sb}} {
		if d.db != nil {
			out = append(out, d)
		}
	}
	return out
}

type namedDB struct {
	name string
	db   *db.DB
}

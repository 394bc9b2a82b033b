package gateway

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	db "picot.dev/picot/gateway/ovsdb"
	"picot.dev/picot/gateway/static"
	"picot.dev/picot/gateway/topology"
)

// stater keeps the Static_MAC_Binding rows of this node's gateway routers.
type stater struct {
	c    *Controller
	loop *loop

	// owned by the loop's goroutine
	book  *static.Book
	seen  map[string]bool // router ports that were there once
	masq  map[string]bool // router ports that had masquerade rows
	woken time.Time       // when northd is to be woken; zero: not
	swept bool            // gate off: the rows of a former life are removed once

	last atomic.Pointer[staticPass]
}

// staticPass is what the last pass saw, for Status.
type staticPass struct {
	rows map[string]int // rows wanted, by port
	at   time.Time
}

func newStater(c *Controller) *stater {
	s := &stater{c: c, book: static.NewBook(c.cfg.Node), seen: map[string]bool{}, masq: map[string]bool{}}
	s.loop = newLoop(refresh, s.reconcile)
	return s
}

func (s *stater) reconcile(ctx context.Context, _ bool) error {
	c := s.c
	began := s.loop.began()
	g, sess := c.groups.Load(), c.nb.Session()
	if sess == nil {
		return nil
	}
	in := c.inputs.Load()
	s.book.SetNodes(in.Nodes) // what is malformed is reported by the topology reconciler
	rows := staticRows(sess)
	live := routerPorts(sess)
	plan := static.Input{Rows: rows, Masquerade: c.cfg.Masquerade, IPv4: c.cfg.IPv4, IPv6: c.cfg.IPv6}
	plan.Ports = s.dead(rows, live)
	if g != nil {
		plan.Ports = append(plan.Ports, s.ports(g, in, live, s.going(rows))...)
	}
	ops := static.Plan(plan)
	// rows go before others come
	i := slices.IndexFunc(ops, func(op static.Op) bool { return op.Kind != static.Delete })
	if i < 0 {
		i = len(ops)
	}
	refused, err := s.write(ctx, sess, ops[:i])
	if err == nil {
		var more error
		more, err = s.write(ctx, sess, ops[i:])
		refused = errors.Join(refused, more)
	}
	c.health.set("static", refused)
	if err != nil {
		return err
	}
	if err := s.wake(ctx, sess, plan.Ports, len(ops) > 0); err != nil {
		return err
	}
	if len(ops) > 0 && !began.IsZero() {
		keepMax(&c.counters.StaticLag, &c.counters.StaticLagMax, int64(time.Since(began)))
	}
	s.last.Store(&staticPass{rows: static.Wanted(plan), at: time.Now()})
	return refused
}

// going gives the router ports that had masquerade rows and have none any more. ovn-kubernetes
// removes those right before it deletes a router, so it is the first sign that rows must go.
func (s *stater) going(rows []static.Row) map[string]bool {
	now := map[string]bool{}
	for _, r := range rows {
		if now[r.Port] {
			continue
		}
		if ip, err := netip.ParseAddr(r.IP); err == nil && slices.ContainsFunc(s.c.cfg.Masquerade, func(m netip.Prefix) bool { return m.Contains(ip) }) {
			now[r.Port] = true
		}
	}
	out := map[string]bool{}
	for p := range s.masq {
		if !now[p] {
			out[p] = true
		}
	}
	for p := range now {
		s.masq[p] = true
	}
	return out
}

const wakeDelay = 300 * time.Millisecond

// wake makes northd look again a little after the rows of a router that is gone went. A northd
// whose commit failed on such rows tries again only when something changes, and their removal goes
// unnoticed if it comes while that commit is under way. A row for a port that does not exist is
// ignored by northd; it is there for the time between two transactions.
func (s *stater) wake(ctx context.Context, sess *db.Session, ports []static.Port, wrote bool) error {
	if wrote && slices.ContainsFunc(ports, func(p static.Port) bool { return p.Role == static.Gone }) {
		s.woken = time.Now().Add(wakeDelay)
		time.AfterFunc(wakeDelay, s.loop.kick)
		return nil
	}
	if s.woken.IsZero() || time.Now().Before(s.woken) {
		return nil
	}
	row := static.Op{Kind: static.Insert, Port: wakePort, IP: "0.0.0.0", MAC: "00:00:00:00:00:00"}
	res, err := sess.Transact(ctx, nbOperation(row))
	if err != nil {
		return err
	}
	row.Kind, row.UUID = static.Delete, res[0].UUID.GoUUID
	if _, err := sess.Transact(ctx, nbOperation(row)); err != nil {
		return err
	}
	s.woken = time.Time{}
	return nil
}

// ports gives the router ports of the groups. A router whose patch port is not on any bridge is
// in no group, and keeps its rows until it is.
func (s *stater) ports(g *groups, in *Inputs, live, going map[string]bool) []static.Port {
	c := s.c
	gate := c.cfg.DisableUDNARPNDPFlood
	if !in.Synced || !gate && s.swept {
		return nil
	}
	s.swept = true
	others := s.book.Others()
	var out []static.Port
	for _, t := range g.Groups {
		addresses := others
		if !t.Default {
			addresses = static.Uplinked(c.cfg.Node, t.Bridge, in.Uplinks)
		}
		add := func(port string, role static.Role, m topology.Member) {
			if port == "" || !live[port] {
				return // dead decides about it
			}
			if !gate || !g.useStatic || m.Deleting || going[port] {
				role = static.Empty
			}
			out = append(out, static.Port{Name: port, Role: role, Networks: m.Networks, Addresses: addresses})
		}
		if t.Source != nil {
			role := static.Source
			if t.Default {
				role = static.Empty
			}
			add(t.Source.Port, role, *t.Source)
		}
		for _, f := range t.Followers {
			add(f.Port, static.Follower, f)
		}
	}
	return out
}

func staticRows(s *db.Session) []static.Row {
	cached := db.Rows[db.StaticMACBinding](s, db.TableStaticMACBinding)
	rows := make([]static.Row, 0, len(cached))
	for _, r := range cached {
		rows = append(rows, static.Row{UUID: r.UUID, Port: r.LogicalPort, IP: r.IP, MAC: r.MAC, Override: r.Override})
	}
	return rows
}

// write runs the operations. A refused row is an error of the pass, which is retried.
func (s *stater) write(ctx context.Context, sess *db.Session, ops []static.Op) (refused, err error) {
	outcomes, err := sess.Batch(ctx, len(ops), s.c.cfg.Batch, func(i int) (ovsdb.Operation, bool) { return nbOperation(ops[i]), true })
	var errs []error
	for i, o := range outcomes {
		switch {
		case o.Err != nil:
			s.c.counters.Refused.Add(1)
			errs = append(errs, o.Err)
		case o.Done:
			s.c.counters.StaticWrites[ops[i].Kind].Add(1)
		}
	}
	if len(errs) > 0 {
		refused = errors.Join(errs[:min(len(errs), 3)]...)
	}
	return refused, err
}

func nbOperation(op static.Op) ovsdb.Operation {
	o := ovsdb.Operation{Table: db.TableStaticMACBinding}
	if op.Kind != static.Insert {
		o.Where = []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: op.UUID})}
	}
	switch op.Kind {
	case static.Delete:
		o.Op = ovsdb.OperationDelete
	case static.Update:
		o.Op = ovsdb.OperationUpdate
		o.Row = ovsdb.Row{"mac": op.MAC, "override_dynamic_mac": true}
	case static.Insert:
		o.Op = ovsdb.OperationInsert
		o.Row = ovsdb.Row{"logical_port": op.Port, "ip": op.IP, "mac": op.MAC, "override_dynamic_mac": true}
	}
	return o
}

package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"picot.dev/picot/gateway/mirror"
	db "picot.dev/picot/gateway/ovsdb"
)

// mirrorer keeps the followers' MAC_Binding rows.
type mirrorer struct {
	c    *Controller
	loop *loop

	// owned by the loop's goroutine
	mirror  *mirror.Mirror
	session uint64
	audited time.Time

	last  atomic.Pointer[mirrorPass]
	ready atomic.Bool // a first pass has been made
}

// mirrorPass is what the last pass saw, for Status; by source port.
type mirrorPass struct {
	totals map[string]mirror.GroupTotals
	at     time.Time
}

func newMirrorer(c *Controller) *mirrorer {
	m := &mirrorer{c: c, mirror: mirror.New(c.cfg.Cooldown)}
	m.loop = newLoop(c.cfg.Sweep, m.reconcile)
	return m
}

// rounds bounds the plans of one pass: an update that hits no row becomes an insert in the next
// round, an insert that finds a row an update.
const rounds = 4

func (m *mirrorer) reconcile(ctx context.Context, _ bool) error {
	c := m.c
	began := m.loop.began()
	g := c.groups.Load()
	s := c.sb.Session()
	if g == nil || s == nil {
		return nil
	}
	if s.ID != m.session {
		m.mirror.Reset()
		m.session, m.audited = s.ID, time.Time{}
	}
	groups := sbGroups(g)
	datapaths := map[string]string{}
	for _, p := range db.Rows[db.PortBinding](s, db.TablePortBinding) {
		datapaths[p.LogicalPort] = p.Datapath
	}
	in := mirror.Input{Groups: groups, Skip: c.skip(g), Sources: sourceRows(s), Datapath: func(p string) string { return datapaths[p] }}
	if err := m.load(ctx, s, groups, m.mirror.Appeared(in)); err != nil {
		m.mirror.Reset() // what appeared is lost: read all again
		m.audited = time.Time{}
		return err
	}
	var refused error
	written := 0
	for range rounds {
		in.Now = time.Now()
		ops := m.mirror.Plan(in)
		if len(ops) == 0 {
			break
		}
		written += len(ops)
		again, err := m.write(ctx, s, ops)
		if err != nil {
			return err
		}
		if len(again.ports) > 0 {
			// the rows are not what we remember: read these ports anew
			refused = again.err
			if err := m.read(ctx, s, again.ports); err != nil {
				return err
			}
		}
	}
	if m.mirror.Totals().Retrying == 0 {
		refused = nil
	}
	c.health.set("mirror", refused)
	if !m.ready.Swap(true) {
		c.topology.loop.kick()
	}
	m.last.Store(&mirrorPass{m.mirror.GroupTotals(in), time.Now()})
	if !began.IsZero() && written > 0 {
		keepMax(&c.counters.MirrorLag, &c.counters.MirrorLagMax, int64(time.Since(began)))
	}
	return nil
}

// load reads the rows of followers not known yet, those for addresses whose source row appeared,
// and all of them once an audit interval: the session watches the sources only, so what happens to
// followers' rows is seen only by reading.
func (m *mirrorer) load(ctx context.Context, s *db.Session, groups []mirror.Group, appeared []netip.Addr) error {
	keep := map[string]bool{}
	var all, unknown []string
	for _, g := range groups {
		for _, f := range g.Followers {
			keep[f] = true
			all = append(all, f)
			if !m.mirror.Known(f) {
				unknown = append(unknown, f)
			}
		}
	}
	m.mirror.Retain(keep)
	if time.Since(m.audited) >= m.c.cfg.Audit && len(all) > 0 {
		if err := m.read(ctx, s, all); err != nil {
			return err
		}
		m.audited = time.Now()
		return nil
	}
	if len(appeared) > few {
		return m.read(ctx, s, all)
	}
	if err := m.readAddresses(ctx, s, appeared); err != nil {
		return err
	}
	return m.read(ctx, s, unknown)
}

// few is up to how many ports or addresses are selected one by one; each select scans the table.
const few = 8

// readAddresses does as read, for addresses.
func (m *mirrorer) readAddresses(ctx context.Context, s *db.Session, ips []netip.Addr) error {
	if len(ips) == 0 {
		return nil
	}
	var ops []ovsdb.Operation
	for _, ip := range ips {
		ops = append(ops, selectBindings(ovsdb.NewCondition("ip", ovsdb.ConditionEqual, ip.String())))
	}
	rows, err := selected(ctx, s, ops)
	if err == nil {
		m.mirror.LoadAddresses(ips, rows)
	}
	return err
}

func selectBindings(where ...ovsdb.Condition) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationSelect, Table: db.TableMACBinding, Where: where,
		Columns: []string{"_uuid", "logical_port", "ip", "mac", "timestamp", "datapath"}}
}

func selected(ctx context.Context, s *db.Session, ops []ovsdb.Operation) ([]mirror.Row, error) {
	res, err := s.Transact(ctx, ops...)
	if err != nil {
		return nil, fmt.Errorf("read MAC_Binding: %w", err)
	}
	var rows []mirror.Row
	for _, r := range res {
		for _, row := range r.Rows {
			rows = append(rows, rowOf(row))
		}
	}
	return rows, nil
}

// read replaces what is known of ports by what the database says now.
func (m *mirrorer) read(ctx context.Context, s *db.Session, ports []string) error {
	if len(ports) == 0 {
		return nil
	}
	ops := []ovsdb.Operation{selectBindings()}
	if len(ports) <= few {
		ops = nil
		for _, p := range ports {
			ops = append(ops, selectBindings(ovsdb.NewCondition("logical_port", ovsdb.ConditionEqual, p)))
		}
	}
	rows, err := selected(ctx, s, ops)
	if err != nil {
		return err
	}
	m.mirror.Load(ports, rows)
	return nil
}

func rowOf(r ovsdb.Row) mirror.Row {
	text := func(c string) string { s, _ := r[c].(string); return s }
	id := func(c string) string { u, _ := r[c].(ovsdb.UUID); return u.GoUUID }
	ts, _ := r["timestamp"].(float64)
	return mirror.Row{UUID: id("_uuid"), Port: text("logical_port"), IP: text("ip"), MAC: text("mac"),
		Datapath: id("datapath"), Timestamp: int64(ts)}
}

// sourceRows gives the watched rows, which are the sources'.
func sourceRows(s *db.Session) []mirror.Row {
	cached := db.Rows[db.MACBinding](s, db.TableMACBinding)
	rows := make([]mirror.Row, 0, len(cached))
	for _, r := range cached {
		rows = append(rows, mirror.Row{UUID: r.UUID, Port: r.LogicalPort, IP: r.IP, MAC: r.MAC, Datapath: r.Datapath, Timestamp: int64(r.Timestamp)})
	}
	return rows
}

// sbGroups gives the groups as the mirror takes them. Routers the NB database does not know, or
// that are being deleted, follow nobody.
func sbGroups(g *groups) []mirror.Group {
	var out []mirror.Group
	for _, t := range g.Groups {
		if t.Source == nil {
			continue
		}
		mg := mirror.Group{Source: t.Source.Port}
		for _, f := range t.Followers {
			if f.Port != "" && !f.Deleting {
				mg.Followers = append(mg.Followers, f.Port)
			}
		}
		slices.Sort(mg.Followers)
		out = append(out, mg)
	}
	return out
}

type refusal struct {
	ports []string
	err   error
}

// write runs the operations and records what became of them.
func (m *mirrorer) write(ctx context.Context, s *db.Session, ops []mirror.Op) (refusal, error) {
	tried := make([]bool, len(ops))
	build := func(i int) (ovsdb.Operation, bool) {
		if tried[i] && ops[i].Kind != mirror.Refresh {
			// refused once: the router may have gone, or been made anew
			p, ok := s.PortBinding(ops[i].Port)
			if !ok {
				return ovsdb.Operation{}, false
			}
			ops[i].Datapath = p.Datapath
		}
		tried[i] = true
		return sbOperation(ops[i]), true
	}
	outcomes, err := s.Batch(ctx, len(ops), m.c.cfg.Batch, build)
	var again refusal
	now := time.Now()
	for i, o := range outcomes {
		switch {
		case o.Err != nil:
			m.c.counters.Refused.Add(1)
			again.ports, again.err = append(again.ports, ops[i].Port), o.Err
		case o.Done:
			m.c.counters.MirrorWrites[ops[i].Kind].Add(1)
		default:
			continue
		}
		m.mirror.Done(now, ops[i], mirror.Result{UUID: o.Result.UUID.GoUUID, Count: o.Result.Count, Err: o.Err})
	}
	slices.Sort(again.ports)
	again.ports = slices.Compact(again.ports)
	return again, err
}

func sbOperation(op mirror.Op) ovsdb.Operation {
	row := ovsdb.Row{"timestamp": op.Timestamp}
	if op.Kind != mirror.Refresh {
		row["mac"] = op.MAC
		row["datapath"] = ovsdb.UUID{GoUUID: op.Datapath}
	}
	if op.Kind == mirror.Insert {
		row["logical_port"], row["ip"] = op.Port, op.IP.String()
		return ovsdb.Operation{Op: ovsdb.OperationInsert, Table: db.TableMACBinding, Row: row}
	}
	return ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: db.TableMACBinding, Row: row,
		Where: []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: op.UUID})}}
}

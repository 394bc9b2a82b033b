package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Errors of a Session.
var (
	// ErrGone: the connection is lost or the outcome of a transaction is unknown. The Session is
	// over; the next one starts from the database's own state.
	ErrGone = errors.New("OVSDB session is over")
	// ErrRejected: the server refused the transaction, and nothing of it happened.
	ErrRejected = errors.New("OVSDB transaction rejected")
)

// Table is one table to watch. Where clauses are alternatives: a row is watched if any holds; no
// clause means every row.
type Table struct {
	Name  string
	Where []ovsdb.Condition
}

// Session is one connection to a database with one monitor. It is safe for several goroutines.
type Session struct {
	// ID grows with every Session of a DB. State remembered under another ID is void.
	ID uint64

	name   string // database and remote, for errors
	client client.Client
	cache  *cache.TableCache
	opt    *Options
	stats  *Stats

	once sync.Once
	done chan struct{}
	err  atomic.Pointer[error]
}

// open connects, starts the monitor and returns once the cache holds the initial rows.
func open(ctx context.Context, o *Options, id uint64, tables []Table, stats *Stats, changed func(table string)) (*Session, error) {
	dbModel, err := model.NewClientDBModel(o.Database, models(o.Database))
	if err != nil {
		return nil, err
	}
	discard := logr.Discard()
	opts := []client.Option{client.WithLogger(&discard), client.WithLeaderOnly(o.LeaderOnly)}
	for _, e := range o.Remote.Endpoints {
		opts = append(opts, client.WithEndpoint(e))
	}
	if o.Remote.usesTLS() {
		cfg, err := o.Remote.Files.tlsConfig()
		if err != nil {
			return nil, err
		}
		opts = append(opts, client.WithTLSConfig(cfg))
	}
	c, err := client.NewOVSDBClient(dbModel, opts...)
	if err != nil {
		return nil, err
	}
	s := &Session{ID: id, name: o.String(), client: c, opt: o, stats: stats, done: make(chan struct{})}
	// libovsdb tells of a disconnect only who listens at that moment: listen before connecting
	go func() {
		select {
		case <-c.DisconnectNotify():
			s.fail(errors.New("connection lost"))
		case <-s.done:
		}
	}()
	connectCtx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
	defer cancel()
	if err := c.Connect(connectCtx); err != nil {
		s.fail(err)
		return nil, explain(ctx, o.Remote, err)
	}
	if s.cache = c.Cache(); s.cache == nil { // gone again already, and libovsdb took its cache along
		err := errors.New("connection lost")
		s.fail(err)
		return nil, err
	}
	s.cache.AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(table string, _ model.Model) { changed(table) },
		UpdateFunc: func(table string, _, _ model.Model) { changed(table) },
		DeleteFunc: func(table string, _ model.Model) { changed(table) },
	})
	if err := s.monitor(ctx, tables); err != nil {
		s.fail(err)
		return nil, err
	}
	go s.probe(ctx)
	return s, nil
}

// monitor asks for the watched rows. It uses monitor_cond and not monitor_cond_since: libovsdb
// reports a cache it could not update only for the former, and a Session never resumes.
func (s *Session) monitor(ctx context.Context, tables []Table) error {
	types := models(s.opt.Database)
	m := &client.Monitor{Method: ovsdb.ConditionalMonitorRPC}
	for _, t := range tables {
		row, ok := types[t.Name]
		if !ok {
			return fmt.Errorf("no model for table %s", t.Name)
		}
		m.Tables = append(m.Tables, client.TableMonitor{Table: t.Name, Conditions: t.Where, Fields: columns(row)})
	}
	err := s.call(ctx, s.opt.SyncTimeout, func(ctx context.Context) error {
		_, err := s.client.Monitor(ctx, m)
		return err
	})
	if err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	return nil
}

// call runs a request whose reply libovsdb looks at even when it gave up on it, while its
// reader may still be filling it in. So a request ends by its answer, its timeout or the end of
// the connection; who has cancelled does not wait for that.
func (s *Session) call(ctx context.Context, timeout time.Duration, request func(context.Context) error) error {
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		done <- request(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// probe sends an echo every ProbeInterval and ends the Session when none comes back.
func (s *Session) probe(ctx context.Context) {
	t := time.NewTicker(s.opt.ProbeInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			s.fail(ctx.Err())
			return
		case <-s.done:
			return
		case <-t.C:
		}
		if err := s.call(ctx, s.opt.ProbeInterval, s.client.Echo); err != nil {
			s.fail(fmt.Errorf("no echo within %v: %w", s.opt.ProbeInterval, err))
			return
		}
	}
}

// fail ends the Session for a reason. Only the first reason counts.
func (s *Session) fail(err error) {
	s.once.Do(func() {
		s.err.Store(&err)
		close(s.done)
		// Close waits for a transaction under way, which has a deadline
		go s.client.Close()
	})
}

// Done is closed when the Session is over.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err tells why the Session is over; nil while it lives.
func (s *Session) Err() error {
	if p := s.err.Load(); p != nil {
		return *p
	}
	return nil
}

// Rows gives the watched rows of a table by UUID, as the cache holds them now. The map is the
// caller's, the rows are shared: read only. It costs O(rows).
func Rows[T any](s *Session, table string) map[string]*T {
	t := s.cache.Table(table)
	if t == nil {
		return nil
	}
	shallow := t.RowsShallow()
	out := make(map[string]*T, len(shallow))
	for id, m := range shallow {
		if row, ok := m.(any).(*T); ok {
			out[id] = row
		}
	}
	return out
}

// Transact runs operations as one transaction under the configured deadline and checks every
// result. The error wraps ErrRejected when nothing happened, or ErrGone when the Session is over.
func (s *Session) Transact(ctx context.Context, ops ...ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", s.name, ErrGone, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.opt.TransactTimeout)
	defer cancel()
	s.stats.Transactions.Add(1)
	s.stats.Operations.Add(uint64(len(ops)))
	start := time.Now()
	res, err := s.client.Transact(ctx, ops...)
	s.stats.observe(time.Since(start))
	if err != nil {
		// the transaction may or may not have happened: only a new Session knows
		err = fmt.Errorf("transaction of %d operations: %w", len(ops), err)
		s.fail(err)
		return nil, fmt.Errorf("%s: %w: %w", s.name, ErrGone, err)
	}
	if each, err := ovsdb.CheckOperationResults(res, ops); err != nil {
		s.stats.Rejected.Add(1)
		for _, e := range each {
			err = e
			break
		}
		return nil, fmt.Errorf("%s: %w: %w", s.name, ErrRejected, err)
	}
	return res, nil
}

// PortBinding gives the watched Port_Binding of a logical port, by the table's index.
func (s *Session) PortBinding(port string) (*PortBinding, bool) {
	t := s.cache.Table(TablePortBinding)
	if t == nil {
		return nil, false
	}
	_, m, err := t.RowByModel(&PortBinding{LogicalPort: port})
	if err != nil || m == nil {
		return nil, false
	}
	p, ok := m.(*PortBinding)
	return p, ok
}

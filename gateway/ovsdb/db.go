package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a DB. Zero durations take the defaults.
type Options struct {
	Database string // OpenVSwitch, Northbound or Southbound
	Remote   Remote
	// LeaderOnly treats a follower of a RAFT cluster as down.
	LeaderOnly bool
	// Changed is called when a row of a table changed, once for each row, and with "" when the
	// Session did; from libovsdb's goroutines: it must only set a flag. May be nil.
	Changed func(table string)

	ConnectTimeout  time.Duration // one attempt, all endpoints; 5 s
	SyncTimeout     time.Duration // the initial rows; 60 s
	TransactTimeout time.Duration // one transaction; 10 s
	ProbeInterval   time.Duration // echo; 5 s
	BackoffMin      time.Duration // 100 ms
	BackoffMax      time.Duration // 5 s
}

func (o Options) String() string { return fmt.Sprintf("database %s at %s", o.Database, o.Remote) }

func (o *Options) defaults() {
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{
		{&o.ConnectTimeout, 5 * time.Second}, {&o.SyncTimeout, time.Minute}, {&o.TransactTimeout, 10 * time.Second},
		{&o.ProbeInterval, 5 * time.Second}, {&o.BackoffMin, 100 * time.Millisecond}, {&o.BackoffMax, 5 * time.Second},
	} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
}

// Stats are counters of a DB over all its Sessions.
type Stats struct {
	Sessions, Transactions, Operations, Rejected atomic.Uint64
	// MaxTransaction is the longest transaction so far, in nanoseconds.
	MaxTransaction atomic.Int64
}

func (s *Stats) observe(d time.Duration) {
	for {
		old := s.MaxTransaction.Load()
		if int64(d) <= old || s.MaxTransaction.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// ErrNotConnected is what Err gives before the first connection was tried.
var ErrNotConnected = errors.New("not connected yet")

// DB keeps a Session to one database as long as Run runs. All methods are safe for several
// goroutines.
type DB struct {
	opt     Options
	stats   Stats
	session atomic.Pointer[Session]
	rewatch chan struct{}

	mu     sync.Mutex
	tables []Table
	err    error
}

// New makes a DB that watches tables. Nothing is opened before Run.
func New(o Options, tables ...Table) *DB {
	o.defaults()
	return &DB{opt: o, tables: tables, err: ErrNotConnected, rewatch: make(chan struct{}, 1)}
}

// Run connects, and reconnects without end, until ctx is done.
func (d *DB) Run(ctx context.Context) {
	wait := d.opt.BackoffMin
	for id := uint64(1); ctx.Err() == nil; id++ {
		start := time.Now()
		d.one(ctx, id)
		if time.Since(start) > 2*d.opt.BackoffMax {
			wait = d.opt.BackoffMin
		}
		if d.watchChanged() {
			wait = d.opt.BackoffMin
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait/2+1)):
		}
		wait = min(2*wait, d.opt.BackoffMax)
	}
}

// watchChanged drains the request for a new Session.
func (d *DB) watchChanged() bool {
	select {
	case <-d.rewatch:
		return true
	default:
		return false
	}
}

// one runs one Session to its end.
func (d *DB) one(ctx context.Context, id uint64) {
	d.mu.Lock()
	tables := d.tables
	d.mu.Unlock()
	if tables == nil {
		d.setErr(nil)
		select {
		case <-ctx.Done():
		case <-d.rewatch:
			d.notifyRewatch()
		}
		return
	}
	s, err := open(ctx, &d.opt, id, tables, &d.stats, d.notify)
	if err != nil {
		d.setErr(err)
		d.notify("")
		return
	}
	d.stats.Sessions.Add(1)
	d.session.Store(s)
	d.setErr(nil)
	d.notify("")
	select {
	case <-ctx.Done():
		s.fail(ctx.Err())
	case <-s.Done():
	case <-d.rewatch:
		s.fail(errors.New("another set of rows is watched"))
		d.notifyRewatch()
	}
	d.session.Store(nil)
	if ctx.Err() == nil {
		d.setErr(s.Err())
	}
	d.notify("")
}

// notifyRewatch puts back a request that was only peeked at.
func (d *DB) notifyRewatch() {
	select {
	case d.rewatch <- struct{}{}:
	default:
	}
}

func (d *DB) notify(table string) {
	if d.opt.Changed != nil {
		d.opt.Changed(table)
	}
}

func (d *DB) setErr(err error) {
	if err != nil {
		err = fmt.Errorf("%s: %w", d.opt, err)
	}
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
}

// Session gives the live Session, or nil.
func (d *DB) Session() *Session {
	s := d.session.Load()
	if s == nil || s.Err() != nil {
		return nil
	}
	return s
}

// Err names the database, its remote and why there is no Session; nil while there is one.
func (d *DB) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Stats gives the counters.
func (d *DB) Stats() *Stats { return &d.stats }

// Watch changes what is watched. If it differs the Session ends and a new one begins at once.
// No table at all closes the database until the next call.
func (d *DB) Watch(tables []Table) {
	d.mu.Lock()
	same := reflect.DeepEqual(d.tables, tables)
	d.tables = tables
	d.mu.Unlock()
	if !same {
		d.notifyRewatch()
	}
}

// Remote gives the endpoints as configured.
func (d *DB) Remote() string { return d.opt.Remote.String() }

package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"picot.dev/picot/gateway/ovsdb/ovsdbtest"
)

// run runs a DB for the time of a test.
func run(t *testing.T, o Options, tables ...Table) *DB {
	t.Helper()
	d := New(o, tables...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); d.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return d
}

func remote(t *testing.T, s string) Remote {
	t.Helper()
	r, err := ParseRemote(s, Files{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// eventually polls until f holds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func session(t *testing.T, d *DB) *Session {
	t.Helper()
	var s *Session
	eventually(t, "session", func() bool { s = d.Session(); return s != nil })
	return s
}

func insertStatic(i int) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationInsert, Table: TableStaticMACBinding, Row: ovsdb.Row{
		"logical_port": fmt.Sprintf("rtoe-GR_net%d_n", i/1000), "ip": fmt.Sprintf("10.0.%d.%d", i%1000/250, i%250), "mac": "02:00:00:00:00:01", "override_dynamic_mac": true}}
}

func TestSessionWatchesWritesAndCounts(t *testing.T) {
	srv := ovsdbtest.Start(t, ovsdbtest.NB)
	var kicks atomic.Int64
	d := run(t, Options{Database: Northbound, Remote: remote(t, srv.Remote()), Changed: func(string) { kicks.Add(1) }}, Table{Name: TableStaticMACBinding})
	s := session(t, d)
	before := kicks.Load()
	res, err := s.Transact(t.Context(), insertStatic(1))
	if err != nil || res[0].UUID.GoUUID == "" {
		t.Fatal(res, err)
	}
	eventually(t, "row in the cache", func() bool { return len(Rows[StaticMACBinding](s, TableStaticMACBinding)) == 1 })
	eventually(t, "kick", func() bool { return kicks.Load() > before })
	if _, err := s.Transact(t.Context(), insertStatic(1)); !errors.Is(err, ErrRejected) {
		t.Fatalf("a duplicate is rejected, got %v", err)
	}
	if s.Err() != nil {
		t.Fatal("a rejected transaction must not end the session:", s.Err())
	}
	if st := d.Stats(); st.Transactions.Load() != 2 || st.Rejected.Load() != 1 {
		t.Fatalf("transactions %d rejected %d", st.Transactions.Load(), st.Rejected.Load())
	}
}

// After an outage the next session holds what the database holds, without a trace of rows that
// went meanwhile.
func TestReconnectForgetsRowsDeletedMeanwhile(t *testing.T) {
	srv := ovsdbtest.Start(t, ovsdbtest.NB)
	d := run(t, Options{Database: Northbound, Remote: remote(t, srv.Remote())}, Table{Name: TableStaticMACBinding})
	first := session(t, d)
	if _, err := first.Transact(t.Context(), insertStatic(1), insertStatic(2)); err != nil {
		t.Fatal(err)
	}
	srv.Kill()
	eventually(t, "the session ends with its server", func() bool { return d.Session() == nil })
	if _, err := first.Transact(t.Context(), insertStatic(3)); !errors.Is(err, ErrGone) {
		t.Fatalf("a dead session must say so at once, got %v", err)
	}
	eventually(t, "the error names the database and the remote", func() bool {
		err := d.Err()
		return err != nil && strings.Contains(err.Error(), Northbound) && strings.Contains(err.Error(), srv.Socket)
	})
	if err := srv.Start(); err != nil {
		t.Fatal(err)
	}
	other := run(t, Options{Database: Northbound, Remote: remote(t, srv.Remote())}, Table{Name: TableNBGlobal})
	if _, err := session(t, other).Transact(t.Context(), ovsdb.Operation{Op: ovsdb.OperationDelete, Table: TableStaticMACBinding,
		Where: []ovsdb.Condition{ovsdb.NewCondition("ip", ovsdb.ConditionEqual, "10.0.0.1")}}); err != nil {
		t.Fatal(err)
	}
	second := session(t, d)
	if second.ID <= first.ID {
		t.Fatalf("session %d after %d", second.ID, first.ID)
	}
	eventually(t, "one row left", func() bool { return len(Rows[StaticMACBinding](second, TableStaticMACBinding)) == 1 })
	if d.Err() != nil {
		t.Fatal(d.Err())
	}
}

// libovsdb drops events past 65,536; the cache does not lose rows.
func TestMoreRowsThanTheEventBuffer(t *testing.T) {
	const rows = 70_000
	srv := ovsdbtest.Start(t, ovsdbtest.NB)
	d := run(t, Options{Database: Northbound, Remote: remote(t, srv.Remote()), ProbeInterval: 20 * time.Second, TransactTimeout: time.Minute}, Table{Name: TableStaticMACBinding})
	s := session(t, d)
	out, err := s.Batch(t.Context(), rows, 5000, func(i int) (ovsdb.Operation, bool) { return insertStatic(i), true })
	if err != nil || !out[rows-1].Done {
		t.Fatal(err)
	}
	srv.Kill()
	eventually(t, "down", func() bool { return d.Session() == nil })
	if err := srv.Start(); err != nil {
		t.Fatal(err)
	}
	again := session(t, d)
	if n := len(Rows[StaticMACBinding](again, TableStaticMACBinding)); n != rows {
		t.Fatalf("%d rows in the cache of the new session, want %d", n, rows)
	}
}

// One bad row costs a few transactions and no other row.
func TestBatchSavesAllButTheBadRow(t *testing.T) {
	srv := ovsdbtest.Start(t, ovsdbtest.NB)
	d := run(t, Options{Database: Northbound, Remote: remote(t, srv.Remote())}, Table{Name: TableStaticMACBinding})
	s := session(t, d)
	if _, err := s.Transact(t.Context(), insertStatic(37)); err != nil {
		t.Fatal(err)
	}
	asked := 0
	out, err := s.Batch(t.Context(), 100, 64, func(i int) (ovsdb.Operation, bool) {
		if i == 37 {
			asked++
		}
		return insertStatic(i), i != 50
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range out {
		switch {
		case i == 37 && (o.Err == nil || o.Done), i == 50 && (o.Done || o.Err != nil), i != 37 && i != 50 && !o.Done:
			t.Errorf("row %d: %+v", i, o)
		}
	}
	if asked < 2 {
		t.Error("a refused row must be built anew")
	}
	if n := d.Stats().Transactions.Load(); n > 20 {
		t.Errorf("%d transactions for one bad row in 100", n)
	}
	eventually(t, "99 rows", func() bool { return len(Rows[StaticMACBinding](s, TableStaticMACBinding)) == 99 })
}

// A server that accepts and then says nothing ends the session within the deadline.
func TestHungServerMissesTheDeadline(t *testing.T) {
	srv := ovsdbtest.Start(t, ovsdbtest.NB)
	d := run(t, Options{Database: Northbound, Remote: remote(t, srv.Remote()), TransactTimeout: 200 * time.Millisecond, ProbeInterval: time.Hour}, Table{Name: TableNBGlobal})
	s := session(t, d)
	if err := syscall.Kill(srv.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(srv.PID(), syscall.SIGCONT) }()
	start := time.Now()
	if _, err := s.Transact(t.Context(), insertStatic(1)); !errors.Is(err, ErrGone) {
		t.Fatalf("want ErrGone, got %v", err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Fatalf("took %v", d)
	}
	<-s.Done()
}

func TestEchoProbeFindsHungServer(t *testing.T) {
	srv := ovsdbtest.Start(t, ovsdbtest.NB)
	d := run(t, Options{Database: Northbound, Remote: remote(t, srv.Remote()), ProbeInterval: 100 * time.Millisecond}, Table{Name: TableNBGlobal})
	s := session(t, d)
	if err := syscall.Kill(srv.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "echo") {
		t.Fatal(err)
	}
	if err := syscall.Kill(srv.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	session(t, d)
}

func TestConditionalWatchSeesOnlySourcePorts(t *testing.T) {
	srv := ovsdbtest.Start(t, ovsdbtest.SB)
	where := func(ports ...string) (out []ovsdb.Condition) {
		for _, p := range ports {
			out = append(out, ovsdb.NewCondition("logical_port", ovsdb.ConditionEqual, p))
		}
		return out
	}
	d := run(t, Options{Database: Southbound, Remote: remote(t, srv.Remote())}, Table{Name: TableMACBinding, Where: where("a", "b")}, Table{Name: TablePortBinding})
	s := session(t, d)
	dp := ovsdb.UUID{GoUUID: "dp"}
	ops := []ovsdb.Operation{{Op: ovsdb.OperationInsert, Table: "Datapath_Binding", Row: ovsdb.Row{"tunnel_key": 1}, UUIDName: "dp"}}
	for i, p := range []string{"a", "b", "c"} {
		ops = append(ops, ovsdb.Operation{Op: ovsdb.OperationInsert, Table: TableMACBinding, Row: ovsdb.Row{"logical_port": p, "ip": "10.0.0.1", "mac": "02:00:00:00:00:01", "datapath": dp, "timestamp": 1}},
			ovsdb.Operation{Op: ovsdb.OperationInsert, Table: TablePortBinding, Row: ovsdb.Row{"logical_port": p, "type": "l3gateway", "datapath": dp, "tunnel_key": i + 1}})
	}
	if _, err := s.Transact(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two of three rows", func() bool { return len(Rows[MACBinding](s, TableMACBinding)) == 2 })
	if p, ok := s.PortBinding("c"); !ok || p.Datapath == "" {
		t.Fatal("the port's binding is not found by its index")
	}
	if _, ok := s.PortBinding("nobody"); ok {
		t.Fatal("found a binding that is not there")
	}
	d.Watch([]Table{{Name: TableMACBinding, Where: where("c")}, {Name: TablePortBinding}})
	<-s.Done()
	next := session(t, d)
	rows := Rows[MACBinding](next, TableMACBinding)
	if len(rows) != 1 {
		t.Fatalf("%d rows, want only c's", len(rows))
	}
	d.Watch([]Table{{Name: TableMACBinding, Where: where("c")}, {Name: TablePortBinding}})
	time.Sleep(20 * time.Millisecond)
	if next.Err() != nil {
		t.Fatal("the same watch must not end the session")
	}
}

// The first endpoint that serves is taken; when it dies, the next.
func TestSeveralEndpoints(t *testing.T) {
	a, b := ovsdbtest.Start(t, ovsdbtest.NB), ovsdbtest.Start(t, ovsdbtest.NB)
	d := run(t, Options{Database: Northbound, Remote: remote(t, "unix:/nonexistent/x.sock,"+a.Remote()+","+b.Remote())}, Table{Name: TableStaticMACBinding})
	if _, err := session(t, d).Transact(t.Context(), insertStatic(1)); err != nil {
		t.Fatal(err)
	}
	a.Kill()
	eventually(t, "b", func() bool {
		s := d.Session()
		return s != nil && len(Rows[StaticMACBinding](s, TableStaticMACBinding)) == 0
	})
}

func TestTCPRemote(t *testing.T) {
	port := freePort(t)
	ovsdbtest.Start(t, ovsdbtest.NB, fmt.Sprintf("--remote=ptcp:%d:127.0.0.1", port))
	d := run(t, Options{Database: Northbound, Remote: remote(t, fmt.Sprintf("tcp:127.0.0.1:%d", port))}, Table{Name: TableNBGlobal})
	session(t, d)
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// What is wrong with a database is said with its name, whatever it is.
func TestClearErrors(t *testing.T) {
	nb := ovsdbtest.Start(t, ovsdbtest.NB)
	old := ovsdbtest.Start(t, schemaWithout(t, ovsdbtest.SB, "MAC_Binding", "timestamp"))
	for _, c := range []struct {
		name, database, remote string
		want                   []string
	}{
		{"unreachable", Northbound, "unix:/nonexistent/nb.sock", []string{"/nonexistent/nb.sock", "no such file"}},
		{"wrong database", Southbound, nb.Remote(), []string{Southbound, "not found"}},
		{"missing column", Southbound, old.Remote(), []string{"timestamp"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := TableStaticMACBinding
			if c.database == Southbound {
				table = TableMACBinding
			}
			d := run(t, Options{Database: c.database, Remote: remote(t, c.remote)}, Table{Name: table})
			eventually(t, "an error", func() bool { return d.Err() != nil && !errors.Is(d.Err(), ErrNotConnected) })
			for _, w := range append(c.want, c.database) {
				if !strings.Contains(d.Err().Error(), w) {
					t.Errorf("%q does not say %q", d.Err(), w)
				}
			}
		})
	}
}

func TestParseRemote(t *testing.T) {
	tls := Files{CA: "ca", Certificate: "c", Key: "k"}
	for s, want := range map[string]int{
		"unix:/run/nb.sock": 1, "tcp:10.0.0.1:6641,tcp:10.0.0.2:6641": 2, "ssl:[fd00::1]:6641": 1, " tcp:a:1 , tcp:b:2": 2,
		"": 0, "nb.sock": 0, "unix:": 0, "unix:rel/path": 0, "tcp:10.0.0.1": 0, "tcp:fd00::1:6641": 0, "udp:1:2": 0, "tcp:a:1,": 0, "ssl:a:": 0,
	} {
		r, err := ParseRemote(s, tls)
		if got := len(r.Endpoints); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d endpoints, %v", s, got, err)
		}
		if err != nil && !errors.Is(err, ErrRemote) {
			t.Errorf("%q: %v is not ErrRemote", s, err)
		}
	}
	if _, err := ParseRemote("ssl:a:1", Files{}); err == nil {
		t.Error("ssl without files")
	}
}

// Who is told to stop while the first rows arrive stops, and shares nothing with the reader
// that is still filling them in (the race detector's part).
func TestCancelWhileTheRowsArrive(t *testing.T) {
	srv := ovsdbtest.Start(t, ovsdbtest.NB)
	s := session(t, run(t, Options{Database: Northbound, Remote: remote(t, srv.Remote())}, Table{Name: TableStaticMACBinding}))
	var ops []ovsdb.Operation
	for i := range 1000 {
		ops = append(ops, insertStatic(i))
	}
	if _, err := s.Transact(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		d := New(Options{Database: Northbound, Remote: remote(t, srv.Remote())}, Table{Name: TableStaticMACBinding})
		done := make(chan struct{})
		go func() { defer close(done); d.Run(ctx) }()
		time.Sleep(time.Duration(i) * time.Millisecond) // a spread over the start, not a wait for anything
		cancel()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("cancelled after %d ms: does not stop", i)
		}
	}
}

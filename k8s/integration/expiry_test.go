package integration

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"picot.dev/picot/k8s/api/v1alpha1"
)

// TestWatchExpired breaks a node's watches, changes, deletes and creates what
// they follow, and makes the server forget its history before the node comes
// back: every watch is refused with 410, and the node ends with exactly what is
// stored, without a write too many.
func TestWatchExpired(t *testing.T) {
	r := &rig{s: server(t)}
	r.c = r.s.Client(t)
	way := r.s.Proxy(t)
	var said logs
	r.b = startNode(t, r.s, "node-b", config{})
	r.a = newNode(t, way.Config(r.s.AgentConfig(t, "node-a")), "node-a", config{log: said.logger()})
	t.Cleanup(r.a.kill)
	net := r.network(t, "10.0.0.0/24", "fd00::/64")
	var eps []*v1alpha1.NetworkEndpoint
	for i := range 20 {
		eps = append(eps, endpoint(unique("ep"), net, []string{"node-a", "node-b"}[i%2], mac(i+1), v1alpha1.IPAddress(fmt.Sprintf("10.0.0.%d", i+1))))
		must(t, create(r.c, eps[i]))
	}
	for _, e := range eps {
		r.untilReady(t, e)
	}
	// A learned entry that is deleted while nobody here looks.
	gone := &v1alpha1.FDBEntry{TypeMeta: typeMeta("FDBEntry"), ObjectMeta: label(net+".02-00-00-00-99-01", net),
		Spec:   v1alpha1.FDBEntrySpec{Network: v1alpha1.NetworkName(net), MAC: "02:00:00:00:99:01", Source: "learned"},
		Status: &v1alpha1.FDBEntryStatus{ManagingNode: "node-c"}}
	must(t, create(r.c, gone))
	r.bothAgree(t)
	r.a.countedWrites()
	before := r.a.snapshot()

	way.Cut()
	must(t, r.c.Delete(ctx(), resource(gone), gone.Name, "", ""))
	for i, e := range eps[:10] { // node-b clears its own up; node-a's wait for it
		r.remove(t, e)
		if i%2 == 1 {
			r.untilGone(t, e)
		}
	}
	late := []*v1alpha1.NetworkEndpoint{
		endpoint(unique("ep"), net, "node-a", mac(101), "10.0.0.101"), endpoint(unique("ep"), net, "node-b", mac(102), "10.0.0.102"),
	}
	for _, e := range late {
		must(t, create(r.c, e))
	}
	r.untilReady(t, late[1])
	must(t, r.c.Patch(ctx(), resource(eps[11]), eps[11].Name, "", []byte(`{"spec":{"segment":9}}`), &v1alpha1.NetworkEndpoint{}))
	r.b.quiet(t)
	if after := r.a.snapshot(); len(after.FDB) != len(before.FDB) || len(after.Neighbors) != len(before.Neighbors) {
		t.Errorf("%d entries while the watches are broken, %d before", len(after.FDB), len(before.FDB))
	}
	// The watch cache of a server that starts begins with what there is, and
	// etcd has nothing older.
	r.s.Kill(t)
	r.s.Restart(t)
	r.s.Compact(t)
	way.Restore()

	for _, e := range append(late, eps[10:]...) {
		r.untilReady(t, e)
	}
	for _, e := range eps[:10] {
		r.untilGone(t, e)
	}
	r.bothAgree(t)
	if f := r.fdb(t, net, mac(12)); f == nil || f.Status.Segment != 9 {
		t.Errorf("the entry whose segment changed: %+v", f)
	}
	if n := said.count("too old resource version"); n == 0 {
		t.Error("no watch was refused with 410: the test tests nothing")
	} else {
		t.Logf("%d watches refused with 410", n)
	}
	// node-a: 5 endpoints gone, 1 new, each of one address.
	want := map[string]int{"delete fdbentries ok": 5, "delete neighbors ok": 5, "create fdbentries ok": 1, "create neighbors ok": 1, "patch networkendpoints ok": 5 + 2}
	for k, n := range r.a.countedWrites() {
		if n != want[k] && !strings.HasSuffix(k, " transport") {
			t.Errorf("%s: %d writes, want %d", k, n, want[k])
		}
	}
}

// logs keeps what a node logs.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

package e2ek8s

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
)

// metricsAddr is where the agents serve metrics, in their own namespaces.
const metricsAddr = "127.0.0.1:9464"

// TestScale measures a real agent that starts where one network has PICOT_SCALE
// FDB entries and twice as many neighbors of another node, with PICOT_WATCHES
// further watches open: how long until all is in the tables that it forwards by,
// the memory it takes, and the cost of one more change. 100000 and 4000 are the
// sizes of the acceptance; the server then needs about 5 GB. Without a size it is
// no measurement: a small one shows that all of it works.
func TestScale(t *testing.T) {
	entries, _ := strconv.Atoi(os.Getenv("PICOT_SCALE"))
	watches, _ := strconv.Atoi(os.Getenv("PICOT_WATCHES"))
	changes, rest := 50, 45*time.Second // two looks of the agent at the kernel, checkpoints
	if entries == 0 {
		entries, watches, changes, rest = 300, 20, 5, 0
	}
	c := newClusterWith(t, apitest.Options{}, "--metrics-addr", metricsAddr)
	must(t, c.AddNetwork("red", 100, []string{"10.0.0.0/8", "fd00:10::/64"}, ""))
	a := c.addPod(c.n1, "a")
	began := time.Now()
	c.fill(entries)
	t.Logf("%d objects stored in %v", 3*entries, time.Since(began).Round(time.Second))
	c.open(watches)

	// What an agent takes that has nothing to carry but one port.
	server := cpu(c.server.PID)
	must(t, c.n1.Start(within(t, 20*time.Second)))
	began = time.Now()
	var synced, programmed time.Duration
	var peak int64
	c.eventually(20*time.Minute, "all to be programmed", func() error {
		peak = max(peak, memory(c.n1.PID(), "VmHWM"))
		s, err := c.n1.Status(within(t, time.Minute))
		if err != nil {
			return err
		}
		if s.FDBSize <= entries || s.Neighbors <= 3*entries || !s.Ready {
			return fmt.Errorf("ready %t, %d entries, %d neighbors", s.Ready, s.FDBSize, s.Neighbors)
		}
		if synced == 0 {
			synced = time.Since(began)
			t.Logf("in sync after %v: %v of the agent's CPU time, %v of the server's",
				synced.Round(10*time.Millisecond), cpu(c.n1.PID()), cpu(c.server.PID)-server)
		}
		at := time.Since(began)
		got, err := c.tables(c.n1)
		if err == nil && (len(got.FDB) <= entries || len(got.Neighbors) <= 3*entries) {
			err = fmt.Errorf("the tables have %d entries, %d neighbors", len(got.FDB), len(got.Neighbors))
		}
		programmed = at
		return err
	})
	bindings := 3 * entries
	t.Logf("in sync after %v, programmed after %v (goal 30 s for 100,000 entries)", synced.Round(10*time.Millisecond), programmed.Round(10*time.Millisecond))
	c.wantReady(a)
	time.Sleep(rest)
	m, err := c.metrics(c.n1)
	must(t, err)
	rss := memory(c.n1.PID(), "RssAnon")
	per := func(bytes int64) int64 { return bytes * 100_000 / int64(bindings) >> 20 }
	t.Logf("memory: %d MB resident without the frames, %d MB at most with them, %.0f MB of heap in use, %.0f MB the next collection starts at; "+
		"%d MB for 100,000 bindings resident (goal 150)", rss>>20, peak>>20, m["go_memstats_heap_inuse_bytes"]/(1<<20), m["go_memstats_next_gc_bytes"]/(1<<20), per(rss))

	var took []time.Duration
	used := m["process_cpu_seconds_total"]
	for i := range changes {
		was, err := c.n1.Status(within(t, time.Minute))
		must(t, err)
		began = time.Now()
		must(t, c.api.Create(within(t, time.Minute), client.Resource{Name: v1alpha1.ResourceFDBEntries}, c.entry(entries+1+i)))
		c.eventually(time.Minute, "one more entry to be programmed", func() error {
			now, err := c.n1.Status(within(t, time.Minute))
			if err == nil && (now.FDBSize <= was.FDBSize || now.Snapshot <= was.Snapshot) {
				err = errGone
			}
			return err
		})
		took = append(took, time.Since(began))
	}
	m, err = c.metrics(c.n1)
	must(t, err)
	slices.Sort(took)
	t.Logf("one more change, from the create to the table: p50 %v, worst %v (polled every 20 ms), at most %.1f ms of the agent's CPU time, %d watches open beside",
		took[changes/2].Round(time.Millisecond), took[changes-1].Round(time.Millisecond), (m["process_cpu_seconds_total"]-used)/float64(changes)*1000, watches)
}

// cpu is the CPU time a process has used.
func cpu(pid int) time.Duration {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(raw), ") ") // proc(5): the name may have spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * (time.Second / 100) // USER_HZ
}

// memory is a field of a process's status, in bytes.
func memory(pid int, field string) int64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

// metrics are an agent's metrics that have no labels.
func (c *cluster) metrics(n *lab.Node) (map[string]float64, error) {
	dial := func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		err = n.Do(func() error { conn, err = new(net.Dialer).DialContext(ctx, network, addr); return err })
		return conn, err
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get("http://" + metricsAddr + "/metrics")
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	out := map[string]float64{}
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			out[name] = v
		}
	}
	return out, lines.Err()
}

// bulk names the i-th station of node2.
func bulk(i int) (mac string, ips [2]netip.Addr, ref *v1alpha1.EndpointReference) {
	return fmt.Sprintf("06:00:00:%02x:%02x:%02x", i>>16&255, i>>8&255, i&255),
		[2]netip.Addr{
			netip.AddrFrom4([4]byte{10, 1 + byte(i>>16), byte(i >> 8), byte(i)}),
			netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 8: 1, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}),
		},
		&v1alpha1.EndpointReference{Namespace: "default", Name: fmt.Sprint("workload-", i), UID: fmt.Sprintf("00000000-0000-4000-8000-%012x", i)}
}

func (c *cluster) entry(i int) *v1alpha1.FDBEntry {
	mac, _, ref := bulk(i)
	return &v1alpha1.FDBEntry{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindFDBEntry}, ObjectMeta: objectMeta(name("red", mac)),
		Spec:   v1alpha1.FDBEntrySpec{Network: "red", MAC: v1alpha1.MACAddress(mac), Source: "static"},
		Status: &v1alpha1.FDBEntryStatus{ManagingNode: "node2", Endpoint: ref}}
}

// fill stores the bindings of another node, as a server would have stored them.
func (c *cluster) fill(entries int) {
	c.t.Helper()
	stored := func(m *metav1.ObjectMeta) {
		m.UID, m.Generation, m.CreationTimestamp = uuid.NewUUID(), 1, metav1.Now()
	}
	c.server.Load(c.t, v1alpha1.ResourceFDBEntries, func(yield func(string, any) bool) {
		for i := range entries {
			o := c.entry(i)
			stored(&o.ObjectMeta)
			if !yield(o.Name, o) {
				return
			}
		}
	})
	c.server.Load(c.t, v1alpha1.ResourceNeighbors, func(yield func(string, any) bool) {
		for i := range entries {
			mac, ips, ref := bulk(i)
			for _, ip := range ips {
				o := &v1alpha1.Neighbor{
					TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindNeighbor}, ObjectMeta: objectMeta(name("red", ip.String())),
					Spec:   v1alpha1.NeighborSpec{Network: "red", IP: v1alpha1.IPAddress(ip.String()), Source: "static"},
					Status: &v1alpha1.NeighborStatus{ManagingNode: "node2", MAC: v1alpha1.MACAddress(mac), Endpoint: ref}}
				stored(&o.ObjectMeta)
				if !yield(o.Name, o) {
					return
				}
			}
		}
	})
	c.eventually(10*time.Minute, "the server to show what was stored", func() error {
		var list v1alpha1.NeighborList
		at := client.Resource{Name: v1alpha1.ResourceNeighbors}
		if err := c.api.List(within(c.t, 5*time.Minute), at, metav1.ListOptions{Limit: 1}, &list); err != nil {
			return err
		}
		if left := list.RemainingItemCount; left == nil || *left < int64(2*entries-1) {
			return errGone
		}
		return nil
	})
}

// open opens watches of other networks, as other nodes would.
func (c *cluster) open(watches int) {
	c.t.Helper()
	at := client.Resource{Name: v1alpha1.ResourceFDBEntries}
	// From now on: a watch from nowhere begins with a look at every object.
	var now v1alpha1.FDBEntryList
	must(c.t, c.api.List(within(c.t, time.Minute), at, metav1.ListOptions{Limit: 1}, &now))
	began := time.Now()
	for i := range watches {
		w, err := c.api.Watch(context.Background(), at,
			metav1.ListOptions{ResourceVersion: now.ResourceVersion, LabelSelector: fmt.Sprintf("%s in (other-%d)", v1alpha1.NetworkLabel, i), AllowWatchBookmarks: true})
		must(c.t, err)
		c.t.Cleanup(w.Stop)
	}
	if watches > 0 {
		c.t.Logf("%d watches open after %v", watches, time.Since(began).Round(time.Second))
	}
}

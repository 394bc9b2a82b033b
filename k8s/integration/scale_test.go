package integration

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
)

// TestScale measures, for PICOT_SCALE FDB entries and twice as many neighbors in
// one network: the time from a node's start to in sync, the heap it takes, and
// how long one more change takes to arrive, with PICOT_WATCHES further watches
// open. 100000 and 4000 are the sizes of the acceptance; the server then needs
// about 5 GB. It is a measurement, so it runs only when asked to.
func TestScale(t *testing.T) {
	entries, _ := strconv.Atoi(os.Getenv("PICOT_SCALE"))
	watches, _ := strconv.Atoi(os.Getenv("PICOT_WATCHES"))
	if entries == 0 {
		t.Skip("a measurement: set PICOT_SCALE to the number of FDB entries")
	}
	r := &rig{s: server(t)}
	r.c = r.s.Client(t)
	net := r.network(t, "10.0.0.0/8", "fd00::/64")
	began := time.Now()
	fill(t, r.c, net, entries)
	t.Logf("%d objects stored in %v", 3*entries, time.Since(began).Round(time.Second))
	open(t, r, watches)

	e := endpoint(unique("ep"), net, "node-a", mac(1<<30), "10.255.255.1")
	must(t, create(r.c, e))
	before := heap()
	began = time.Now()
	r.a = startNode(t, r.s, "node-a", config{})
	apitest.EventuallyWithin(t, 10*time.Minute, "the node to be in sync", func() error {
		r.a.mu.Lock()
		defer r.a.mu.Unlock()
		if n := len(r.a.state.FDB); n < entries || !r.a.gates.Hosted[net] {
			return fmt.Errorf("%d entries", n)
		}
		return nil
	})
	t.Logf("in sync after %v", time.Since(began).Round(10*time.Millisecond))
	r.untilReady(t, e)
	used := heap() - before
	t.Logf("heap of the cache and the state it fed: %d MB, %d MB for 100,000 bindings", used>>20, used/uint64(3*entries)*100_000>>20)

	var worst, sum time.Duration
	const changes = 50
	for i := range changes {
		m := macAt(entries + i + 1)
		began = time.Now()
		storeFDB(t, r.c, net, m)
		apitest.Eventually(t, "one more entry to arrive", func() error {
			r.a.mu.Lock()
			defer r.a.mu.Unlock()
			if _, ok := r.a.state.FDB[desired.FDBKey{Network: net, MAC: m}]; !ok {
				return errors.New("not yet")
			}
			return nil
		})
		took := time.Since(began)
		worst, sum = max(worst, took), sum+took
	}
	t.Logf("one more change, from the create to the state: mean %v, worst %v (polled every 20 ms), %d watches open beside", sum/changes, worst, watches)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func macAt(i int) packet.MAC { return packet.MACFromUint64(0x060000000000 + uint64(i)) }

func ip4(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }

func ip6(i int) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})
}

// fill stores the bindings of another node.
func fill(t *testing.T, c *client.Client, net string, entries int) {
	t.Helper()
	work := make(chan int)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for i := range work {
				storeFDB(t, c, net, macAt(i))
				for _, ip := range []netip.Addr{ip4(i), ip6(i)} {
					o := &v1alpha1.Neighbor{TypeMeta: typeMeta("Neighbor"), ObjectMeta: label(v1alpha1.NeighborName(net, ip), net),
						Spec:   v1alpha1.NeighborSpec{Network: v1alpha1.NetworkName(net), IP: v1alpha1.IPAddress(ip.String()), Source: "static"},
						Status: &v1alpha1.NeighborStatus{ManagingNode: "node-z", MAC: v1alpha1.MACAddress(macAt(i).String()), Endpoint: ref(i)}}
					if err := create(c, o); err != nil {
						t.Errorf("%v", err)
						return
					}
				}
			}
		})
	}
	for i := range entries {
		work <- i + 1
	}
	close(work)
	wg.Wait()
}

func storeFDB(t *testing.T, c *client.Client, net string, m packet.MAC) {
	o := &v1alpha1.FDBEntry{TypeMeta: typeMeta("FDBEntry"), ObjectMeta: label(v1alpha1.FDBName(net, m), net),
		Spec:   v1alpha1.FDBEntrySpec{Network: v1alpha1.NetworkName(net), MAC: v1alpha1.MACAddress(m.String()), Source: "static"},
		Status: &v1alpha1.FDBEntryStatus{ManagingNode: "node-z", Endpoint: ref(int(m.Uint64() & 0xffffff))}}
	if err := create(c, o); err != nil {
		t.Errorf("%v", err)
	}
}

func label(name, net string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.NetworkLabel: net}}
}

func ref(i int) *v1alpha1.EndpointReference {
	return &v1alpha1.EndpointReference{Namespace: "default", Name: fmt.Sprint("workload-", i), UID: fmt.Sprintf("00000000-0000-4000-8000-%012x", i)}
}

// open opens watches of other networks, as other nodes would.
func open(t *testing.T, r *rig, n int) {
	t.Helper()
	began := time.Now()
	for i := range n {
		w, err := r.c.Watch(ctx(), client.Resource{Name: v1alpha1.ResourceFDBEntries},
			metav1.ListOptions{LabelSelector: fmt.Sprintf("%s in (other-%d)", v1alpha1.NetworkLabel, i), AllowWatchBookmarks: true})
		must(t, err)
		t.Cleanup(w.Stop)
	}
	if n > 0 {
		t.Logf("%d watches open after %v", n, time.Since(began).Round(time.Second))
	}
}

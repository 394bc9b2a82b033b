package source

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"picot.dev/picot/k8s/api/v1alpha1"
)

// TestMemoryOfBindings holds the cache of 100,000 FDB entries and 200,000
// neighbors to 150 MB for 100,000 bindings, counted as the live heap that the
// projection adds, deltas not yet taken included.
func TestMemoryOfBindings(t *testing.T) {
	if testing.Short() {
		t.Skip("300,000 objects are not for -short")
	}
	const entries, budget = 100_000, 150 << 20
	p := newProjection("n1")
	p.setNetwork("red", network("red", 1, 1, "10.0.0.0/8", "fd00::/64"))
	before := heap()
	began := time.Now()
	for i := range entries {
		p.setFDB(bigFDB(i), byNetwork, false)
		for _, ip := range addressesOf(i) {
			p.setNeighbor(bigNeighbor(i, ip), byNetwork, false)
		}
	}
	took := time.Since(began)
	full := heap() - before
	d := p.take()
	if len(d.FDB) != entries || len(d.Neighbors) != 3*entries { // the link-local ones too
		t.Fatalf("%d entries, %d neighbors", len(d.FDB), len(d.Neighbors))
	}
	d.FDB, d.Neighbors = nil, nil
	kept := heap() - before
	per := kept / (3 * entries)
	t.Logf("%d bindings: %d MB kept (%d bytes each), %d MB with the first delta, %v to project", 3*entries, kept>>20, per, full>>20, took.Round(time.Millisecond))
	if kept > 3*budget || full > 3*budget {
		t.Errorf("over the budget of %d MB", 3*budget>>20)
	}
	runtime.KeepAlive(p)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func addressesOf(i int) []netip.Addr {
	return []netip.Addr{
		netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}),
		netip.AddrFrom16([16]byte{0: 0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}),
	}
}

// owner makes the parts of a status as a decoder would: every text its own.
func owner(i int) (*v1alpha1.EndpointReference, string) {
	return &v1alpha1.EndpointReference{
		Namespace: fmt.Sprint("namespace-", i%50), Name: fmt.Sprint("workload-", i), UID: fmt.Sprintf("00000000-0000-4000-8000-%012x", i),
	}, fmt.Sprint("worker-node-", i%500, ".example.net")
}

func objectMeta(name string, i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("10000000-0000-4000-8000-%012x", i)), ResourceVersion: fmt.Sprint(1000000 + i)}
}

func bigFDB(i int) *v1alpha1.FDBEntry {
	ep, node := owner(i)
	return &v1alpha1.FDBEntry{ObjectMeta: objectMeta(v1alpha1.FDBName("red", macOf(i+1)), i),
		Spec:   v1alpha1.FDBEntrySpec{Network: "red", MAC: macText(i + 1), Source: v1alpha1.SourceStatic},
		Status: &v1alpha1.FDBEntryStatus{Endpoint: ep, ManagingNode: node}}
}

func bigNeighbor(i int, ip netip.Addr) *v1alpha1.Neighbor {
	ep, node := owner(i)
	return &v1alpha1.Neighbor{ObjectMeta: objectMeta(v1alpha1.NeighborName("red", ip), i),
		Spec:   v1alpha1.NeighborSpec{Network: "red", IP: v1alpha1.IPAddress(ip.String()), Source: v1alpha1.SourceStatic},
		Status: &v1alpha1.NeighborStatus{Endpoint: ep, ManagingNode: node, MAC: macText(i + 1)}}
}

// BenchmarkOneChange moves one entry among 300,000 bindings and takes the delta.
func BenchmarkOneChange(b *testing.B) {
	p := newProjection("n1")
	p.setNetwork("red", network("red", 1, 1, "10.0.0.0/8", "fd00::/64"))
	const entries = 100_000
	for i := range entries {
		p.setFDB(bigFDB(i), byNetwork, false)
		for _, ip := range addressesOf(i) {
			p.setNeighbor(bigNeighbor(i, ip), byNetwork, false)
		}
	}
	p.take()
	objects := make([]*v1alpha1.FDBEntry, 1024)
	for i := range objects {
		objects[i] = bigFDB(i)
	}
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		o := objects[i%len(objects)]
		o.ResourceVersion = fmt.Sprint(2000000 + i)
		o.Status.ManagingNode = []string{"n2", "n3"}[i/len(objects)%2]
		p.setFDB(o, byNetwork, false)
		if d := p.take(); d.Len() == 0 {
			b.Fatal("no change")
		}
	}
}

package e2ek8s

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
)

const (
	many       = 1000
	churnRate  = 50 // creates and deletes a second, in the rate at which they are begun
	churnOps   = churnRate * 60
	settleWait = 4 * time.Minute
)

// manyEndpoint is the i-th endpoint: of the nodes in turn, an address of each
// family, behind a device that is not there.
func manyEndpoint(i int) *v1alpha1.NetworkEndpoint {
	return &v1alpha1.NetworkEndpoint{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindNetworkEndpoint},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%d", i)},
		Spec: v1alpha1.NetworkEndpointSpec{
			Network: "red", NodeName: fmt.Sprintf("node%d", 1+i%2), Segment: v1alpha1.Segment(i % 5),
			MAC:       v1alpha1.MACAddress(fmt.Sprintf("02:00:00:01:%02x:%02x", i>>8, i&255)),
			Addresses: []v1alpha1.IPAddress{v1alpha1.IPAddress(fmt.Sprintf("10.1.%d.%d", i>>8, i&255)), v1alpha1.IPAddress(fmt.Sprintf("fd00:11::1:%x", i))},
			Interface: fmt.Sprintf("x-%d", i),
		},
	}
}

// TestChurn: a thousand endpoints, then creates and deletes for a minute. The
// bindings are exactly what the endpoints imply, both nodes' tables exactly what
// the bindings say, and no write was made twice.
func TestChurn(t *testing.T) {
	c := newCluster(t)
	must(t, c.AddNetwork("red", 100, []string{"10.1.0.0/16", "fd00:11::/64"}, ""))
	c.start(0)
	resource := client.Resource{Name: v1alpha1.ResourceNetworkEndpoints, Namespace: lab.EndpointNamespace}
	create := func(i int) error { return c.api.Create(within(t, 30*time.Second), resource, manyEndpoint(i)) }
	began := time.Now()
	var group sync.WaitGroup
	errs := make(chan error, many)
	for w := range 4 {
		group.Go(func() {
			for i := w; i < many; i += 4 {
				if err := create(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-errs:
		t.Fatal(err)
	default:
	}
	t.Logf("%d endpoints created in %v", many, time.Since(began).Round(time.Second))
	c.wantImplied(settleWait)
	t.Logf("all bound after %v", time.Since(began).Round(time.Second))

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	live, next, deleted := make([]int, many), many, 0
	for i := range live {
		live[i] = i
	}
	began = time.Now()
	tick := time.NewTicker(time.Second / churnRate)
	defer tick.Stop()
	var mu sync.Mutex // of live, the endpoints that may be deleted
	errs = make(chan error, churnOps)
	for op := range churnOps {
		<-tick.C
		if op%2 == 0 {
			i := next
			next++
			group.Go(func() {
				errs <- create(i)
				mu.Lock()
				defer mu.Unlock()
				live = append(live, i)
			})
			continue
		}
		mu.Lock()
		at := r.IntN(len(live))
		i := live[at]
		live = slices.Delete(live, at, at+1)
		mu.Unlock()
		deleted++
		group.Go(func() { errs <- c.api.Delete(within(t, 30*time.Second), resource, fmt.Sprintf("many-%d", i), "", "") })
	}
	group.Wait()
	t.Logf("%d creates and deletes in %v", churnOps, time.Since(began).Round(time.Second))
	for range churnOps {
		must(t, <-errs)
	}
	ended := time.Now()
	c.eventually(settleWait, "the deleted endpoints to go", func() error {
		endpoints, _, _ := c.lists()
		if len(endpoints) != len(live) {
			return fmt.Errorf("%d endpoints, want %d", len(endpoints), len(live))
		}
		return nil
	})
	c.wantImplied(settleWait)
	t.Logf("converged %v after the last of them", time.Since(ended).Round(10*time.Millisecond))
	for _, n := range c.Nodes() {
		var got tables
		c.eventually(time.Minute, "the tables of "+n.Name, func() (err error) {
			if got, err = c.tables(n); err != nil {
				return err
			}
			want := c.computed(n.Name)
			if err := differ(got.FDB, want.FDB); err != nil {
				return fmt.Errorf("FDB: %w", err)
			}
			if err := differ(got.Neighbors, want.Neighbors); err != nil {
				return fmt.Errorf("neighbours: %w", err)
			}
			return nil
		})
		t.Logf("%s: %d FDB entries, %d neighbours", n.Name, len(got.FDB), len(got.Neighbors))
	}
	total := countWrites(c.writes(), "")
	t.Logf("writes: %v", total)
	// An endpoint may be deleted before its status is written, or before it was
	// bound at all: what follows holds for every history.
	if n := total["create fdbentries"]; n != total["delete fdbentries"]+len(live) || n > next {
		t.Errorf("%d FDB entries created of %d endpoints, %d deleted, %d there", n, next, total["delete fdbentries"], len(live))
	}
	if n := total["create neighbors"]; n != total["delete neighbors"]+2*len(live) || n > 2*next {
		t.Errorf("%d neighbours created of %d endpoints, %d deleted, %d endpoints there", n, next, total["delete neighbors"], len(live))
	}
	if n := total["patch networkendpoints"]; n > next+deleted {
		t.Errorf("%d writes of finalizers for %d endpoints and %d deletes", n, next, deleted)
	}
	if n := total["patch networkendpoints/status"]; n > next {
		t.Errorf("%d writes of status for %d endpoints", n, next)
	}
}

// computed is what a node's tables must be, from the API's objects alone: the
// own endpoints' devices are not there, so only others' entries are forwarded to.
func (c *cluster) computed(node string) tables {
	c.t.Helper()
	_, fdb, neighbors := c.lists()
	var out tables
	for _, f := range fdb {
		s := f.Status
		if s == nil || s.ManagingNode == "" {
			continue
		}
		mac, err := net.ParseMAC(string(f.Spec.MAC))
		must(c.t, err)
		if s.ManagingNode != node {
			out.FDB = append(out.FDB, status.FDBEntry{Network: string(f.Spec.Network), MAC: mac.String(), Kind: "remote",
				Where: s.ManagingNode, Segment: uint32(s.Segment), Static: f.Spec.Source == "static"})
		}
		// The network has IPv6: a static MAC has its EUI-64 link-local address.
		eui := netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
		out.Neighbors = append(out.Neighbors, status.Neighbor{Network: string(f.Spec.Network), IP: eui.String(), MAC: mac.String(), Static: true})
	}
	for _, n := range neighbors {
		if s := n.Status; s != nil && s.ManagingNode != "" {
			out.Neighbors = append(out.Neighbors, status.Neighbor{Network: string(n.Spec.Network), IP: string(n.Spec.IP), MAC: string(s.MAC), Static: n.Spec.Source == "static"})
		}
	}
	slices.SortFunc(out.FDB, func(a, b status.FDBEntry) int { return cmp.Compare(a.MAC, b.MAC) })
	slices.SortFunc(out.Neighbors, func(a, b status.Neighbor) int { return cmp.Compare(a.IP, b.IP) })
	return out
}

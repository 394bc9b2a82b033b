package e2ek8s

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
)

// TestBadObjectsPastTheServer: with the CRDs' validation gone, objects that are
// wrong are refused by the agents, with a reason; nothing else suffers.
func TestBadObjectsPastTheServer(t *testing.T) {
	c := newCluster(t)
	pods := c.fourPods()
	for _, p := range pods {
		c.wantReady(p)
	}
	c.server.Bypass(t)
	endpoint := func(name, mac string, ips ...v1alpha1.IPAddress) error {
		return c.api.Create(within(t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceNetworkEndpoints, Namespace: lab.EndpointNamespace},
			&v1alpha1.NetworkEndpoint{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindNetworkEndpoint},
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       v1alpha1.NetworkEndpointSpec{Network: "red", NodeName: "node1", MAC: v1alpha1.MACAddress(mac), Addresses: ips, Interface: "x-" + name}})
	}
	network := func(name string, id int32, prefix string) error {
		return c.api.Create(within(t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceNetworks},
			&v1alpha1.Network{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindNetwork},
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NetworkSpec{ID: id, Prefixes: []v1alpha1.Prefix{v1alpha1.Prefix(prefix)}}})
	}
	// The server takes the new schema a little later.
	c.eventually(30*time.Second, "the validation to be gone", func() error { return endpoint("text", "02-zz") })
	bad := map[string]string{"text": "mac", "upper": "mac", "group": "mac", "mapped": "addresses", "zone": "addresses"}
	must(t, endpoint("upper", "02:00:00:00:00:AB"))
	must(t, endpoint("group", "ff:ff:ff:ff:ff:ff"))
	must(t, endpoint("mapped", "02:00:00:00:01:01", "::ffff:10.0.0.9"))
	must(t, endpoint("zone", "02:00:00:00:01:02", "fe80::1%eth0"))
	c.eventually(30*time.Second, "bad networks to go through", func() error { return network("hostbits", 7, "10.7.0.1/24") })
	must(t, network("big", 1<<24, "10.8.0.0/24"))
	fdb := &v1alpha1.FDBEntry{ObjectMeta: objectMeta("red.nonsense"), TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindFDBEntry},
		Spec: v1alpha1.FDBEntrySpec{Network: "red", MAC: "nonsense", Source: "guessed"}, Status: &v1alpha1.FDBEntryStatus{ManagingNode: "node2"}}
	c.eventually(30*time.Second, "a bad FDBEntry to go through", func() error {
		return c.api.Create(within(t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceFDBEntries}, fdb)
	})
	neighbor := &v1alpha1.Neighbor{ObjectMeta: objectMeta("red.mapped"), TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindNeighbor},
		Spec:   v1alpha1.NeighborSpec{Network: "red", IP: "::ffff:10.0.0.12", Source: "static"},
		Status: &v1alpha1.NeighborStatus{ManagingNode: "node2", MAC: "02:00:00:00:00:0C"}}
	c.eventually(30*time.Second, "a bad Neighbor to go through", func() error {
		return c.api.Create(within(t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceNeighbors}, neighbor)
	})
	for name, field := range bad {
		c.eventually(20*time.Second, "endpoint "+name+" to be refused", func() error {
			e, err := c.endpoint(name)
			if err != nil {
				return err
			}
			ready := meta.FindStatusCondition(e.Status.Conditions, "Ready")
			if ready == nil || ready.Status != "False" || !strings.Contains(ready.Message, field) {
				return fmt.Errorf("conditions %+v", e.Status.Conditions)
			}
			return nil
		})
	}
	_, err := c.n2.WaitStatus(within(t, 20*time.Second), func(s status.Status) error {
		all := strings.Join(s.Problems, "\n")
		for _, want := range []string{"Network hostbits", "Network big", "FDBEntry red.nonsense", "Neighbor red.mapped"} {
			if !strings.Contains(all, want) {
				return fmt.Errorf("nothing said of %s in %q", want, all)
			}
		}
		return nil
	})
	must(t, err)
	// Each of the two says so itself, by its managing node.
	c.eventually(20*time.Second, "the bad bindings to say what is wrong with them", func() error {
		var f v1alpha1.FDBEntry
		var n v1alpha1.Neighbor
		err := errors.Join(c.api.Get(within(t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceFDBEntries}, fdb.Name, &f),
			c.api.Get(within(t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceNeighbors}, neighbor.Name, &n))
		if err != nil {
			return err
		}
		x, y := meta.FindStatusCondition(f.Status.Conditions, "Ready"), meta.FindStatusCondition(n.Status.Conditions, "Ready")
		if x == nil || y == nil || !strings.Contains(x.Message, "not a MAC") || !strings.Contains(y.Message, "IPv4-mapped") {
			return fmt.Errorf("conditions %+v and %+v", f.Status.Conditions, n.Status.Conditions)
		}
		return nil
	})
	// What is wrong with a network for all nodes the elected agent says.
	must(t, network("twin", 100, "10.9.0.0/24"))
	for name, kind := range map[string]string{"hostbits": "Ready=False", "big": "Ready=False", "twin": "DuplicateID=True", "red": "Ready=True"} {
		c.eventually(time.Minute, "Network "+name+" to have "+kind, func() error {
			var n v1alpha1.Network
			if err := c.api.Get(within(t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceNetworks}, name, &n); err != nil {
				return err
			}
			for _, x := range n.Status.Conditions {
				if x.Type+"="+string(x.Status) == kind && x.Message != "" && x.ObservedGeneration == n.Generation {
					return nil
				}
			}
			return fmt.Errorf("conditions %+v", n.Status.Conditions)
		})
	}
	c.reaches(pods[0], pods[2])
	c.reaches(pods[3], pods[1])
	for _, n := range c.Nodes() {
		got, err := c.tables(n)
		must(t, err)
		if !n.Running() || len(got.FDB) != 4 || strings.Contains(n.Log(), "panic") {
			t.Errorf("%s: %+v", n.Name, got.FDB)
		}
	}
}

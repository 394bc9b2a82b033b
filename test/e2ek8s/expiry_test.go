package e2ek8s

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
)

// TestWatchExpired: the agents' ways to the API server are cut under floods of
// pings, the world changes, and the server forgets its history: their
// watches are refused with 410. No ping is lost, what changed meanwhile is carried, and
// nothing is written but for that.
func TestWatchExpired(t *testing.T) {
	c := newClusterWith(t, apitest.Options{}, "--log-level", "debug")
	pods := c.fourPods()
	a := pods[0]
	for _, p := range pods {
		c.wantReady(p)
	}
	c.wantImplied(20 * time.Second)
	for _, to := range pods[1:] {
		c.reaches(a, to)
	}
	// A binding of another node that goes while nobody looks.
	c.plant(v1alpha1.SourceLearned, "node3", stranger, strangerIPs...)
	for _, n := range c.Nodes() {
		c.eventually(20*time.Second, n.Name+" to know the learned station", func() error { return c.knows(n, stranger, true) })
	}
	floods := c.floods(a, pods[1], pods[2])
	written := len(c.writes())

	c.way.Cut()
	must(t, c.uproot(stranger, strangerIPs...))
	endpoints := client.Resource{Name: v1alpha1.ResourceNetworkEndpoints, Namespace: lab.EndpointNamespace}
	must(t, c.api.Delete(within(t, 10*time.Second), endpoints, pods[3].Name, "", ""))
	must(t, c.api.Create(within(t, 10*time.Second), endpoints, &v1alpha1.NetworkEndpoint{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindNetworkEndpoint},
		ObjectMeta: metav1.ObjectMeta{Name: "e"},
		Spec: v1alpha1.NetworkEndpointSpec{Network: "red", NodeName: "node2", MAC: "02:00:00:00:00:0e", Segment: 7,
			Addresses: []v1alpha1.IPAddress{"10.0.0.14", "fd00:10::e"}, Interface: "x-e"},
	}))
	c.server.Kill(t)
	c.server.Restart(t)
	c.server.Compact(t)
	for _, n := range c.Nodes() {
		if s, err := n.Status(within(t, 10*time.Second)); err != nil || !s.Ready || len(s.Ports) != 2 {
			t.Errorf("%s while its watches are broken: ready %t, %d ports, %v", n.Name, s.Ready, len(s.Ports), err)
		}
		must(t, c.knows(n, stranger, true))
	}
	c.way.Restore()

	c.wantGone("d")
	c.wantImplied(time.Minute)
	c.eventually(20*time.Second, "node1 to know e", func() error { return c.knows(c.n1, "02:00:00:00:00:0e", true) })
	for _, n := range c.Nodes() {
		for _, mac := range []string{pods[3].MAC, stranger} {
			c.eventually(20*time.Second, n.Name+" to forget "+mac, func() error { return c.knows(n, mac, false) })
		}
		if expired := strings.Count(n.Log(), "too old resource version"); expired == 0 {
			t.Errorf("%s: no watch was refused with 410: the test tests nothing", n.Name)
		} else {
			t.Logf("%s: %d watches refused with 410", n.Name, expired)
		}
	}
	for _, f := range floods {
		f.end(t)
	}
	wantWrites(t, "the time after the cut", countWrites(c.writes()[written:], ""), map[string]int{
		"patch networkendpoints": 2, "patch networkendpoints/status": 1, "create fdbentries": 1, "create neighbors": 2,
		"delete fdbentries": 1, "delete neighbors": 2,
	})
}

// knows reports an error unless a node forwards to a MAC and has addresses of both
// families bound to it, or has nothing of it.
func (c *cluster) knows(n *lab.Node, mac string, want bool) error {
	got, err := c.tables(n)
	if err != nil {
		return err
	}
	var fdb, v4, v6 bool
	for _, f := range got.FDB {
		fdb = fdb || f.MAC == mac
	}
	for _, n := range got.Neighbors {
		a := netip.MustParseAddr(n.IP)
		v4 = v4 || n.MAC == mac && a.Is4()
		v6 = v6 || n.MAC == mac && a.Is6() && !a.IsLinkLocalUnicast()
	}
	switch {
	case !want && (fdb || v4 || v6):
		return fmt.Errorf("%w: MAC %t, v4 %t, v6 %t", errThere, fdb, v4, v6)
	case want && !(fdb && v4 && v6):
		return fmt.Errorf("%w: MAC %t, v4 %t, v6 %t", errGone, fdb, v4, v6)
	}
	return nil
}

package e2ek8s

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
)

func objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"picot.dev/network": "red"}}
}

// plant writes an FDBEntry and its Neighbors of red, and returns their UIDs by key.
func (c *cluster) plant(source v1alpha1.Source, node, mac string, ips ...string) (uids map[string]string) {
	c.t.Helper()
	ref := &v1alpha1.EndpointReference{Namespace: "default", Name: "elsewhere"}
	f := &v1alpha1.FDBEntry{ObjectMeta: objectMeta(name("red", mac)), TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindFDBEntry},
		Spec:   v1alpha1.FDBEntrySpec{Network: "red", MAC: v1alpha1.MACAddress(mac), Source: source},
		Status: &v1alpha1.FDBEntryStatus{Endpoint: ref, ManagingNode: node}}
	must(c.t, c.api.Create(within(c.t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceFDBEntries}, f))
	uids = map[string]string{mac: string(f.UID)}
	for _, ip := range ips {
		n := &v1alpha1.Neighbor{ObjectMeta: objectMeta(name("red", ip)), TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindNeighbor},
			Spec:   v1alpha1.NeighborSpec{Network: "red", IP: v1alpha1.IPAddress(ip), Source: source},
			Status: &v1alpha1.NeighborStatus{Endpoint: ref, ManagingNode: node, MAC: v1alpha1.MACAddress(mac)}}
		must(c.t, c.api.Create(within(c.t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceNeighbors}, n))
		uids[ip] = string(n.UID)
	}
	return uids
}

// A station of another node, with an address of either family.
const stranger = "02:00:00:00:00:33"

var strangerIPs = []string{"10.0.0.33", "fd00:10::33"}

// uproot deletes what plant wrote, as far as it is there.
func (c *cluster) uproot(mac string, ips ...string) error {
	remove := func(kind, key string) error {
		err := c.api.Delete(within(c.t, 10*time.Second), client.Resource{Name: kind}, name("red", key), "", "")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	err := remove(v1alpha1.ResourceFDBEntries, mac)
	for _, ip := range ips {
		err = errors.Join(err, remove(v1alpha1.ResourceNeighbors, ip))
	}
	return err
}

// TestStaticClaimsLearned: what another node learned under an endpoint's keys
// becomes static and this node's, the same objects in one write each.
func TestStaticClaimsLearned(t *testing.T) {
	c := newCluster(t)
	c.addRed()
	const mac = "02:00:00:00:00:0a"
	ips := []string{"10.0.0.10", "fd00:10::a"}
	uids := c.plant(v1alpha1.SourceLearned, "node2", mac, ips...)
	pods := []*lab.Pod{c.addPod(c.n1, "a"), c.addPod(c.n2, "c")}
	// node2 later: what it learned behind an endpoint that is not there it would
	// delete, and may do so first.
	must(t, c.n1.Start(within(t, 20*time.Second)))
	c.eventually(20*time.Second, "the claim", func() error {
		_, fdb, neighbors := c.lists()
		for _, f := range fdb {
			if f.Spec.MAC == mac && f.Spec.Source != v1alpha1.SourceStatic {
				return fmt.Errorf("%s is %s", f.Name, f.Spec.Source)
			}
		}
		for _, n := range neighbors {
			if uids[string(n.Spec.IP)] != "" && n.Spec.Source != v1alpha1.SourceStatic {
				return fmt.Errorf("%s is %s", n.Name, n.Spec.Source)
			}
		}
		return nil
	})
	must(t, c.n2.Start(within(t, 20*time.Second)))
	for _, p := range pods {
		must(t, p.Node.WaitReady(within(t, time.Minute), 1))
		c.wantReady(p)
	}
	// The Network owns what an agent creates; the planted ones had no owner.
	want := c.implied()
	for i := range want {
		if uids[want[i].Key] != "" {
			want[i].Owner = ""
		}
	}
	c.eventually(20*time.Second, "the claimed bindings", func() error { return differ(c.stored(), want) })
	_, fdb, neighbors := c.lists()
	for _, f := range fdb {
		if f.Spec.MAC == mac && string(f.UID) != uids[mac] {
			t.Errorf("FDBEntry %s was made anew", f.Name)
		}
	}
	for _, n := range neighbors {
		if uid := uids[string(n.Spec.IP)]; uid != "" && string(n.UID) != uid {
			t.Errorf("Neighbor %s was made anew", n.Name)
		}
	}
	all := c.writes()
	for key := range uids {
		object := name("red", key)
		kind := "patch neighbors"
		if key == mac {
			kind = "patch fdbentries"
		}
		wantWrites(t, object, countWrites(all, object), map[string]int{kind: 1})
	}
	c.reaches(pods[0], pods[1])
	c.reaches(pods[1], pods[0])
}

// TestTwoStaticClaims: of two endpoints with one MAC the holder stays and goes
// on; the other says why it does not, and takes over when the holder goes.
func TestTwoStaticClaims(t *testing.T) {
	c := newCluster(t)
	pods := c.fourPods()
	for _, p := range pods {
		c.wantReady(p)
	}
	c.wantImplied(20 * time.Second)
	a, d := pods[0], pods[3]
	f := c.addPod(c.n2, "f", func(o *lab.PodOptions) { o.MAC = a.MAC })
	refused := func() error {
		e, err := c.endpoint("f")
		if err != nil {
			return err
		}
		conflict, ready := meta.FindStatusCondition(e.Status.Conditions, "Conflict"), meta.FindStatusCondition(e.Status.Conditions, "Ready")
		if conflict == nil || conflict.Status != "True" || conflict.Message == "" || conflict.ObservedGeneration != e.Generation ||
			ready == nil || ready.Status != "False" {
			return fmt.Errorf("conditions %+v", e.Status.Conditions)
		}
		return nil
	}
	c.eventually(20*time.Second, "the loser to say so", refused)
	held := 0
	for _, b := range c.stored() {
		if b.Key == a.MAC {
			held++
			if b.Endpoint.Name != "a" || b.Node != "node1" {
				t.Errorf("the holder lost its MAC: %+v", b)
			}
		}
		if b.Endpoint.Name == "f" {
			t.Errorf("the loser holds %+v", b)
		}
	}
	if held != 1 {
		t.Errorf("%d entries of %s", held, a.MAC)
	}
	c.reaches(d, a)
	must(t, c.DeletePod(within(t, 20*time.Second), a))
	c.wantGone("a")
	c.wantReady(f)
	c.wantImplied(20 * time.Second)
	c.reaches(pods[1], f)
	c.reaches(d, f)
}

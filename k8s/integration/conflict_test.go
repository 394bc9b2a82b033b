package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
)

// rival is a writer's way to the server on which somebody else is quicker: before
// a share of the patches and deletes, the object's stored state changes.
type rival struct {
	*client.Client
	admin  *client.Client
	share  float64
	stolen atomic.Int32 // objects that changed between decision and write
	tries  sync.Map     // name -> *atomic.Int32
}

func (r *rival) Patch(ctx context.Context, at client.Resource, name, sub string, patch []byte, out runtime.Object) error {
	r.steal(at, name)
	return r.Client.Patch(ctx, at, name, sub, patch, out)
}

func (r *rival) Delete(ctx context.Context, at client.Resource, name, uid, version string) error {
	r.steal(at, name)
	return r.Client.Delete(ctx, at, name, uid, version)
}

// steal changes an object that a write is on its way to, at most three times
// each, so that there is an end.
func (r *rival) steal(at client.Resource, name string) {
	n, _ := r.tries.LoadOrStore(at.Name+"/"+name, new(atomic.Int32))
	if rand.Float64() > r.share || n.(*atomic.Int32).Add(1) > 3 {
		return
	}
	var out runtime.Object = &v1alpha1.NetworkEndpoint{}
	switch at.Name {
	case v1alpha1.ResourceFDBEntries:
		out = &v1alpha1.FDBEntry{}
	case v1alpha1.ResourceNeighbors:
		out = &v1alpha1.Neighbor{}
	}
	touch := fmt.Sprintf(`{"metadata":{"annotations":{"rival":"%d"}}}`, rand.Int())
	if r.admin.Patch(context.Background(), at, name, "", []byte(touch), out) == nil {
		r.stolen.Add(1)
	}
}

// TestConflicts lets a second writer change most of the objects between a node's
// decision and its write. Every such write is refused by its precondition,
// counted, and decided again from the cache; in the end all is as without the
// rival, and what the rival wrote is still there.
func TestConflicts(t *testing.T) {
	r := &rig{s: server(t)}
	r.c = r.s.Client(t)
	way := &rival{admin: r.c, share: 0.7}
	r.a = startNode(t, r.s, "node-a", config{rival: way})
	r.b = startNode(t, r.s, "node-b", config{})
	net := r.network(t, "10.0.0.0/24", "fd00::/64")
	var eps []*v1alpha1.NetworkEndpoint
	for i := range 30 {
		eps = append(eps, endpoint(unique("ep"), net, "node-a", mac(i+1), v1alpha1.IPAddress(fmt.Sprintf("10.0.0.%d", i+1)), v1alpha1.IPAddress(fmt.Sprintf("fd00::%x", i+1))))
	}
	// Some of their keys are learned already, elsewhere: a claim is a patch.
	for i := range 10 {
		m := mac(i + 1)
		o := &v1alpha1.FDBEntry{TypeMeta: typeMeta("FDBEntry"), ObjectMeta: label(net+"."+strings.ReplaceAll(m, ":", "-"), net),
			Spec:   v1alpha1.FDBEntrySpec{Network: v1alpha1.NetworkName(net), MAC: v1alpha1.MACAddress(m), Source: "learned"},
			Status: &v1alpha1.FDBEntryStatus{ManagingNode: "node-b"}}
		must(t, create(r.c, o))
	}
	parallel(t, eps, func(e *v1alpha1.NetworkEndpoint) error { return create(r.c, e) })
	for _, e := range eps {
		r.untilReady(t, e)
	}
	for i, e := range eps { // claims that change
		must(t, r.c.Patch(ctx(), resource(e), e.Name, "", []byte(fmt.Sprintf(`{"spec":{"segment":%d}}`, 1+i)), &v1alpha1.NetworkEndpoint{}))
	}
	for _, e := range eps {
		r.untilReady(t, e)
	}
	r.bothAgree(t)
	for i := range eps {
		if f := r.fdb(t, net, mac(i+1)); f == nil || int(f.Status.Segment) != 1+i || f.Status.ManagingNode != "node-a" {
			t.Errorf("entry %d: %+v", i, f)
		}
	}
	kept := 0
	for i := range eps {
		if r.fdb(t, net, mac(i+1)).Annotations["rival"] != "" {
			kept++
		}
	}
	for _, e := range eps[:15] {
		r.remove(t, e)
	}
	for _, e := range eps[:15] {
		r.untilGone(t, e)
	}
	r.bothAgree(t)
	r.nothingLeft(t, 15)

	conflicts, ok := 0, map[string]int{}
	for k, n := range r.a.countedWrites() {
		if strings.HasSuffix(k, " conflict") {
			conflicts += n
		} else {
			ok[k] = n
		}
	}
	t.Logf("%d objects changed under a write, %d conflicts, writes %v, %d entries keep what the rival wrote", way.stolen.Load(), conflicts, ok, kept)
	if stolen := int(way.stolen.Load()); conflicts < stolen*9/10 || stolen < 30 || kept == 0 {
		t.Errorf("%d conflicts of %d objects changed, %d keep it", conflicts, stolen, kept)
	}
	want := map[string]int{
		"create fdbentries ok": 20, "create neighbors ok": 60, "patch fdbentries ok": 10 + 30,
		"delete fdbentries ok": 15, "delete neighbors ok": 30,
	}
	for k, n := range want {
		if ok[k] != n {
			t.Errorf("%s: %d writes, want %d", k, ok[k], n)
		}
	}
	if n := ok["patch networkendpoints ok"]; n < 30+30+15 || n > 30+30+30+15 {
		t.Errorf("%d writes of endpoints: a finalizer and a status each, a status after the change, 15 finalizers", n)
	}
}

package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
)

// TestRefusedBindings stores bindings that no server with picot's CRDs would
// take. Their managing node says on each what is wrong, once; what is right is
// carried, and what is mended is, too.
func TestRefusedBindings(t *testing.T) {
	r := &rig{s: server(t)}
	r.c = r.s.Client(t)
	r.a, r.b = startNode(t, r.s, "node-a", config{}), startNode(t, r.s, "node-b", config{})
	net := r.network(t, "10.0.0.0/24", "fd00::/64")
	good := endpoint(unique("ep"), net, "node-a", mac(1), "10.0.0.1", "fd00:0:0::a") // an address in a form of its own
	must(t, create(r.c, good))
	r.untilReady(t, good)
	r.s.Bypass(t)

	entry := func(name, mac, source, node string) *v1alpha1.FDBEntry {
		return &v1alpha1.FDBEntry{TypeMeta: typeMeta("FDBEntry"), ObjectMeta: label(net+"."+name, net),
			Spec:   v1alpha1.FDBEntrySpec{Network: v1alpha1.NetworkName(net), MAC: v1alpha1.MACAddress(mac), Source: v1alpha1.Source(source)},
			Status: &v1alpha1.FDBEntryStatus{ManagingNode: node}}
	}
	neighbor := func(name, ip, mac, node string) *v1alpha1.Neighbor {
		return &v1alpha1.Neighbor{TypeMeta: typeMeta("Neighbor"), ObjectMeta: label(net+"."+name, net),
			Spec:   v1alpha1.NeighborSpec{Network: v1alpha1.NetworkName(net), IP: v1alpha1.IPAddress(ip), Source: "learned"},
			Status: &v1alpha1.NeighborStatus{ManagingNode: node, MAC: v1alpha1.MACAddress(mac)}}
	}
	apitest.Eventually(t, "the rules to be gone", func() error {
		o := entry("first", "02-zz", "learned", "nobody")
		if err := create(r.c, o); err != nil {
			return err
		}
		return r.c.Delete(ctx(), resource(o), o.Name, "", "")
	})
	bad := []struct {
		say string
		o   object
	}{
		{"not a MAC", entry("text", "02-zz", "learned", "node-a")},
		{"upper-case", entry("02-00-00-00-00-ab", "02:00:00:00:00:AB", "learned", "node-a")},
		{"group address", entry("03-00-00-00-00-01", "03:00:00:00:00:01", "static", "node-b")},
		{"no source", entry("02-00-00-00-77-01", "02:00:00:00:77:01", "guessed", "node-b")},
		{"not the name of this key", entry("other", "02:00:00:00:77:02", "learned", "node-b")},
		{"IPv4-mapped", neighbor("mapped", "::ffff:10.0.0.12", "02:00:00:00:77:03", "node-b")},
		{"canonical", neighbor("fd00-0000-0000-0000-0000-0000-0000-0055", "fd00:0:0::55", "02:00:00:00:77:03", "node-a")},
		{"upper-case", neighbor("10.0.0.56", "10.0.0.56", "02:00:00:00:77:0A", "node-a")},
		{"not an IP address", neighbor("10.0.0.57", "10.0.0.57/32", "02:00:00:00:77:03", "node-a")},
	}
	for _, x := range bad {
		apitest.Eventually(t, x.o.GetName()+" to go through", func() error { return create(r.c, x.o) })
	}
	for _, x := range bad {
		apitest.Eventually(t, x.o.GetName()+" to say why it is refused", func() error { return r.refuses(x.o, x.say) })
	}
	r.a.quiet(t)
	r.b.quiet(t)
	counts := r.a.countedWrites()
	for k, n := range r.b.countedWrites() {
		counts[k] += n
	}
	if f, n := counts["patch fdbentries ok"], counts["patch neighbors ok"]; f != 5 || n != 4 {
		t.Errorf("%d and %d writes to say what is wrong with 5 entries and 4 neighbors", f, n)
	}
	if n := r.neighbor(t, net, "fd00::a"); n == nil || n.Spec.IP != "fd00::a" {
		t.Errorf("the neighbor of an endpoint's address in another form: %+v", n)
	}
	r.untilReady(t, good)

	// Two are mended and one is deleted while its node is away.
	r.b.kill()
	must(t, r.c.Patch(ctx(), resource(bad[1].o), bad[1].o.GetName(), "", []byte(`{"spec":{"mac":"02:00:00:00:00:ab"}}`), &v1alpha1.FDBEntry{}))
	must(t, r.c.Patch(ctx(), resource(bad[3].o), bad[3].o.GetName(), "", []byte(`{"spec":{"source":"learned"}}`), &v1alpha1.FDBEntry{}))
	must(t, r.c.Delete(ctx(), resource(bad[5].o), bad[5].o.GetName(), "", ""))
	r.b = startNode(t, r.s, "node-b", config{})
	for _, i := range []int{1, 3} {
		apitest.Eventually(t, bad[i].o.GetName()+", which was mended, to say nothing", func() error {
			list, _, err := r.conditions(bad[i].o)
			if err == nil && len(list) > 0 {
				err = fmt.Errorf("conditions %+v", list)
			}
			return err
		})
	}
	r.a.quiet(t)
	r.b.quiet(t)
	if a, b := r.a.countedWrites(), r.b.countedWrites(); a["patch fdbentries ok"] != 1 || b["patch fdbentries ok"] != 1 || a["patch neighbors ok"]+b["patch neighbors ok"] > 0 {
		t.Errorf("writes %v and %v, want the two that take a condition back", a, b)
	}
	for _, x := range []struct {
		n    *node
		want int
	}{{r.a, len(bad) - 3}, {r.b, len(bad) - 3}} {
		if got := len(x.n.source.Problems()); got > x.want {
			t.Errorf("%s knows %d bindings that are wrong, there are %d", x.n.name, got, x.want)
		}
	}
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	if e := r.a.state.FDB[desired.FDBKey{Network: net, MAC: packet.MAC{2, 0, 0, 0, 0, 0xab}}]; e.Node != "node-a" {
		t.Errorf("the mended entry is not carried: %+v", e)
	}
	if n := len(r.a.state.FDB); n != 3 {
		t.Errorf("%d entries carried, want the endpoint's and the two mended", n)
	}
}

// object is what the tests store.
type object interface {
	metav1.Object
	runtime.Object
}

// conditions reads a binding's, and its generation.
func (r *rig) conditions(o object) ([]metav1.Condition, int64, error) {
	if at := resource(o); at.Name == v1alpha1.ResourceFDBEntries {
		var f v1alpha1.FDBEntry
		err := r.c.Get(ctx(), at, o.GetName(), &f)
		if err != nil || f.Status == nil {
			return nil, 0, err
		}
		return f.Status.Conditions, f.Generation, nil
	}
	var n v1alpha1.Neighbor
	err := r.c.Get(ctx(), resource(o), o.GetName(), &n)
	if err != nil || n.Status == nil {
		return nil, 0, err
	}
	return n.Status.Conditions, n.Generation, nil
}

// refuses reports whether a binding says of itself what is wrong.
func (r *rig) refuses(o object, say string) error {
	conditions, generation, err := r.conditions(o)
	if err != nil {
		return err
	}
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	switch {
	case c == nil:
		return errors.New("no condition")
	case c.Status != metav1.ConditionFalse, c.Reason != "Invalid", !strings.Contains(c.Message, say), c.ObservedGeneration != generation:
		return fmt.Errorf("generation %d, %+v", generation, *c)
	}
	return nil
}

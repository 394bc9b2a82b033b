package integration

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
)

// rig is a server with two nodes.
type rig struct {
	s    *apitest.Server
	c    *client.Client
	a, b *node
	id   int32
}

func TestStaticPath(t *testing.T) {
	r := &rig{s: server(t)}
	r.c = r.s.Client(t)
	r.a, r.b = startNode(t, r.s, "node-a", config{}), startNode(t, r.s, "node-b", config{})
	t.Run("life of an endpoint", r.life)
	t.Run("claim of a learned entry", r.claim)
	t.Run("two claims of one MAC", r.collisionMAC)
	t.Run("two claims of one address", r.collisionIP)
	t.Run("two claims on one node", r.collisionHere)
	t.Run("address outside the prefixes", r.outside)
	t.Run("network comes last", r.networkLast)
	t.Run("duplicate network id", r.duplicateID)
	t.Run("addresses change", r.addressesChange)
	t.Run("network is left", r.leave)
	t.Run("restart", r.restart)
}

// network makes a network of its own for a test.
func (r *rig) network(t *testing.T, prefixes ...v1alpha1.Prefix) string {
	t.Helper()
	r.id++
	n := network(unique("net"), 1000+r.id, prefixes...)
	must(t, create(r.c, n))
	return n.Name
}

func mac(n int) string { return packet.MACFromUint64(0x020000000000 + uint64(n)).String() }

func (r *rig) fdb(t *testing.T, network, mac string) *v1alpha1.FDBEntry {
	t.Helper()
	m, err := packet.ParseMAC(mac)
	must(t, err)
	var o v1alpha1.FDBEntry
	err = r.c.Get(ctx(), client.Resource{Name: v1alpha1.ResourceFDBEntries}, v1alpha1.FDBName(network, m), &o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(t, err)
	return &o
}

func (r *rig) neighbor(t *testing.T, network, ip string) *v1alpha1.Neighbor {
	t.Helper()
	var o v1alpha1.Neighbor
	err := r.c.Get(ctx(), client.Resource{Name: v1alpha1.ResourceNeighbors}, v1alpha1.NeighborName(network, netip.MustParseAddr(ip)), &o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(t, err)
	return &o
}

// get reads an endpoint anew; nil: it is gone.
func (r *rig) get(t *testing.T, e *v1alpha1.NetworkEndpoint) *v1alpha1.NetworkEndpoint {
	t.Helper()
	var o v1alpha1.NetworkEndpoint
	err := r.c.Get(ctx(), resource(e), e.Name, &o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(t, err)
	return &o
}

// untilCondition waits for a condition of an endpoint at its generation.
func (r *rig) untilCondition(t *testing.T, e *v1alpha1.NetworkEndpoint, kind string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	apitest.Eventually(t, fmt.Sprintf("%s of %s to be %s", kind, e.Name, status), func() error {
		o := r.get(t, e)
		if o == nil {
			return errors.New("it is gone")
		}
		c := meta.FindStatusCondition(o.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != o.Generation {
			return fmt.Errorf("conditions %+v", o.Status.Conditions)
		}
		return nil
	})
}

func (r *rig) untilReady(t *testing.T, e *v1alpha1.NetworkEndpoint) {
	t.Helper()
	r.untilCondition(t, e, v1alpha1.ConditionReady, metav1.ConditionTrue, "Carried")
}

func (r *rig) remove(t *testing.T, e *v1alpha1.NetworkEndpoint) {
	t.Helper()
	must(t, r.c.Delete(ctx(), resource(e), e.Name, "", ""))
}

func (r *rig) untilGone(t *testing.T, e *v1alpha1.NetworkEndpoint) {
	t.Helper()
	apitest.Eventually(t, e.Name+" to go", func() error {
		if o := r.get(t, e); o != nil {
			return fmt.Errorf("finalizers %v", o.Finalizers)
		}
		return nil
	})
}

func (r *rig) bothAgree(t *testing.T) {
	t.Helper()
	r.a.quiet(t)
	r.b.quiet(t)
	r.a.agrees(t, r.c)
	r.b.agrees(t, r.c)
}

// life counts the writes of one endpoint's whole life.
func (r *rig) life(t *testing.T) {
	net := r.network(t, "10.0.0.0/24", "fd00::/64")
	other := endpoint(unique("ep"), net, "node-b", mac(2), "10.0.0.2")
	must(t, create(r.c, other))
	r.untilReady(t, other)
	r.bothAgree(t)
	r.a.countedWrites()

	e := endpoint(unique("ep"), net, "node-a", mac(1), "10.0.0.1", "fd00::1")
	e.Spec.Segment = 7
	must(t, create(r.c, e))
	r.untilReady(t, e)
	r.bothAgree(t)
	want := map[string]int{
		"patch networkendpoints ok": 2, // finalizer and status
		"create fdbentries ok":      1,
		"create neighbors ok":       2,
	}
	if got := r.a.countedWrites(); !reflect.DeepEqual(got, want) {
		t.Errorf("writes to carry it: %v, want %v", got, want)
	}
	f := r.fdb(t, net, mac(1))
	if f == nil || f.Spec.Source != "static" || f.Status.ManagingNode != "node-a" || f.Status.Segment != 7 || f.Status.Endpoint.UID != string(e.UID) ||
		f.Labels[v1alpha1.NetworkLabel] != net || len(f.OwnerReferences) != 1 || f.OwnerReferences[0].Name != net {
		t.Errorf("entry %+v", f)
	}
	for _, ip := range []string{"10.0.0.1", "fd00::1"} {
		if n := r.neighbor(t, net, ip); n == nil || string(n.Status.MAC) != mac(1) || n.Spec.Source != "static" {
			t.Errorf("neighbor %+v", n)
		}
	}
	// The other node projects it: to node-a, with the segment and its
	// link-local address.
	r.b.mu.Lock()
	m, _ := packet.ParseMAC(mac(1))
	if x := r.b.state.FDB[desired.FDBKey{Network: net, MAC: m}]; x.Node != "node-a" || x.Segment != 7 {
		t.Errorf("node-b carries %+v", x)
	}
	if x := r.b.state.Neighbors[desired.NeighborKey{Network: net, IP: desired.EUI64(m)}]; !x.Derived || x.MAC != m {
		t.Errorf("node-b's link-local of it: %+v", x)
	}
	r.b.mu.Unlock()

	r.remove(t, e)
	r.untilGone(t, e)
	r.bothAgree(t)
	want = map[string]int{
		"patch networkendpoints ok": 1, // finalizer
		"delete fdbentries ok":      1,
		"delete neighbors ok":       2,
	}
	if got := r.a.countedWrites(); !reflect.DeepEqual(got, want) {
		t.Errorf("writes to remove it: %v, want %v", got, want)
	}
	if r.fdb(t, net, mac(1)) != nil || r.neighbor(t, net, "10.0.0.1") != nil || r.neighbor(t, net, "fd00::1") != nil {
		t.Error("bindings are left")
	}
	r.remove(t, other)
	r.untilGone(t, other)
}

// claim takes a learned entry of another node, in one write, and wipes what was
// learned.
func (r *rig) claim(t *testing.T) {
	net := r.network(t, "10.0.0.0/24")
	now := metav1.NowMicro()
	f := &v1alpha1.FDBEntry{TypeMeta: typeMeta("FDBEntry"), Spec: v1alpha1.FDBEntrySpec{Network: v1alpha1.NetworkName(net), MAC: v1alpha1.MACAddress(mac(1)), Source: "learned"},
		Status: &v1alpha1.FDBEntryStatus{ManagingNode: "node-b", Moves: 3, MovesSince: &now, LastObserved: &now, FrozenUntil: &now}}
	f.Name, f.Labels = v1alpha1.FDBName(net, [6]byte{2, 0, 0, 0, 0, 1}), map[string]string{v1alpha1.NetworkLabel: net}
	must(t, create(r.c, f))
	yes := true
	nb := &v1alpha1.Neighbor{TypeMeta: typeMeta("Neighbor"), Spec: v1alpha1.NeighborSpec{Network: v1alpha1.NetworkName(net), IP: "10.0.0.1", Source: "learned"},
		Status: &v1alpha1.NeighborStatus{ManagingNode: "node-b", MAC: v1alpha1.MACAddress(mac(9)), Router: &yes, Moves: 2}}
	nb.Name, nb.Labels = net+".10.0.0.1", map[string]string{v1alpha1.NetworkLabel: net}
	must(t, create(r.c, nb))
	r.a.countedWrites()
	e := endpoint(unique("ep"), net, "node-a", mac(1), "10.0.0.1")
	must(t, create(r.c, e))
	r.untilReady(t, e)
	r.bothAgree(t)
	got := r.fdb(t, net, mac(1))
	if got.Spec.Source != "static" || got.UID != f.UID || got.Status.ManagingNode != "node-a" || got.Status.Moves != 0 || got.Status.LastObserved != nil || got.Status.FrozenUntil != nil {
		t.Errorf("claimed: %+v %+v", got.Spec, got.Status)
	}
	gotN := r.neighbor(t, net, "10.0.0.1")
	if gotN.Spec.Source != "static" || gotN.UID != nb.UID || string(gotN.Status.MAC) != mac(1) || gotN.Status.ManagingNode != "node-a" || gotN.Status.Router != nil || gotN.Status.Moves != 0 {
		t.Errorf("claimed: %+v %+v", gotN.Spec, gotN.Status)
	}
	w := r.a.countedWrites()
	if w["patch fdbentries ok"] != 1 || w["patch neighbors ok"] != 1 || w["create fdbentries ok"]+w["create neighbors ok"] != 0 {
		t.Errorf("writes %v", w)
	}
	r.remove(t, e)
	r.untilGone(t, e)
}

func (r *rig) outside(t *testing.T) {
	net := r.network(t, "10.0.0.0/24")
	e := endpoint(unique("ep"), net, "node-a", mac(1), "10.0.0.1", "192.0.2.1")
	must(t, create(r.c, e))
	r.untilCondition(t, e, v1alpha1.ConditionConflict, metav1.ConditionTrue, "Outside")
	r.untilReady(t, e)
	if r.neighbor(t, net, "192.0.2.1") != nil {
		t.Error("a neighbor outside the prefixes")
	}
	// The prefix is added: it gets its neighbor.
	must(t, r.c.Patch(ctx(), client.Resource{Name: v1alpha1.ResourceNetworks}, net, "", []byte(`{"spec":{"prefixes":["10.0.0.0/24","192.0.2.0/24"]}}`), &v1alpha1.Network{}))
	r.untilCondition(t, e, v1alpha1.ConditionConflict, metav1.ConditionFalse, "Held")
	if r.neighbor(t, net, "192.0.2.1") == nil {
		t.Error("no neighbor after the prefix came")
	}
	r.bothAgree(t)
	r.remove(t, e)
	r.untilGone(t, e)
}

func (r *rig) networkLast(t *testing.T) {
	name := unique("late")
	e := endpoint(unique("ep"), name, "node-a", mac(1), "10.0.0.1")
	must(t, create(r.c, e))
	r.untilCondition(t, e, v1alpha1.ConditionReady, metav1.ConditionFalse, "UnknownNetwork")
	r.id++
	must(t, create(r.c, network(name, 1000+r.id, "10.0.0.0/24")))
	r.untilReady(t, e)
	r.bothAgree(t)
	r.remove(t, e)
	r.untilGone(t, e)
}

func (r *rig) duplicateID(t *testing.T) {
	old := r.network(t, "10.0.0.0/24")
	time.Sleep(1100 * time.Millisecond) // creation times are whole seconds
	young := network(unique("net"), 1000+r.id, "10.0.0.0/24")
	must(t, create(r.c, young))
	e := endpoint(unique("ep"), young.Name, "node-a", mac(1), "10.0.0.1")
	must(t, create(r.c, e))
	r.untilCondition(t, e, v1alpha1.ConditionReady, metav1.ConditionFalse, "UnknownNetwork")
	if r.fdb(t, young.Name, mac(1)) != nil {
		t.Error("the younger network is programmed")
	}
	must(t, r.c.Delete(ctx(), client.Resource{Name: v1alpha1.ResourceNetworks}, old, "", ""))
	r.untilReady(t, e)
	r.bothAgree(t)
	r.remove(t, e)
	r.untilGone(t, e)
}

func (r *rig) addressesChange(t *testing.T) {
	net := r.network(t, "10.0.0.0/24")
	e := endpoint(unique("ep"), net, "node-a", mac(1), "10.0.0.1", "10.0.0.2")
	must(t, create(r.c, e))
	r.untilReady(t, e)
	must(t, r.c.Patch(ctx(), resource(e), e.Name, "", []byte(`{"spec":{"addresses":["10.0.0.2","10.0.0.3"],"segment":9}}`), &v1alpha1.NetworkEndpoint{}))
	apitest.Eventually(t, "the addresses to follow", func() error {
		if r.neighbor(t, net, "10.0.0.1") != nil || r.neighbor(t, net, "10.0.0.3") == nil || r.fdb(t, net, mac(1)).Status.Segment != 9 {
			return errors.New("not yet")
		}
		return nil
	})
	r.bothAgree(t)
	r.remove(t, e)
	r.untilGone(t, e)
}

// leave takes a node's last endpoint out of a network: it follows the network's
// bindings no longer once it has lingered.
func (r *rig) leave(t *testing.T) {
	c := startNode(t, r.s, "node-c", config{linger: time.Second})
	net := r.network(t, "10.0.0.0/24")
	there, here := endpoint(unique("ep"), net, "node-a", mac(1)), endpoint(unique("ep"), net, "node-c", mac(2))
	must(t, create(r.c, there))
	must(t, create(r.c, here))
	r.untilReady(t, there)
	r.untilReady(t, here)
	c.agrees(t, r.c)
	r.remove(t, here)
	r.untilGone(t, here)
	apitest.Eventually(t, "node-c to forget the network's bindings", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.state.FDB) > 0 || c.gates.Hosted[net] {
			return fmt.Errorf("%d entries, hosted %v", len(c.state.FDB), c.gates.Hosted)
		}
		return nil
	})
	r.remove(t, there)
	r.untilGone(t, there)
}

// restart stops a node while things happen and starts it anew: what it left
// half done is finished, what was orphaned is swept, and nothing else is
// written.
func (r *rig) restart(t *testing.T) {
	net := r.network(t, "10.0.0.0/24")
	var eps []*v1alpha1.NetworkEndpoint
	d := startNode(t, r.s, "node-d", config{})
	for i := range 4 {
		eps = append(eps, endpoint(unique("ep"), net, "node-d", mac(10+i), v1alpha1.IPAddress(fmt.Sprintf("10.0.0.%d", 10+i))))
		must(t, create(r.c, eps[i]))
	}
	for _, e := range eps {
		r.untilReady(t, e)
	}
	d.quiet(t)
	d.kill()
	// While it is down: one is deleted, one vanishes by force, one is half
	// removed, and one more comes.
	r.remove(t, eps[0])
	must(t, r.c.Patch(ctx(), resource(eps[1]), eps[1].Name, "", []byte(`{"metadata":{"finalizers":null}}`), &v1alpha1.NetworkEndpoint{}))
	r.remove(t, eps[1])
	must(t, r.c.Delete(ctx(), client.Resource{Name: v1alpha1.ResourceNeighbors}, v1alpha1.NeighborName(net, netip.MustParseAddr("10.0.0.12")), "", ""))
	eps = append(eps, endpoint(unique("ep"), net, "node-d", mac(14), "10.0.0.14"))
	must(t, create(r.c, eps[4]))

	d = startNode(t, r.s, "node-d", config{})
	r.untilGone(t, eps[0])
	r.untilReady(t, eps[4])
	apitest.Eventually(t, "the orphans to be swept and the rest mended", func() error {
		for i, want := range []bool{false, false, true, true, true} {
			if got := r.fdb(t, net, mac(10+i)) != nil; got != want {
				return fmt.Errorf("entry %d is there: %v", i, got)
			}
			if got := r.neighbor(t, net, fmt.Sprintf("10.0.0.%d", 10+i)) != nil; got != want {
				return fmt.Errorf("neighbor %d is there: %v", i, got)
			}
		}
		return nil
	})
	d.quiet(t)
	d.agrees(t, r.c)
	want := map[string]int{
		"delete fdbentries ok": 2, "delete neighbors ok": 2, // eps[0] and eps[1]
		"patch networkendpoints ok": 1 + 2, // eps[0]'s finalizer; eps[4]'s finalizer and status
		"create fdbentries ok":      1,
		"create neighbors ok":       2, // eps[2]'s and eps[4]'s
	}
	got := d.countedWrites()
	// Like a conflict, apart: the later of a binding's two watches may still
	// show what the other saw go, and a second delete finds nothing.
	maps.DeleteFunc(got, func(k string, _ int) bool {
		return strings.HasPrefix(k, "delete ") && strings.HasSuffix(k, " NotFound")
	})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("writes %v, want %v", got, want)
	}
	// Once more, with nothing to do: no write at all.
	d.kill()
	d = startNode(t, r.s, "node-d", config{})
	apitest.Eventually(t, "node-d to host the network", func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.gates.Hosted[net] {
			return errors.New("not yet")
		}
		return nil
	})
	d.agrees(t, r.c)
	d.quiet(t)
	if got := d.countedWrites(); len(got) != 0 {
		t.Errorf("writes of a restart with nothing to do: %v", got)
	}
}

package e2ek8s

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/control"
	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
)

func (c *cluster) endpoint(name string) (*v1alpha1.NetworkEndpoint, error) {
	var e v1alpha1.NetworkEndpoint
	err := c.api.Get(within(c.t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceNetworkEndpoints, Namespace: lab.EndpointNamespace}, name, &e)
	return &e, err
}

func (c *cluster) lists() (endpoints []v1alpha1.NetworkEndpoint, fdb []v1alpha1.FDBEntry, neighbors []v1alpha1.Neighbor) {
	c.t.Helper()
	var e v1alpha1.NetworkEndpointList
	var f v1alpha1.FDBEntryList
	var n v1alpha1.NeighborList
	ctx := within(c.t, 30*time.Second)
	must(c.t, c.api.List(ctx, client.Resource{Name: v1alpha1.ResourceNetworkEndpoints}, metav1.ListOptions{}, &e))
	must(c.t, c.api.List(ctx, client.Resource{Name: v1alpha1.ResourceFDBEntries}, metav1.ListOptions{}, &f))
	must(c.t, c.api.List(ctx, client.Resource{Name: v1alpha1.ResourceNeighbors}, metav1.ListOptions{}, &n))
	return e.Items, f.Items, n.Items
}

// binding is what an FDBEntry or a Neighbor says, for comparison.
type binding struct {
	Name, Label, Network, Key, MAC string
	Source                         v1alpha1.Source
	Node                           string
	Endpoint                       v1alpha1.EndpointReference
	Segment                        int32
	Owner                          string // kind/name/UID
}

func bindingOf(m *metav1.ObjectMeta, network v1alpha1.NetworkName, key string, source v1alpha1.Source) binding {
	b := binding{Name: m.Name, Label: m.Labels["picot.dev/network"], Network: string(network), Key: key, Source: source}
	for _, o := range m.OwnerReferences {
		b.Owner += fmt.Sprintf("%s/%s/%s", o.Kind, o.Name, o.UID)
	}
	return b
}

// stored are all bindings there are.
func (c *cluster) stored() []binding {
	c.t.Helper()
	_, fdb, neighbors := c.lists()
	out := []binding{}
	for _, f := range fdb {
		b := bindingOf(&f.ObjectMeta, f.Spec.Network, string(f.Spec.MAC), f.Spec.Source)
		if s := f.Status; s != nil {
			b.Node, b.Segment = s.ManagingNode, int32(s.Segment)
			if s.Endpoint != nil {
				b.Endpoint = *s.Endpoint
			}
		}
		out = append(out, b)
	}
	for _, n := range neighbors {
		b := bindingOf(&n.ObjectMeta, n.Spec.Network, string(n.Spec.IP), n.Spec.Source)
		if s := n.Status; s != nil {
			b.Node, b.MAC = s.ManagingNode, string(s.MAC)
			if s.Endpoint != nil {
				b.Endpoint = *s.Endpoint
			}
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b binding) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// name is a binding's name by docs: the key after the network's name.
func name(network, key string) string {
	a, err := netip.ParseAddr(key)
	switch {
	case err != nil:
		return network + "." + strings.ReplaceAll(key, ":", "-")
	case a.Is6():
		return network + "." + strings.ReplaceAll(a.StringExpanded(), ":", "-")
	}
	return network + "." + key
}

// implied are the bindings that follow from the endpoints and nothing else.
func (c *cluster) implied() []binding {
	c.t.Helper()
	endpoints, _, _ := c.lists()
	var red v1alpha1.Network
	must(c.t, c.api.Get(within(c.t, 10*time.Second), client.Resource{Name: v1alpha1.ResourceNetworks}, "red", &red))
	out := []binding{}
	for _, e := range endpoints {
		b := binding{
			Label: "red", Network: "red", Source: "static", Node: e.Spec.NodeName, Owner: "Network/red/" + string(red.UID),
			Endpoint: v1alpha1.EndpointReference{Namespace: e.Namespace, Name: e.Name, UID: string(e.UID)},
		}
		b.Key, b.Segment = string(e.Spec.MAC), int32(e.Spec.Segment)
		b.Name = name("red", b.Key)
		out = append(out, b)
		b.MAC, b.Segment = b.Key, 0
		for _, a := range e.Spec.Addresses {
			b.Key = string(a)
			b.Name = name("red", b.Key)
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b binding) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// wantImplied waits until the bindings are exactly those that the endpoints
// imply.
func (c *cluster) wantImplied(limit time.Duration) {
	c.t.Helper()
	c.eventually(limit, "the bindings that the endpoints imply", func() error {
		return differ(c.stored(), c.implied())
	})
}

func differ[T any](got, want []T) error {
	if reflect.DeepEqual(got, want) {
		return nil
	}
	n := min(len(got), len(want))
	for i := range n {
		if !reflect.DeepEqual(got[i], want[i]) {
			return fmt.Errorf("%d of %d; the first that differs is %+v, want %+v", len(got), len(want), got[i], want[i])
		}
	}
	return fmt.Errorf("%d, want %d", len(got), len(want))
}

// wantReady waits until an endpoint's status is that of one that is carried.
func (c *cluster) wantReady(p *lab.Pod) {
	c.t.Helper()
	c.eventually(20*time.Second, p.Name+" to be ready", func() error {
		e, err := c.endpoint(p.Name)
		if err != nil {
			return err
		}
		if e.Status.Port != p.Device || !meta.IsStatusConditionTrue(e.Status.Conditions, "Ready") ||
			!meta.IsStatusConditionFalse(e.Status.Conditions, "Conflict") || !slices.Contains(e.Finalizers, v1alpha1.EndpointFinalizer) {
			return fmt.Errorf("finalizers %v, status %+v", e.Finalizers, e.Status)
		}
		return nil
	})
}

// wantGone waits until an endpoint is gone.
func (c *cluster) wantGone(name string) {
	c.t.Helper()
	c.eventually(20*time.Second, "endpoint "+name+" to go", func() error {
		e, err := c.endpoint(name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("finalizers %v: %w", e.Finalizers, cmp.Or(err, errThere))
	})
}

var errThere = fmt.Errorf("it is there")

// tables are what a node forwards by.
type tables struct {
	FDB       []status.FDBEntry
	Neighbors []status.Neighbor
}

func (c *cluster) tables(n *lab.Node) (out tables, err error) {
	for path, into := range map[string]any{"/fdb": &out.FDB, "/neighbors": &out.Neighbors} {
		body, err := control.Get(within(c.t, 10*time.Second), n.RunDir(), path)
		if err != nil {
			return out, err
		}
		if err := json.Unmarshal(body, into); err != nil {
			return out, fmt.Errorf("%s: %w", path, err)
		}
	}
	return out, nil
}

// write is one line of the audit log.
type write struct {
	User                          string
	Verb                          string
	Resource, Subresource, Object string
	Code                          int
}

// writes are what the agents wrote so far.
func (c *cluster) writes() []write {
	c.t.Helper()
	f, err := os.Open(c.audit)
	must(c.t, err)
	defer f.Close()
	var out []write
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var e struct {
			Stage, Verb    string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Subresource, Name string }
			ResponseStatus struct{ Code int }
		}
		if json.Unmarshal(s.Bytes(), &e) != nil || e.Stage != "ResponseComplete" || !strings.HasSuffix(e.User.Username, ":picot-agent") {
			continue
		}
		out = append(out, write{e.User.Username, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Name, e.ResponseStatus.Code})
	}
	return out
}

// countWrites counts writes by "verb resource[/subresource]", those of one
// object if it is named; refused ones are counted as
// "code N: ...".
func countWrites(all []write, object string) map[string]int {
	out := map[string]int{}
	for _, w := range all {
		if object != "" && w.Object != object {
			continue
		}
		key := w.Verb + " " + w.Resource
		if w.Subresource != "" {
			key += "/" + w.Subresource
		}
		if w.Code >= 300 {
			key = fmt.Sprintf("code %d: %s", w.Code, key)
		}
		out[key]++
	}
	return out
}

// wantWrites compares counted writes. Conflicts change nothing and are not
// compared, nor is what the elected agent says of networks and nodes.
func wantWrites(t *testing.T, what string, got, want map[string]int) {
	t.Helper()
	maps.DeleteFunc(got, func(k string, n int) bool {
		conflict := strings.HasPrefix(k, "code 409")
		if conflict {
			t.Logf("%s: %d of %s", what, n, k)
		}
		return conflict || strings.HasSuffix(k, "networks/status") || strings.HasSuffix(k, "srv6nodes/status")
	})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("writes of %s: %v, want %v", what, got, want)
	}
}

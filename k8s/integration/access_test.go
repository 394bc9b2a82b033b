package integration

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
)

func out(r client.Resource) runtime.Object {
	switch r.Name {
	case v1alpha1.ResourceNetworks:
		return &v1alpha1.Network{}
	case v1alpha1.ResourceNetworkEndpoints:
		return &v1alpha1.NetworkEndpoint{}
	case v1alpha1.ResourceFDBEntries:
		return &v1alpha1.FDBEntry{}
	case v1alpha1.ResourceNeighbors:
		return &v1alpha1.Neighbor{}
	}
	return &v1alpha1.SRv6Node{}
}

// testAccess shows what the token of node a's agent may write and what not.
func testAccess(t *testing.T, s *apitest.Server) {
	admin := s.Client(t)
	clientOf := func(account, node string) *client.Client {
		c, err := client.New(s.TokenConfig(t, account, node))
		must(t, err)
		return c
	}
	a, nobody := clientOf("picot-agent", "node-a"), clientOf("picot-agent", "")
	a2 := s.AgentConfig(t, "node-a")
	net := network(unique("net"), 56)
	must(t, create(admin, net))
	entry := func(mac, source, node string) *v1alpha1.FDBEntry {
		o := &v1alpha1.FDBEntry{TypeMeta: typeMeta("FDBEntry"), Spec: v1alpha1.FDBEntrySpec{Network: "acc", MAC: v1alpha1.MACAddress(mac), Source: v1alpha1.Source(source)}}
		o.Name, o.Labels = "acc."+strings.ReplaceAll(mac, ":", "-"), map[string]string{v1alpha1.NetworkLabel: "acc"}
		if node != "" {
			o.Status = &v1alpha1.FDBEntryStatus{ManagingNode: node}
		}
		return o
	}
	res := client.Resource{Name: v1alpha1.ResourceFDBEntries}
	ofB := entry("02:00:00:00:00:b1", "static", "node-b")
	learnedB := entry("02:00:00:00:00:b2", "learned", "node-b")
	epA, epB := endpoint(unique("ep"), "acc", "node-a", ""), endpoint(unique("ep"), "acc", "node-b", "")
	srnB := &v1alpha1.SRv6Node{TypeMeta: typeMeta("SRv6Node"), ObjectMeta: metav1.ObjectMeta{Name: "node-b"}, Spec: v1alpha1.SRv6NodeSpec{Locator: "2001:db8:0:b::/64"}}
	for _, o := range []runtime.Object{ofB, learnedB, epA, epB, srnB} {
		must(t, create(admin, o))
	}
	// The policies and roles take effect through the server's own informers.
	apitest.Eventually(t, "the policy to be in force", func() error {
		err := create(a, entry("02:00:00:00:00:b0", "static", "node-b"))
		if err == nil {
			must(t, admin.Delete(ctx(), res, "acc.02-00-00-00-00-b0", "", ""))
			return errNotYet
		}
		if strings.Contains(err.Error(), "writes only the bindings it manages") {
			return nil
		}
		return err
	})
	const own = "writes only the bindings it manages"
	patch := func(c *client.Client, r client.Resource, name, sub, body string) error {
		return c.Patch(ctx(), r, name, sub, []byte(body), out(r))
	}
	mine := entry("02:00:00:00:00:a1", "static", "node-a")
	for _, x := range []struct {
		name    string
		do      func() error
		refusal string
	}{
		{"creates its own", func() error { return create(a, mine) }, ""},
		{"creates another's", func() error { return create(a, entry("02:00:00:00:00:a2", "static", "node-b")) }, own},
		{"creates nobody's", func() error { return create(a, entry("02:00:00:00:00:a3", "static", "")) }, own},
		{"changes its own", func() error { return patch(a, res, mine.Name, "", `{"status":{"segment":2}}`) }, ""},
		{"gives its own away", func() error {
			return patch(a, res, mine.Name, "", `{"status":{"managingNode":"node-b","endpoint":{"namespace":"x","name":"y","uid":"z"}}}`)
		}, own},
		{"changes another's", func() error { return patch(a, res, ofB.Name, "", `{"status":{"segment":2}}`) }, own},
		{"deletes another's", func() error { return a.Delete(ctx(), res, ofB.Name, "", "") }, own},
		{"takes over a learned one", func() error { return patch(a, res, learnedB.Name, "", `{"status":{"managingNode":"node-a"}}`) }, ""},
		{"takes a static one", func() error { return patch(a, res, ofB.Name, "", `{"status":{"managingNode":"node-a"}}`) }, "keeps its managingNode"},
		{"deletes its own", func() error { return a.Delete(ctx(), res, mine.Name, "", "") }, ""},
		{"its endpoint", func() error {
			return patch(a, resource(epA), epA.Name, "", `{"metadata":{"finalizers":["picot.dev/bindings"]}}`)
		}, ""},
		{"its endpoint's status", func() error { return patch(a, resource(epA), epA.Name, "status", `{"status":{"port":"1"}}`) }, ""},
		{"another's endpoint", func() error {
			return patch(a, resource(epB), epB.Name, "", `{"metadata":{"finalizers":["picot.dev/bindings"]}}`)
		}, "writes only its own endpoints"},
		{"another's endpoint's status", func() error { return patch(a, resource(epB), epB.Name, "status", `{"status":{"port":"1"}}`) }, "writes only its own endpoints"},
		{"another's SRv6Node", func() error { return patch(a, resource(srnB), srnB.Name, "", `{"spec":{"nextHop":"fe80::1"}}`) }, "forbidden"},
		{"a Network", func() error { return create(a, network(unique("net"), 55)) }, "forbidden"},
		{"a token without a node", func() error { return create(nobody, entry("02:00:00:00:00:a4", "static", "node-a")) }, "names no node"},
		{"a token without a node, of no node", func() error { return create(nobody, entry("02:00:00:00:00:a5", "static", "")) }, "names no node"},
		{"a Network's status, not elected", func() error {
			return patch(a, resource(net), net.Name, "status", `{"status":{"conditions":[]}}`)
		}, "not elected"},
		{"a Lease in another's name", func() error { return hold(t, a2, "node-b") }, "only in its own node's name"},
		{"the Lease", func() error { return hold(t, a2, "node-a") }, ""},
	} {
		t.Run(x.name, func(t *testing.T) { wantErr(t, x.do(), x.refusal) })
	}
	apitest.Eventually(t, "the elected agent to be let through", func() error {
		return patch(a, resource(net), net.Name, "status", `{"status":{"conditions":[]}}`)
	})
	wantErr(t, patch(a, resource(net), net.Name, "", `{"spec":{"mtu":1400}}`), "forbidden")
	// It clears up after dead nodes: it may delete, and nothing else.
	wantErr(t, patch(a, res, ofB.Name, "", `{"status":{"segment":2}}`), own)
	wantErr(t, create(a, entry("02:00:00:00:00:a6", "static", "node-b")), own)
	must(t, a.Delete(ctx(), res, ofB.Name, "", ""))
}

// hold writes a holder into the election's Lease with a node's token.
func hold(t *testing.T, rc *rest.Config, holder string) error {
	t.Helper()
	c := rest.CopyConfig(rc)
	c.GroupVersion = &schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	r, err := rest.RESTClientFor(c)
	must(t, err)
	const path = "/apis/coordination.k8s.io/v1/namespaces/picot-system/leases/picot-reclaimer"
	raw, err := r.Get().AbsPath(path).DoRaw(ctx())
	must(t, err)
	var l map[string]any
	must(t, json.Unmarshal(raw, &l))
	l["spec"] = map[string]any{"holderIdentity": holder}
	raw, err = json.Marshal(l)
	must(t, err)
	return r.Put().AbsPath(path).SetHeader("Content-Type", "application/json").Body(raw).Do(ctx()).Error()
}

type notYet struct{}

func (notYet) Error() string { return "it went through" }

var errNotYet error = notYet{}

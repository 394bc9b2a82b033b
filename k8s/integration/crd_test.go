package integration

import (
	"strings"
	"testing"

	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAPI runs what needs only one server, one after the other.
func TestAPI(t *testing.T) {
	s := server(t)
	t.Run("creation", func(t *testing.T) { testCreation(t, s) })
	t.Run("changes", func(t *testing.T) { testChanges(t, s) })
	t.Run("status", func(t *testing.T) { testStatus(t, s) })
	t.Run("selectors", func(t *testing.T) { testSelectors(t, s) })
	t.Run("access", func(t *testing.T) { testAccess(t, s) })
}

// testCreation holds the rules of the CRDs on one object.
func testCreation(t *testing.T, s *apitest.Server) {
	const (
		net   = "apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: NAME}\nspec: "
		ep    = "apiVersion: picot.dev/v1alpha1\nkind: NetworkEndpoint\nmetadata: {name: NAME}\nspec: "
		srn   = "apiVersion: picot.dev/v1alpha1\nkind: SRv6Node\nmetadata: {name: NAME}\nspec: "
		fdb   = "apiVersion: picot.dev/v1alpha1\nkind: FDBEntry\nmetadata: {name: NAME, labels: {picot.dev/network: red}}\nspec: "
		neigh = "apiVersion: picot.dev/v1alpha1\nkind: Neighbor\nmetadata: {name: NAME, labels: {picot.dev/network: red}}\nspec: "
	)
	for _, c := range []struct{ name, object, text, refusal string }{
		{"network", "", net + `{id: 1, prefixes: [10.0.0.0/24, "fd00::/64"], mtu: 1446, gateway: {addresses: [10.0.0.1], mac: "02:00:00:00:00:fe"}, portSecurity: mac+ip, learning: {enabled: false, limits: {macs: 5}}, isolation: {default: deny, rules: [{from: [1], to: [2, 3]}]}}`, ""},
		{"id 0", "", net + "{id: 0}", "spec.id"},
		{"id 2^24", "", net + "{id: 16777216}", "spec.id"},
		{"no id", "", net + "{mtu: 1500}", "spec.id"},
		{"host bits", "", net + "{id: 1, prefixes: [10.0.0.5/24]}", "host bits zero"},
		{"host bits 6", "", net + `{id: 1, prefixes: ["fd00::5/64"]}`, "host bits zero"},
		{"no prefix", "", net + "{id: 1, prefixes: [10.0.0.0]}", "want a prefix"},
		{"mapped prefix", "", net + `{id: 1, prefixes: ["::ffff:10.0.0.0/120"]}`, "want a prefix"},
		{"prefix twice", "", net + "{id: 1, prefixes: [10.0.0.0/24, 10.0.0.0/24]}", "Duplicate"},
		{"small mtu", "", net + `{id: 1, prefixes: ["fd00::/64"], mtu: 1279}`, "at least 1280"},
		{"small mtu 4", "", net + `{id: 1, prefixes: [10.0.0.0/24], mtu: 1279}`, ""},
		{"dotted name", "a.b", net + "{id: 1}", "DNS label"},
		{"long name", strings.Repeat("a", 64), net + "{id: 1}", "DNS label"},
		{"bare off", "", net + "{id: 1, portSecurity: off}", "portSecurity"},
		{"quoted off", "", net + `{id: 1, portSecurity: "off"}`, ""},
		{"isolation", "", net + "{id: 1, isolation: {default: maybe}}", "default"},
		{"empty rule", "", net + "{id: 1, isolation: {default: deny, rules: [{from: [], to: [1]}]}}", "from"},

		{"endpoint", "", ep + `{network: red, nodeName: n1, mac: "02:00:00:00:00:0a", addresses: [10.0.0.10, "fd00::a"], segment: 7, interface: veth-a}`, ""},
		{"endpoint without MAC", "", ep + "{network: red, nodeName: n1}", ""},
		{"addresses without MAC", "", ep + "{network: red, nodeName: n1, addresses: [10.0.0.10]}", "need a mac"},
		{"upper-case MAC", "", ep + `{network: red, nodeName: n1, mac: "02:00:00:00:00:0A"}`, "spec.mac"},
		{"group MAC", "", ep + `{network: red, nodeName: n1, mac: "03:00:00:00:00:0a"}`, "spec.mac"},
		{"zero MAC", "", ep + `{network: red, nodeName: n1, mac: "00:00:00:00:00:00"}`, "names nobody"},
		{"mapped address", "", ep + `{network: red, nodeName: n1, mac: "02:00:00:00:00:0a", addresses: ["::ffff:10.0.0.1"]}`, "IPv4-mapped"},
		{"zone", "", ep + `{network: red, nodeName: n1, mac: "02:00:00:00:00:0a", addresses: ["fe80::1%eth0"]}`, "zone"},
		{"long interface", "", ep + "{network: red, nodeName: n1, interface: abcdefghijklmnop}", "interface"},
		{"segment", "", ep + "{network: red, nodeName: n1, segment: 16777216}", "segment"},

		{"node", "", srn + `{locator: "2001:db8:0:1::/64", nextHop: "fe80::1", via: ["2001:db8:ff::1"]}`, ""},
		{"locator of 65 bits", "", srn + `{locator: "2001:db8::/65"}`, "32 to 64 bits"},
		{"locator host bits", "", srn + `{locator: "2001:db8::1/64"}`, "host bits"},
		{"locator IPv4", "", srn + "{locator: 10.0.0.0/32}", "IPv6 prefix"},
		{"via IPv4", "", srn + `{locator: "2001:db8:0:2::/64", via: [10.0.0.1]}`, "IPv6 address"},

		{"fdb", "red.02-00-00-00-00-01", fdb + `{network: red, mac: "02:00:00:00:00:01", source: learned}` + "\nstatus: {managingNode: n1}", ""},
		{"fdb name", "red.02-00-00-00-00-02", fdb + `{network: red, mac: "02:00:00:00:00:03", source: learned}`, "the name must be"},
		{"fdb source", "red.02-00-00-00-00-03", fdb + `{network: red, mac: "02:00:00:00:00:03", source: guessed}`, "source"},
		{"fdb label", "blue.02-00-00-00-00-03", fdb + `{network: blue, mac: "02:00:00:00:00:03", source: learned}`, "must equal spec.network"},
		{"neighbor 4", "red.10.0.0.5", neigh + "{network: red, ip: 10.0.0.5, source: static}", ""},
		{"neighbor 6", "red.fd00-0000-0000-0000-0000-0000-0000-0005", neigh + `{network: red, ip: "fd00::5", source: static}`, ""},
		{"neighbor 6 other", "red.fd00-0000-0000-0000-0000-0000-0000-0006", neigh + `{network: red, ip: "fd00::7", source: static}`, "the name must be"},
		{"neighbor 6 short", "red.fd00--5", neigh + `{network: red, ip: "fd00::5", source: static}`, "the name must be"},
		{"neighbor 4 other", "red.10.0.0.6", neigh + "{network: red, ip: 10.0.0.7, source: static}", "the name must be"},
		{"neighbor text", "red.fd00-0000-0000-0000-0000-0000-0000-0008", neigh + `{network: red, ip: "fd00:0::8", source: static}`, "canonical"},
		{"neighbor mapped", "red.0000-0000-0000-0000-0000-ffff-0a00-0001", neigh + `{network: red, ip: "::ffff:10.0.0.1", source: static}`, "IPv4-mapped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := c.object
			if name == "" {
				name = unique("x")
			}
			wantErr(t, s.TryApply(t, strings.Replace(c.text, "NAME", name, 1)), c.refusal)
		})
	}
}

// testChanges holds the rules of the CRDs on a change.
func testChanges(t *testing.T, s *apitest.Server) {
	c := s.Client(t)
	net := network(unique("net"), 7)
	ep := endpoint(unique("ep"), "red", "n1", "02:00:00:00:00:0b")
	noMAC := endpoint(unique("ep"), "red", "n1", "")
	entry := func(mac, source, node, uid string) *v1alpha1.FDBEntry {
		o := &v1alpha1.FDBEntry{TypeMeta: typeMeta("FDBEntry"), Spec: v1alpha1.FDBEntrySpec{Network: "red", MAC: v1alpha1.MACAddress(mac), Source: v1alpha1.Source(source)}}
		o.Name = "red." + strings.ReplaceAll(mac, ":", "-")
		o.Labels = map[string]string{v1alpha1.NetworkLabel: "red"}
		o.Status = &v1alpha1.FDBEntryStatus{ManagingNode: node}
		if uid != "" {
			o.Status.Endpoint = &v1alpha1.EndpointReference{Namespace: "default", Name: "e", UID: uid}
		}
		return o
	}
	learned := entry("02:00:00:00:01:01", "learned", "n1", "")
	static := entry("02:00:00:00:01:02", "static", "n1", "u1")
	must(t, create(c, net))
	must(t, create(c, ep))
	must(t, create(c, noMAC))
	must(t, create(c, learned))
	must(t, create(c, static))
	for _, x := range []struct {
		name     string
		resource client.Resource
		object   string
		patch    string
		refusal  string
	}{
		{"id", resource(net), net.Name, `{"spec":{"id":8}}`, "id is immutable"},
		{"mtu", resource(net), net.Name, `{"spec":{"mtu":1400}}`, ""},
		{"endpoint's network", resource(ep), ep.Name, `{"spec":{"network":"blue"}}`, "network is immutable"},
		{"endpoint's node", resource(ep), ep.Name, `{"spec":{"nodeName":"n2"}}`, "nodeName is immutable"},
		{"endpoint's MAC", resource(ep), ep.Name, `{"spec":{"mac":"02:00:00:00:00:0c"}}`, "mac is immutable"},
		{"endpoint's MAC taken away", resource(ep), ep.Name, `{"spec":{"mac":null}}`, "mac is immutable"},
		{"endpoint's MAC given late", resource(noMAC), noMAC.Name, `{"spec":{"mac":"02:00:00:00:00:0c"}}`, "mac is immutable"},
		{"endpoint's segment", resource(ep), ep.Name, `{"spec":{"segment":9}}`, ""},
		{"entry's MAC", resource(learned), learned.Name, `{"spec":{"mac":"02:00:00:00:01:09"}}`, "immutable"},
		{"learned moves", resource(learned), learned.Name, `{"status":{"managingNode":"n2"}}`, ""},
		{"learned to static, claimed", resource(learned), learned.Name, `{"spec":{"source":"static"},"status":{"managingNode":"n3","endpoint":{"namespace":"default","name":"x","uid":"u9"}}}`, ""},
		{"static to learned", resource(learned), learned.Name, `{"spec":{"source":"learned"}}`, "only from learned to static"},
		{"static keeps its node", resource(static), static.Name, `{"status":{"managingNode":"n2"}}`, "keeps its managingNode"},
		{"static loses its node", resource(static), static.Name, `{"status":{"managingNode":null}}`, "keeps its managingNode"},
		{"static's status dropped", resource(static), static.Name, `{"status":null}`, "keeps its managingNode"},
		{"static's segment", resource(static), static.Name, `{"status":{"segment":4}}`, ""},
		{"static claimed by another endpoint", resource(static), static.Name, `{"status":{"managingNode":"n2","endpoint":{"namespace":"default","name":"e","uid":"u2"}}}`, ""},
		{"label", resource(static), static.Name, `{"metadata":{"labels":{"picot.dev/network":"blue"}}}`, "must equal spec.network"},
	} {
		t.Run(x.name, func(t *testing.T) {
			wantErr(t, c.Patch(ctx(), x.resource, x.object, "", []byte(x.patch), out(x.resource)), x.refusal)
		})
	}
}

// testStatus holds where status is a subresource and where it is not.
func testStatus(t *testing.T, s *apitest.Server) {
	c := s.Client(t)
	n := network(unique("net"), 9)
	n.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "R", LastTransitionTime: metav1.Now()}}
	must(t, create(c, n))
	if len(n.Status.Conditions) != 0 {
		t.Error("a Network was created with its status")
	}
	e := &v1alpha1.FDBEntry{TypeMeta: typeMeta("FDBEntry"), Spec: v1alpha1.FDBEntrySpec{Network: "red", MAC: "02:00:00:00:02:01", Source: "static"},
		Status: &v1alpha1.FDBEntryStatus{ManagingNode: "n1", Segment: 3}}
	e.Name, e.Labels = "red.02-00-00-00-02-01", map[string]string{v1alpha1.NetworkLabel: "red"}
	must(t, create(c, e))
	if e.Status == nil || e.Status.Segment != 3 {
		t.Error("an FDBEntry was created without its status")
	}
	if n.Spec.LinkLocal == nil || !*n.Spec.LinkLocal || n.Spec.PortSecurity != v1alpha1.PortSecurityOff {
		t.Errorf("defaults: %+v", n.Spec)
	}
}

// testSelectors holds what nodes select their objects by.
func testSelectors(t *testing.T, s *apitest.Server) {
	c := s.Client(t)
	node := unique("node")
	must(t, create(c, endpoint(unique("ep"), "red", node, "")))
	must(t, create(c, endpoint(unique("ep"), "red", unique("node"), "")))
	var eps v1alpha1.NetworkEndpointList
	must(t, c.List(ctx(), client.Resource{Name: v1alpha1.ResourceNetworkEndpoints}, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}, &eps))
	if len(eps.Items) != 1 {
		t.Errorf("%d endpoints of %s", len(eps.Items), node)
	}
	e := &v1alpha1.FDBEntry{TypeMeta: typeMeta("FDBEntry"), Spec: v1alpha1.FDBEntrySpec{Network: "sel", MAC: "02:00:00:00:03:01", Source: "static"},
		Status: &v1alpha1.FDBEntryStatus{ManagingNode: node}}
	e.Name, e.Labels = "sel.02-00-00-00-03-01", map[string]string{v1alpha1.NetworkLabel: "sel"}
	must(t, create(c, e))
	for _, o := range []metav1.ListOptions{{FieldSelector: "status.managingNode=" + node}, {LabelSelector: v1alpha1.NetworkLabel + " in (sel)"}} {
		var list v1alpha1.FDBEntryList
		must(t, c.List(ctx(), client.Resource{Name: v1alpha1.ResourceFDBEntries}, o, &list))
		if len(list.Items) != 1 {
			t.Errorf("%d entries by %+v", len(list.Items), o)
		}
	}
}

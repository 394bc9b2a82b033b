package integration

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
)

var serial atomic.Int32

// unique returns a name that no other test has.
func unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, serial.Add(1)) }

func ctx() context.Context { return context.Background() }

func wantErr(t *testing.T, err error, text string) {
	t.Helper()
	switch {
	case text == "" && err != nil:
		t.Errorf("refused: %v", err)
	case text != "" && err == nil:
		t.Errorf("went through, want a refusal that says %q", text)
	case text != "" && !strings.Contains(err.Error(), text):
		t.Errorf("refused with %v, want %q", err, text)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: kind}
}

func network(name string, id int32, prefixes ...v1alpha1.Prefix) *v1alpha1.Network {
	return &v1alpha1.Network{TypeMeta: typeMeta("Network"), ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NetworkSpec{ID: id, Prefixes: prefixes}}
}

func endpoint(name, network, node, mac string, ips ...v1alpha1.IPAddress) *v1alpha1.NetworkEndpoint {
	return &v1alpha1.NetworkEndpoint{TypeMeta: typeMeta("NetworkEndpoint"), ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: v1alpha1.NetworkEndpointSpec{Network: v1alpha1.NetworkName(network), NodeName: node, MAC: v1alpha1.MACAddress(mac), Addresses: ips}}
}

func resource(o runtime.Object) client.Resource {
	switch o.(type) {
	case *v1alpha1.Network:
		return client.Resource{Name: v1alpha1.ResourceNetworks}
	case *v1alpha1.NetworkEndpoint:
		return client.Resource{Name: v1alpha1.ResourceNetworkEndpoints, Namespace: "default"}
	case *v1alpha1.FDBEntry:
		return client.Resource{Name: v1alpha1.ResourceFDBEntries}
	case *v1alpha1.Neighbor:
		return client.Resource{Name: v1alpha1.ResourceNeighbors}
	}
	return client.Resource{Name: v1alpha1.ResourceSRv6Nodes}
}

func listOptions() metav1.ListOptions { return metav1.ListOptions{} }

func create(c *client.Client, o runtime.Object) error { return c.Create(ctx(), resource(o), o) }

// server starts a server for one test.
func server(t *testing.T, args ...string) *apitest.Server {
	t.Helper()
	return apitest.Start(t, apitest.Options{Args: args})
}

// label is the metadata of a binding.
func label(name, net string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.NetworkLabel: net}}
}

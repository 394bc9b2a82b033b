package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"picot.dev/picot/gateway"
	"picot.dev/picot/internal/testnet"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
)

// Nodes come and go as a real API server says; a kind it does not serve is known to be empty.
func TestGatewayFollowsTheNodesOfTheAPI(t *testing.T) {
	server := apitest.Start(t, apitest.Options{})
	config, err := client.Config(server.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	api, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var last gateway.Inputs
	why := "nothing said yet"
	c := newClusterNodes(func(in gateway.Inputs, waiting string) {
		mu.Lock()
		defer mu.Unlock()
		last, why = in, waiting
	}, slog.New(slog.DiscardHandler))
	c.api = api
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	has := func(what, want string) {
		t.Helper()
		testnet.Eventually(t, 20*time.Second, what, func() error {
			mu.Lock()
			defer mu.Unlock()
			if got := fmt.Sprintf("%v %v", last.Nodes, last.Uplinks); why != "" || got != want {
				return fmt.Errorf("%s (waits for %q), want %s", got, why, want)
			}
			return nil
		})
	}
	has("both kinds are listed", "[] []")
	nodes := api.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	n := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": "node2", "annotations": map[string]any{"k8s.ovn.org/l3-gateway-config": "{}"}},
		"status": map[string]any{"addresses": []any{
			map[string]any{"type": "InternalIP", "address": "172.18.0.3"}, map[string]any{"type": "InternalIP", "address": "fc00:18::3"}}}}}
	made, err := nodes.Create(ctx, n, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.SetResourceVersion(made.GetResourceVersion())
	if _, err := nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	has("a node joins", "[{node2 [172.18.0.3 fc00:18::3] {}}] []")
	if err := nodes.Delete(ctx, "node2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	has("a node leaves", "[] []")
}

package doctor

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/manifests"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
)

// askServerFor bounds the questions to the API server.
const askServerFor = 6 * time.Second

// readWanted reads the source once; nil: none is given.
func readWanted(ctx context.Context, c *Config) *Wanted {
	switch {
	case c.Manifests != "":
		state, errs := manifests.Load(c.Manifests)
		w := &Wanted{State: state.State}
		for _, e := range errs {
			w.Problems = append(w.Problems, Trouble{Text: withoutMend(e.Error(), e.Mend), Mend: e.Mend, Object: e.Object, Holder: e.Holder})
		}
		return w
	case c.Kubeconfig != "" || c.InCluster:
		ctx, cancel := context.WithTimeout(ctx, askServerFor)
		defer cancel()
		w, err := fromServer(ctx, c)
		if err != nil {
			return &Wanted{Err: err, State: desired.NewState()}
		}
		return w
	}
	return nil
}

func withoutMend(text, mend string) string {
	if n := len(text) - len(mend) - len(": "); mend != "" && n > 0 && text[n:] == ": "+mend {
		return text[:n]
	}
	return text
}

func fromServer(ctx context.Context, c *Config) (*Wanted, error) {
	config, err := client.Config(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	api, err := client.New(config)
	if err != nil {
		return nil, err
	}
	var nodes v1alpha1.SRv6NodeList
	var networks v1alpha1.NetworkList
	var endpoints v1alpha1.NetworkEndpointList
	if err := api.List(ctx, client.Resource{Name: v1alpha1.ResourceSRv6Nodes}, metav1.ListOptions{}, &nodes); err != nil {
		return nil, fmt.Errorf("list SRv6Nodes: %w", err)
	}
	if err := api.List(ctx, client.Resource{Name: v1alpha1.ResourceNetworks}, metav1.ListOptions{}, &networks); err != nil {
		return nil, fmt.Errorf("list Networks: %w", err)
	}
	here := metav1.ListOptions{FieldSelector: "spec.nodeName=" + c.Node}
	if err := api.List(ctx, client.Resource{Name: v1alpha1.ResourceNetworkEndpoints}, here, &endpoints); err != nil {
		return nil, fmt.Errorf("list NetworkEndpoints: %w", err)
	}
	w := &Wanted{}
	var candidates desired.Candidates
	take := func(list []desired.Problem) bool {
		w.add(list)
		return len(list) == 0
	}
	for i := range nodes.Items {
		if n, list := desired.ParseNode(&nodes.Items[i]); take(list) {
			candidates.Nodes = append(candidates.Nodes, n)
		}
	}
	for i := range networks.Items {
		if n, list := desired.ParseNetwork(&networks.Items[i]); take(list) {
			candidates.Networks = append(candidates.Networks, n)
		}
	}
	for i := range endpoints.Items {
		if e, list := desired.ParseEndpoint(&endpoints.Items[i]); take(list) {
			candidates.Endpoints = append(candidates.Endpoints, e)
		}
	}
	state, list := desired.Resolve(candidates, nil)
	w.State = state
	w.add(list)
	return w, nil
}

func (w *Wanted) add(list []desired.Problem) {
	for i := range list {
		p := &list[i]
		w.Problems = append(w.Problems, Trouble{Text: withoutMend(p.Error(), p.Mend), Mend: p.Mend, Object: p.Object, Holder: p.Holder})
	}
}

package agent

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"picot.dev/picot/gateway"
	"picot.dev/picot/gateway/flows"
	"picot.dev/picot/internal/manifests"
	"picot.dev/picot/internal/status"
)

// gatewayPart is the gateway beside the L2 data path. Neither waits for the
// other: its databases may be down, and nothing it meets ends the agent.
type gatewayPart struct {
	controller *gateway.Controller
	gate       bool
	role       flows.Role

	mu      sync.Mutex
	waiting string // for the inputs; "": they are in
}

func newGateway(c *Config) (*gatewayPart, error) {
	if c.Gateway == nil {
		return nil, nil
	}
	controller, err := gateway.New(*c.Gateway)
	if err != nil {
		return nil, fmt.Errorf("--gateway: %w", err)
	}
	return &gatewayPart{
		controller: controller, gate: c.Gateway.DisableUDNARPNDPFlood, role: c.Gateway.Role,
		waiting: "nodes: not in sync with their source yet",
	}, nil
}

// startGateway runs the gateway until stop is called.
func (a *Agent) startGateway(ctx context.Context) (stop func(), err error) {
	g := a.gateway
	if g == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { g.controller.Run(ctx) })
	if a.kube != nil {
		group.Go(func() { a.followNodes(ctx) })
	}
	a.log.Info("gateway runs", "gate", g.gate, "mode", a.config.Gateway.Mode.String())
	return func() { cancel(); group.Wait() }, nil
}

// set gives the gateway what Kubernetes, or the directory, says. waiting says
// why that is not complete; "": it is.
func (g *gatewayPart) set(in gateway.Inputs, waiting string) {
	g.mu.Lock()
	g.waiting = waiting
	g.mu.Unlock()
	in.Synced = waiting == ""
	g.controller.SetInputs(in)
}

// fromManifests takes the directory's part for the gateway.
func (g *gatewayPart) fromManifests(s manifests.State, open bool) {
	if g == nil {
		return
	}
	waiting := ""
	if !open {
		waiting = "nodes: the manifests were not read yet"
	}
	g.set(gateway.Inputs{Nodes: slices.Clone(s.OVNNodes), Uplinks: slices.Clone(s.OVNUplinks)}, waiting)
}

// conditions says what keeps the gateway from being ready, and what is wrong.
func (g *gatewayPart) conditions() (ready bool, waiting, problems []string) {
	for _, h := range g.controller.Health() {
		if h.Err != nil {
			problems = append(problems, fmt.Sprintf("gateway: %s: %v", h.Object, h.Err))
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting != "" && g.role != flows.DPUHost {
		waiting = append(waiting, "gateway: "+g.waiting)
	}
	ready = len(waiting) == 0 && g.controller.Ready()
	if !ready && len(waiting)+len(problems) == 0 {
		waiting = append(waiting, "gateway: the first flows are not installed yet")
	}
	return ready, waiting, problems
}

// gatewayStatus adds the gateway's conditions. s.Ready is the L2 data path's and
// stays as it is.
func (a *Agent) gatewayStatus(s *status.Status) {
	if a.gateway == nil {
		return
	}
	ready, waiting, problems := a.gateway.conditions()
	s.GatewayReady = &ready
	s.Waiting = append(s.Waiting, waiting...)
	s.Problems = append(s.Problems, problems...)
}

// handle answers /gateway and /gateway/flows?bridge=BRIDGE[&gate=on|off], which
// need no turn of the agent's loop.
func (g *gatewayPart) handle(mux *http.ServeMux) {
	on := func(f func(w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if g == nil {
				http.Error(w, "the gateway is off: start the agent with --gateway", http.StatusNotFound)
				return
			}
			f(w, r)
		}
	}
	mux.HandleFunc("GET /gateway", on(func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, g.controller.Status())
	}))
	mux.HandleFunc("GET /gateway/flows", on(func(w http.ResponseWriter, r *http.Request) {
		gate := g.gate
		switch v := r.URL.Query().Get("gate"); v {
		case "":
		case "on", "off":
			gate = v == "on"
		default:
			http.Error(w, fmt.Sprintf("gate %q: give on or off", v), http.StatusBadRequest)
			return
		}
		set, err := g.controller.Flows(r.URL.Query().Get("bridge"), gate)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		lines := make([]string, 0, len(set))
		for _, f := range set {
			lines = append(lines, f.String())
		}
		reply(w, http.StatusOK, lines)
	}))
}

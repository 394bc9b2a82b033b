package gateway

import (
	"context"
	"strconv"
	"strings"

	"picot.dev/picot/gateway/flows"
	"picot.dev/picot/gateway/topology"
)

// recall learns from the flows that an earlier process left which network it had
// made the source of an uplink bridge, so that a restart changes nothing. It looks
// at each bridge once; what cannot be read is chosen anew.
func (t *topologist) recall(ctx context.Context, bridges []topology.Bridge) {
	for _, br := range bridges {
		if t.recalled[br.Name] {
			continue
		}
		if t.recalled == nil {
			t.recalled, t.designated = map[string]bool{}, map[string]string{}
		}
		t.recalled[br.Name] = true
		st, err := t.newDriver(br.Name).Read(ctx)
		if err != nil {
			continue
		}
		for _, f := range st.Own {
			if network, ok := t.sourceOf(br, f); ok {
				t.designated[br.Name] = network
				break
			}
		}
	}
}

// sourceOf names the network whose router a steering flow sends to.
func (t *topologist) sourceOf(br topology.Bridge, f flows.Flow) (network string, ok bool) {
	first, _, _ := strings.Cut(f.Actions, ",")
	number, found := strings.CutPrefix(first, "output:")
	port, err := strconv.Atoi(number)
	if !flows.Steering(f) || !found || err != nil {
		return "", false
	}
	for _, p := range br.Ports {
		if len(p.Interfaces) != 1 || p.Interfaces[0].OFPort != port {
			continue
		}
		for _, r := range t.routers {
			if r.Network != "" && p.Localnet == topology.LocalnetPort(br.Name, r.Network, t.c.cfg.Node) {
				return r.Network, true
			}
		}
	}
	return "", false
}

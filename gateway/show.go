package gateway

import (
	"context"
	"errors"
	"fmt"

	"picot.dev/picot/gateway/flows"
)

// ErrNoBridge: no group stands on the bridge asked for.
var ErrNoBridge = errors.New("no gateway router on this bridge")

// Flows gives what would be installed on a bridge with the gate on or off, which may differ from
// what is configured. It installs nothing.
func (c *Controller) Flows(bridge string, gate bool) (flows.Set, error) {
	g := c.groups.Load()
	if g == nil {
		return nil, fmt.Errorf("bridge %s: the groups are not known yet: %w", bridge, errors.Join(c.ovs.Err(), c.nb.Err()))
	}
	for _, t := range g.Groups {
		if t.Bridge != bridge {
			continue
		}
		in := c.flowInput(t, g.vlan, gate)
		if err := in.Validate(); err != nil {
			return nil, err
		}
		return flows.Render(in), nil
	}
	return nil, fmt.Errorf("bridge %s: %w", bridge, ErrNoBridge)
}

// Explain reads the OVS and NB databases once and gives what would be installed on a bridge, for
// a command that runs beside no agent. It opens no SB client and writes nothing.
func Explain(ctx context.Context, cfg Config, bridge string, gate bool) (flows.Set, error) {
	cfg.DisableUDNARPNDPFlood = false
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Role == flows.DPUHost {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); c.observe(ctx) }()
	defer func() { cancel(); <-done }()
	if err := c.known(ctx); err != nil {
		return nil, err
	}
	return c.Flows(bridge, gate)
}

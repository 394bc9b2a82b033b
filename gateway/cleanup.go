package gateway

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"picot.dev/picot/gateway/bridge"
	"picot.dev/picot/gateway/flows"
)

// Cleanup removes what is picot's from this node's bridges and from its routers in the NB
// database, and nothing else; see owned.go. Mirrored rows are left to age: nothing tells them from
// what the routers learned by themselves, and a binding that is true does no harm.
func Cleanup(ctx context.Context, cfg Config) error {
	cfg.DisableUDNARPNDPFlood = false
	c, err := New(cfg)
	if err != nil || cfg.Role == flows.DPUHost {
		return err
	}
	c.SetInputs(Inputs{Synced: true})
	run, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); c.observe(run) }()
	defer func() { cancel(); <-done }()
	if err := c.known(ctx); err != nil {
		return err
	}
	var errs []error
	for _, g := range c.groups.Load().Groups {
		in := c.flowInput(g, 0, false)
		d := bridge.New(bridge.Options{Bridge: g.Bridge, Socket: filepath.Join(c.cfg.RunDir, g.Bridge+".mgmt"), Ofctl: cfg.Ofctl})
		if _, err := d.Apply(ctx, nil, flows.NoFlood(in)); err != nil {
			errs = append(errs, fmt.Errorf("bridge %s: %w", g.Bridge, err))
		}
	}
	return errors.Join(append(errs, c.static.reconcile(ctx, false))...)
}

// known waits until the groups are.
func (c *Controller) known(ctx context.Context) error {
	for c.groups.Load() == nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), errors.Join(c.ovs.Err(), c.nb.Err()))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

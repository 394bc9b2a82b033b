package agent

import (
	"context"
	"fmt"
	"time"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/linkmon"
	"picot.dev/picot/internal/manifests"
	"picot.dev/picot/internal/routes"
)

// update is what a source of desired state says.
type update struct {
	delta    desired.Delta
	open     bool // by now it has said everything at least once
	relisted bool // something was listed again: what is not in the list may only not be in that list
	problems []string
	unheard  []string                           // what the source itself cannot hear
	places   map[desired.Ref]manifests.Position // where objects were read; nil: not from files
}

// watch starts the sources. The returned function waits for them to end.
func (a *Agent) watch(ctx context.Context) (wait func(), err error) {
	monitor, err := linkmon.New(linkmon.Options{OnError: func(err error) { a.log.Warn("link monitor recovers", "error", err) }})
	if err != nil {
		return func() {}, fmt.Errorf("link monitor: %w", err)
	}
	const sources = 4
	ended := make(chan struct{}, sources)
	source := func(name string, run func() error) {
		go func() {
			defer func() { ended <- struct{}{} }()
			if err := run(); err != nil && ctx.Err() == nil {
				a.failed <- fmt.Errorf("%s: %w", name, err)
			}
		}()
	}
	source("link monitor", func() error {
		defer monitor.Close()
		return monitor.Run(ctx, func(events []linkmon.Event) { send(ctx, a.links, events) })
	})
	source("route watch", func() error {
		for {
			if err := routes.Watch(ctx, nil, a.nodes.resolver.Relevant, a.routes); ctx.Err() != nil {
				return nil
			} else if err != nil {
				a.log.Warn("route watch restarts", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	source("pin watch", func() error {
		for {
			err := watchPins(ctx, a.config.pinDir(), a.taken)
			if ctx.Err() != nil {
				return nil
			}
			a.log.Warn("pin watch restarts: until then pins are looked at by refreshes only", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(a.config.Refresh):
			}
		}
	})
	source("desired state", func() error { return a.follow(ctx) })
	return func() {
		for range sources {
			<-ended
		}
	}, nil
}

// follow tells the loop what is desired until ctx ends.
func (a *Agent) follow(ctx context.Context) error {
	if a.kube != nil {
		a.kube.run(ctx, func(u update) { send(ctx, a.desired, u) })
		return nil
	}
	last := desired.NewState()
	return manifests.Watch(ctx, a.config.Manifests, func(s manifests.State, errs []manifests.Error) {
		// A directory that could not be listed yet has said nothing at all.
		u := update{delta: desired.Diff(last, s.State), places: s.Positions}
		listed := true
		for _, e := range errs {
			u.problems = append(u.problems, e.Error())
			listed = listed && e.File != a.config.Manifests
		}
		u.open = listed
		a.gateway.fromManifests(s, listed)
		last = s.State
		send(ctx, a.desired, u)
	})
}

// restore takes the checkpoint, if there is one, for the time until the source
// is in sync.
func (a *Agent) restore() {
	s, ok, err := a.checkpoint.load()
	if err != nil {
		a.log.Warn("no checkpoint to start from", "error", err)
	}
	if !ok {
		return
	}
	a.tables.apply(desired.Diff(desired.NewState(), s))
	a.restored = true
	a.ports.dirty, a.ups.dirty, a.nodes.dirty = true, true, true
	a.log.Info("forwarding from the checkpoint until the API server answers", "endpoints", len(s.Endpoints), "bindings", len(s.FDB)+len(s.Neighbors))
}

func send[T any](ctx context.Context, to chan<- T, v T) {
	select {
	case to <- v:
	case <-ctx.Done():
	}
}

package source

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"picot.dev/picot/k8s/api/v1alpha1"
)

// settle is how long the set of hosted networks must stand before the watches
// are opened anew for it: endpoints come in bursts.
const settle = 50 * time.Millisecond

// generation is one pair of watches, of FDB entries and neighbors, by the label
// of a set of networks.
type generation struct {
	networks []string
	view     views
	stop     context.CancelFunc
	done     sync.WaitGroup
	synced   chan struct{} // closed when both are in sync
}

// followHosted keeps the bindings of the hosted networks followed. A new set
// gets a new generation of watches, in the other of two views; the old one
// goes on until the new one is in sync, so nothing is missed in between.
func (s *Source) followHosted(ctx context.Context) {
	var current, next *generation
	defer func() {
		current.end()
		next.end()
	}()
	last := map[string]time.Time{} // when a network was last hosted
	for {
		want, soonest := s.wanted(last)
		running := current
		if next != nil {
			running = next
		}
		if running == nil || !slices.Equal(running.networks, want) {
			if !pause(ctx, settle) {
				return
			}
			want, soonest = s.wanted(last)
			s.abandon(next)
			next = s.begin(ctx, want, current)
		}
		var synced chan struct{}
		if next != nil {
			synced = next.synced
		}
		select {
		case <-ctx.Done():
			return
		case <-s.hosted:
		case <-after(soonest):
		case <-synced:
			s.abandon(current)
			current, next = next, nil
			s.hostedNow(current.networks)
		}
	}
}

// wanted returns the networks to follow, sorted, and when the first of them
// stops lingering. Before the endpoints are known it is none.
func (s *Source) wanted(last map[string]time.Time) (list []string, soonest time.Duration) {
	s.mu.Lock()
	hosted := s.p.hosted()
	s.mu.Unlock()
	now := time.Now()
	for n := range hosted {
		last[n] = now
	}
	soonest = -1
	for n, t := range last {
		left := s.opts.Linger - now.Sub(t)
		if hosted[n] {
			continue
		}
		if left <= 0 {
			delete(last, n)
			continue
		}
		if soonest < 0 || left < soonest {
			soonest = left
		}
	}
	return slices.Sorted(maps.Keys(last)), soonest
}

// after is time.After, or never for a negative duration.
func after(d time.Duration) <-chan time.Time {
	if d < 0 {
		return nil
	}
	return time.After(d)
}

// pause waits and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// begin opens the watches of a set of networks.
func (s *Source) begin(ctx context.Context, networks []string, current *generation) *generation {
	g := &generation{networks: networks, view: byNetwork, synced: make(chan struct{})}
	if current != nil && current.view == byNetwork {
		g.view = byNetworkTo
	}
	ctx, g.stop = context.WithCancel(ctx)
	if len(networks) == 0 {
		close(g.synced)
		return g
	}
	var mu sync.Mutex
	left := 2
	synced := func() func() {
		var once sync.Once
		return func() {
			once.Do(func() {
				mu.Lock()
				defer mu.Unlock()
				if left--; left == 0 {
					close(g.synced)
				}
			})
		}
	}
	sel := selector{label: v1alpha1.NetworkLabel + " in (" + strings.Join(networks, ",") + ")"}
	g.done.Go(func() { s.followFDB(ctx, g.view, sel, synced()) })
	g.done.Go(func() { s.followNeighbors(ctx, g.view, sel, synced()) })
	return g
}

// end stops a generation's watches. g may be nil.
func (g *generation) end() {
	if g == nil {
		return
	}
	g.stop()
	g.done.Wait()
}

// abandon ends a generation and forgets what only it had.
func (s *Source) abandon(g *generation) {
	if g == nil {
		return
	}
	g.end()
	s.update(func(p *projection) []Key {
		keys := p.replaceFDB(nil, g.view, math.MaxUint64)
		return append(keys, p.replaceNeighbors(nil, g.view, math.MaxUint64)...)
	})
}

// hostedNow records which networks are in sync.
func (s *Source) hostedNow(networks []string) {
	s.mu.Lock()
	s.gates.Hosted = make(map[string]bool, len(networks))
	for _, n := range networks {
		s.gates.Hosted[n] = true
	}
	s.mu.Unlock()
	poke(s.changed)
	for _, n := range networks {
		s.opts.Changed(Key{Kind: v1alpha1.KindNetwork, Network: n})
	}
}

package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/internal/desired"
)

// request is a question from another goroutine, answered between two applies.
type request struct {
	do   func()
	done chan struct{}
}

const (
	// applyEvery spaces applies while messages keep coming; the first one after a
	// silence is immediate.
	applyEvery = 10 * time.Millisecond
	// defaultRefresh is how often the kernel is looked at without a reason.
	defaultRefresh = 30 * time.Second
	minRefresh     = 100 * time.Millisecond
	// tick bounds the loop's sleep: it says that it lives.
	tick = 5 * time.Second
)

func (a *Agent) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last, due time.Time // of applies
	refresh := time.Now().Add(a.jittered())
	for {
		a.alive()
		select {
		case <-ctx.Done():
			return nil
		case err := <-a.failed:
			return err
		case e := <-a.links:
			a.ports.onLinks(e)
			a.linksIn = true
			a.ups.hurry()
			a.nodes.dirty = true
		case u := <-a.desired:
			a.onDesired(u)
		case <-a.routes:
			a.nodes.dirty = true
			a.nodes.driver.Resync()
		case device := <-a.taken:
			a.onTaken(device)
		case e := <-a.engine.Events():
			a.onSocket(e)
		case r := <-a.engine.PathMTUs():
			a.nodes.onPathMTU(time.Now(), a.tables.last, r)
		case <-a.learned():
			a.obeyLearner()
			continue
		case r := <-a.requests:
			r.do()
			close(r.done)
			if a.successor != nil {
				return errHandedOver // nothing may be asked of the workers any more
			}
			continue
		case <-timer.C:
		}
		now := time.Now()
		if now.Sub(last) < applyEvery && !a.ports.cut {
			timer.Reset(applyEvery - now.Sub(last))
			continue
		}
		if !now.Before(refresh) {
			refresh = now.Add(a.jittered())
			a.refresh()
		}
		if a.dirty() || !due.IsZero() && !now.Before(due) {
			due = a.apply(ctx, now)
			last = time.Now()
			if a.fatal != nil {
				return a.fatal
			}
			a.tellHealth()
		}
		timer.Reset(a.sleep(time.Now(), due, refresh))
	}
}

// sleep is until the next apply or refresh, or tick.
func (a *Agent) sleep(now, due, refresh time.Time) time.Duration {
	if a.ports.cut {
		return 0
	}
	until := min(tick, refresh.Sub(now))
	if !due.IsZero() {
		until = min(until, due.Sub(now))
	}
	return max(until, applyEvery)
}

// jittered is the time to the next refresh: agents started together must not
// look together.
func (a *Agent) jittered() time.Duration {
	quarter := a.config.Refresh / 4
	return a.config.Refresh - quarter + rand.N(2*quarter+1)
}

// refresh has everything looked at, for drift that nobody reported.
func (a *Agent) refresh() {
	a.ports.refresh()
	a.ups.refresh()
	a.nodes.dirty = true
	a.nodes.driver.Resync()
}

func (a *Agent) dirty() bool {
	return a.ports.dirty || a.ups.dirty || a.nodes.dirty || a.tables.dirty
}

func (a *Agent) onDesired(u update) {
	if !slices.Equal(a.unheard, u.unheard) {
		a.unheard = u.unheard
		a.tellHealth()
	}
	if !a.desiredIn {
		a.incoming.Apply(u.delta)
		if !u.open {
			a.refused(u.problems)
			return
		}
		u.delta = desired.Diff(a.tables.state, a.incoming)
		a.incoming = desired.State{}
		a.desiredIn = true
		a.ports.keepUntil = time.Now().Add(a.config.SweepGrace)
		if a.config.InSync != nil {
			go a.config.InSync()
		}
	}
	if u.relisted {
		a.ports.keepUntil = time.Now().Add(a.config.SweepGrace)
	}
	a.checkpoint.note(u.delta, &a.tables.state)
	a.repair.onDesired(time.Now(), u.delta)
	a.tables.apply(u.delta)
	a.ports.places = u.places
	a.ports.onDesired(u.delta)
	a.ups.hurry()
	a.nodes.dirty = true
	a.refused(u.problems)
}

// refused logs what is new among the objects' problems and what is mended.
func (a *Agent) refused(problems []string) {
	known := map[string]bool{}
	for _, p := range a.problems {
		known[p] = true
	}
	for _, p := range problems {
		if !known[p] {
			a.log.Error("object refused", "error", p)
		}
		delete(known, p)
	}
	for p := range known {
		a.log.Info("object mended", "was", p)
	}
	a.problems = problems
}

// onSocket acts on a socket that cannot send any more. A device that is down
// needs nothing: its link event comes, and the worker tries again.
func (a *Agent) onSocket(e fastpath.SocketEvent) {
	if e.State == fastpath.SocketDown {
		return
	}
	for name, p := range a.ports.attached {
		if e.Uplink < 0 && p.entry.ID.Index() == e.Port {
			a.log.Warn("socket lost", "device", name, "queue", e.Queue, "state", e.State.String())
			p.broken = true
			a.ports.dirty = true
		}
	}
	for _, u := range a.ups.all {
		if u.number == e.Uplink && u.program != nil {
			a.log.Warn("socket lost", "device", u.name, "queue", e.Queue, "state", e.State.String())
			u.broken = true
			a.ups.dirty = true
		}
	}
}

// apply brings everything in line, once all sources are in sync. It returns
// when it wants to be called again.
func (a *Agent) apply(ctx context.Context, now time.Time) (next time.Time) {
	if !a.linksIn || !a.desiredIn && !a.restored {
		return time.Time{}
	}
	a.applies++
	soonest := func(t time.Time) {
		a.alive()
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	var self *desired.Node
	if n, ok := a.tables.state.Nodes[a.config.NodeName]; ok {
		self = &n
	}
	keep := !a.desiredIn || now.Before(a.ports.keepUntil)
	soonest(a.ports.sync(now))
	if a.ups.waiting() {
		// An uplink's socket takes long; ports forward to one another without.
		soonest(a.publish(ctx, now))
		a.observePorts()
	}
	soonest(a.ups.sync(now, a.ports.links, self, keep))
	a.nodes.forget = !keep
	soonest(a.nodes.sync(now))
	soonest(a.publish(ctx, now))
	a.observePorts()
	soonest(a.ports.raise(now))
	soonest(a.repair.sync(now))
	if a.ports.leftover {
		a.ports.leftover, a.swept = false, false
	}
	if !a.swept && a.desiredIn {
		soonest(a.sweep(now))
	}
	if a.kube != nil {
		a.kube.ported(a.ports.notes())
		soonest(a.checkpoint.sync(now, a.tables.state))
	}
	if a.fatal == nil && a.ports.stuck != nil {
		a.fatal = a.ports.stuck
	}
	return next
}

// publish gives the workers a new snapshot if anything changed, and waits until
// none uses the old one: only then may indexes be used again. It returns when to
// wait again for a worker that does not let go. One that hangs may still forward
// what must be dropped; so that ends the agent, too.
func (a *Agent) publish(ctx context.Context, now time.Time) (next time.Time) {
	if a.tables.dirty {
		a.tables.dirty = false
		a.tables.last = a.tables.Snapshot()
		a.engine.Publish(a.tables.last)
	}
	version := a.tables.last.Version
	if a.published == version {
		return time.Time{}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := a.engine.Quiesce(ctx, version); err != nil {
		if a.hangs.IsZero() {
			a.hangs = now
			a.log.Error("worker hangs", "error", err)
		}
		if since := now.Sub(a.hangs); since >= closeWithin {
			a.fatal = fmt.Errorf("%w: a worker hangs, for %v: %w", ErrNotClosed, since, err)
		}
		return now.Add(time.Second)
	}
	a.hangs = time.Time{}
	a.tables.Release(version)
	a.published = version
	return time.Time{}
}

// ask runs f in the loop's goroutine.
func (a *Agent) ask(ctx context.Context, f func()) error {
	r := request{do: f, done: make(chan struct{})}
	select {
	case a.requests <- r:
		<-r.done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

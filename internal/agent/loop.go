package agent

import (
	"context"
	"time"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/internal/desired"
)

// request is a question from another goroutine, answered between two applies.
type request struct {
	do   func()
	done chan struct{}
}

// applyEvery spaces applies while messages keep coming; the first one after a
// silence is immediate.
const applyEvery = 10 * time.Millisecond

// refresh is how often everything is looked at without a reason.
const refresh = 30 * time.Second

func (a *Agent) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time
	due := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-a.failed:
			return err
		case e := <-a.links:
			a.ports.onLinks(e)
			a.linksIn = true
			a.ups.dirty, a.nodes.dirty = true, true
		case u := <-a.desired:
			a.onDesired(u)
		case <-a.routes:
			a.nodes.dirty = true
			a.nodes.driver.Resync()
		case e := <-a.engine.Events():
			a.onSocket(e)
		case r := <-a.engine.PathMTUs():
			a.nodes.onPathMTU(time.Now(), a.tables.last, r)
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
		if now.Sub(last) < applyEvery {
			timer.Reset(applyEvery - now.Sub(last))
			continue
		}
		if !a.dirty() && now.Before(due) {
			timer.Reset(due.Sub(now))
			continue
		}
		next := a.apply(ctx, now)
		last = time.Now()
		due = last.Add(refresh)
		if !next.IsZero() && next.Before(due) {
			due = next
		}
		timer.Reset(max(time.Until(due), applyEvery))
	}
}

func (a *Agent) dirty() bool {
	return a.ports.dirty || a.ups.dirty || a.nodes.dirty || a.tables.dirty
}

func (a *Agent) onDesired(u update) {
	if !a.desiredIn {
		a.incoming.Apply(u.delta)
		if !u.open {
			a.refused(u.problems)
			return
		}
		u.delta = desired.Diff(a.tables.state, a.incoming)
		a.incoming = desired.State{}
		a.desiredIn = true
	}
	a.checkpoint.dirty = a.checkpoint.dirty || u.delta.Len() > 0
	a.repair.onDesired(time.Now(), u.delta)
	a.tables.apply(u.delta)
	a.ports.places = u.places
	a.ports.dirty, a.ups.dirty, a.nodes.dirty = true, true, true
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
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	var self *desired.Node
	if n, ok := a.tables.state.Nodes[a.config.NodeName]; ok {
		self = &n
	}
	soonest(a.ups.sync(now, a.ports.links, self))
	soonest(a.ports.sync(now))
	soonest(a.nodes.sync(now))
	a.publish(ctx)
	soonest(a.ports.raise(now))
	soonest(a.repair.sync(now))
	if !a.swept && a.desiredIn {
		soonest(a.sweep(now))
	}
	if a.kube != nil {
		a.kube.ported(a.ports.notes())
		soonest(a.checkpoint.sync(now, a.tables.state))
	}
	return next
}

// sweep removes what an earlier life left pinned. While an object cannot be
// taken, it is not known to be unwanted.
func (a *Agent) sweep(now time.Time) (next time.Time) {
	left, err := a.ports.sweep(len(a.problems) == 0)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != a.sweepSaid && err != nil {
		a.log.Error("left-over pins", "error", err)
	}
	a.sweepSaid = text
	if err == nil && left == 0 {
		a.swept = true
		return time.Time{}
	}
	return now.Add(lastRetry)
}

// publish gives the workers a new snapshot if anything changed, and waits until
// none uses the old one: only then may indexes be used again.
func (a *Agent) publish(ctx context.Context) {
	if !a.tables.dirty {
		return
	}
	a.tables.dirty = false
	s := a.tables.Snapshot()
	a.tables.last = s
	a.engine.Publish(s)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := a.engine.Quiesce(ctx, s.Version); err != nil {
		a.log.Error("worker hangs", "error", err)
		return
	}
	a.tables.Release(s.Version)
	a.published = s.Version
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

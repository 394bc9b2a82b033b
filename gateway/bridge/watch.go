package bridge

import (
	"context"
	"math/rand/v2"
	"time"

	"picot.dev/picot/gateway/flows"
)

// Event says what Watch saw and did.
type Event struct {
	// Restored counts the steering flows put back at once, before anything was compared.
	Restored int
	// Took is the time from hearing of their removal to the switch's confirmation.
	Took time.Duration
	// Watching is set once the monitor is in force and everything was compared.
	Watching bool
	// Reset is set with it when the switch had gone away (flows and NO_FLOOD were lost).
	Reset bool
	// Changes is what the comparison that followed had to write.
	Changes Changes
	// Err is set when a repair failed or the switch does not answer; Watch tries again.
	Err error
}

const (
	// settle is how long after an update everything is compared; the repair does not wait for it.
	settle = 200 * time.Millisecond

	backoffMin = 10 * time.Millisecond
	backoffMax = time.Second
)

// Watch follows the flow table until ctx ends and puts back what others removed: the steering
// flows at once, then whatever a full comparison finds, NO_FLOOD included. It survives
// restarts of the switch, and goes by what Apply was last asked for. onChange is called from
// Watch's goroutine when watching begins and after every repair and failure; it may be nil. The error is ctx's.
func (d *Driver) Watch(ctx context.Context, onChange func(Event)) error {
	if onChange == nil {
		onChange = func(Event) {}
	}
	backoff := backoffMin
	for again := false; ; again = true {
		began := time.Now()
		err := d.follow(ctx, again, onChange)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(began) > 5*time.Second {
			backoff = backoffMin
		}
		if backoff == backoffMin || backoff == backoffMax {
			d.opt.Log.Warn("not watching the flow table, trying again", "err", err)
			onChange(Event{Err: err})
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, backoffMax)
	}
}

// follow watches over one connection until it breaks.
func (d *Driver) follow(ctx context.Context, again bool, onChange func(Event)) error {
	c, err := d.monitor(ctx)
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		c.Close()
		return d.wire("monitor flows", err)
	}
	updates := make(chan []update, 64)
	broken := make(chan error, 1)
	go func() {
		defer close(updates)
		broken <- listen(c, updates)
	}()
	defer func() {
		c.Close()
		for range updates { // the listener may be waiting to hand one over
		}
	}()
	r := &repairer{d: d}
	defer r.close()
	r.warm(ctx)

	d.check(ctx, Event{Watching: true, Reset: again}, onChange) // what happened before was not seen
	var settled <-chan time.Time                                // armed by the first update after a check, so that a busy table is checked too
	refresh := time.NewTimer(jitter(d.opt.Refresh))
	defer refresh.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case us, ok := <-updates:
			if !ok {
				return d.wire("monitor flows", <-broken)
			}
			e, contested := d.restore(ctx, r, us)
			if e.Restored > 0 || e.Err != nil {
				onChange(e)
			}
			if contested {
				d.check(ctx, Event{}, onChange)
			} else if settled == nil {
				settled = time.After(settle)
			}
		case <-settled:
			settled = nil
			d.check(ctx, Event{}, onChange)
		case <-refresh.C:
			r.warm(ctx)
			d.check(ctx, Event{}, onChange)
			refresh.Reset(jitter(d.opt.Refresh))
		}
	}
}

// listen hands on what the monitor tells, one message at a time, until the connection ends.
// A message that is no update (the switch paused the monitor, say) is an update of nothing.
func listen(c *conn, out chan<- []update) error {
	for {
		m, err := c.receive()
		if err != nil {
			return err
		}
		switch m.typ {
		case msg10StatsReply:
			out <- parseUpdates(m.body)
		case msgVendor:
			out <- nil
		}
	}
}

// restore puts the steering flows back if some of them are gone. If another owner wrote at
// their priority it does nothing and calls them contested: a full check decides then.
func (d *Driver) restore(ctx context.Context, r *repairer, us []update) (e Event, contested bool) {
	began := time.Now()
	lost := false
	for _, u := range us {
		switch {
		case !u.steering():
		case flows.Owned(u.cookie):
			lost = lost || u.event == updateDeleted
		case u.event != updateDeleted:
			return Event{}, true
		}
	}
	if !lost {
		return Event{}, false
	}
	d.mu.Lock()
	n, err := r.repair(ctx)
	d.mu.Unlock()
	if err != nil {
		return Event{Err: err}, true
	}
	return Event{Restored: n, Took: time.Since(began)}, false
}

// check compares everything, repairs what is wrong, and reports with e what there is to report.
func (d *Driver) check(ctx context.Context, e Event, onChange func(Event)) {
	d.mu.Lock()
	stood := d.stood
	if d.asked {
		e.Changes, e.Err = d.reconcile(ctx)
	}
	news := e.Watching || e.Err != nil || !e.Changes.Empty() || d.stood != stood
	d.mu.Unlock()
	if news && ctx.Err() == nil {
		onChange(e)
	}
}

// jitter spreads a period by a fifth, so that nodes do not check in step.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

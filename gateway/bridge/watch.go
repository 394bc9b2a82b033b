package bridge

import (
	"context"
	"math/rand/v2"
	"time"

	"picot.dev/picot/gateway/flows"
)

// Event says what Watch saw and did.
type Event struct {
	// Restored counts the flows of ours put back at once, without reading the bridge first.
	Restored int
	// Took is the time from hearing of their removal to the switch's confirmation.
	Took time.Duration
	// Reset is set when the switch went away and came back (flows and NO_FLOOD were lost).
	Reset bool
	// Changes is what the check that followed had to write.
	Changes Changes
	// Err is set when a repair failed; Watch tries again.
	Err error
}

const (
	// settle is how long after an update everything is compared; the repair itself does not wait.
	settle = 200 * time.Millisecond

	backoffMin = 10 * time.Millisecond
	backoffMax = time.Second
)

// Watch follows the flow table until ctx ends and puts back what others removed: flows at
// once, then, a moment later, whatever a full comparison finds, NO_FLOOD included.
// It survives restarts of the switch, and needs no restart when Apply is asked for something
// else. onChange is called from Watch's goroutine after every repair and every failure; it may
// be nil and must not call Watch. The error is ctx's.
func (d *Driver) Watch(ctx context.Context, onChange func(Event)) error {
	if onChange == nil {
		onChange = func(Event) {}
	}
	backoff := backoffMin
	for first := true; ; first = false {
		began := time.Now()
		err := d.follow(ctx, !first, onChange)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(began) > 5*time.Second {
			backoff = backoffMin
		}
		if backoff >= backoffMax/2 { // a restart is no news, an outage is
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

// follow runs one monitor until it ends.
func (d *Driver) follow(ctx context.Context, again bool, onChange func(Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m, err := d.startMonitor(ctx)
	if err != nil {
		return err
	}
	defer func() { cancel(); m.wait() }()

	var check <-chan time.Time // armed by the first update after a check, so that a busy table is checked too
	refresh := time.NewTimer(jitter(d.opt.Refresh))
	defer refresh.Stop()
	for {
		select {
		case b, ok := <-m.batches:
			if !ok {
				return m.err
			}
			if b.ready { // everything before the monitor was unseen
				d.check(ctx, again, onChange)
				continue
			}
			e, contested := d.restore(ctx, b)
			if e.Restored > 0 || e.Err != nil {
				onChange(e)
			}
			if contested {
				d.check(ctx, false, onChange)
			} else if check == nil {
				check = time.After(settle)
			}
		case <-check:
			check = nil
			d.check(ctx, false, onChange)
		case <-refresh.C:
			d.check(ctx, false, onChange)
			refresh.Reset(jitter(d.opt.Refresh))
		}
	}
}

// check compares everything and repairs what is wrong.
func (d *Driver) check(ctx context.Context, reset bool, onChange func(Event)) {
	d.mu.Lock()
	if !d.asked {
		d.mu.Unlock()
		return
	}
	stood := d.stood
	c, err := d.reconcile(ctx)
	d.mu.Unlock()
	if ctx.Err() == nil && (reset || err != nil || !c.Empty() || c.StoodDown != stood) {
		onChange(Event{Reset: reset, Changes: c, Err: err})
	}
}

// restore puts back the flows of ours a batch of updates took away. If another owner took
// the place of one of them it does nothing and reports it contested: a full check decides.
func (d *Driver) restore(ctx context.Context, b batch) (e Event, contested bool) {
	began := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	gone := make(map[place]bool, len(b.lost))
	for _, p := range b.lost {
		gone[p] = true
	}
	theirs := make(map[place]bool, len(b.foreign))
	for _, p := range b.foreign {
		theirs[p] = true
	}
	var back flows.Set
	for _, f := range d.placed {
		at := place{f.Table, f.Match}
		if theirs[at] {
			return Event{}, true
		}
		if gone[at] {
			back = append(back, f)
		}
	}
	if len(back) == 0 {
		return Event{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, d.opt.Timeout)
	defer cancel()
	if err := d.bundle(ctx, addLines(back)); err != nil {
		return Event{Err: err}, true
	}
	return Event{Restored: len(back), Took: time.Since(began)}, false
}

// jitter spreads a period by a fifth, so that nodes do not check in step.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

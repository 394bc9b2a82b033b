package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/xsk/xdp"
)

// What an earlier life left pinned and nobody wants is removed. Only once the
// sources are in sync, and of devices that live only when it is certain: while
// an object cannot be taken it is not known to be unwanted, and a list may be
// stale (Config.SweepGrace).

// sweep removes left-overs until there are none. It returns when to be called
// again.
func (a *Agent) sweep(now time.Time) (next time.Time) {
	left, err := a.ports.sweep(len(a.problems) == 0 && !now.Before(a.ports.keepUntil))
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != a.sweepSaid && err != nil {
		a.log.Error("left-over pins", "error", err)
	}
	a.sweepSaid = text
	if err == nil && left == 0 && !now.Before(a.ports.keepUntil) {
		a.swept = true
		return time.Time{}
	}
	next = now.Add(lastRetry)
	if a.ports.keepUntil.After(now) && a.ports.keepUntil.Before(next) {
		next = a.ports.keepUntil
	}
	return next
}

// sweep removes pins nobody wants, and, of devices that live, only if certain. It
// returns how many it left.
func (p *ports) sweep(certain bool) (left int, err error) {
	pins, err := p.kernel.Pins(p.config.pinDir())
	errs := []error{err}
	want := p.wanted()
	_, self := p.tables.state.Nodes[p.config.NodeName]
	for _, pin := range pins {
		if p.wants(pin, want, self) {
			continue
		}
		if pin.Alive && !certain {
			left++
			continue
		}
		p.alive()
		if err := p.kernel.RemovePin(pin); err != nil {
			errs = append(errs, fmt.Errorf("pin of %s: %w", pin.Name, err))
			continue
		}
		p.log.Info("left-over pin removed", "device", pin.Name)
	}
	return left, errors.Join(errs...)
}

func (p *ports) wants(pin xdp.Pin, want map[string]desired.Endpoint, self bool) bool {
	if l, there := p.links[pin.Name]; pin.Stray && (!there || !pin.Alive || l.Index != pin.IfIndex) {
		return false // else Attach moves it where it belongs
	}
	if pin.Kind == xdp.Uplink {
		return self && slices.Contains(p.config.Uplinks, pin.Name)
	}
	_, wanted := want[pin.Name]
	return wanted || p.attached[pin.Name] != nil
}

// mendedNow says what was mended of a device and counts it.
func mendedNow(log *slog.Logger, device string, what []string) uint64 {
	if len(what) > 0 {
		log.Warn("somebody took away what is ours: mended", "device", device, "what", what)
	}
	return uint64(len(what))
}

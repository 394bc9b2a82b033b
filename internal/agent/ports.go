package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/device"
	"picot.dev/picot/internal/linkmon"
	"picot.dev/picot/internal/manifests"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/xsk/xdp"
)

// port is a workload port that is attached, or half of it after a failure.
type port struct {
	key     desired.EndpointKey
	link    linkmon.Link
	program device.Program
	entry   table.Port // ID 0: not in the tables
	sockets bool       // the data path has sockets for it
	broken  bool       // its sockets must be made anew
	lost    bool       // frames may not meet its program: it is open, and all must be made anew
	foreign bool       // somebody else's program is on its device, which is left alone
	raise   bool       // its device is still to be brought up
	check   bool       // the kernel is to be asked whether all is still there
	closing time.Time  // since when it must go; zero: it may stay
}

// ports attaches the devices of this node's endpoints. Desired are the
// endpoints that name a device which exists; actual is what is attached.
type ports struct {
	cache   *xdp.Cache // for all programs
	config  *Config
	kernel  device.Kernel
	sockets device.Sockets // of the data path
	tables  *tables
	log     *slog.Logger
	alive   func() // called between steps: slow is not hung

	links     map[string]linkmon.Link        // by name
	attached  map[string]*port               // by device name
	retry     map[string]*backoff            // by device name
	missing   map[string]desired.EndpointKey // device -> endpoint that waits for it
	places    map[desired.Ref]manifests.Position
	keepUntil time.Time // until then a device keeps its program when its endpoint is not listed
	leftover  bool      // something of ours may be pinned that nobody wants
	repairs   uint64    // what was mended that somebody took away
	stuck     error     // a port cannot be closed
	cut       bool      // the last sync ended at attachFor: the next one follows at once
	dirty     bool
}

// backoff spaces the tries of what failed.
type backoff struct {
	err  error
	wait time.Duration
	due  time.Time
}

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
	// closeWithin is how long a port that must go may resist: then the agent
	// exits, since the kernel closes all ports of a dead process.
	closeWithin = 30 * time.Second
	// checkAtOnce bounds the ports looked at in one apply of a refresh.
	checkAtOnce = 64
	// attachFor is how long one apply attaches ports. With many of them, after a
	// crash, the first need not wait for the last.
	attachFor = 20 * time.Millisecond
)

// ErrNotClosed ends an agent that cannot close a port.
var ErrNotClosed = errors.New("a port that must be closed cannot be: the agent exits, so that the kernel closes it")

func (b *backoff) failed(now time.Time, err error) {
	b.err = err
	b.wait = min(max(firstRetry, 2*b.wait), lastRetry)
	b.due = now.Add(b.wait)
}

// onLinks takes link events in: memory only.
func (p *ports) onLinks(events []linkmon.Event) {
	for _, e := range events {
		if e.Old.Name != "" && e.Old.Name != e.Link.Name || e.Kind == linkmon.Removed {
			delete(p.links, cmp.Or(e.Old.Name, e.Link.Name))
		}
		if e.Kind != linkmon.Removed {
			p.links[e.Link.Name] = e.Link
		}
		if b := p.retry[e.Link.Name]; b != nil {
			b.due = time.Time{} // something changed: try at once
		}
	}
	p.dirty = true
}

// onDesired has what failed tried at once where what is wanted of it changed.
func (p *ports) onDesired(d desired.Delta) {
	for _, e := range d.Endpoints {
		if e != nil && p.retry[e.Interface] != nil {
			p.retry[e.Interface].due = time.Time{}
		}
	}
	if len(d.Networks) > 0 {
		for _, b := range p.retry {
			b.due = time.Time{}
		}
	}
	p.dirty = true
}

// refresh has every port looked at, over the next applies.
func (p *ports) refresh() {
	for _, a := range p.attached {
		a.check = true
	}
	p.dirty = true
}

// wanted are this node's endpoints by device.
func (p *ports) wanted() map[string]desired.Endpoint {
	w := map[string]desired.Endpoint{}
	for _, e := range p.tables.state.Endpoints {
		if e.Node == p.config.NodeName && e.Interface != "" {
			w[e.Interface] = e
		}
	}
	return w
}

// sync brings the ports in line: first what goes, since a device's successor
// needs its name, then what comes. It returns when to be called again.
func (p *ports) sync(now time.Time) (next time.Time) {
	p.dirty = false
	want := p.wanted()
	p.closeUnwanted(now, want)
	p.openWanted(now, want)
	for name, b := range p.retry {
		if _, ok := want[name]; !ok && p.attached[name] == nil {
			delete(p.retry, name)
			continue
		}
		if next.IsZero() || b.due.Before(next) {
			next = b.due
		}
	}
	if p.dirty { // not all was looked at
		next = now
	}
	return next
}

// closeUnwanted detaches what is not wanted, or not as it is. What has begun to
// close closes, whatever is wanted meanwhile.
func (p *ports) closeUnwanted(now time.Time, want map[string]desired.Endpoint) {
	for name, a := range p.attached {
		e, ok := want[name]
		l, there := p.links[name]
		same := there && l.Index == a.link.Index
		switch b := p.retry[name]; {
		case !a.closing.IsZero():
			if b != nil && now.Before(b.due) {
				continue
			}
		case ok && same && e.EndpointKey == a.key && !a.broken && !a.lost:
			continue
		default:
			a.closing = now
		}
		p.alive()
		if err := p.detach(a, how(ok, same, a, now.Before(p.keepUntil))); err != nil {
			p.fail(now, name, fmt.Errorf("port of NetworkEndpoint %s: closing interface %s: %w", a.key, name, err))
			if since := now.Sub(a.closing); since >= closeWithin {
				p.stuck = fmt.Errorf("%w: NetworkEndpoint %s, interface %s, tried for %v: %w", ErrNotClosed, a.key, name, since, err)
			}
			continue
		}
		delete(p.attached, name)
		if !a.lost { // else who makes it anew looks twice
			delete(p.retry, name)
		}
	}
}

// openWanted attaches what is wanted and there, and updates what is attached.
func (p *ports) openWanted(now time.Time, want map[string]desired.Endpoint) {
	missing := p.missing
	p.missing = map[string]desired.EndpointKey{}
	p.cut = false
	checks := checkAtOnce
	began := time.Now()
	for _, name := range inOrder(want) {
		e := want[name]
		l, ok := p.links[name]
		if !ok {
			p.missing[name] = e.EndpointKey
			if missing[name] != e.EndpointKey {
				p.log.Warn("port not ready", "device", name, "error", p.missingError(name))
			}
			continue
		}
		if b := p.retry[name]; b != nil && now.Before(b.due) {
			continue
		}
		a := p.attached[name]
		if a != nil && !a.closing.IsZero() {
			continue
		}
		if a != nil && a.check {
			if checks--; checks < 0 {
				p.dirty = true
				continue
			}
		}
		if (a == nil || !a.sockets) && time.Since(began) > attachFor {
			p.cut, p.dirty = true, true // those that are attached begin to forward first
			continue
		}
		p.alive()
		if err := p.ensure(e, l); err != nil {
			p.fail(now, name, fmt.Errorf("%s: interface %s: %w", p.where(e.EndpointKey), name, err))
			continue
		}
		if !p.attached[name].raise { // else raise says
			delete(p.retry, name)
		}
	}
}

// inOrder sorts devices by network: those that can talk to one another are
// attached together.
func inOrder(want map[string]desired.Endpoint) []string {
	return slices.SortedFunc(maps.Keys(want), func(a, b string) int {
		return cmp.Or(cmp.Compare(want[a].Network, want[b].Network), cmp.Compare(a, b))
	})
}

// where names an endpoint and the place it was read from.
func (p *ports) where(key desired.EndpointKey) string {
	ref := desired.Ref{Kind: v1alpha1.KindNetworkEndpoint, Namespace: key.Namespace, Name: key.Name}
	if at, ok := p.places[ref]; ok {
		return at.String() + ": " + ref.String()
	}
	return ref.String()
}

// missingError says which device an endpoint waits for.
func (p *ports) missingError(device string) error {
	return fmt.Errorf("%s: spec.interface: there is no device %s: waiting for it; if it will not come, name another",
		p.where(p.missing[device]), device)
}

// has says whether a port index is an attached port's.
func (p *ports) has(index int) bool {
	for _, a := range p.attached {
		if a.entry.ID.Index() == index && a.sockets {
			return true
		}
	}
	return false
}

func (p *ports) fail(now time.Time, name string, err error) {
	b := p.retry[name]
	if b == nil {
		b = &backoff{}
		p.retry[name] = b
	}
	if b.err == nil || b.err.Error() != err.Error() {
		p.log.Error("port not ready", "device", name, "error", err)
	}
	b.failed(now, err)
}

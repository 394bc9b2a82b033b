package routes

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/delta"
)

// Desired is what the driver brings about. The guard covers Self and the locator
// of every node in it.
type Desired struct {
	Self  netip.Prefix // our own locator
	Nodes []NodeRoute
}

// NodeRoute is another node's locator and, if we install the route to it, its
// next hop.
type NodeRoute struct {
	Locator netip.Prefix
	NextHop netip.Addr // zero: FRR or a static route leads there
	Uplink  int        // device index; 0: the kernel finds NextHop's device
}

// Report counts what one Apply did.
type Report struct {
	Mutations int // routes and rules written and deleted
	Failed    int // tried in vain now
	Waiting   int // failed before and not due yet
}

// Driver owns picot's routes and rules. Set only remembers; Apply reads back when
// it has to, and writes the difference.
type Driver struct {
	kernel Kernel
	owner  Owner
	routes *delta.Tracker[routeKey, target]
	rules  *delta.Tracker[Rule, struct{}]

	foreign map[routeKey]uint8 // routes where ours would replace them -> their protocol
	stale   bool               // the kernel must be read before the next write
}

// routeKey is a route's identity in the kernel. What we want always has the
// owner's metric; what an earlier configuration left may have another.
type routeKey struct {
	table  int
	prefix netip.Prefix
	metric int
}

func (k routeKey) compare(o routeKey) int {
	return cmp.Or(cmp.Compare(k.table, o.table), k.prefix.Addr().Compare(o.prefix.Addr()), cmp.Compare(k.prefix.Bits(), o.prefix.Bits()), cmp.Compare(k.metric, o.metric))
}

// target is where a route leads.
type target struct {
	unreachable bool
	gateway     netip.Addr
	link        int
}

// satisfies: a link the kernel chose is right whatever it is.
func (want target) satisfied(is target) bool {
	if want.link == 0 {
		is.link = 0
	}
	return want == is
}

// NewDriver makes a driver that wants nothing yet and knows nothing of the kernel.
func NewDriver(k Kernel, o Owner) *Driver {
	backoff := delta.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	return &Driver{
		kernel: k, owner: o, stale: true,
		routes: delta.New(delta.Options[routeKey, target]{Compare: routeKey.compare, Equal: target.satisfied, Backoff: backoff}),
		rules: delta.New(delta.Options[Rule, struct{}]{
			Compare: Rule.compare, Equal: func(struct{}, struct{}) bool { return true }, Backoff: backoff,
		}),
	}
}

// Set replaces what is wanted. An unusable locator or next hop is left out and
// named in the error; all else counts.
func (d *Driver) Set(want Desired) error {
	routes, err := d.plan(want)
	d.routes.ReplaceDesired(maps.All(routes))
	d.rules.ReplaceDesired(maps.All(d.guardRules()))
	return err
}

// Clear wants nothing of ours to be left, for cleanup.
func (d *Driver) Clear() {
	d.routes.ReplaceDesired(maps.All(map[routeKey]target{}))
	d.rules.ReplaceDesired(maps.All(map[Rule]struct{}{}))
}

// Resync makes the next Apply read the kernel first.
func (d *Driver) Resync() { d.stale = true }

// plan computes the routes that are wanted.
func (d *Driver) plan(want Desired) (map[routeKey]target, error) {
	routes := map[routeKey]target{}
	var errs []error
	if checkLocator(want.Self) == nil {
		routes[d.key(d.owner.Table, want.Self)] = target{unreachable: true}
		routes[d.key(d.owner.GuardTable, want.Self)] = target{unreachable: true}
	} else if want.Self.IsValid() {
		errs = append(errs, fmt.Errorf("own locator: %w", checkLocator(want.Self)))
	}
	for _, n := range want.Nodes {
		if err := checkLocator(n.Locator); err != nil {
			errs = append(errs, err)
			continue
		}
		routes[d.key(d.owner.GuardTable, n.Locator)] = target{unreachable: true}
		if !n.NextHop.IsValid() {
			continue
		}
		if err := checkNextHop(n); err != nil {
			errs = append(errs, err)
			continue
		}
		key := d.key(d.owner.Table, n.Locator)
		if _, taken := routes[key]; taken {
			errs = append(errs, fmt.Errorf("locator %s is given to two nodes: change one of them", n.Locator))
			continue
		}
		routes[key] = target{gateway: n.NextHop, link: n.Uplink}
	}
	return routes, errors.Join(errs...)
}

func (d *Driver) key(table int, p netip.Prefix) routeKey { return routeKey{table, p, d.owner.Metric} }

func checkLocator(p netip.Prefix) error {
	if !p.IsValid() || !p.Addr().Is6() || p.Addr().Is4In6() || p != p.Masked() {
		return fmt.Errorf("locator %s: use an IPv6 prefix without host bits", p)
	}
	return nil
}

func checkNextHop(n NodeRoute) error {
	switch a := n.NextHop; {
	case !a.Is6() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
		return fmt.Errorf("next hop %s of %s: use the IPv6 unicast address of a router on the uplink", a, n.Locator)
	case a.IsLinkLocalUnicast() && n.Uplink == 0:
		return fmt.Errorf("next hop %s of %s is link-local: it needs exactly one uplink, or use a global address", a, n.Locator)
	case n.Locator.Contains(a):
		return fmt.Errorf("next hop %s lies within the locator %s it leads to: use the router's own address", a, n.Locator)
	}
	return nil
}

// guardRules: see the package comment.
func (d *Driver) guardRules() map[Rule]struct{} {
	o := d.owner
	rule := func(offset int, not bool, table int) Rule {
		return Rule{Priority: o.Priority + offset, Protocol: o.Protocol, Mark: o.Mark, Not: not, Table: table}
	}
	return map[Rule]struct{}{
		rule(0, true, o.GuardTable):        {},
		rule(1, false, o.Table):            {},
		rule(2, false, unix.RT_TABLE_MAIN): {},
	}
}

// Apply writes what differs: first everything that is made, then what goes. It
// returns an error, and has written nothing, when the kernel could not be read;
// what could not be written is in [Driver.Failures].
func (d *Driver) Apply(now time.Time) (Report, error) {
	if d.stale {
		if err := d.readBack(); err != nil {
			return Report{}, err
		}
		d.stale = false
	}
	var r Report
	for _, part := range []delta.Result{
		d.routes.ApplyWrites(now, routeWriter{d}),
		d.rules.ApplyWrites(now, ruleWriter{d.kernel}),
		d.routes.ApplyDeletes(now, routeWriter{d}),
		d.rules.ApplyDeletes(now, ruleWriter{d.kernel}), // last: they lead to leftover tables
	} {
		r.Mutations += part.Mutations()
		r.Failed += part.Failed
		r.Waiting += part.Waiting
	}
	// What a failed write left is read again before anything is rewritten.
	d.stale = r.Failed > 0
	return r, nil
}

// readBack classifies what the kernel has: ours (right, wrong or orphaned) and
// others'.
func (d *Driver) readBack() error {
	rules, err := d.kernel.Rules()
	if err != nil {
		return err
	}
	routes, err := d.kernel.Routes(d.owner.tables(rules)...)
	if err != nil {
		return err
	}
	d.foreign = map[routeKey]uint8{}
	ours := map[routeKey]target{}
	for _, r := range routes {
		key := routeKey{r.Table, r.Prefix, r.Metric}
		if d.owner.ownsRoute(r) {
			ours[key] = target{r.Unreachable, r.Gateway, r.Link}
		} else {
			d.foreign[key] = r.Protocol
		}
	}
	ourRules := map[Rule]struct{}{}
	for _, r := range rules {
		if d.owner.ownsRule(r) {
			ourRules[r] = struct{}{}
		}
	}
	d.routes.ReplaceActual(maps.All(ours))
	d.rules.ReplaceActual(maps.All(ourRules))
	return nil
}

// InSync says that nothing is left to do, as far as is known.
func (d *Driver) InSync() bool { return !d.stale && d.routes.InSync() && d.rules.InSync() }

// Failures returns what could not be written, each error naming its object.
func (d *Driver) Failures() []error {
	var errs []error
	for _, f := range d.routes.Failures() {
		errs = append(errs, f.Err)
	}
	for _, f := range d.rules.Failures() {
		errs = append(errs, f.Err)
	}
	return errs
}

// NextRetry is when Apply should be called again because of failures.
func (d *Driver) NextRetry() (time.Time, bool) {
	a, aok := d.routes.NextRetry()
	b, bok := d.rules.NextRetry()
	if !aok || bok && b.Before(a) {
		return b, bok
	}
	return a, aok
}

// routeWriter writes one route.
type routeWriter struct{ d *Driver }

func (w routeWriter) Write(k routeKey, to target) error {
	if protocol, ok := w.d.foreign[k]; ok {
		return delta.Unchanged{Err: fmt.Errorf(
			"route %s in table %d belongs to protocol %d: remove it, or give picot another table", k.prefix, k.table, protocol)}
	}
	return w.d.kernel.AddRoute(w.d.route(k, to))
}

func (w routeWriter) Delete(k routeKey) error {
	// Only identity is needed; the protocol keeps it to ours.
	is, _ := w.d.routes.Actual(k)
	return w.d.kernel.DeleteRoute(w.d.route(k, is))
}

func (d *Driver) route(k routeKey, to target) Route {
	return Route{
		Table: k.table, Prefix: k.prefix, Metric: k.metric, Protocol: d.owner.Protocol,
		Unreachable: to.unreachable, Gateway: to.gateway, Link: to.link,
	}
}

type ruleWriter struct{ kernel Kernel }

func (w ruleWriter) Write(r Rule, _ struct{}) error { return w.kernel.AddRule(r) }
func (w ruleWriter) Delete(r Rule) error            { return w.kernel.DeleteRule(r) }

// Package routestest is a kernel for tests of package routes and its users: it
// holds routes, rules, neighbours and links in memory, counts every mutation and
// fails on demand.
package routestest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"picot.dev/picot/internal/routes"
)

// Op names an operation of the kernel, for counting and failing.
type Op string

// The operations.
const (
	Lookup      Op = "lookup"
	Link        Op = "link"
	Neighbors   Op = "neighbors"
	Manage      Op = "manage"
	Unmanage    Op = "unmanage"
	Routes      Op = "routes"
	AddRoute    Op = "add-route"
	DeleteRoute Op = "delete-route"
	Rules       Op = "rules"
	AddRule     Op = "add-rule"
	DeleteRule  Op = "delete-rule"
)

// ErrInjected is the failure on demand.
var ErrInjected = errors.New("injected failure")

// Kernel implements routes.Kernel. Safe for concurrent use.
type Kernel struct {
	mu        sync.Mutex
	fib       map[netip.Addr][]routes.Hop
	links     map[int]routes.Link
	neighbors map[routes.NeighborKey]routes.Neighbor
	routes    map[routeKey]routes.Route
	rules     map[routes.Rule]struct{}

	log  []string
	fail map[Op]int
}

type routeKey struct {
	table  int
	prefix netip.Prefix
	metric int
}

// New makes an empty kernel.
func New() *Kernel {
	return &Kernel{
		fib: map[netip.Addr][]routes.Hop{}, links: map[int]routes.Link{},
		neighbors: map[routes.NeighborKey]routes.Neighbor{}, routes: map[routeKey]routes.Route{},
		rules: map[routes.Rule]struct{}{}, fail: map[Op]int{},
	}
}

// FailNext makes the next n operations of the kind fail; n < 0: all from now on;
// 0: none.
func (k *Kernel) FailNext(op Op, n int) { k.mu.Lock(); k.fail[op] = n; k.mu.Unlock() }

// SetHops sets what the FIB answers for an address; no hops: no route.
func (k *Kernel) SetHops(dst netip.Addr, hops ...routes.Hop) {
	k.mu.Lock()
	k.fib[dst] = hops
	k.mu.Unlock()
}

// SetLink sets a link.
func (k *Kernel) SetLink(index int, l routes.Link) { k.mu.Lock(); k.links[index] = l; k.mu.Unlock() }

// SetNeighbor plants a neighbour.
func (k *Kernel) SetNeighbor(n routes.Neighbor) {
	k.mu.Lock()
	k.neighbors[n.NeighborKey] = n
	k.mu.Unlock()
}

// PlantRoute and PlantRule put something in without counting it.
func (k *Kernel) PlantRoute(r routes.Route) { k.mu.Lock(); k.routes[key(r)] = r; k.mu.Unlock() }

// PlantRule: see PlantRoute.
func (k *Kernel) PlantRule(r routes.Rule) { k.mu.Lock(); k.rules[r] = struct{}{}; k.mu.Unlock() }

// LoseRoute and LoseRule take something out behind everybody's back.
func (k *Kernel) LoseRoute(r routes.Route) { k.mu.Lock(); delete(k.routes, key(r)); k.mu.Unlock() }

// LoseRule: see LoseRoute.
func (k *Kernel) LoseRule(r routes.Rule) { k.mu.Lock(); delete(k.rules, r); k.mu.Unlock() }

// Mutations returns the successful mutations since the last call, in order.
func (k *Kernel) Mutations() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	log := k.log
	k.log = nil
	return log
}

// begin counts down injected failures; the caller holds mu.
func (k *Kernel) begin(op Op) error {
	n := k.fail[op]
	if n == 0 {
		return nil
	}
	if n > 0 {
		k.fail[op] = n - 1
	}
	return fmt.Errorf("%s: %w", op, ErrInjected)
}

// mutate runs one mutation under the lock and logs it.
func (k *Kernel) mutate(op Op, what any, do func()) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.begin(op); err != nil {
		return fmt.Errorf("%w: %v", err, what)
	}
	do()
	k.log = append(k.log, fmt.Sprintf("%s %v", op, what))
	return nil
}

func key(r routes.Route) routeKey { return routeKey{r.Table, r.Prefix, r.Metric} }

// Lookup implements routes.Kernel.
func (k *Kernel) Lookup(dst netip.Addr, mark uint32) ([]routes.Hop, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.begin(Lookup); err != nil {
		return nil, err
	}
	if len(k.fib[dst]) == 0 {
		return nil, fmt.Errorf("look up route to %s: network is unreachable", dst)
	}
	return slices.Clone(k.fib[dst]), nil
}

// Link implements routes.Kernel.
func (k *Kernel) Link(index int) (routes.Link, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.begin(Link); err != nil {
		return routes.Link{}, err
	}
	l, ok := k.links[index]
	if !ok {
		return l, fmt.Errorf("read link %d: no such device", index)
	}
	return l, nil
}

// Neighbors implements routes.Kernel.
func (k *Kernel) Neighbors() ([]routes.Neighbor, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.begin(Neighbors); err != nil {
		return nil, err
	}
	return slices.Collect(maps.Values(k.neighbors)), nil
}

// Manage implements routes.Kernel.
func (k *Kernel) Manage(n routes.NeighborKey, protocol uint8) error {
	return k.mutate(Manage, n, func() {
		e := k.neighbors[n]
		e.NeighborKey, e.Managed, e.Protocol = n, true, protocol
		k.neighbors[n] = e
	})
}

// Unmanage implements routes.Kernel.
func (k *Kernel) Unmanage(n routes.NeighborKey) error {
	return k.mutate(Unmanage, n, func() {
		if e, ok := k.neighbors[n]; ok {
			e.Managed, e.Protocol = false, 0
			k.neighbors[n] = e
		}
	})
}

// Routes implements routes.Kernel.
func (k *Kernel) Routes(tables ...int) ([]routes.Route, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.begin(Routes); err != nil {
		return nil, err
	}
	var out []routes.Route
	for _, r := range k.routes {
		if slices.Contains(tables, r.Table) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b routes.Route) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), a.Prefix.Addr().Compare(b.Prefix.Addr()))
	})
	return out, nil
}

// AddRoute implements routes.Kernel.
func (k *Kernel) AddRoute(r routes.Route) error {
	return k.mutate(AddRoute, fmt.Sprintf("%s table %d", r.Prefix, r.Table), func() { k.routes[key(r)] = r })
}

// DeleteRoute implements routes.Kernel.
func (k *Kernel) DeleteRoute(r routes.Route) error {
	return k.mutate(DeleteRoute, fmt.Sprintf("%s table %d", r.Prefix, r.Table), func() { delete(k.routes, key(r)) })
}

// Rules implements routes.Kernel.
func (k *Kernel) Rules() ([]routes.Rule, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.begin(Rules); err != nil {
		return nil, err
	}
	return slices.Collect(maps.Keys(k.rules)), nil
}

// AddRule implements routes.Kernel.
func (k *Kernel) AddRule(r routes.Rule) error {
	return k.mutate(AddRule, fmt.Sprintf("%d table %d", r.Priority, r.Table), func() { k.rules[r] = struct{}{} })
}

// DeleteRule implements routes.Kernel.
func (k *Kernel) DeleteRule(r routes.Rule) error {
	return k.mutate(DeleteRule, fmt.Sprintf("%d table %d", r.Priority, r.Table), func() { delete(k.rules, r) })
}

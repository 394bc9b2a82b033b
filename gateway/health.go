package gateway

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"picot.dev/picot/gateway/flows"
)

// Condition is the health of one object: a database, a bridge, a group. Err names what is wrong
// and the mend; nil is healthy.
type Condition struct {
	Object string
	Err    error
}

// health collects the conditions of the reconcilers.
type health struct {
	mu sync.Mutex
	m  map[string]error
}

func (h *health) set(object string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		delete(h.m, object)
		return
	}
	if h.m == nil {
		h.m = map[string]error{}
	}
	h.m[object] = err
}

func (h *health) all() []Condition {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Condition
	for _, k := range slices.Sorted(maps.Keys(h.m)) {
		out = append(out, Condition{k, h.m[k]})
	}
	return out
}

// Health lists each database, healthy or not, and every other object with an error.
func (c *Controller) Health() []Condition {
	out := c.health.all()
	for _, d := range c.databases() {
		out = append(out, Condition{d.name, d.db.Err()})
	}
	slices.SortFunc(out, func(a, b Condition) int { return cmp.Compare(a.Object, b.Object) })
	return out
}

// Ready: every database is synchronised, the flows of every bridge have been installed once, and no
// object has an error. The host side of a DPU has nothing to do and is ready.
func (c *Controller) Ready() bool {
	return (c.cfg.Role == flows.DPUHost || c.topology.applied.Load()) && !slices.ContainsFunc(c.Health(), func(h Condition) bool { return h.Err != nil })
}

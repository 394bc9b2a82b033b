package gateway

import (
	"sync/atomic"
	"time"

	"picot.dev/picot/gateway/mirror"
	"picot.dev/picot/gateway/static"
)

// Counters are the gateway's numbers. All may be read at any time; nothing here knows Prometheus.
type Counters struct {
	MirrorWrites [3]atomic.Uint64 // by mirror.Kind
	StaticWrites [3]atomic.Uint64 // by static.Kind
	Refused      atomic.Uint64    // rows a database refused even alone
	FlowsAdded   atomic.Uint64
	FlowsDeleted atomic.Uint64
	FlowsHealed  atomic.Uint64 // put back after another program removed them
	Redesignated atomic.Uint64
	// Lag is the time from the first event of a pass to the pass's last write, in nanoseconds.
	MirrorLag, MirrorLagMax, StaticLag, StaticLagMax atomic.Int64
}

// Sample is one number for a metrics endpoint: the part after "picot_gateway_", its labels as
// name, value pairs, and whether it only grows.
type Sample struct {
	Name    string
	Labels  []string
	Value   float64
	Counter bool
}

// Samples gives every number at once, in a fixed order.
func (c *Controller) Samples() []Sample {
	var out []Sample
	add := func(counter bool, v float64, name string, labels ...string) {
		out = append(out, Sample{name, labels, v, counter})
	}
	for k := mirror.Insert; k <= mirror.Refresh; k++ {
		add(true, float64(c.counters.MirrorWrites[k].Load()), "mirror_writes_total", "reason", k.String())
	}
	for k := static.Delete; k <= static.Insert; k++ {
		add(true, float64(c.counters.StaticWrites[k].Load()), "static_writes_total", "reason", k.String())
	}
	add(true, float64(c.counters.Refused.Load()), "refused_rows_total")
	add(true, float64(c.counters.FlowsAdded.Load()), "flows_total", "change", "added")
	add(true, float64(c.counters.FlowsDeleted.Load()), "flows_total", "change", "deleted")
	add(true, float64(c.counters.FlowsHealed.Load()), "flows_total", "change", "healed")
	add(true, float64(c.counters.Redesignated.Load()), "redesignations_total")
	add(false, time.Duration(c.counters.MirrorLag.Load()).Seconds(), "lag_seconds", "part", "mirror")
	add(false, time.Duration(c.counters.StaticLag.Load()).Seconds(), "lag_seconds", "part", "static")
	for _, d := range c.databases() {
		s := d.db.Stats()
		up := 0.0
		if d.db.Session() != nil {
			up = 1
		}
		add(false, up, "database_up", "database", d.name)
		add(true, float64(s.Sessions.Load()), "database_sessions_total", "database", d.name)
		add(true, float64(s.Transactions.Load()), "transactions_total", "database", d.name)
		add(true, float64(s.Rejected.Load()), "transactions_rejected_total", "database", d.name)
		add(false, time.Duration(s.MaxTransaction.Load()).Seconds(), "transaction_max_seconds", "database", d.name)
	}
	st := c.Status()
	for _, g := range st.Groups {
		add(false, float64(len(g.Followers)), "followers", "bridge", g.Bridge)
		add(false, float64(g.Bindings), "bindings", "bridge", g.Bridge)
		add(false, float64(g.Lacking), "bindings_lacking", "bridge", g.Bridge)
		add(false, float64(g.Saved), "resubmits_saved_per_packet", "bridge", g.Bridge)
	}
	return out
}

// keepMax stores v in last, and in most if it is greater.
func keepMax(last, most *atomic.Int64, v int64) {
	last.Store(v)
	for {
		old := most.Load()
		if v <= old || most.CompareAndSwap(old, v) {
			return
		}
	}
}

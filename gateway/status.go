package gateway

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Status is what `picot show gateway` shows. Field names are those of its JSON and YAML.
type Status struct {
	Node       string           `json:"node"`
	Gate       bool             `json:"disableUDNARPNDPFlood"`
	Mode       string           `json:"mode"`
	OVNVersion string           `json:"ovnVersion,omitempty"`
	Static     bool             `json:"staticNodeBindings"`
	Databases  []DatabaseStatus `json:"databases,omitempty"`
	Groups     []GroupStatus    `json:"groups,omitempty"`
	Problems   []string         `json:"problems,omitempty"`
	// LagMs is the time from the last change seen to its last row written, and the worst so far.
	MirrorLagMs, MirrorLagMaxMs float64
	StaticLagMs, StaticLagMaxMs float64
}

// DatabaseStatus is one OVSDB connection.
type DatabaseStatus struct {
	Name     string `json:"name"`
	Remote   string `json:"remote"`
	Up       bool   `json:"up"`
	Error    string `json:"error,omitempty"`
	Sessions uint64 `json:"sessions"`
}

// GroupStatus is the routers of one bridge.
type GroupStatus struct {
	Bridge    string           `json:"bridge"`
	Default   bool             `json:"default"`
	Source    string           `json:"source,omitempty"` // network; "default" for the cluster default network
	Ingress   []string         `json:"ingress,omitempty"`
	Followers []FollowerStatus `json:"followers,omitempty"`
	Bindings  int              `json:"bindings"` // of the source, that are mirrored
	Lacking   int              `json:"lacking"`  // rows followers still need
	// Saved is about how many OpenFlow resubmits each external ARP/NDP packet is spared: 50 for
	// each follower it no longer visits.
	Saved int `json:"resubmitsSavedPerPacket"`
}

// FollowerStatus is one router that follows.
type FollowerStatus struct {
	Network string `json:"network"`
	Port    string `json:"port,omitempty"`
	OFPort  int    `json:"ofport"`
	Static  int    `json:"static"` // node bindings it should have
}

// resubmitsPerRouter is what one packet costs in one gateway router's pipeline, measured.
const resubmitsPerRouter = 50

// Status gives the present state. It costs O(followers).
func (c *Controller) Status() Status {
	ms := func(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }
	st := Status{Node: c.cfg.Node, Gate: c.cfg.DisableUDNARPNDPFlood, Mode: c.cfg.Mode.String(),
		MirrorLagMs: ms(c.counters.MirrorLag.Load()), MirrorLagMaxMs: ms(c.counters.MirrorLagMax.Load()),
		StaticLagMs: ms(c.counters.StaticLag.Load()), StaticLagMaxMs: ms(c.counters.StaticLagMax.Load())}
	for _, d := range c.databases() {
		ds := DatabaseStatus{Name: d.name, Remote: d.db.Remote(), Up: d.db.Session() != nil, Sessions: d.db.Stats().Sessions.Load()}
		if err := d.db.Err(); err != nil {
			ds.Error = err.Error()
		}
		st.Databases = append(st.Databases, ds)
	}
	for _, h := range c.health.all() {
		st.Problems = append(st.Problems, fmt.Sprintf("%s: %v", h.Object, h.Err))
	}
	g := c.groups.Load()
	if g == nil {
		return st
	}
	st.OVNVersion, st.Static = g.ovnVersion, g.useStatic && st.Gate
	dynamic, fixed := c.mirror.last.Load(), c.static.last.Load()
	for _, t := range g.Groups {
		gs := GroupStatus{Bridge: t.Bridge, Default: t.Default}
		if t.Source != nil {
			gs.Source = networkName(t.Source.Network)
			if dynamic != nil {
				gs.Bindings, gs.Lacking = dynamic.totals[t.Source.Port].Bindings, dynamic.totals[t.Source.Port].Lacking
			}
		}
		for _, i := range slices.Concat(t.Uplinks, t.Localnets) {
			gs.Ingress = append(gs.Ingress, i.Name)
		}
		for _, f := range t.Followers {
			fs := FollowerStatus{Network: f.Network, Port: f.Port, OFPort: f.OFPort}
			if fixed != nil {
				fs.Static = fixed.rows[f.Port]
			}
			gs.Followers = append(gs.Followers, fs)
		}
		if st.Gate {
			gs.Saved = resubmitsPerRouter * len(t.Followers)
		}
		st.Groups = append(st.Groups, gs)
	}
	return st
}

func networkName(network string) string {
	if network == "" {
		return "default"
	}
	return network
}

// Print writes the status as tables.
func (s Status) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "node %s  gate %s  mode %s  OVN %s  node bindings %s\n", s.Node, onOff(s.Gate), s.Mode, s.OVNVersion,
		map[bool]string{true: "static", false: "mirrored"}[s.Static])
	fmt.Fprintf(w, "lag  mirror %.1f ms (most %.1f)  static %.1f ms (most %.1f)\n\n", s.MirrorLagMs, s.MirrorLagMaxMs, s.StaticLagMs, s.StaticLagMaxMs)
	fmt.Fprintln(w, "DATABASE\tREMOTE\tSTATE\tSESSIONS")
	for _, d := range s.Databases {
		state := "up"
		if !d.Up {
			state = "down: " + d.Error
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\n", d.Name, d.Remote, state, d.Sessions)
	}
	fmt.Fprintln(w, "\nBRIDGE\tSOURCE\tFOLLOWERS\tINGRESS\tBINDINGS\tLACKING\tSAVED")
	for _, g := range s.Groups {
		fmt.Fprintf(w, "%s\t%s\t%d\t%v\t%d\t%d\t%d\n", g.Bridge, g.Source, len(g.Followers), g.Ingress, g.Bindings, g.Lacking, g.Saved)
	}
	for _, p := range s.Problems {
		fmt.Fprintf(w, "problem\t%s\n", p)
	}
	return w.Flush()
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

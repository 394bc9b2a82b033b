package learning

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ReclaimOptions are the times of a Reclaimer. Zero values mean the defaults.
type ReclaimOptions struct {
	Stale   time.Duration // a Lease not renewed for this long is stale; 40 s
	Forget  time.Duration // stale for this long, learned bindings go; 1 h
	MostOf  float64       // of all nodes, the most that may be stale at once; 0.2
	AtLeast int           // ... but this many may be in any case; 1
}

// WithDefaults fills in what is not set.
func (o ReclaimOptions) WithDefaults() ReclaimOptions {
	orDefault(&o.Stale, 40*time.Second)
	orDefault(&o.Forget, time.Hour)
	orDefault(&o.MostOf, 0.2)
	orDefault(&o.AtLeast, 1)
	return o
}

// ErrReclaimOptions is wrapped by every error of [NewReclaimer].
var ErrReclaimOptions = errors.New("reclaim options")

// Reclaim is what goes of a node's bindings.
type Reclaim uint8

// What goes, each with what stands before it.
const (
	ReclaimNothing Reclaim = iota
	ReclaimLearned
	ReclaimAll // static bindings, then finalizers
)

func (r Reclaim) String() string { return [...]string{"nothing", "learned", "all"}[r%3] }

// NodeState is what the API says of a node.
type NodeState struct {
	Name string
	// Exists says that there is a Node object, OutOfService that it has the taint
	// node.kubernetes.io/out-of-service: somebody vouches that it is off.
	Exists, OutOfService bool
	// Lease is the content of its Lease, such as its renewTime in text, or its
	// resourceVersion; "" for no Lease. Only its changes matter.
	Lease string
}

// Judgement is what is true of a node. It is a level, not an edge: act on what
// differs from what is stored.
type Judgement struct {
	Node    string
	Alive   bool
	Reclaim Reclaim
	Why     string
}

// Reclaimer judges nodes by their Leases. It runs in the agent that is elected for
// it. All waiting is by a monotonic clock and over an unbroken watch: no
// timestamp of another node is compared with ours. It belongs to one goroutine.
type Reclaimer struct {
	opt   ReclaimOptions
	nodes map[string]*judged
	whole int64 // mono: the watch is unbroken since; -1: it is broken
}

type judged struct {
	NodeState
	changed int64 // mono: the Lease was last seen to change, or the watch began
	dead    bool  // what was last judged
}

// NewReclaimer returns a Reclaimer whose watch has not begun.
func NewReclaimer(o ReclaimOptions) (*Reclaimer, error) {
	o = o.WithDefaults()
	if o.Stale < 0 || o.Forget < o.Stale {
		return nil, fmt.Errorf("%w: a Lease is stale after %v and its node's bindings go after %v: the second must be longer", ErrReclaimOptions, o.Stale, o.Forget)
	}
	if o.MostOf < 0 || o.MostOf > 1 || o.AtLeast < 0 {
		return nil, fmt.Errorf("%w: a share of %v, at least %d: use a share in 0..1", ErrReclaimOptions, o.MostOf, o.AtLeast)
	}
	return &Reclaimer{opt: o, nodes: map[string]*judged{}, whole: -1}, nil
}

// Watching tells that the watches of Nodes and Leases are in sync (or broken). A
// broken watch proves nothing about anybody, so all waiting begins anew with the
// next one.
func (r *Reclaimer) Watching(whole bool, mono int64) {
	if !whole {
		r.whole = -1
		return
	}
	if r.whole >= 0 {
		return
	}
	r.whole = mono
	for _, n := range r.nodes {
		n.changed = mono
	}
}

// Set tells of a node with a Node object, a Lease, an SRv6Node or bindings. alive
// is what is stored of it: the condition Alive is not False.
func (r *Reclaimer) Set(s NodeState, alive bool, mono int64) {
	n := r.nodes[s.Name]
	if n == nil {
		n = &judged{NodeState: s, changed: mono, dead: !alive}
		r.nodes[s.Name] = n
		return
	}
	if n.Lease != s.Lease && s.Lease != "" {
		n.changed, n.dead = mono, false
	}
	n.NodeState = s
}

// Forget tells that there is nothing left of a node.
func (r *Reclaimer) Forget(name string) { delete(r.nodes, name) }

// Judge judges all nodes, in the order of their names. It returns nil while the
// watch is broken: nobody is judged by what is not seen.
//
// A node without a Node object is dead, and all its bindings go: that is a fact,
// not a guess. Of those with one, no more are found dead while too many are
// stale, and nothing of theirs goes for that reason: many stale Leases at once
// are an outage of the API, not of the nodes.
func (r *Reclaimer) Judge(mono int64) []Judgement {
	if r.whole < 0 {
		return nil
	}
	all := make([]*judged, 0, len(r.nodes))
	exist, stale := 0, 0
	for _, n := range r.nodes {
		all = append(all, n)
		if n.Exists {
			exist++
			if r.silence(n, mono) > r.opt.Stale {
				stale++
			}
		}
	}
	slices.SortFunc(all, func(a, b *judged) int { return cmp.Compare(a.Name, b.Name) })
	outage := stale > max(r.opt.AtLeast, int(r.opt.MostOf*float64(exist)))
	out := make([]Judgement, len(all))
	for i, n := range all {
		out[i] = r.judge(n, outage, mono)
	}
	return out
}

func (r *Reclaimer) silence(n *judged, mono int64) time.Duration {
	return time.Duration(mono - max(n.changed, r.whole))
}

func (r *Reclaimer) judge(n *judged, outage bool, mono int64) Judgement {
	j := Judgement{Node: n.Name, Why: "its Lease is renewed"}
	silence := r.silence(n, mono)
	switch {
	case !n.Exists:
		n.dead, j.Reclaim, j.Why = true, ReclaimAll, "its Node object is gone"
	case silence > r.opt.Stale && outage:
		j.Why = "its Lease is stale, but so are too many"
	case silence > r.opt.Stale:
		n.dead, j.Why = true, "its Lease is stale"
		if silence > r.opt.Forget {
			j.Reclaim, j.Why = ReclaimLearned, "its Lease has been stale for long"
		}
	}
	if n.Exists && n.OutOfService {
		n.dead, j.Reclaim, j.Why = true, ReclaimLearned, "it is out of service"
	}
	j.Alive = !n.dead
	return j
}

// Package reclaim judges which nodes are dead and what goes of a dead node's
// bindings. Like package learning, of which it is the part that one elected
// agent runs, it is pure: time is an argument, and it does no I/O.
//
//	Lease                            Alive      learned    static, finalizers
//	renewed                          true       stay       stay
//	stale                            false      stay       stay
//	stale for Forget                 false      go         stay
//	any, Node out of service         false      go         stay
//	stale, Node gone                 false      go         go
//	none, Node gone                  unchanged  go         go
//	none                             unchanged  stay       stay
//	stale, as too many are           unchanged  stay       stay
//
// All waiting is by a monotonic clock and over an unbroken watch: no timestamp of
// another node is compared with ours.
package reclaim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Options are the times of a Judge. Zero values mean the defaults.
type Options struct {
	Stale   time.Duration // a Lease not renewed for this long is stale; 40 s
	Forget  time.Duration // stale for this long, learned bindings go; 1 h
	MostOf  float64       // of all nodes, the most that may be stale at once; 0.2
	AtLeast int           // ... but this many may be in any case; 1
}

// WithDefaults fills in what is not set.
func (o Options) WithDefaults() Options {
	orDefault(&o.Stale, 40*time.Second)
	orDefault(&o.Forget, time.Hour)
	orDefault(&o.MostOf, 0.2)
	orDefault(&o.AtLeast, 1)
	return o
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// ErrOptions is wrapped by every error of [Options.Validate].
var ErrOptions = errors.New("reclaim options")

// Validate says whether the options make sense.
func (o Options) Validate() error {
	o = o.WithDefaults()
	if o.Stale < 0 || o.Forget < o.Stale {
		return fmt.Errorf("%w: a Lease is stale after %v and its node's bindings go after %v: the second must be longer", ErrOptions, o.Stale, o.Forget)
	}
	if o.MostOf < 0 || o.MostOf > 1 || o.AtLeast < 0 {
		return fmt.Errorf("%w: a share of %v, at least %d: use a share in 0..1", ErrOptions, o.MostOf, o.AtLeast)
	}
	return nil
}

// What goes of a node's bindings.
type What uint8

// What goes, each with what stands before it.
const (
	Nothing What = iota
	Learned
	All // static bindings, then finalizers
)

func (w What) String() string { return [...]string{"nothing", "learned", "all"}[w%3] }

// Node is what the API says of a node.
type Node struct {
	Name string
	// Exists says that there is a Node object, OutOfService that it has the taint
	// node.kubernetes.io/out-of-service: somebody vouches that it is off.
	Exists, OutOfService bool
	// Lease is the content of its Lease, such as its resourceVersion; "" for no
	// Lease. Only its changes matter.
	Lease string
}

// Verdict is what is true of a node. It is a level, not an edge: act on what
// differs from what is stored.
type Verdict struct {
	Node  string
	Alive bool
	Goes  What
	Why   string
}

// Judge judges nodes by their Leases. It belongs to one goroutine.
type Judge struct {
	opt   Options
	nodes map[string]*judged
	whole int64 // mono: the watch is unbroken since; -1: it is broken
}

type judged struct {
	Node
	changed int64 // mono: the Lease was last seen to change, or the watch began
	dead    bool  // what was last judged
}

// New returns a Judge whose watch has not begun.
func New(o Options) (*Judge, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Judge{opt: o.WithDefaults(), nodes: map[string]*judged{}, whole: -1}, nil
}

// Watching tells that the watches of Nodes and Leases are in sync (or broken). A
// broken watch proves nothing about anybody, so all waiting begins anew with the
// next one.
func (j *Judge) Watching(whole bool, mono int64) {
	if !whole {
		j.whole = -1
		return
	}
	if j.whole >= 0 {
		return
	}
	j.whole = mono
	for _, n := range j.nodes {
		n.changed = mono
	}
}

// Set tells of a node with a Node object, a Lease, an SRv6Node or bindings. alive
// is what is stored of it: the condition Alive is not False.
func (j *Judge) Set(s Node, alive bool, mono int64) {
	n := j.nodes[s.Name]
	if n == nil {
		n = &judged{Node: s, changed: mono, dead: !alive}
		j.nodes[s.Name] = n
		return
	}
	if n.Lease != s.Lease && s.Lease != "" {
		n.changed, n.dead = mono, false
	}
	n.Node = s
}

// Forget tells that there is nothing left of a node.
func (j *Judge) Forget(name string) { delete(j.nodes, name) }

// Verdicts judges all nodes, in the order of their names. It returns nil while
// the watch is broken: nobody is judged by what is not seen.
//
// Of a node without a Node object and without a sign of life all bindings go,
// whatever becomes of the others. One that never had a Lease is none of picot's
// agents, and nothing is known of its life. Of those with one, no more are found
// dead while too many are silent, and nothing of theirs goes for that reason: that
// is an outage of the API, not of the nodes. Half the time to be stale counts as
// silent here, for they do not all become stale at one moment.
func (j *Judge) Verdicts(mono int64) []Verdict {
	if j.whole < 0 {
		return nil
	}
	all := make([]*judged, 0, len(j.nodes))
	exist, late := 0, 0
	for _, n := range j.nodes {
		all = append(all, n)
		if n.Exists && n.Lease != "" { // others never showed life that could end
			exist++
			if j.silence(n, mono) > j.opt.Stale/2 {
				late++
			}
		}
	}
	slices.SortFunc(all, func(a, b *judged) int { return cmp.Compare(a.Name, b.Name) })
	outage := late > max(j.opt.AtLeast, int(j.opt.MostOf*float64(exist)))
	out := make([]Verdict, len(all))
	for i, n := range all {
		out[i] = j.judge(n, outage, mono)
	}
	return out
}

func (j *Judge) silence(n *judged, mono int64) time.Duration {
	return time.Duration(mono - max(n.changed, j.whole))
}

func (j *Judge) judge(n *judged, outage bool, mono int64) Verdict {
	v := Verdict{Node: n.Name, Why: "its Lease is renewed"}
	if n.dead {
		v.Why = "its Lease was stale, and is not renewed since"
	}
	silence := j.silence(n, mono)
	switch {
	case !n.Exists && n.Lease == "":
		v.Goes, v.Why = All, "it has neither Node object nor Lease"
	case n.Lease == "":
		v.Why = "it never had a Lease"
	case !n.Exists && silence > j.opt.Stale:
		n.dead, v.Goes, v.Why = true, All, "its Node object is gone and its Lease is stale"
	case !n.Exists:
		v.Why = "its Node object is gone, but its Lease is renewed"
	case silence > j.opt.Stale && outage:
		v.Why = "its Lease is stale, but so are too many"
	case silence > j.opt.Stale:
		n.dead, v.Why = true, "its Lease is stale"
		if silence > j.opt.Forget {
			v.Goes, v.Why = Learned, "its Lease has been stale for long"
		}
	}
	if n.Exists && n.OutOfService {
		n.dead, v.Goes, v.Why = true, Learned, "it is out of service"
	}
	v.Alive = !n.dead
	return v
}

package bridge

import (
	"fmt"
	"strings"

	"picot.dev/picot/gateway/flows"
)

// difference is what must be written to the switch, and what it leads to.
type difference struct {
	changes Changes
	placed  flows.Set
}

// plan compares what a bridge carries with what it should carry of ours. It is the one place
// that decides whose a flow is.
func plan(have State, desired flows.Set) difference {
	var p difference
	own := make(map[flows.Key]flows.Flow, len(have.Own))
	for _, f := range have.Own {
		own[f.Key()] = f
	}
	foreign := make(map[flows.Key]flows.Flow, len(have.Foreign))
	for _, f := range have.Foreign {
		foreign[f.Key()] = f
	}
	p.changes.StoodDown = steered(have.Foreign, desired)
	for _, f := range desired {
		if p.changes.StoodDown && isSteer(f) {
			continue
		}
		if theirs, held := foreign[f.Key()]; held {
			if theirs.Actions != f.Actions {
				p.changes.Held = append(p.changes.Held, f)
			}
			continue
		}
		p.placed = append(p.placed, f)
		switch ours, there := own[f.Key()]; {
		case !there:
			p.changes.Added = append(p.changes.Added, f)
		case ours != f:
			p.changes.Replaced = append(p.changes.Replaced, f)
		}
		delete(own, f.Key())
	}
	for _, f := range have.Own { // in the switch's order, not the map's
		if _, stale := own[f.Key()]; stale {
			p.changes.Deleted = append(p.changes.Deleted, f)
		}
	}
	p.changes.Deleted.Sort()
	return p
}

// steered reports whether another owner sends unicast ARP or NDP for the same bridge MAC to
// a router itself.
func steered(foreign, desired flows.Set) bool {
	macs := map[string]bool{}
	for _, f := range desired {
		if flows.Steering(f) {
			macs[flows.Field(f.Match, "dl_dst")] = true
		}
	}
	for _, f := range foreign {
		if flows.Steering(f) && macs[flows.Field(f.Match, "dl_dst")] {
			return true
		}
	}
	return false
}

func (p difference) touches() bool {
	return len(p.changes.Added)+len(p.changes.Replaced)+len(p.changes.Deleted) > 0
}

// lines returns the difference in the syntax of `ovs-ofctl --bundle add-flows`. A deletion
// names the full cookie, so a flow that changed hands since it was read is not removed.
func (p difference) lines() string {
	var b strings.Builder
	for _, f := range p.changes.Deleted {
		fmt.Fprintf(&b, "delete_strict cookie=%#x/-1,table=%d,priority=%d", f.Cookie, f.Table, f.Priority)
		if f.Match != "" {
			b.WriteString("," + f.Match)
		}
		b.WriteByte('\n')
	}
	for _, s := range []flows.Set{p.changes.Replaced, p.changes.Added} {
		b.WriteString(addLines(s))
	}
	return b.String()
}

func addLines(s flows.Set) string {
	var b strings.Builder
	for _, f := range s {
		b.WriteString("add ")
		b.WriteString(f.String())
		b.WriteByte('\n')
	}
	return b.String()
}

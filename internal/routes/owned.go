package routes

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Owner says how a fresh process recognises what an earlier one left, and the
// numbers under which it does so. All are settable, for machines where another
// program already uses one of them.
//
//	rules       by Protocol
//	routes      by Protocol, in Table, GuardTable, and the tables that rules of ours
//	            name: those of an earlier configuration
//	neighbours  the managed flag, by Protocol (NDA_PROTOCOL)
type Owner struct {
	Mark       uint32 // fwmark of picot's own lookups and probes, compared whole
	Table      int    // locator routes, used by the mark only
	GuardTable int    // unreachable locators, used by everybody else
	Protocol   uint8  // rtm_protocol of all we make
	Priority   int    // of the first of three consecutive rules; before any other policy rule
	Metric     int    // of all our routes, so that no foreign route is replaced
}

// DefaultOwner is used where an operator set nothing. The mark spells "pico".
func DefaultOwner() Owner {
	return Owner{Mark: 0x7069636f, Table: 28777, GuardTable: 28778, Protocol: 112, Priority: 70, Metric: 112}
}

// tables are where routes of ours may be.
func (o Owner) tables(rules []Rule) []int {
	tables := []int{o.Table, o.GuardTable}
	for _, r := range rules {
		if o.ownsRule(r) && r.Table != unix.RT_TABLE_MAIN && !slices.Contains(tables, r.Table) {
			tables = append(tables, r.Table)
		}
	}
	return tables
}

func (o Owner) ownsRoute(r Route) bool { return r.Protocol == o.Protocol }

func (o Owner) ownsRule(r Rule) bool { return r.Protocol == o.Protocol }

func (o Owner) ownsNeighbor(n Neighbor) bool { return n.Managed && n.Protocol == o.Protocol }

// Leftovers is what of an owner's the kernel has.
type Leftovers struct {
	Routes    []Route
	Rules     []Rule
	Neighbors []Neighbor
}

// Find lists what is ours, whoever made it and whether or not it is wanted.
func (o Owner) Find(k Kernel) (Leftovers, error) {
	rules, err := k.Rules()
	if err != nil {
		return Leftovers{}, err
	}
	routes, err := k.Routes(o.tables(rules)...)
	if err != nil {
		return Leftovers{}, err
	}
	neighbors, err := k.Neighbors()
	if err != nil {
		return Leftovers{}, err
	}
	return Leftovers{
		Routes:    slices.DeleteFunc(routes, func(r Route) bool { return !o.ownsRoute(r) }),
		Rules:     slices.DeleteFunc(rules, func(r Rule) bool { return !o.ownsRule(r) }),
		Neighbors: slices.DeleteFunc(neighbors, func(n Neighbor) bool { return !o.ownsNeighbor(n) }),
	}, nil
}

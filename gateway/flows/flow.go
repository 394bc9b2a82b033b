package flows

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Flow is one OpenFlow entry in canonical text: fields and actions are spelled as
// [Parse] spells them, so two flows are the same if and only if they compare equal.
type Flow struct {
	Table    uint8
	Priority uint16
	Cookie   uint64
	Match    string // comma-separated fields, empty matches everything
	Actions  string
}

// Key is a flow's identity in the switch: adding a flow with the key of another replaces it.
type Key struct {
	Table    uint8
	Priority uint16
	Match    string
}

// Key returns the flow's identity.
func (f Flow) Key() Key { return Key{f.Table, f.Priority, f.Match} }

// String returns the flow in the syntax of ovs-ofctl(8).
func (f Flow) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cookie=%#x,table=%d,priority=%d", f.Cookie, f.Table, f.Priority)
	if f.Match != "" {
		b.WriteByte(',')
		b.WriteString(f.Match)
	}
	b.WriteString(" actions=")
	b.WriteString(f.Actions)
	return b.String()
}

// Set is the flows of one bridge.
type Set []Flow

// Sort puts the flows into reading order: by table, then falling priority, then match.
func (s Set) Sort() { slices.SortFunc(s, compare) }

func compare(a, b Flow) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(b.Priority, a.Priority), compareMatch(a.Match, b.Match))
}

// compareMatch orders numbers inside a match by value, so that port 9 comes before port 10.
func compareMatch(a, b string) int {
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da > 0 && db > 0 {
			if c := cmp.Or(cmp.Compare(da, db), strings.Compare(a[:da], b[:db])); c != 0 {
				return c
			}
			a, b = a[da:], b[db:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// String returns one flow a line.
func (s Set) String() string {
	var b strings.Builder
	for _, f := range s {
		b.WriteString(f.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Field returns the value of a field in a canonical match, or "".
func Field(match, name string) string {
	for f := range strings.SplitSeq(match, ",") {
		if key, val, _ := strings.Cut(f, "="); key == name {
			return val
		}
	}
	return ""
}

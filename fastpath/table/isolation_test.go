package table

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestIsolation(t *testing.T) {
	rule := IsolationRule{From: []Segment{1, 2}, To: []Segment{2, 3}}
	for _, test := range []struct {
		name     string
		c        *Isolation
		from, to Segment
		want     bool
	}{
		{"none: all to all", nil, 1, 2, true},
		{"none: not known to not known", nil, 0, 0, true},
		{"deny: rule allows", &Isolation{true, []IsolationRule{rule}}, 1, 2, true},
		{"deny: own segment by rule", &Isolation{true, []IsolationRule{rule}}, 2, 2, true},
		{"deny: own segment without", &Isolation{true, []IsolationRule{rule}}, 1, 1, false},
		{"deny: the other way", &Isolation{true, []IsolationRule{rule}}, 3, 1, false},
		{"deny: not named", &Isolation{true, []IsolationRule{rule}}, 7, 2, false},
		{"deny: no rules", &Isolation{DefaultDeny: true}, 7, 7, false},
		{"allow: rule denies", &Isolation{false, []IsolationRule{rule}}, 1, 3, false},
		{"allow: the other way", &Isolation{false, []IsolationRule{rule}}, 3, 1, true},
		{"allow: not named", &Isolation{false, []IsolationRule{rule}}, 7, 8, true},
		{"allow: sender not known", &Isolation{false, []IsolationRule{rule}}, 0, 7, false},
		{"allow: receiver not known", &Isolation{false, []IsolationRule{rule}}, 7, 0, false},
		{"allow: no rules, not known", &Isolation{}, 0, 7, false},
	} {
		b := NewBuilder()
		must(t, b.SetNetwork(Network{ID: 1, Name: "a", Isolation: test.c}))
		if got := b.Snapshot().Allowed(1, test.from, test.to); got != test.want {
			t.Errorf("%s: %d -> %d: %v", test.name, test.from, test.to, got)
		}
	}
}

// Rules that do not compile close the network; they never leave it open.
func TestIsolationThatDoesNotCompileIsClosed(t *testing.T) {
	var many []Segment
	for i := range maxClasses {
		many = append(many, Segment(i+1))
	}
	for name, rule := range map[string]IsolationRule{
		"empty from": {To: []Segment{1}}, "segment 0": {From: []Segment{0}, To: []Segment{1}},
		"too big": {From: []Segment{1}, To: []Segment{MaxSegment + 1}}, "too many": {From: many, To: []Segment{1}},
	} {
		b := NewBuilder()
		must(t, b.SetNetwork(Network{ID: 1, Name: "a"}))
		if err := b.SetNetwork(Network{ID: 1, Name: "a", Isolation: &Isolation{Rules: []IsolationRule{rule}}}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		s := b.Snapshot()
		if !s.Networks[1].Known || !s.Networks[1].Isolated() || s.Allowed(1, 1, 1) || s.Allowed(1, 5, 6) {
			t.Errorf("%s: open", name)
		}
		must(t, b.SetNetwork(Network{ID: 1, Name: "a"}))
		if !b.Snapshot().Allowed(1, 5, 6) {
			t.Errorf("%s: still closed after the mend", name)
		}
	}
}

func TestIsolationAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	pick := func() []Segment {
		var s []Segment
		for range 1 + rng.IntN(5) {
			s = append(s, Segment(1+rng.IntN(30)*559240))
		}
		return s
	}
	for range 200 {
		c := &Isolation{DefaultDeny: rng.IntN(2) == 0}
		for range rng.IntN(6) {
			c.Rules = append(c.Rules, IsolationRule{pick(), pick()})
		}
		x, err := compileIsolation(c)
		must(t, err)
		for range 500 {
			from, to := pick()[0], pick()[0]
			named := slices.ContainsFunc(c.Rules, func(r IsolationRule) bool { return slices.Contains(r.From, from) && slices.Contains(r.To, to) })
			if got, want := x.allows(from, to), named == c.DefaultDeny; got != want {
				t.Fatalf("%d -> %d under %+v: %v", from, to, c, got)
			}
		}
	}
}

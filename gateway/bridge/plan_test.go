package bridge

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"picot.dev/picot/gateway/flows"
)

const theirs = 0xdeff105

// table is the slow, obvious switch: one flow a key, an add replaces, a strict delete minds the cookie.
type table map[flows.Key]flows.Flow

func (tb table) apply(c Changes) {
	for _, f := range c.Deleted {
		if have, ok := tb[f.Key()]; ok && have.Cookie == f.Cookie {
			delete(tb, f.Key())
		}
	}
	for _, s := range []flows.Set{c.Replaced, c.Added} {
		for _, f := range s {
			tb[f.Key()] = f
		}
	}
}

func (tb table) state() State {
	var s State
	for _, f := range tb {
		if flows.Owned(f.Cookie) {
			s.Own = append(s.Own, f)
		} else {
			s.Foreign = append(s.Foreign, f)
		}
	}
	return s
}

// Random tables and wishes: nothing of others changes, what is ours becomes what was asked
// for unless another holds its key, and a second look finds nothing to do.
func TestPlanAgainstAModel(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	random := func(cookie uint64) flows.Flow {
		f := flows.Flow{Table: uint8(r.IntN(2)), Priority: []uint16{9, 10, 52}[r.IntN(3)], Cookie: cookie,
			Match: fmt.Sprintf("arp,in_port=%d,dl_dst=02:00:00:00:00:0%d", r.IntN(3), r.IntN(2)), Actions: []string{"drop", "NORMAL"}[r.IntN(2)]}
		return f
	}
	stoodDown := 0
	for range 5000 {
		tb := table{}
		for range r.IntN(12) {
			f := random([]uint64{flows.Cookie, flows.Cookie + 1, theirs, 0}[r.IntN(4)])
			tb[f.Key()] = f
		}
		wish := table{}
		for range r.IntN(8) {
			f := random(flows.Cookie)
			wish[f.Key()] = f
		}
		desired := wish.state().Own
		before := table{}
		for k, f := range tb {
			before[k] = f
		}
		c := plan(tb.state(), desired).changes
		if c.StoodDown {
			stoodDown++
		}
		tb.apply(c)
		for k, f := range before {
			if !flows.Owned(f.Cookie) && tb[k] != f {
				t.Fatalf("another owner's %s became %s", f, tb[k])
			}
		}
		for k, f := range tb {
			if flows.Owned(f.Cookie) && wish[k] != f {
				t.Fatalf("nobody asked for %s", f)
			}
		}
		for k, f := range wish {
			_, held := before[k]
			held = held && !flows.Owned(before[k].Cookie)
			if tb[k] != f && !held && !(c.StoodDown && isSteer(f)) {
				t.Fatalf("%s is not there", f)
			}
		}
		if again := plan(tb.state(), desired); again.touches() {
			t.Fatalf("a second look changes %+v", again.changes)
		}
	}
	if stoodDown == 0 || stoodDown == 5000 {
		t.Errorf("stood down %d times of 5000: the model does not cover both", stoodDown)
	}
}

func TestDeletionNamesItsCookie(t *testing.T) {
	old := flows.Flow{Table: 1, Priority: 7, Cookie: flows.Cookie + 1, Match: "arp", Actions: "drop"}
	any := flows.Flow{Cookie: flows.Cookie, Actions: "drop"}
	got := plan(State{Own: flows.Set{old, any}}, nil).lines()
	want := "delete_strict cookie=0x7069636f74000001/-1,table=0,priority=0\n" +
		"delete_strict cookie=0x7069636f74000002/-1,table=1,priority=7,arp\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

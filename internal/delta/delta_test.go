package delta

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var now = time.Unix(1000, 0)

// world is a real map that counts and can fail.
type world struct {
	m     map[string]int
	ops   []string
	fails map[string]error // by key
}

func (w *world) Write(k string, v int) error {
	if err := w.fails[k]; err != nil {
		return err
	}
	w.ops = append(w.ops, fmt.Sprintf("%s=%d", k, v))
	w.m[k] = v
	return nil
}

func (w *world) Delete(k string) error {
	if err := w.fails[k]; err != nil {
		return err
	}
	w.ops = append(w.ops, "-"+k)
	delete(w.m, k)
	return nil
}

func (w *world) take() string {
	s := strings.Join(w.ops, " ")
	w.ops = nil
	return s
}

func newTracker(b Backoff) *Tracker[string, int] {
	return New(Options[string, int]{Compare: cmp.Compare[string], Equal: func(a, b int) bool { return a == b }, Backoff: b})
}

func set(t *Tracker[string, int], pairs map[string]int) {
	for k, v := range pairs {
		t.SetDesired(k, v)
	}
}

func TestApplyWritesTheDifferenceOnly(t *testing.T) {
	abc := map[string]int{"a": 1, "b": 2, "c": 3}
	for _, c := range []struct {
		name   string
		actual map[string]int
		change func(*Tracker[string, int])
		want   string
	}{
		{"from nothing", nil, func(*Tracker[string, int]) {}, "a=1 b=2 c=3"},
		{"restart with the same state", abc, func(*Tracker[string, int]) {}, ""},
		{"one wrong, one missing, one orphan", map[string]int{"a": 1, "b": 9, "x": 5}, func(*Tracker[string, int]) {}, "b=2 c=3 -x"},
		{"make before break", map[string]int{"0": 1}, func(*Tracker[string, int]) {}, "a=1 b=2 c=3 -0"},
		{"deleted and made again", abc, func(t *Tracker[string, int]) { t.DeleteDesired("b"); t.SetDesired("b", 2) }, ""},
		{"deleted", abc, func(t *Tracker[string, int]) { t.DeleteDesired("b") }, "-b"},
		{"last value wins", abc, func(t *Tracker[string, int]) {
			for i := range 100 {
				t.SetDesired("b", i)
			}
		}, "b=99"},
		{"removed behind our back", abc, func(t *Tracker[string, int]) { t.DeleteActual("c") }, "c=3"},
		{"unknown", abc, func(t *Tracker[string, int]) { t.ForgetActual("a") }, "a=1"},
		{"unknown and unwanted", abc, func(t *Tracker[string, int]) { t.ForgetActual("z") }, "-z"},
		{"desired replaced", abc, func(t *Tracker[string, int]) {
			t.ReplaceDesired(maps.All(map[string]int{"a": 1, "d": 4}))
		}, "d=4 -b -c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, w := newTracker(Backoff{}), &world{m: maps.Clone(c.actual)}
			if w.m == nil {
				w.m = map[string]int{}
			}
			set(k, abc)
			k.ReplaceActual(maps.All(w.m))
			c.change(k)
			r := k.Apply(now, w)
			ops := len(w.ops)
			if got := w.take(); got != c.want {
				t.Errorf("ops %q, want %q", got, c.want)
			}
			if r.Mutations() != ops || !k.InSync() {
				t.Errorf("result %+v of %d ops, in sync %v", r, ops, k.InSync())
			}
			k.Apply(now, w)
			if got := w.take(); got != "" {
				t.Errorf("second apply: %q", got)
			}
		})
	}
}

func TestFailingKeyStopsNoOther(t *testing.T) {
	for _, bad := range []string{"a", "b", "c", "x"} {
		k, w := newTracker(Backoff{Min: time.Second, Max: 4 * time.Second}), &world{m: map[string]int{"x": 1}}
		set(k, map[string]int{"a": 1, "b": 2, "c": 3})
		k.ReplaceActual(maps.All(w.m))
		boom := errors.New("boom")
		w.fails = map[string]error{bad: boom}
		if r := k.Apply(now, w); r.Mutations() != 3 || r.Failed != 1 {
			t.Fatalf("%s fails: %+v", bad, r)
		}
		f := k.Failures()
		if len(f) != 1 || f[0].Key != bad || !errors.Is(f[0].Err, boom) || f[0].Failures != 1 {
			t.Fatalf("%s fails: named %+v", bad, f)
		}
		// Backoff: 1, 2, 4, 4 ... seconds; not tried in between.
		at := now
		for i, wait := range []time.Duration{1, 2, 4, 4, 4} {
			next, ok := k.NextRetry()
			if want := at.Add(wait * time.Second); !ok || !next.Equal(want) {
				t.Fatalf("retry %d at %v, want %v", i, next, want)
			}
			if r := k.Apply(next.Add(-1), w); r.Failed != 0 || r.Waiting != 1 {
				t.Fatalf("tried too early: %+v", r)
			}
			at = next
			if r := k.Apply(at, w); r.Failed != 1 {
				t.Fatalf("not tried when due: %+v", r)
			}
		}
		// A new wish is tried at once; the count of failures stays.
		if bad != "x" {
			k.SetDesired(bad, 77)
			if r := k.Apply(at, w); r.Failed != 1 || k.Failures()[0].Failures != 7 {
				t.Fatalf("new value: %+v, %+v", r, k.Failures())
			}
		}
		w.fails = nil
		next, _ := k.NextRetry()
		if r := k.Apply(next, w); r.Mutations() != 1 || !k.InSync() || len(k.Failures()) != 0 {
			t.Fatalf("healed: %+v, failures %+v", r, k.Failures())
		}
		if _, ok := k.NextRetry(); ok {
			t.Fatal("a retry is due with nothing failing")
		}
	}
}

// A failed write may have half happened: back to the old wish must write again,
// unless the writer says nothing changed.
func TestUncertainOutcomeIsRewritten(t *testing.T) {
	for _, certain := range []bool{false, true} {
		k, w := newTracker(Backoff{}), &world{m: map[string]int{"a": 1}}
		k.SetDesired("a", 1)
		k.ReplaceActual(maps.All(w.m))
		err := errors.New("timeout")
		if certain {
			err = Unchanged{err}
		}
		w.fails = map[string]error{"a": err}
		k.SetDesired("a", 2)
		k.Apply(now, w)
		w.fails = nil
		k.SetDesired("a", 1)
		k.Apply(now, w)
		want := "a=1"
		if certain {
			want = ""
		}
		if got := w.take(); got != want {
			t.Errorf("certain %v: ops %q, want %q", certain, got, want)
		}
	}
}

func TestBackoffNeverOverflows(t *testing.T) {
	b := Backoff{Min: time.Second, Max: time.Duration(1<<63 - 1)}
	if got := b.after(1000); got != b.Max {
		t.Errorf("after 1000 failures: %v", got)
	}
}

// Against the obvious model: after any sequence of wishes, foreign changes,
// read-backs and failures, an apply without failures and with a fresh read-back
// leaves the world as desired, with exactly the different keys written.
func TestAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	keys := []string{"a", "b", "c", "d", "e"}
	for round := range 500 {
		k, w := newTracker(Backoff{}), &world{m: map[string]int{}, fails: map[string]error{}}
		desired := map[string]int{}
		at := now
		for range 40 {
			key, v := keys[rng.IntN(len(keys))], rng.IntN(3)
			switch rng.IntN(7) {
			case 0, 1:
				desired[key] = v
				k.SetDesired(key, v)
			case 2:
				delete(desired, key)
				k.DeleteDesired(key)
			case 3: // a foreign change, seen
				w.m[key] = v
				k.SetActual(key, v)
			case 4: // a foreign deletion, unseen
				delete(w.m, key)
			case 5:
				k.ReplaceActual(maps.All(w.m))
			case 6:
				w.fails[key] = errors.New("boom")
				k.Apply(at, w)
				delete(w.fails, key)
			}
			at = at.Add(time.Duration(rng.IntN(1000)) * time.Millisecond)
		}
		k.ReplaceActual(maps.All(w.m))
		var want []string
		for _, key := range keys {
			d, wanted := desired[key]
			a, there := w.m[key]
			if wanted != there || wanted && d != a {
				want = append(want, key)
			}
		}
		if got := k.Pending(); !slices.Equal(got, want) {
			t.Fatalf("round %d: pending %v, want %v", round, got, want)
		}
		w.take()
		k.Apply(at.Add(time.Hour), w)
		if len(w.ops) != len(want) {
			t.Fatalf("round %d: %d ops %v for %v", round, len(w.ops), w.ops, want)
		}
		if !maps.Equal(w.m, desired) || !k.InSync() {
			t.Fatalf("round %d: world %v, desired %v", round, w.m, desired)
		}
	}
}

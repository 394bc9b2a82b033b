package linkmon

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var epoch = time.Unix(1000, 0)

func up(index int, name string) Link {
	return Link{Index: index, Name: name, Type: "veth", MAC: "02:00:00:00:00:01", MTU: 1500, Admin: true, Carrier: true}
}

func with(l Link, change func(*Link)) Link { change(&l); return l }

// script writes events the way the tables below read.
func script(events []Event) string {
	var s []string
	for _, e := range events {
		line := e.String()
		if e.Kind == Added && e.Link.Up || e.Kind == Replaced && e.Link.Up {
			line += " up"
		}
		if e.Kind == Replaced || e.Kind == Renamed {
			line += fmt.Sprintf(" was %s(%d)", e.Old.Name, e.Old.Index)
		}
		s = append(s, line)
	}
	return strings.Join(s, ", ")
}

func TestTrackerEvents(t *testing.T) {
	down := func(l *Link) { l.Carrier = false }
	for _, c := range []struct {
		name  string
		first []Link
		then  func(*Tracker, time.Time)
		want  string
	}{
		{"nothing", []Link{up(1, "a")}, func(*Tracker, time.Time) {}, ""},
		{"added", nil, func(k *Tracker, now time.Time) { k.Update(now, up(2, "b")) }, "added b(2) up"},
		{"added down", nil, func(k *Tracker, now time.Time) { k.Update(now, with(up(2, "b"), down)) }, "added b(2)"},
		{"removed", []Link{up(1, "a")}, func(k *Tracker, _ time.Time) { k.Delete(1) }, "removed a(1)"},
		{"removal of a stranger", []Link{up(1, "a")}, func(k *Tracker, _ time.Time) { k.Delete(7) }, ""},
		{"came and went", []Link{up(1, "a")}, func(k *Tracker, now time.Time) { k.Update(now, up(2, "b")); k.Delete(2) }, ""},
		{"carrier lost", []Link{up(1, "a")}, func(k *Tracker, now time.Time) { k.Update(now, with(up(1, "a"), down)) }, "down a(1)"},
		{"admin down", []Link{up(1, "a")}, func(k *Tracker, now time.Time) {
			k.Update(now, with(up(1, "a"), func(l *Link) { l.Admin = false }))
		}, "down a(1)"},
		{"comes up", []Link{with(up(1, "a"), down)}, func(k *Tracker, now time.Time) { k.Update(now, up(1, "a")) }, "up a(1)"},
		{"admin down without carrier", []Link{with(up(1, "a"), down)}, func(k *Tracker, now time.Time) {
			k.Update(now, with(up(1, "a"), func(l *Link) { l.Carrier, l.Admin = false, false }))
		}, "changed a(1)"},
		{"blip within one batch", []Link{up(1, "a")}, func(k *Tracker, now time.Time) {
			k.Update(now, with(up(1, "a"), down))
			k.Update(now, up(1, "a"))
		}, ""},
		{"renamed", []Link{up(1, "a")}, func(k *Tracker, now time.Time) { k.Update(now, up(1, "z")) }, "renamed z(1) was a(1)"},
		{"mtu", []Link{up(1, "a")}, func(k *Tracker, now time.Time) {
			k.Update(now, with(up(1, "a"), func(l *Link) { l.MTU = 9000 }))
		}, "mtu-changed a(1)"},
		{"enslaved", []Link{up(1, "a")}, func(k *Tracker, now time.Time) {
			k.Update(now, with(up(1, "a"), func(l *Link) { l.Master = 9 }))
		}, "changed a(1)"},
		{"renamed, down and another mtu at once", []Link{up(1, "a")}, func(k *Tracker, now time.Time) {
			k.Update(now, with(up(1, "z"), func(l *Link) { l.MTU, l.Carrier = 9000, false }))
		}, "renamed z(1) was a(1), down z(1), mtu-changed z(1)"},
		{"deleted and made again", []Link{up(1, "a")}, func(k *Tracker, now time.Time) {
			k.Delete(1)
			k.Update(now, up(5, "a"))
		}, "replaced a(5) up was a(1)"},
		{"same name, new index, deletion lost", []Link{up(1, "a")}, func(k *Tracker, now time.Time) {
			k.Update(now, up(5, "a"))
		}, "replaced a(5) up was a(1)"},
		{"left the namespace and came back with its index", []Link{up(1, "a")}, func(k *Tracker, now time.Time) {
			k.Delete(1)
			k.Update(now, up(1, "a"))
		}, "replaced a(1) up was a(1)"},
		{"dump finds a lost deletion and a lost addition", []Link{up(1, "a"), up(2, "b")}, func(k *Tracker, now time.Time) {
			k.Replace(now, []Link{up(2, "b"), up(3, "c")})
		}, "removed a(1), added c(3) up"},
		{"dump finds swapped names", []Link{up(1, "a"), up(2, "b")}, func(k *Tracker, now time.Time) {
			k.Replace(now, []Link{up(1, "b"), up(2, "a")})
		}, "renamed b(1) was a(1), renamed a(2) was b(2)"},
		{"dump of the same", []Link{up(1, "a"), up(2, "b")}, func(k *Tracker, now time.Time) {
			k.Replace(now, []Link{up(2, "b"), up(1, "a")})
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := NewTracker(defaultDamping)
			k.Replace(epoch, c.first)
			if got, _ := k.Flush(epoch); len(got) != len(c.first) {
				t.Fatalf("first flush: %s", script(got))
			}
			c.then(k, epoch.Add(time.Minute))
			got, due := k.Flush(epoch.Add(time.Minute))
			if script(got) != c.want {
				t.Errorf("got  %s\nwant %s", script(got), c.want)
			}
			if !due.IsZero() {
				t.Errorf("something settles, due %v", due)
			}
			if again, _ := k.Flush(epoch.Add(time.Hour)); len(again) != 0 {
				t.Errorf("told twice: %s", script(again))
			}
		})
	}
}

func TestDampingHoldsUpNeverDown(t *testing.T) {
	d := Damping{Flaps: 2, Window: 10 * time.Second, Hold: time.Second}
	k := NewTracker(d)
	now := epoch
	k.Update(now, up(1, "a"))
	k.Flush(now)
	var told []string
	for range 5 { // down for 100 ms, up for 100 ms
		for _, carrier := range []bool{false, true} {
			now = now.Add(100 * time.Millisecond)
			k.Update(now, with(up(1, "a"), func(l *Link) { l.Carrier = carrier }))
			events, _ := k.Flush(now)
			told = append(told, script(events))
		}
	}
	want := []string{"down a(1)", "up a(1)", "down a(1)", "up a(1)", "down a(1)", "", "", "", "", ""}
	// From the third flap on, changes of the raw carrier are told, Up is not.
	for i := 5; i < len(want); i++ {
		want[i] = "changed a(1)"
	}
	if !slices.Equal(told, want) {
		t.Fatalf("told %q\nwant %q", told, want)
	}
	_, due := k.Flush(now)
	if !due.Equal(now.Add(d.Hold)) {
		t.Fatalf("due %v, want %v", due, now.Add(d.Hold))
	}
	if early, _ := k.Flush(due.Add(-time.Millisecond)); len(early) != 0 {
		t.Fatalf("told before it settled: %s", script(early))
	}
	settled, next := k.Flush(due)
	if script(settled) != "up a(1)" || !next.IsZero() {
		t.Fatalf("settled: %s, next %v", script(settled), next)
	}
	// Quiet for a window: a new flap passes at once.
	now = due.Add(time.Minute)
	k.Update(now, with(up(1, "a"), func(l *Link) { l.Carrier = false }))
	k.Flush(now)
	k.Update(now, up(1, "a"))
	if again, _ := k.Flush(now); script(again) != "up a(1)" {
		t.Fatalf("after a quiet time: %s", script(again))
	}
}

func TestDampingOff(t *testing.T) {
	k := NewTracker(Damping{Flaps: -1})
	k.Update(epoch, up(1, "a"))
	k.Flush(epoch)
	for i := range 50 {
		k.Update(epoch, with(up(1, "a"), func(l *Link) { l.Carrier = i%2 == 1 }))
		if events, due := k.Flush(epoch); len(events) != 1 || !due.IsZero() {
			t.Fatalf("flap %d: %s, due %v", i, script(events), due)
		}
	}
}

// A consumer that only follows events ends with the kernel's picture, whatever
// the order of messages and dumps.
func TestEventsRebuildThePicture(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		k := NewTracker(Damping{Flaps: -1})
		kernel, consumer := map[int]Link{}, map[int]Link{}
		for range 60 {
			index := 1 + rng.IntN(6)
			name := string(rune('a' + rng.IntN(6)))
			l := with(up(index, name), func(l *Link) { l.MTU = 1500 + rng.IntN(3); l.Carrier = rng.IntN(2) == 0 })
			switch rng.IntN(4) {
			case 0:
				k.Delete(index)
				delete(kernel, index)
			case 1:
				var all []Link
				for _, l := range kernel {
					all = append(all, l)
				}
				k.Replace(epoch, all)
			default:
				for i, other := range kernel {
					if other.Name == name && i != index {
						delete(kernel, i)
					}
				}
				kernel[index] = l
				k.Update(epoch, l)
			}
			if rng.IntN(3) > 0 {
				continue
			}
			events, _ := k.Flush(epoch)
			for _, e := range events {
				switch e.Kind {
				case Removed:
					delete(consumer, e.Link.Index)
				case Replaced:
					delete(consumer, e.Old.Index)
					consumer[e.Link.Index] = e.Link
				default:
					consumer[e.Link.Index] = e.Link
				}
			}
			if len(consumer) != len(kernel) {
				t.Fatalf("consumer has %d links, kernel %d, after %s", len(consumer), len(kernel), script(events))
			}
			for i, l := range kernel {
				l.Up = l.Admin && l.Carrier
				if consumer[i] != l {
					t.Fatalf("link %d: consumer %+v, kernel %+v", i, consumer[i], l)
				}
			}
		}
	}
}

package linkmon

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Damping settles flapping links: a link that went down more than Flaps times
// within Window is told Up only after it stayed up for Hold. Down is never
// delayed. Flaps < 0 turns damping off.
type Damping struct {
	Flaps  int
	Window time.Duration
	Hold   time.Duration
}

// defaultDamping lets an administrator's few flaps through at once.
var defaultDamping = Damping{Flaps: 3, Window: 10 * time.Second, Hold: time.Second}

// Tracker turns what the kernel says of links into events. Updates only change
// its picture; [Tracker.Flush] compares that with what was told before, so
// whatever cancelled out in between is not told at all. Not safe for concurrent
// use.
type Tracker struct {
	damping Damping
	seen    map[int]*device // the kernel's picture, by index
	told    map[int]told    // the handler's picture, by index
	lives   uint64          // devices seen so far, to tell incarnations apart
}

// device is a link as the kernel last described it.
type device struct {
	link    Link // Up unused
	life    uint64
	upSince time.Time
	downs   []time.Time // within the damping window
}

// told is a link as the handler knows it.
type told struct {
	link Link
	life uint64
}

// NewTracker makes an empty tracker.
func NewTracker(d Damping) *Tracker {
	return &Tracker{damping: d, seen: map[int]*device{}, told: map[int]told{}}
}

// Update takes the kernel's description of one link.
func (t *Tracker) Update(now time.Time, l Link) {
	l.Up = false
	d, ok := t.seen[l.Index]
	if !ok {
		t.lives++
		d = &device{life: t.lives, upSince: now}
		t.seen[l.Index] = d
	}
	wasUp, isUp := d.link.Admin && d.link.Carrier, l.Admin && l.Carrier
	if isUp && !wasUp {
		d.upSince = now
	}
	if wasUp && !isUp {
		d.downs = append(d.recentDowns(now, t.damping.Window), now)
	}
	d.link = l
	// Names are unique in a namespace: whoever else is believed to have this one
	// lost it, and its own message was lost or is yet to come.
	for index, other := range t.seen {
		if index != l.Index && other.link.Name == l.Name {
			delete(t.seen, index)
		}
	}
}

// Delete takes the kernel's word that a link is gone.
func (t *Tracker) Delete(index int) { delete(t.seen, index) }

// Replace takes a whole dump: links not in it are gone.
func (t *Tracker) Replace(now time.Time, links []Link) {
	present := make(map[int]bool, len(links))
	for _, l := range links {
		present[l.Index] = true
	}
	maps.DeleteFunc(t.seen, func(index int, _ *device) bool { return !present[index] })
	// First give up the old names, so that swapped names are no collision.
	for _, d := range t.seen {
		d.link.Name = ""
	}
	for _, l := range links {
		t.Update(now, l)
	}
}

// Flush returns what changed since the last Flush, removals first, else in the
// order of indexes, and the time at which a settling link is due (zero: none).
func (t *Tracker) Flush(now time.Time) (events []Event, due time.Time) {
	gone := map[string]Link{} // by name: may turn out to be replaced
	for index, was := range t.told {
		d := t.seen[index]
		switch {
		case d != nil && d.life == was.life:
			continue
		case d != nil && d.link.Name != was.link.Name:
			// The index is taken already: told first, lest it removes the new one.
			events = append(events, Event{Kind: Removed, Link: was.link, Old: was.link})
		default:
			gone[was.link.Name] = was.link
		}
		delete(t.told, index)
	}
	var rest []Event
	for _, index := range slices.Sorted(maps.Keys(t.seen)) {
		d := t.seen[index]
		was, known := t.told[index]
		is := d.link
		upAt := t.upAt(now, d)
		is.Up = is.Admin && is.Carrier && (known && was.link.Up || !upAt.After(now))
		if is.Admin && is.Carrier && !is.Up && (due.IsZero() || upAt.Before(due)) {
			due = upAt
		}
		t.told[index] = told{link: is, life: d.life}
		if known {
			rest = append(rest, diff(was.link, is)...)
		} else if old, ok := gone[is.Name]; ok {
			delete(gone, is.Name)
			rest = append(rest, Event{Kind: Replaced, Link: is, Old: old})
		} else {
			rest = append(rest, Event{Kind: Added, Link: is})
		}
	}
	for _, l := range gone {
		events = append(events, Event{Kind: Removed, Link: l, Old: l})
	}
	slices.SortFunc(events, func(a, b Event) int { return cmp.Compare(a.Link.Index, b.Link.Index) })
	return append(events, rest...), due
}

// Links is what the handler was told, by index.
func (t *Tracker) Links() []Link {
	links := make([]Link, 0, len(t.told))
	for _, index := range slices.Sorted(maps.Keys(t.told)) {
		links = append(links, t.told[index].link)
	}
	return links
}

// upAt is the time from which d counts as up, if it stays so.
func (t *Tracker) upAt(now time.Time, d *device) time.Time {
	d.downs = d.recentDowns(now, t.damping.Window)
	if t.damping.Flaps < 0 || len(d.downs) <= t.damping.Flaps {
		return d.upSince
	}
	return d.upSince.Add(t.damping.Hold)
}

func (d *device) recentDowns(now time.Time, window time.Duration) []time.Time {
	return slices.DeleteFunc(d.downs, func(at time.Time) bool { return now.Sub(at) > window })
}

// diff tells how a device that stayed the same differs from what was told.
func diff(old, is Link) (events []Event) {
	add := func(k Kind, changed bool) {
		if changed {
			events = append(events, Event{Kind: k, Link: is, Old: old})
		}
	}
	add(Renamed, is.Name != old.Name)
	add(Down, old.Up && !is.Up)
	add(MTUChanged, is.MTU != old.MTU)
	add(Up, !old.Up && is.Up)
	stateToo := old.Up == is.Up && (is.Admin != old.Admin || is.Carrier != old.Carrier)
	add(Changed, is.MAC != old.MAC || is.Master != old.Master || is.Type != old.Type || stateToo)
	return events
}

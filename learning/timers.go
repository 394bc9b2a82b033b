package learning

// timers is a binary min-heap of entries by their wake time; 0 is not in it.
type timers []*entry

func (t *timers) set(e *entry, at int64) {
	switch {
	case at == e.wake:
		return
	case at == 0:
		t.remove(e)
		return
	case e.wake == 0:
		e.wake, e.place = at, len(*t)
		*t = append(*t, e)
		t.up(e.place)
		return
	}
	e.wake = at
	t.up(e.place)
	t.down(e.place)
}

func (t *timers) remove(e *entry) {
	if e.wake == 0 {
		return
	}
	h, i := *t, e.place
	last := len(h) - 1
	h[i] = h[last]
	h[i].place = i
	h[last] = nil
	*t = h[:last]
	if i < last {
		t.up(i)
		t.down(i)
	}
	e.wake, e.place = 0, 0
}

// due takes out the first entry whose time has come, nil if there is none.
func (t *timers) due(now int64) *entry {
	if len(*t) == 0 || (*t)[0].wake > now {
		return nil
	}
	e := (*t)[0]
	t.remove(e)
	return e
}

func (t timers) swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = i, j
}

func (t timers) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if t[p].wake <= t[i].wake {
			return
		}
		t.swap(i, p)
		i = p
	}
}

func (t timers) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(t) {
			return
		}
		if c+1 < len(t) && t[c+1].wake < t[c].wake {
			c++
		}
		if t[i].wake <= t[c].wake {
			return
		}
		t.swap(i, c)
		i = c
	}
}

// budget is this node's share of the cluster's refreshes: at most one write each
// interval, without a burst worth mentioning, so that load stays even.
type budget struct {
	interval int64 // ns between two refreshes
	next     int64
}

func (b *budget) share(perSecond float64, nodes int) {
	b.interval = int64(second / perSecond * float64(max(nodes, 1)))
}

// take says whether a refresh may go now. After a pause up to 8 may go at once.
func (b *budget) take(now int64) bool {
	if now < b.next {
		return false
	}
	b.next = max(b.next, now-8*b.interval) + b.interval
	return true
}

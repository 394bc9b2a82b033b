package learning

// write puts a Write on its way, unless one is or the last one failed just now.
// A refresh that is under way stands in nobody's way.
func (c *Core) write(e *entry, op Op, b Binding) {
	if c.now.Mono < e.retryAt {
		c.look(e.retryAt)
		return
	}
	if e.flight.Seq != 0 && (e.flight.Op != OpRefresh || op == OpRefresh) {
		return
	}
	w := Write{Seq: c.nextSeq(), Op: op, Key: e.key}
	if op != OpDelete {
		b.Version = Version{}
		w.New = b
	}
	if op != OpCreate {
		w.From = e.b.Version
	}
	p := c.part(e)
	if !b.Static && op != OpDelete {
		p.written, p.writtenSeen = c.now.Mono, p.seen
	}
	p.flight, p.before = w, e.b
	c.stats.Writes[op]++
	c.out.Writes = append(c.out.Writes, w)
}

func (c *Core) nextSeq() uint64 {
	c.seq++
	return c.seq
}

// queueRefresh lines e up for a write of lastObserved when one is due and there
// is something newer to say.
func (c *Core) queueRefresh(e *entry) {
	if e.queued || e.flight.Seq != 0 || e.seen <= e.writtenSeen {
		return
	}
	if due := e.written + c.opt.Refresh.Nanoseconds(); c.now.Mono < due {
		c.look(due)
		return
	}
	c.part(e).queued = true
	c.refresh = append(c.refresh, e)
}

// drain sends as many refreshes as the budget allows. What does not fit waits in
// line, so that with many bindings the interval stretches.
func (c *Core) drain() {
	for c.open && len(c.refresh) > 0 {
		e := c.refresh[0]
		still := !e.forgotten && e.have && !e.b.Static && e.b.Node == c.node && e.flight.Seq == 0 &&
			e.seen > e.writtenSeen && c.now.Mono >= e.retryAt
		if still && !c.budget.take(c.now.Mono) {
			return
		}
		c.refresh[0] = nil
		c.refresh = c.refresh[1:]
		e.queued = false
		if still {
			b := e.b
			b.LastObserved = c.observed(e)
			c.write(e, OpRefresh, b)
		}
	}
	if len(c.refresh) == 0 {
		c.refresh = nil
	}
}

// Done tells what became of a Write.
func (c *Core) Done(k Key, seq uint64, r Result, now Now) {
	c.now = now
	e := c.entries[k]
	if e == nil || e.part == c.idle || e.flight.Seq != seq || r.Outcome == Dropped {
		return
	}
	w, before := e.flight, e.before
	e.flight, e.before = Write{}, Binding{}
	switch r.Outcome {
	case Stored:
		e.fails, e.retryAt = 0, 0
		if w.Op == OpDelete {
			c.deleted(e, w)
			break
		}
		w.New.Version = r.Version
		if !e.have || !older(r.Version, e.b.Version) {
			e.landed = r.Version
			c.put(e, w.New)
		}
		c.tell(e, w, before)
	case Conflict:
		c.stats.Conflicts++
		e.landed = Version{}
		switch {
		case !r.Known:
			e.retryAt = now.Mono + c.opt.BackoffMin.Nanoseconds()
		case r.Current == nil:
			e.retryAt = 0
			old, seen, tags := e.b, e.seen, e.tags
			had := e.have && w.Op != OpDelete
			c.none(e)
			if had {
				c.again(e, old, seen, tags)
			}
		case e.have && older(r.Current.Version, e.b.Version):
			e.retryAt = 0
		default:
			e.retryAt, e.landed = 0, r.Current.Version
			c.put(e, *r.Current)
		}
	default:
		c.stats.Failures++
		e.landed = Version{}
		e.retryAt = now.Mono + c.backoff(e.fails)
		e.fails++
	}
	c.reconcile(e)
	c.drain()
}

// backoff doubles with every failure.
func (c *Core) backoff(fails int) int64 {
	least, most := c.opt.BackoffMin.Nanoseconds(), c.opt.BackoffMax.Nanoseconds()
	if fails > 30 || least<<fails > most {
		return most
	}
	return least << fails
}

func (c *Core) deleted(e *entry, w Write) {
	if !e.have || e.b.Version.UID != w.From.UID {
		return
	}
	c.part(e).dead = w.From.UID
	c.none(e)
}

// tell makes the events of a stored write.
func (c *Core) tell(e *entry, w Write, before Binding) {
	ref := w.New.Endpoint
	switch w.Op {
	case OpTakeOver:
		c.event(Event{Kind: EventMoved, Key: e.key, Endpoint: ref, Holder: before})
		if w.New.FrozenUntil != 0 {
			c.event(Event{Kind: EventFrozen, Key: e.key, Endpoint: ref, Holder: w.New, Limit: c.opt.MaxMoves})
		}
	case OpRelease:
		e.release = false
		if before.FrozenUntil != 0 {
			c.event(Event{Kind: EventReleased, Key: e.key, Endpoint: ref})
		}
	}
}

package fastpath

import "time"

// A fill ring must hold what comes while its worker is late: the scheduler wakes
// a thread some milliseconds late at times, and an upgrade takes as long. Frames
// in an idle ring are lost to its neighbours, though, for nothing takes them back
// but the port's own traffic; and the more frames go round, the fewer of them the
// CPU's cache still has. So a port's share is small, and its depth follows its rate.

const (
	// ahead is how long what a busy port's ring holds is to last.
	ahead = 20 * time.Millisecond
	// busyDepth is what a ring holds at least once its port carried much,
	// hotFrames.
	busyDepth = 336
	// paceEvery is the shortest time a rate is taken over.
	paceEvery = 5 * time.Millisecond
	// hasty is how many frames in ahead are more than depth helps: the deepest
	// ring has them for 2 ms, and the forwarder needs all of the cache.
	hasty = 10 * fillDeep
	// calmAfter is when a port that gets no frames no longer counts as busy.
	calmAfter = time.Second
)

// pace sets how many frames k's ring is to hold by how many come.
func (w *worker) pace(k *sock) {
	now := w.walk.Now
	passed := now - k.paced
	if passed < int64(paceEvery) {
		return
	}
	came := int64(k.received-k.counted) * int64(ahead) / passed
	k.paced, k.counted = now, k.received
	want := busyDepth
	switch {
	case came > hasty:
	case k.received < hotFrames:
		want = max(k.shard.share, int(came)) // not more for little
	default:
		want = max(want, int(came))
	}
	if want < k.depth {
		// Slowly: it may be a gap, or the first look after a long one.
		want = k.depth - (k.depth-want+7)/8
	}
	k.depth = min(want, k.shard.most(k, now))
}

// most is the deepest k's ring may be: one port has three quarters of what is for
// growth, several busy ones the same each.
func (s *shard) most(k *sock, now int64) int {
	busy := 1
	for _, m := range s.members {
		if m != k && m.depth > s.share && now-m.paced < int64(calmAfter) {
			busy++
		}
	}
	return min(fillDeep, s.share+min(s.growth*3/4, s.growth/busy))
}

package writer

import (
	"log/slog"
	"sync"
	"time"
)

// quietFor is how long a cause is not logged again: when the API server takes no
// writes, every key fails, again and again.
const quietFor = 10 * time.Second

// complaints logs failures, each cause at most once in quietFor.
type complaints struct {
	log *slog.Logger

	mu     sync.Mutex
	causes map[cause]*spoken
}

// cause is what failures have in common.
type cause struct {
	resource string
	verb     Verb
	reason   string
}

type spoken struct {
	last  time.Time
	since int // failures not logged since
}

func newComplaints(log *slog.Logger) *complaints {
	return &complaints{log: log, causes: map[cause]*spoken{}}
}

func (c *complaints) failed(op Op, err error, failures int, retry time.Duration) {
	k := cause{op.Resource.Name, op.Verb, reason(err)}
	c.mu.Lock()
	s := c.causes[k]
	if s == nil {
		s = &spoken{}
		c.causes[k] = s
	}
	now := time.Now()
	if !s.last.IsZero() && now.Sub(s.last) < quietFor {
		s.since++
		c.mu.Unlock()
		return
	}
	more := s.since
	s.last, s.since = now, 0
	c.mu.Unlock()
	c.log.Warn("API write failed", "resource", op.Resource.Name, "name", op.Name, "verb", op.Verb.String(),
		"error", err, "failures", failures, "retry", retry, "alike-since-last", more)
}

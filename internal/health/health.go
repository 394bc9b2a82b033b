// Package health collects what the parts of a process say of themselves.
//
// A part that works has a [Reporter], and renews it between its steps: hung is not
// slow. A reporter that was not renewed within its expiry counts as hung, however
// well it last was; one with problems lives, but is not ready. A part that only
// counts, like a thread that must not be disturbed, is watched instead: it lives
// while its counter moves.
//
// Everything may be called from any goroutine, so that a hung part cannot keep the
// others from being asked.
package health

import (
	"slices"
	"sync"
	"time"
)

// Registry holds the reporters of a process. The zero value is empty and usable.
type Registry struct {
	mu  sync.Mutex
	all []*Reporter
}

// Reporter speaks for one part.
type Reporter struct {
	name   string
	expiry time.Duration // 0: never
	count  func() uint64 // nil: renewed by itself

	mu       sync.Mutex
	renewed  time.Time
	counted  uint64
	problems []string
}

// Report is what is known of a part.
type Report struct {
	Name     string        `json:"name"`
	Live     bool          `json:"live"`
	Ready    bool          `json:"ready"` // live and without problems
	Age      time.Duration `json:"ageNanoseconds"`
	Problems []string      `json:"problems,omitempty"`
}

// Add adds a part that renews itself; expiry 0: it need not.
func (r *Registry) Add(name string, expiry time.Duration) *Reporter {
	return r.add(&Reporter{name: name, expiry: expiry, renewed: time.Now()})
}

// Watch adds a part whose counter must move within expiry. It is looked at when
// the registry is asked.
func (r *Registry) Watch(name string, expiry time.Duration, count func() uint64) {
	r.add(&Reporter{name: name, expiry: expiry, count: count, renewed: time.Now(), counted: count()})
}

func (r *Registry) add(p *Reporter) *Reporter {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, p)
	return p
}

// Reports says how every part is, in the order they were added.
func (r *Registry) Reports() []Report {
	r.mu.Lock()
	all := slices.Clone(r.all)
	r.mu.Unlock()
	reports := make([]Report, len(all))
	for i, p := range all {
		reports[i] = p.report(time.Now())
	}
	return reports
}

// Renew says that the part is at work.
func (p *Reporter) Renew() {
	now := time.Now()
	p.mu.Lock()
	p.renewed = now
	p.mu.Unlock()
}

// Set says what keeps the part from being ready, nothing when it is, and renews.
func (p *Reporter) Set(problems ...string) {
	now := time.Now()
	p.mu.Lock()
	p.renewed, p.problems = now, slices.Clone(problems)
	p.mu.Unlock()
}

func (p *Reporter) report(now time.Time) Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count != nil {
		if n := p.count(); n != p.counted {
			p.counted, p.renewed = n, now
		}
	}
	r := Report{Name: p.name, Age: now.Sub(p.renewed), Problems: slices.Clone(p.problems)}
	r.Live = p.expiry == 0 || r.Age <= p.expiry
	r.Ready = r.Live && len(r.Problems) == 0
	return r
}

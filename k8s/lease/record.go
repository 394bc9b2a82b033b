package lease

import "time"

// Times of an election. Renew must be shorter than Duration, and Retry than
// Renew, by more than a request may take.
type Times struct {
	Duration time.Duration // how long a holder is believed without a renewal
	Renew    time.Duration // how long a holder believes itself
	Retry    time.Duration // between tries and renewals
}

// DefaultTimes are those of Kubernetes' own controllers.
func DefaultTimes() Times {
	return Times{Duration: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second}
}

// record is a Lease as it is stored.
type record struct {
	holder   string
	duration time.Duration // the holder's own; 0: not said
	version  string        // resourceVersion; empty: there is none
}

// observer remembers since when a record has stood unchanged, by the local
// clock.
type observer struct {
	version string
	since   time.Time
}

// see returns how long r has been known.
func (o *observer) see(r record, now time.Time) time.Duration {
	if r.version != o.version {
		o.version, o.since = r.version, now
	}
	return now.Sub(o.since)
}

// free reports whether id may take or renew a lease that has stood for age.
func free(r record, id string, age, duration time.Duration) bool {
	if r.duration > 0 {
		duration = r.duration
	}
	return r.version == "" || r.holder == "" || r.holder == id || age >= duration
}

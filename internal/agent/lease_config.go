package agent

import (
	"crypto/rand"
	"encoding/hex"
	"time"

	"picot.dev/picot/k8s/lease"
	"picot.dev/picot/learning/reclaim"
)

// Leases is how nodes show that they live, and how the elected agent judges it.
// Zero values mean the defaults.
type Leases struct {
	Interval time.Duration // between renewals of this node's Lease; 10 s
	Stale    time.Duration // a Lease not renewed for this long is stale; 40 s
	Forget   time.Duration // stale for this long, learned bindings of the node go; 1 h
	Election time.Duration // how long the elected agent is believed without a renewal; 15 s
}

// complete fills in defaults and names what cannot be.
func (l *Leases) complete(bad func(setting, format string, args ...any)) {
	if l.Interval == 0 {
		l.Interval = 10 * time.Second
	}
	r := l.times().WithDefaults()
	l.Stale, l.Forget = r.Stale, r.Forget
	if l.Election == 0 {
		l.Election = lease.DefaultTimes().Duration
	}
	if err := r.Validate(); err != nil {
		bad("--lease-stale, --lease-forget", "%v", err)
	}
	if l.Interval < 0 || l.Stale < 3*l.Interval {
		bad("--lease-stale", "%v is less than three intervals of %v: a renewal that is late would look like death", l.Stale, l.Interval)
	}
	if l.Election < 15*time.Millisecond {
		bad("--election-lease", "%v: give at least 15ms", l.Election)
	}
}

func (l *Leases) times() reclaim.Options { return reclaim.Options{Stale: l.Stale, Forget: l.Forget} }

func (l *Leases) election() lease.Times {
	return lease.Times{Duration: l.Election, Renew: l.Election * 2 / 3, Retry: l.Election * 2 / 15}
}

// instance names this process among those of its node.
func instance() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

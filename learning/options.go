package learning

import (
	"errors"
	"fmt"
	"time"
)

// ErrOptions is wrapped by every error of [Options.Validate].
var ErrOptions = errors.New("learning options")

// Options are the times and limits of a Core. Zero values mean the defaults.
type Options struct {
	ReReport   time.Duration // the data plane repeats a claim it still sees; 30 s
	Refresh    time.Duration // between two writes of lastObserved; 60 s
	Probe      time.Duration // silence after which a host is asked; 100 s
	ProbeEvery time.Duration // between two questions; 50 s, or what fits before expiry
	Expiry     time.Duration // silence after which a binding is deleted; 300 s

	BackoffMin time.Duration // before the first repetition of a failed write; 100 ms
	BackoffMax time.Duration // the worst backoff; 30 s
	ClockSkew  time.Duration // between nodes; 30 s
	AskTimeout time.Duration // for the data plane to say its last-seen; 1 s
	ProbeQuiet time.Duration // no probe from 0.0.0.0 after an ARP probe; 10 s (RFC 5227)

	MaxMoves   int           // in MoveWindow; one more freezes; 5 (RFC 7432 section 15.1)
	MoveWindow time.Duration // 180 s
	Freeze     time.Duration // 540 s

	RefreshBudget float64 // writes of lastObserved a second in the whole cluster; 100

	MaxMACs      int // learned behind one port; 256
	MaxAddresses int // learned of one MAC; 64

	// ClaimsElsewhere says that somebody else writes what the endpoints claim
	// statically: the core heeds the claims and writes nothing static.
	ClaimsElsewhere bool
}

// WithDefaults fills in what is not set.
func (o Options) WithDefaults() Options {
	orDefault(&o.ReReport, 30*time.Second)
	orDefault(&o.Refresh, 60*time.Second)
	orDefault(&o.Probe, 100*time.Second)
	orDefault(&o.Expiry, 300*time.Second)
	orDefault(&o.ProbeEvery, max((o.Expiry-o.Probe)/4, time.Millisecond))
	orDefault(&o.BackoffMin, 100*time.Millisecond)
	orDefault(&o.BackoffMax, 30*time.Second)
	orDefault(&o.ClockSkew, 30*time.Second)
	orDefault(&o.AskTimeout, time.Second)
	orDefault(&o.ProbeQuiet, 10*time.Second)
	orDefault(&o.MaxMoves, 5)
	orDefault(&o.MoveWindow, 180*time.Second)
	orDefault(&o.Freeze, 540*time.Second)
	orDefault(&o.RefreshBudget, 100)
	orDefault(&o.MaxMACs, 256)
	orDefault(&o.MaxAddresses, 64)
	return o
}

// Validate says whether live bindings survive under these options: throttles in
// series add up, and their sum must stay below the expiry.
func (o Options) Validate() error {
	o = o.WithDefaults()
	for _, d := range []struct {
		name string
		v    time.Duration
	}{
		{"re-report", o.ReReport}, {"refresh", o.Refresh}, {"probe", o.Probe}, {"probe repetition", o.ProbeEvery},
		{"expiry", o.Expiry}, {"least write backoff", o.BackoffMin}, {"worst write backoff", o.BackoffMax},
		{"clock skew", o.ClockSkew}, {"ask timeout", o.AskTimeout}, {"probe quiet time", o.ProbeQuiet},
		{"move window", o.MoveWindow}, {"freeze", o.Freeze},
	} {
		if d.v < 0 {
			return fmt.Errorf("%w: %s of %v: times are positive", ErrOptions, d.name, d.v)
		}
	}
	if sum := o.ReReport + o.Refresh + o.BackoffMax + o.ClockSkew; sum >= o.Expiry {
		return fmt.Errorf("%w: re-report %v + refresh %v + worst write backoff %v + clock skew %v = %v is not below the expiry of %v, so live bindings could expire: raise the expiry or lower the others",
			ErrOptions, o.ReReport, o.Refresh, o.BackoffMax, o.ClockSkew, sum, o.Expiry)
	}
	if o.ReReport >= o.Probe {
		return fmt.Errorf("%w: probe time %v is not above the re-report of %v, so hosts that talk would be probed: raise the probe time",
			ErrOptions, o.Probe, o.ReReport)
	}
	if o.Probe+o.AskTimeout >= o.Expiry || o.Probe+o.ProbeQuiet >= o.Expiry {
		return fmt.Errorf("%w: probe time %v leaves a silent host no time to answer before the expiry of %v: lower the probe time",
			ErrOptions, o.Probe, o.Expiry)
	}
	if o.BackoffMin > o.BackoffMax {
		return fmt.Errorf("%w: least write backoff %v is above the worst of %v", ErrOptions, o.BackoffMin, o.BackoffMax)
	}
	if o.MaxMoves < 0 || o.MaxMACs < 0 || o.MaxAddresses < 0 || o.RefreshBudget < 0 {
		return fmt.Errorf("%w: moves %d, MACs %d, addresses %d and refresh budget %v: limits are positive", ErrOptions,
			o.MaxMoves, o.MaxMACs, o.MaxAddresses, o.RefreshBudget)
	}
	return nil
}

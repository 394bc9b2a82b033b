package agent

import (
	"time"

	"picot.dev/picot/learning"
)

// Learning is when learning does what. Zero values mean the defaults.
type Learning struct {
	learning.Options
	// ShortSlot is how long announcements, and claims that have not come true, are
	// not reported again; default 1 s, or ReReport if that is less.
	ShortSlot time.Duration
	// Observations is how many claims a second a port may report, and at once;
	// default 1000. A network's own limit goes before it.
	Observations int
}

// complete fills in defaults and names what cannot be.
func (l *Learning) complete(bad func(setting, format string, args ...any)) {
	if err := l.Validate(); err != nil {
		bad("--learn-*", "%v", err)
	}
	l.Options = l.WithDefaults()
	if l.ShortSlot == 0 {
		l.ShortSlot = min(time.Second, l.ReReport)
	}
	if l.Observations == 0 {
		l.Observations = 1000
	}
	_, err := learning.NewSuppressor(learning.SuppressorOptions{
		ReReport: l.ReReport.Nanoseconds(), ShortSlot: l.ShortSlot.Nanoseconds(), Rate: l.Observations,
	})
	if err != nil {
		bad("--learn-short, --learn-observations", "%v", err)
	}
}

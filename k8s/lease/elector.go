package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Options of an Elector.
type Options struct {
	Config    *rest.Config
	Namespace string
	Name      string // of the Lease
	Identity  string // of this candidate: its node's name
	Times     Times  // zero: DefaultTimes
	// Changed, if set, is told who holds the lease whenever that changes.
	Changed func(holder string)
	Log     *slog.Logger // nil: none
}

// Elector is one candidate. Make one with New.
type Elector struct {
	o      Options
	store  store
	seen   observer
	holder string
}

// New returns a candidate that does nothing until Run.
func New(o Options) (*Elector, error) {
	if o.Config == nil || o.Namespace == "" || o.Name == "" || o.Identity == "" {
		return nil, errors.New("election: give a configuration, the Lease's namespace and name, and an identity")
	}
	if o.Times == (Times{}) {
		o.Times = DefaultTimes()
	}
	if t := o.Times; t.Retry <= 0 || t.Renew <= t.Retry || t.Duration <= t.Renew {
		return nil, fmt.Errorf("election: retry %v < renew %v < duration %v does not hold: raise the duration", t.Retry, t.Renew, t.Duration)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	st, err := newStore(o.Config, o.Namespace, o.Name)
	if err != nil {
		return nil, fmt.Errorf("election: %w", err)
	}
	return &Elector{o: o, store: st}, nil
}

// Run stands for election until ctx ends, and calls lead each time it is
// elected, with a context that ends when it no longer is. lead must return then;
// Run waits for it before it lets the lease go. Not safe for concurrent use.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context)) {
	for ctx.Err() == nil {
		if !e.try(ctx) {
			sleep(ctx, e.o.Times.Retry)
			continue
		}
		e.o.Log.Info("elected", "lease", e.o.Name)
		e.reign(ctx, lead)
		e.o.Log.Info("no longer elected", "lease", e.o.Name)
	}
}

// reign renews while lead runs, and steps down in time.
func (e *Elector) reign(ctx context.Context, lead func(ctx context.Context)) {
	term, end := context.WithCancel(ctx)
	defer end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		lead(term)
	}()
	renewed := time.Now()
	for term.Err() == nil {
		sleep(term, e.o.Times.Retry)
		if term.Err() != nil {
			break
		}
		left := e.o.Times.Renew - time.Since(renewed)
		began := time.Now()
		attempt, cancel := context.WithTimeout(term, max(left, time.Millisecond))
		ok := e.try(attempt)
		cancel()
		switch {
		case ok:
			renewed = began
		case e.holder != e.o.Identity, time.Since(renewed) >= e.o.Times.Renew:
			end()
		}
	}
	end()
	<-done
	e.release()
}

// try takes or renews the lease once. It reports whether this candidate holds
// it.
func (e *Elector) try(ctx context.Context) bool {
	now := time.Now()
	l, r, err := e.store.get(ctx)
	if err != nil {
		e.o.Log.Debug("lease not read", "lease", e.o.Name, "error", err)
		return false
	}
	e.holds(r.holder)
	if !free(r, e.o.Identity, e.seen.see(r, now), e.o.Times.Duration) {
		return false
	}
	stamp := metav1.NewMicroTime(now)
	seconds := int32((e.o.Times.Duration + time.Second - 1) / time.Second)
	transitions := int32(0)
	if l.Spec.LeaseTransitions != nil {
		transitions = *l.Spec.LeaseTransitions
	}
	if r.holder != e.o.Identity {
		transitions++
		l.Spec.AcquireTime = &stamp
	}
	l.Spec.HolderIdentity, l.Spec.RenewTime = &e.o.Identity, &stamp
	l.Spec.LeaseDurationSeconds, l.Spec.LeaseTransitions = &seconds, &transitions
	if err := e.store.put(ctx, l); err != nil {
		e.o.Log.Debug("lease not written", "lease", e.o.Name, "error", err)
		return false
	}
	e.holds(e.o.Identity)
	return true
}

func (e *Elector) holds(holder string) {
	if holder == e.holder {
		return
	}
	e.holder = holder
	if e.o.Changed != nil {
		e.o.Changed(holder)
	}
}

// release lets the lease go, so that nobody has to wait for it.
func (e *Elector) release() {
	ctx, cancel := context.WithTimeout(context.Background(), e.o.Times.Retry)
	defer cancel()
	l, r, err := e.store.get(ctx)
	if err != nil || r.holder != e.o.Identity {
		return
	}
	none, one := "", int32(1)
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &none, &one
	if e.store.put(ctx, l) == nil {
		e.holds("")
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
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
	rest   rest.Interface
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
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(o.Config)
	gv := coordinationv1.SchemeGroupVersion
	c.GroupVersion, c.APIPath, c.QPS = &gv, "/apis", -1
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	r, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("election: %w", err)
	}
	return &Elector{o: o, rest: r}, nil
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
	l, r, err := e.get(ctx)
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
	if err := e.put(ctx, l, r.version == ""); err != nil {
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
	l, r, err := e.get(ctx)
	if err != nil || r.holder != e.o.Identity {
		return
	}
	none, one := "", int32(1)
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &none, &one
	if e.put(ctx, l, false) == nil {
		e.holds("")
	}
}

func (e *Elector) get(ctx context.Context) (*coordinationv1.Lease, record, error) {
	var l coordinationv1.Lease
	err := e.rest.Get().Namespace(e.o.Namespace).Resource("leases").Name(e.o.Name).Do(ctx).Into(&l)
	if apierrors.IsNotFound(err) {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.o.Namespace, Name: e.o.Name}}, record{}, nil
	}
	if err != nil {
		return nil, record{}, err
	}
	r := record{version: l.ResourceVersion}
	if h := l.Spec.HolderIdentity; h != nil {
		r.holder = *h
	}
	if d := l.Spec.LeaseDurationSeconds; d != nil {
		r.duration = time.Duration(*d) * time.Second
	}
	return &l, r, nil
}

func (e *Elector) put(ctx context.Context, l *coordinationv1.Lease, create bool) error {
	if create {
		return e.rest.Post().Namespace(e.o.Namespace).Resource("leases").Body(l).Do(ctx).Error()
	}
	return e.rest.Put().Namespace(e.o.Namespace).Resource("leases").Name(e.o.Name).Body(l).Do(ctx).Error()
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

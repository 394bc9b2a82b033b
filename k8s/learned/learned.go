package learned

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/client"
	"picot.dev/picot/k8s/source"
	"picot.dev/picot/k8s/writer"
)

// Binding is a stored binding of either kind.
type Binding = source.Binding

// Verb is what a Write does to the object.
type Verb uint8

// The verbs. A Refresh is an Update of lastObserved alone: it may be late.
const (
	Create Verb = iota + 1
	Update
	Refresh
	Delete
)

// Write is one decision.
type Write struct {
	Seq  uint64 // of the decision, for its Result
	Verb Verb
	Key  source.Key      // of an FDBEntry or a Neighbor
	New  Binding         // the whole state to store, less Version; nothing for a Delete
	From desired.Version // what it was decided on: the precondition of all but a Create
}

// Outcome is what became of a Write.
type Outcome uint8

// The outcomes.
const (
	Stored   Outcome = iota // the object is as written, or gone after a Delete
	Conflict                // the object was not what From says, existed, or was gone
	Failed                  // the write may or may not have happened
)

// Result answers a Write.
type Result struct {
	Outcome Outcome
	Version desired.Version // after Stored: the object's
	// After a Conflict: what there is now, if that is Known; nil for nothing.
	Known   bool
	Current *Binding
}

// Core decides. Its methods note what they are told; they neither block nor call
// back, and any goroutine may call them.
type Core interface {
	// Set tells every stored state of a binding, in the order of its versions;
	// Gone that there is none any more that binds: uid is that of the last.
	Set(source.Key, Binding)
	Gone(k source.Key, uid string)
	// Done answers a Write. One that was replaced before it was sent has no
	// answer.
	Done(k source.Key, seq uint64, r Result)
}

// API is what is needed of a client beside the writer's.
type API interface {
	Get(ctx context.Context, r client.Resource, name string, out runtime.Object) error
}

// Options of a Learned.
type Options struct {
	API    API
	Source *source.Source
	Core   Core
	// Enqueue asks for a decision on a key: the writer's.
	Enqueue func(source.Key, writer.Class) bool
}

// Learned holds the writes that were not sent yet. Make one with New.
type Learned struct {
	o Options

	mu      sync.Mutex
	pending map[source.Key]Write
}

// New returns a Learned. It is to be a decider of the writer that Enqueue is of
// (see [Decider]), and its Stored the source's hook.
func New(o Options) (*Learned, error) {
	if o.API == nil || o.Source == nil || o.Core == nil || o.Enqueue == nil {
		return nil, errors.New("learned bindings: give a client, a source, a core and a queue")
	}
	return &Learned{o: o, pending: map[source.Key]Write{}}, nil
}

// Stored tells the core of a change of what is stored.
func (l *Learned) Stored(k source.Key, b Binding, gone bool) {
	if gone {
		l.o.Core.Gone(k, b.Version.UID)
		return
	}
	l.o.Core.Set(k, b)
}

// Write has w carried out. It takes the place of one of the same key that was not
// sent yet. When the queue is full w has Failed.
func (l *Learned) Write(w Write) {
	l.mu.Lock()
	l.pending[w.Key] = w
	l.mu.Unlock()
	class := writer.Learned
	if w.Verb == Refresh {
		class = writer.Refresh
	}
	if !l.o.Enqueue(w.Key, class) {
		l.finish(w, Result{Outcome: Failed})
	}
}

// Pending returns how many writes were not answered yet.
func (l *Learned) Pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending)
}

// finish answers w, unless another took its place.
func (l *Learned) finish(w Write, r Result) {
	l.mu.Lock()
	if l.pending[w.Key].Seq == w.Seq {
		delete(l.pending, w.Key)
	}
	l.mu.Unlock()
	l.o.Core.Done(w.Key, w.Seq, r)
}

// Decide implements writer.Decider.
func (l *Learned) Decide(k source.Key) writer.Op {
	l.mu.Lock()
	w, ok := l.pending[k]
	l.mu.Unlock()
	if !ok {
		return writer.Op{}
	}
	b, binds, there := l.o.Source.Stored(k)
	if r, ok := overtaken(&w, &b, binds, there); ok {
		l.finish(w, r)
		return writer.Op{}
	}
	if w.Verb == Create && there {
		// It names no owner yet: nobody made it but by hand.
		w.Verb, w.From = Update, b.Version
	}
	op := l.op(&w)
	op.Done = func(r writer.Result, err error) { l.done(w, r, err) }
	return op
}

// overtaken reports whether the cache shows that w would be a conflict, and the
// answer to it.
func overtaken(w *Write, b *Binding, binds, there bool) (Result, bool) {
	if w.Verb == Create {
		return Result{Outcome: Conflict, Known: true, Current: b}, binds
	}
	if !there || number(b.Version.ResourceVersion) <= number(w.From.ResourceVersion) {
		return Result{}, false
	}
	r := Result{Outcome: Conflict, Known: true}
	if binds {
		r.Current = b
	}
	return r, true
}

// done answers a write that was sent.
func (l *Learned) done(w Write, r writer.Result, err error) {
	switch {
	case err == nil && w.Verb != Delete:
		l.finish(w, Result{Version: desired.Version{UID: r.UID, ResourceVersion: r.ResourceVersion}})
	case err == nil, w.Verb == Delete && apierrors.IsNotFound(err):
		l.finish(w, Result{})
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		l.finish(w, l.look(&w))
	default:
		l.finish(w, Result{Outcome: Failed})
	}
}

// lookFor bounds the question what there is after a conflict.
const lookFor = 5 * time.Second

// look answers a conflict with what there is: what the cache shows if that is
// newer than what w was decided on, else what the API server says.
func (l *Learned) look(w *Write) Result {
	b, binds, there := l.o.Source.Stored(w.Key)
	if r, ok := overtaken(w, &b, binds, there); ok {
		return r
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookFor)
	defer cancel()
	b, binds, err := get(ctx, l.o.API, w.Key)
	switch {
	case apierrors.IsNotFound(err), err == nil && !binds:
		return Result{Outcome: Conflict, Known: true}
	case err != nil:
		return Result{Outcome: Conflict}
	}
	return Result{Outcome: Conflict, Known: true, Current: &b}
}

// Shows implements writer.Decider.
func (l *Learned) Shows(k source.Key, r writer.Result) bool {
	b, _, ok := l.o.Source.Stored(k)
	if r.Gone {
		return !ok || b.Version.UID != r.UID
	}
	return ok && number(b.Version.ResourceVersion) >= number(r.ResourceVersion)
}

func number(rv string) uint64 {
	n, _ := strconv.ParseUint(rv, 10, 64)
	return n
}

// Decider is one of several: of a key the first that has a write decides, and
// the first also tells what the cache shows.
type Decider []writer.Decider[source.Key]

// Decide implements writer.Decider.
func (d Decider) Decide(k source.Key) writer.Op {
	for _, x := range d {
		if op := x.Decide(k); op.Verb != writer.None {
			return op
		}
	}
	return writer.Op{}
}

// Shows implements writer.Decider.
func (d Decider) Shows(k source.Key, r writer.Result) bool { return d[0].Shows(k, r) }

package lease

import (
	"context"
	"errors"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// NodeOptions of a Node.
type NodeOptions struct {
	Config    *rest.Config
	Namespace string
	Node      string // the node's name, and the Lease's
	Instance  string // of this process; no two of a node share one
	// Every is the time between renewals; 0: ten seconds.
	Every time.Duration
	// Duration is how long another process of this node that neither renews nor
	// let go is believed to write; 0: four times Every.
	Duration time.Duration
	Now      func() time.Time // for the Lease's readers; nil: time.Now
	Log      *slog.Logger     // nil: none
}

// Node is this node's Lease: the sign that its agent lives and can reach the API
// server, and of its processes the one that writes. Make one with NewNode.
type Node struct {
	o     NodeOptions
	id    string
	store store
	seen  observer
	lease *coordinationv1.Lease // as we last stored it; nil: to be read
}

// NewNode returns a Node that does nothing until Run.
func NewNode(o NodeOptions) (*Node, error) {
	if o.Config == nil || o.Namespace == "" || o.Node == "" || o.Instance == "" {
		return nil, errors.New("node Lease: give a configuration, a namespace, the node's name and this process's")
	}
	if o.Every == 0 {
		o.Every = 10 * time.Second
	}
	if o.Duration == 0 {
		o.Duration = 4 * o.Every
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	st, err := newStore(o.Config, o.Namespace, o.Node)
	return &Node{o: o, id: o.Node + "/" + o.Instance, store: st}, err
}

// Run keeps the Lease until ctx ends, then lets it go. While this process has it,
// write runs, with a context that ends when another process of this node took
// the Lease; Run waits for it to return before it lets go.
//
// alone says that no other process of this node can be writing: then the Lease is
// taken whoever has it, and write begins at once, whatever the API server says.
// Otherwise write begins once the other one let it go, or renewed nothing for
// Duration.
func (n *Node) Run(ctx context.Context, alone bool, write func(ctx context.Context)) {
	for ctx.Err() == nil {
		if alone || n.await(ctx) {
			n.hold(ctx, alone, write)
		}
		alone = false
	}
}

// await waits until the Lease is ours. It returns false if ctx ends before.
func (n *Node) await(ctx context.Context) bool {
	for said := false; ; said = true {
		err := n.try(ctx, false)
		if err == nil {
			return true
		}
		if !said {
			n.o.Log.Info("nothing is written yet: this node's Lease is not ours", "reason", err)
		}
		if !pause(ctx, min(n.o.Every/4, time.Second)) {
			return false
		}
	}
}

// hold renews while write runs.
func (n *Node) hold(ctx context.Context, force bool, write func(ctx context.Context)) {
	term, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		write(term)
	}()
	wait := n.o.Every
	if force {
		wait = 0 // it is not taken yet
	}
	for pause(term, wait) {
		err := n.try(term, force)
		switch {
		case err == nil:
			force, wait = false, n.o.Every
		case errors.Is(err, errHeld):
			n.o.Log.Warn("another agent of this node has its Lease: this one writes no more")
			end()
		default:
			n.o.Log.Debug("the node's Lease is not renewed", "error", err)
			wait = n.o.Every / 4
		}
	}
	end()
	<-done
	n.release()
}

// errHeld: another process of this node has the Lease.
var errHeld = errors.New("held by another process")

// try takes or renews the Lease once.
func (n *Node) try(ctx context.Context, force bool) error {
	ctx, cancel := context.WithTimeout(ctx, n.o.Every)
	defer cancel()
	l := n.lease
	if l == nil {
		read, r, err := n.store.get(ctx)
		if err != nil {
			return err
		}
		if age := n.seen.see(r, time.Now()); !force && !free(r, n.id, age, n.o.Duration) {
			return errHeld
		}
		l = read
	}
	n.lease = nil // until it is stored
	stamp, seconds := metav1.NewMicroTime(n.o.Now()), int32((n.o.Duration+time.Second-1)/time.Second)
	if h := l.Spec.HolderIdentity; h == nil || *h != n.id {
		l.Spec.AcquireTime = &stamp
	}
	l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &n.id, &stamp, &seconds
	if err := n.store.put(ctx, l); err != nil {
		return err
	}
	n.lease = l
	return nil
}

// release lets the Lease go, so that a next process need not wait.
func (n *Node) release() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for range 2 { // once more after a conflict with what we have in hand
		l := n.lease
		if l == nil {
			read, r, err := n.store.get(ctx)
			if err != nil || r.holder != n.id {
				return
			}
			l = read
		}
		n.lease = nil
		none := ""
		l.Spec.HolderIdentity = &none
		if err := n.store.put(ctx, l); !apierrors.IsConflict(err) {
			return
		}
	}
}

// pause waits and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	sleep(ctx, d)
	return ctx.Err() == nil
}

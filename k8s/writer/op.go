package writer

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"picot.dev/picot/k8s/client"
)

// Verb is what a write does.
type Verb uint8

// The verbs. None is no write: there is nothing to do, or nothing yet.
const (
	None Verb = iota
	Create
	Patch
	Delete
)

// String is the verb as RBAC and the metrics spell it.
func (v Verb) String() string {
	return [...]string{"none", "create", "patch", "delete"}[v]
}

// Op is one write. It carries its preconditions: a create is refused where the
// name is taken, a patch holds metadata.resourceVersion, a delete UID and
// ResourceVersion.
type Op struct {
	Verb        Verb
	Resource    client.Resource
	Name        string
	Subresource string         // of a patch
	Object      runtime.Object // what to create, or an empty one for a patch's result
	Patch       []byte         // a JSON merge patch
	UID         string
	Version     string // resourceVersion
	// Last says that the write ends the object: a patch that takes the last
	// finalizer off.
	Last bool
	// Then is called once the write went through; nil: nothing.
	Then func()
	// Done is told what came of the write, before its key may be decided again;
	// nil: nobody is.
	Done func(Result, error)
}

// Result is what a write led to.
type Result struct {
	UID, ResourceVersion string
	Gone                 bool // the object of this UID is no longer there
}

// Decider knows what is wanted and what the cache holds.
type Decider[K comparable] interface {
	// Decide returns the next write of a key, by the cache as it is.
	Decide(K) Op
	// Shows reports whether the cache shows what a write led to, or something
	// newer.
	Shows(K, Result) bool
}

// do carries out op.
func do(ctx context.Context, c API, op Op) (Result, error) {
	switch op.Verb {
	case Create:
		err := c.Create(ctx, op.Resource, op.Object)
		return resultOf(op, err), err
	case Patch:
		err := c.Patch(ctx, op.Resource, op.Name, op.Subresource, op.Patch, op.Object)
		return resultOf(op, err), err
	case Delete:
		err := c.Delete(ctx, op.Resource, op.Name, op.UID, op.Version)
		return Result{UID: op.UID, Gone: true}, err
	}
	return Result{}, nil
}

// API is what a Writer needs of a client.
type API interface {
	Create(ctx context.Context, r client.Resource, obj runtime.Object) error
	Patch(ctx context.Context, r client.Resource, name, subresource string, patch []byte, out runtime.Object) error
	Delete(ctx context.Context, r client.Resource, name, uid, resourceVersion string) error
}

func resultOf(op Op, err error) Result {
	if err != nil {
		return Result{}
	}
	m, err := meta.Accessor(op.Object)
	if err != nil {
		return Result{}
	}
	return Result{UID: string(m.GetUID()), ResourceVersion: m.GetResourceVersion(), Gone: op.Last}
}

package source

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
)

// NetworksOptions say how to follow the Networks alone.
type NetworksOptions struct {
	Client *client.Client
	// Changed is told which networks may be judged otherwise now: all of them
	// at every change, since one may free the ID of another.
	Changed func(names []string)
	Log     *slog.Logger // nil: none
}

// Networks follows the Networks alone, for the elected agent. It is safe for
// use by several goroutines.
type Networks struct {
	s *Source

	mu     sync.Mutex
	stored map[string]NetworkObject
	synced bool
}

// NetworkObject is a Network's cached state.
type NetworkObject struct {
	Version    desired.Version
	Generation int64
	Conditions []metav1.Condition
	Problems   []desired.Problem // with any it is not carried
}

// NewNetworks returns a Networks that follows nothing until Run.
func NewNetworks(o NetworksOptions) (*Networks, error) {
	if o.Client == nil || o.Changed == nil {
		return nil, errors.New("networks: give a client and a hook")
	}
	n := &Networks{stored: map[string]NetworkObject{}}
	var err error
	n.s, err = New(Options{Client: o.Client, Node: "-", Log: o.Log, Changed: func(Key) {
		n.mu.Lock()
		var names []string
		if n.synced {
			for name := range n.stored {
				names = append(names, name)
			}
		}
		n.mu.Unlock()
		slices.Sort(names)
		o.Changed(names)
	}})
	return n, err
}

// Run follows until ctx ends.
func (n *Networks) Run(ctx context.Context) {
	n.s.followNetworksWith(ctx, n.store, func() {
		n.mu.Lock()
		n.synced = true
		n.mu.Unlock()
		n.s.opts.Changed(Key{})
	})
}

// store keeps what the projection does not; nil: it is gone.
func (n *Networks) store(name string, o *v1alpha1.Network) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o == nil {
		delete(n.stored, name)
		return
	}
	n.stored[name] = NetworkObject{
		Version:    desired.Version{UID: string(o.UID), ResourceVersion: o.ResourceVersion},
		Generation: o.Generation,
		Conditions: o.Status.DeepCopy().Conditions,
	}
}

// Get returns a network's state.
func (n *Networks) Get(name string) (NetworkObject, bool) {
	n.s.mu.Lock()
	problems := n.s.p.problems[desired.Ref{Kind: v1alpha1.KindNetwork, Name: name}]
	n.s.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	x, ok := n.stored[name]
	x.Problems = problems
	return x, ok && n.synced
}

// NotOlder reports whether one resourceVersion of a kind is as new as another.
func NotOlder(rv, than string) bool { return version(rv) >= version(than) }

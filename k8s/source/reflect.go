package source

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
)

// selector narrows a watch; the zero value takes all.
type selector struct{ label, field string }

func (s *Source) ownSelector() selector {
	return selector{field: fields.OneTermEqualSelector("status.managingNode", s.opts.Node).String()}
}

// sink takes what one reflector brings. It is the reflector's store, but keeps
// no objects.
type sink[T runtime.Object] struct {
	set     func(o T, gone bool)
	replace func(list []T, resourceVersion string)
	synced  func()
	listed  func()                  // before a whole list is taken
	decode  client.Decode           // of a watch's objects to T; nil: they are T
	convert func(obj any) (T, bool) // of a list's, if it is another type than T
}

func (s *sink[T]) of(obj any) (o T, err error) {
	o, ok := obj.(T)
	if !ok && s.convert != nil {
		o, ok = s.convert(obj)
	}
	if !ok {
		return o, fmt.Errorf("a %T among %T", obj, o)
	}
	return o, nil
}

func (s *sink[T]) Add(obj any) error    { return s.one(obj, false) }
func (s *sink[T]) Update(obj any) error { return s.one(obj, false) }
func (s *sink[T]) Delete(obj any) error { return s.one(obj, true) }
func (s *sink[T]) Resync() error        { return nil }

func (s *sink[T]) one(obj any, gone bool) error {
	o, err := s.of(obj)
	if err == nil {
		s.set(o, gone)
	}
	return err
}

// Replace takes a whole list.
func (s *sink[T]) Replace(list []any, resourceVersion string) error {
	out := make([]T, 0, len(list))
	for _, obj := range list {
		o, err := s.of(obj)
		if err != nil {
			return err
		}
		out = append(out, o)
	}
	s.listed()
	s.replace(out, resourceVersion)
	if s.synced != nil {
		s.synced()
	}
	return nil
}

// Transformer drops what nobody here reads before the object is kept, even in
// the reflector's own hands.
func (s *sink[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if o, ok := obj.(metav1.Object); ok {
			o.SetManagedFields(nil)
			o.SetAnnotations(nil)
			o.SetOwnerReferences(nil)
			o.SetLabels(nil)
		}
		return obj, nil
	}
}

// follow runs a reflector of one resource until ctx ends.
func follow[T runtime.Object](ctx context.Context, s *Source, resource string, sel selector, example T, list func() runtime.Object, to *sink[T]) {
	r := client.Resource{Name: resource}
	narrow := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = sel.label, sel.field
		return o
	}
	v := view{resource, sel}
	defer s.forget(v)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			out := list()
			err := s.opts.Client.List(ctx, r, narrow(o), out)
			s.heard(ctx, v, err)
			return out, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (w watch.Interface, err error) {
			if to.decode != nil {
				w, err = s.opts.Client.Stream(ctx, r, narrow(o), to.decode)
			} else {
				w, err = s.opts.Client.Watch(ctx, r, narrow(o))
			}
			s.heard(ctx, v, err)
			return w, err
		},
	}
	first := true
	to.listed = func() {
		if !first {
			s.relisted()
		}
		first = false
	}
	logger := logr.FromSlogHandler(s.opts.Log.Handler())
	ref := cache.NewReflectorWithOptions(lw, example, to, cache.ReflectorOptions{
		Logger: &logger,
		Name:   resource,
		// An API server that is back should be seen soon by all nodes, but not
		// by all at once.
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 10 * time.Second},
	})
	ref.RunWithContext(klog.NewContext(ctx, logger))
}

func (s *Source) followNetworks(ctx context.Context) {
	s.followNetworksWith(ctx, func(string, *v1alpha1.Network) {}, func() { s.opened(v1alpha1.KindNetwork) })
}

// followNetworksWith also tells seen of every state, nil for a network that is
// gone, before the hook is called.
func (s *Source) followNetworksWith(ctx context.Context, seen func(name string, o *v1alpha1.Network), synced func()) {
	set := func(p *projection, name string, o *v1alpha1.Network) []Key {
		p.setNetwork(name, o)
		seen(name, o)
		return []Key{{Kind: v1alpha1.KindNetwork, Network: name}}
	}
	follow(ctx, s, v1alpha1.ResourceNetworks, selector{}, &v1alpha1.Network{}, func() runtime.Object { return &v1alpha1.NetworkList{} },
		&sink[*v1alpha1.Network]{
			set: func(o *v1alpha1.Network, gone bool) {
				s.update(func(p *projection) []Key { return set(p, o.Name, unlessGone(o, gone)) })
			},
			replace: func(list []*v1alpha1.Network, _ string) {
				s.update(func(p *projection) (keys []Key) {
					there := map[string]bool{}
					for _, o := range list {
						there[o.Name] = true
						keys = append(keys, set(p, o.Name, o)...)
					}
					for _, name := range p.networkNames() {
						if !there[name] {
							keys = append(keys, set(p, name, nil)...)
						}
					}
					return keys
				})
			},
			synced: synced,
		})
}

func (s *Source) followNodes(ctx context.Context) {
	follow(ctx, s, v1alpha1.ResourceSRv6Nodes, selector{}, &v1alpha1.SRv6Node{}, func() runtime.Object { return &v1alpha1.SRv6NodeList{} },
		&sink[*v1alpha1.SRv6Node]{
			set: func(o *v1alpha1.SRv6Node, gone bool) {
				s.update(func(p *projection) []Key { p.setNode(o.Name, unlessGone(o, gone)); return nil })
			},
			replace: func(list []*v1alpha1.SRv6Node, _ string) {
				s.update(func(p *projection) []Key {
					there := map[string]bool{}
					for _, o := range list {
						there[o.Name] = true
						p.setNode(o.Name, o)
					}
					for _, name := range p.nodeNames() {
						if !there[name] {
							p.setNode(name, nil)
						}
					}
					return nil
				})
			},
			synced: func() { s.opened(v1alpha1.KindSRv6Node) },
		})
}

func (s *Source) followEndpoints(ctx context.Context) {
	set := func(p *projection, k desired.EndpointKey, o *v1alpha1.NetworkEndpoint) []Key {
		keys := p.endpointKeys(k)
		p.setEndpoint(k, o)
		return append(keys, p.endpointKeys(k)...)
	}
	key := func(o *v1alpha1.NetworkEndpoint) desired.EndpointKey {
		return desired.EndpointKey{Namespace: o.Namespace, Name: o.Name}
	}
	sel := selector{field: fields.OneTermEqualSelector("spec.nodeName", s.opts.Node).String()}
	follow(ctx, s, v1alpha1.ResourceNetworkEndpoints, sel, &v1alpha1.NetworkEndpoint{}, func() runtime.Object { return &v1alpha1.NetworkEndpointList{} },
		&sink[*v1alpha1.NetworkEndpoint]{
			set: func(o *v1alpha1.NetworkEndpoint, gone bool) {
				s.update(func(p *projection) []Key { return set(p, key(o), unlessGone(o, gone)) })
				poke(s.hosted)
			},
			replace: func(list []*v1alpha1.NetworkEndpoint, _ string) {
				s.update(func(p *projection) (keys []Key) {
					there := map[desired.EndpointKey]bool{}
					for _, o := range list {
						there[key(o)] = true
						keys = append(keys, set(p, key(o), o)...)
					}
					for _, k := range p.endpointNames() {
						if !there[k] {
							keys = append(keys, set(p, k, nil)...)
						}
					}
					return keys
				})
				poke(s.hosted)
			},
			synced: func() { s.opened(v1alpha1.KindNetworkEndpoint) },
		})
}

func unlessGone[T any](o *T, gone bool) *T {
	if gone {
		return nil
	}
	return o
}

func (s *Source) followFDB(ctx context.Context, v views, sel selector, synced func()) {
	follow(ctx, s, v1alpha1.ResourceFDBEntries, sel, &record[desired.FDBEntry]{}, func() runtime.Object { return &v1alpha1.FDBEntryList{} },
		&sink[*record[desired.FDBEntry]]{
			decode: decodeFDB,
			convert: func(obj any) (*record[desired.FDBEntry], bool) {
				o, ok := obj.(*v1alpha1.FDBEntry)
				if !ok {
					return nil, false
				}
				return fdbRecord(o), true
			},
			set: func(o *record[desired.FDBEntry], gone bool) {
				s.update(func(p *projection) []Key { return p.fdbEvent(o, v, gone) })
			},
			replace: func(list []*record[desired.FDBEntry], rv string) {
				s.update(func(p *projection) []Key { return p.replaceFDB(list, v, version(rv)) })
			},
			synced: synced,
		})
}

func (s *Source) followNeighbors(ctx context.Context, v views, sel selector, synced func()) {
	follow(ctx, s, v1alpha1.ResourceNeighbors, sel, &record[desired.Neighbor]{}, func() runtime.Object { return &v1alpha1.NeighborList{} },
		&sink[*record[desired.Neighbor]]{
			decode: decodeNeighbor,
			convert: func(obj any) (*record[desired.Neighbor], bool) {
				o, ok := obj.(*v1alpha1.Neighbor)
				if !ok {
					return nil, false
				}
				return neighborRecord(o), true
			},
			set: func(o *record[desired.Neighbor], gone bool) {
				s.update(func(p *projection) []Key { return p.neighborEvent(o, v, gone) })
			},
			replace: func(list []*record[desired.Neighbor], rv string) {
				s.update(func(p *projection) []Key { return p.replaceNeighbors(list, v, version(rv)) })
			},
			synced: synced,
		})
}

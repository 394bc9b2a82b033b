package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"picot.dev/picot/gateway"
	"picot.dev/picot/gateway/static"
	"picot.dev/picot/internal/ovnkube"
	"picot.dev/picot/k8s/client"
)

// lookAgain is how often the API is asked whether it serves UplinkStates now.
const lookAgain = time.Minute

// clusterNodes follows the Nodes and UplinkStates of the API.
type clusterNodes struct {
	api  dynamic.Interface
	tell func(in gateway.Inputs, waiting string)
	log  *slog.Logger

	mu      sync.Mutex
	nodes   map[string]static.Node   // by object name
	uplinks map[string]static.Uplink // by object name
	waiting [2]string                // of nodes and of uplinks; "": listed once
}

func newClusterNodes(tell func(gateway.Inputs, string), log *slog.Logger) *clusterNodes {
	return &clusterNodes{tell: tell, log: log, nodes: map[string]static.Node{}, uplinks: map[string]static.Uplink{},
		waiting: [2]string{"nodes: not listed yet", "uplink states: not listed yet"}}
}

// followNodes feeds the gateway from the API until ctx ends.
func (a *Agent) followNodes(ctx context.Context) {
	c := newClusterNodes(a.gateway.set, a.log)
	config, err := client.Config(a.config.Kubeconfig)
	if err == nil {
		c.api, err = dynamic.NewForConfig(config)
	}
	if err != nil { // New made a client of the same configuration
		c.change(func() { c.waiting[0] = "nodes: " + err.Error() })
		return
	}
	c.run(ctx)
}

// run follows both kinds until ctx ends.
func (c *clusterNodes) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		c.follow(ctx, schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, &followed{c: c, part: 0,
			set: func(name string, raw []byte) error {
				n, err := ovnkube.ParseNode(raw)
				if err == nil {
					c.nodes[name] = n
				}
				return err
			},
			drop: func(name string) { delete(c.nodes, name) },
			keep: func(names map[string]bool) {
				maps.DeleteFunc(c.nodes, func(n string, _ static.Node) bool { return !names[n] })
			}})
	})
	group.Go(func() { c.followUplinks(ctx) })
}

// followUplinks follows the UplinkStates once the API serves them; until then
// there are none.
func (c *clusterNodes) followUplinks(ctx context.Context) {
	for {
		served, err := c.uplinkResource(ctx)
		switch {
		case err != nil:
			c.change(func() { c.waiting[1] = "uplink states: " + err.Error() })
		case served.Resource == "":
			c.change(func() { c.waiting[1] = "" })
		default:
			c.follow(ctx, served, &followed{c: c, part: 1,
				set: func(name string, raw []byte) error {
					u, err := ovnkube.ParseUplink(raw)
					if err == nil {
						c.uplinks[name] = u
					}
					return err
				},
				drop: func(name string) { delete(c.uplinks, name) },
				keep: func(names map[string]bool) {
					maps.DeleteFunc(c.uplinks, func(n string, _ static.Uplink) bool { return !names[n] })
				}})
			return
		}
		wait := lookAgain
		if err != nil {
			wait = 5 * time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// uplinkVersions are tried in turn: which of them ovn-kubernetes serves depends
// on its release.
var uplinkVersions = []string{"v1", "v1beta1", "v1alpha1"}

// uplinkResource finds the version UplinkStates are served in; none: the zero
// value and no error.
func (c *clusterNodes) uplinkResource(ctx context.Context) (schema.GroupVersionResource, error) {
	for _, v := range uplinkVersions {
		r := schema.GroupVersionResource{Group: ovnkube.UplinkGroup, Version: v, Resource: ovnkube.UplinkResource}
		_, err := c.api.Resource(r).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case err == nil:
			return r, nil
		case !apierrors.IsNotFound(err):
			return schema.GroupVersionResource{}, err
		}
	}
	return schema.GroupVersionResource{}, nil
}

// follow runs a reflector of one resource until ctx ends.
func (c *clusterNodes) follow(ctx context.Context, r schema.GroupVersionResource, to *followed) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := c.api.Resource(r).List(ctx, o)
			if err != nil {
				c.change(func() {
					if c.waiting[to.part] != "" { // a list that was there once stays good
						c.waiting[to.part] = r.Resource + ": " + err.Error()
					}
				})
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.api.Resource(r).Watch(ctx, o)
		},
	}
	logger := logr.FromSlogHandler(c.log.Handler())
	ref := cache.NewReflectorWithOptions(lw, &unstructured.Unstructured{}, to, cache.ReflectorOptions{Logger: &logger, Name: r.Resource})
	ref.RunWithContext(klog.NewContext(ctx, logger))
}

// change runs f and tells the gateway what is known then.
func (c *clusterNodes) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	in := gateway.Inputs{}
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		in.Nodes = append(in.Nodes, c.nodes[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.uplinks)) {
		in.Uplinks = append(in.Uplinks, c.uplinks[name])
	}
	waiting := c.waiting[0]
	if waiting == "" {
		waiting = c.waiting[1]
	}
	c.tell(in, waiting)
}

// followed is a reflector's store that keeps only what the gateway reads. An
// object that cannot be read keeps its last good state.
type followed struct {
	c    *clusterNodes
	part int // of c.waiting
	set  func(name string, raw []byte) error
	drop func(name string)
	keep func(names map[string]bool)
}

func (f *followed) Add(obj any) error    { return f.one(obj, false) }
func (f *followed) Update(obj any) error { return f.one(obj, false) }
func (f *followed) Delete(obj any) error { return f.one(obj, true) }
func (f *followed) Resync() error        { return nil }

// Transformer drops what nobody reads before the object is kept anywhere.
func (f *followed) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if o, ok := obj.(*unstructured.Unstructured); ok {
			o.SetManagedFields(nil)
			unstructured.RemoveNestedField(o.Object, "status", "images")
		}
		return obj, nil
	}
}

func (f *followed) one(obj any, gone bool) error {
	o, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("a %T in a watch", obj)
	}
	f.c.change(func() { f.take(o, gone) })
	return nil
}

// take is called with the lock held.
func (f *followed) take(o *unstructured.Unstructured, gone bool) {
	if gone {
		f.drop(o.GetName())
		return
	}
	raw, err := json.Marshal(o.Object)
	if err = errors.Join(err, f.set(o.GetName(), raw)); err != nil {
		f.c.log.Warn("object refused, its last good state stays", "object", o.GetKind()+" "+o.GetName(), "error", err)
	}
}

// Replace takes a whole list.
func (f *followed) Replace(list []any, _ string) error {
	f.c.change(func() {
		names := map[string]bool{}
		for _, obj := range list {
			if o, ok := obj.(*unstructured.Unstructured); ok {
				names[o.GetName()] = true
				f.take(o, false)
			}
		}
		f.keep(names)
		f.c.waiting[f.part] = ""
	})
	return nil
}

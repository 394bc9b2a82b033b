package elected

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// lister is what a watch needs of a client.
type lister struct {
	list  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	watch func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// feed takes what one watch brings: the reflector's store, which keeps nothing.
type feed[T metav1.Object] struct {
	set     func(o T, gone bool)
	replace func(list []T)
	// whole tells whether the watch goes on (or broke).
	whole func(bool)
}

func (f *feed[T]) Add(obj any) error    { return f.one(obj, false) }
func (f *feed[T]) Update(obj any) error { return f.one(obj, false) }
func (f *feed[T]) Delete(obj any) error { return f.one(obj, true) }
func (f *feed[T]) Resync() error        { return nil }

func (f *feed[T]) one(obj any, gone bool) error {
	o, ok := obj.(T)
	if !ok {
		return fmt.Errorf("a %T in a watch of %T", obj, o)
	}
	f.set(o, gone)
	return nil
}

// Replace takes a whole list.
func (f *feed[T]) Replace(list []any, _ string) error {
	out := make([]T, 0, len(list))
	for _, obj := range list {
		o, ok := obj.(T)
		if !ok {
			return fmt.Errorf("a %T in a list of %T", obj, o)
		}
		out = append(out, o)
	}
	f.replace(out)
	f.whole(true)
	return nil
}

// follow keeps one watch until ctx ends, and tells when it breaks: a list or a
// watch that cannot be had is a time nobody is seen in.
func follow[T interface {
	runtime.Object
	metav1.Object
}](ctx context.Context, log *slog.Logger, name string, from lister, example T, to *feed[T]) {
	listed := false
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := from.list(ctx, o)
			if err != nil {
				to.whole(false)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := from.watch(ctx, o)
			switch {
			case err != nil:
				to.whole(false)
			case listed && o.SendInitialEvents == nil:
				to.whole(true)
			}
			listed = true
			return w, err
		},
	}
	logger := logr.FromSlogHandler(log.Handler())
	r := cache.NewReflectorWithOptions(lw, example, to, cache.ReflectorOptions{
		Logger: &logger, Name: name,
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 10 * time.Second},
	})
	r.RunWithContext(klog.NewContext(ctx, logger))
}

// restClient is a client of one group of Kubernetes' own kinds.
func restClient(config *rest.Config, path string, gv schema.GroupVersion) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath, c.QPS = &gv, path, -1
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(c)
}

// listerOf lists and watches a collection; out makes an empty list.
func listerOf(c *rest.RESTClient, namespace, resource string, out func() runtime.Object) lister {
	req := func(o metav1.ListOptions) *rest.Request {
		return c.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).VersionedParams(&o, metav1.ParameterCodec)
	}
	return lister{
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			l := out()
			return l, req(o).Do(ctx).Into(l)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return req(o).Watch(ctx)
		},
	}
}

package client

import (
	"context"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"picot.dev/picot/k8s/api/v1alpha1"
)

// timeout bounds one request that is no watch.
const timeout = 30 * time.Second

// Client is a connection to one API server.
type Client struct {
	rest rest.Interface
}

// Config reads a kubeconfig file; an empty path means the service account of
// the pod this runs in.
func Config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("in-cluster configuration: %w: give --kubeconfig outside of a cluster", err)
		}
		return c, nil
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return c, nil
}

// New makes a Client from a configuration, which it does not change. The
// client's own rate limit is off: k8s/writer has the node's budget.
func New(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	gv := v1alpha1.SchemeGroupVersion()
	c.GroupVersion = &gv
	c.APIPath = "/apis"
	c.QPS = -1
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType = runtime.ContentTypeJSON
	c.AcceptContentTypes = runtime.ContentTypeJSON
	if c.UserAgent == "" {
		c.UserAgent = "picot"
	}
	r, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	return &Client{rest: r}, nil
}

// Resource is one kind's collection, or one namespace's part of it.
type Resource struct {
	Name      string // as in the API path
	Namespace string // empty: all, or cluster-scoped
}

// List reads a collection into out, a list of the kind.
func (c *Client) List(ctx context.Context, r Resource, opts metav1.ListOptions, out runtime.Object) error {
	return c.rest.Get().NamespaceIfScoped(r.Namespace, r.Namespace != "").Resource(r.Name).
		VersionedParams(&opts, metav1.ParameterCodec).Do(ctx).Into(out)
}

// Watch opens a watch of a collection.
func (c *Client) Watch(ctx context.Context, r Resource, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	req := c.rest.Get().NamespaceIfScoped(r.Namespace, r.Namespace != "").Resource(r.Name).
		VersionedParams(&opts, metav1.ParameterCodec)
	if opts.TimeoutSeconds != nil {
		req = req.Timeout(time.Duration(*opts.TimeoutSeconds) * time.Second)
	}
	return req.Watch(ctx)
}

// Get reads one object into out.
func (c *Client) Get(ctx context.Context, r Resource, name string, out runtime.Object) error {
	return c.rest.Get().Timeout(timeout).NamespaceIfScoped(r.Namespace, r.Namespace != "").
		Resource(r.Name).Name(name).Do(ctx).Into(out)
}

// Create stores obj and reads what was stored into it.
func (c *Client) Create(ctx context.Context, r Resource, obj runtime.Object) error {
	res := c.rest.Post().Timeout(timeout).NamespaceIfScoped(r.Namespace, r.Namespace != "").
		Resource(r.Name).Body(obj).Do(ctx)
	if res.Error() != nil {
		return res.Error()
	}
	reflect.ValueOf(obj).Elem().SetZero() // what the server dropped must not stay
	return res.Into(obj)
}

// Patch applies a JSON merge patch (RFC 7386) to an object, or to its
// subresource if that is not empty, and reads the result into out. A patch that
// holds metadata.resourceVersion is refused with 409 when that is not current.
func (c *Client) Patch(ctx context.Context, r Resource, name, subresource string, patch []byte, out runtime.Object) error {
	req := c.rest.Patch(types.MergePatchType).Timeout(timeout).NamespaceIfScoped(r.Namespace, r.Namespace != "").
		Resource(r.Name).Name(name)
	if subresource != "" {
		req = req.SubResource(subresource)
	}
	return req.Body(patch).Do(ctx).Into(out)
}

// Delete removes one life, and one state, of an object: uid and resourceVersion
// are preconditions unless empty.
func (c *Client) Delete(ctx context.Context, r Resource, name, uid, resourceVersion string) error {
	var opts metav1.DeleteOptions
	if uid != "" || resourceVersion != "" {
		opts.Preconditions = &metav1.Preconditions{}
	}
	if uid != "" {
		u := types.UID(uid)
		opts.Preconditions.UID = &u
	}
	if resourceVersion != "" {
		opts.Preconditions.ResourceVersion = &resourceVersion
	}
	return c.rest.Delete().Timeout(timeout).NamespaceIfScoped(r.Namespace, r.Namespace != "").
		Resource(r.Name).Name(name).Body(&opts).Do(ctx).Error()
}

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
)

// objects takes the place of the manifest files: an API server.
type objects struct {
	client  *client.Client
	written map[string]stored
}

// stored is where a manifest's object is.
type stored struct {
	client.Resource
	object string
}

func newObjects(kubeconfig string) (*objects, error) {
	config, err := client.Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	c, err := client.New(config)
	return &objects{client: c, written: map[string]stored{}}, err
}

// serverOf is the host and port of the server a kubeconfig names.
func serverOf(kubeconfig string) (string, error) {
	config, err := client.Config(kubeconfig)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(config.Host)
	if err != nil {
		return "", fmt.Errorf("kubeconfig %s: server: %w", kubeconfig, err)
	}
	return u.Host, nil
}

// write creates the object of a manifest, or changes the spec of the one there.
func (o *objects) write(ctx context.Context, name, text string) error {
	var meta metav1.PartialObjectMetadata
	if err := yaml.Unmarshal([]byte(text), &meta); err != nil {
		return fmt.Errorf("object %s: %w", name, err)
	}
	at := stored{object: meta.Name}
	var obj runtime.Object
	switch meta.Kind {
	case v1alpha1.KindNetwork:
		at.Name, obj = v1alpha1.ResourceNetworks, &v1alpha1.Network{}
	case v1alpha1.KindNetworkEndpoint:
		at.Name, at.Namespace, obj = v1alpha1.ResourceNetworkEndpoints, EndpointNamespace, &v1alpha1.NetworkEndpoint{}
	case v1alpha1.KindSRv6Node:
		at.Name, obj = v1alpha1.ResourceSRv6Nodes, &v1alpha1.SRv6Node{}
	default:
		return fmt.Errorf("object %s: the lab writes no %s", name, meta.Kind)
	}
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		return fmt.Errorf("object %s: %w", name, err)
	}
	o.written[name] = at
	err := o.client.Create(ctx, at.Resource, obj)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var body struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(text), &body); err != nil {
		return err
	}
	patch, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return o.client.Patch(ctx, at.Resource, at.object, "", patch, obj)
}

// remove deletes what write stored under that name, if it is there.
func (o *objects) remove(ctx context.Context, name string) error {
	at, ok := o.written[name]
	if !ok {
		return nil
	}
	delete(o.written, name)
	err := o.client.Delete(ctx, at.Resource, at.object, "", "")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// relay lets the node's agent reach the server of this machine that its kubeconfig
// names: what connects to its address in the node's namespace comes out here.
func (n *Node) relay(kubeconfig string) error {
	address, err := serverOf(kubeconfig)
	if err != nil {
		return err
	}
	var in net.Listener
	if err := n.Do(func() (err error) { in, err = net.Listen("tcp", address); return err }); err != nil {
		return fmt.Errorf("a way to the API server: %w", err)
	}
	l := n.lab
	context.AfterFunc(l.life, func() { _ = in.Close() })
	l.relays.Go(func() {
		for {
			c, err := in.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				l.relays.Go(func() { splice(l.life, c, address) })
			}
		}
	})
	return nil
}

// splice joins a connection to another one to address until either ends.
func splice(ctx context.Context, c net.Conn, address string) {
	defer c.Close()
	far, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer far.Close()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{c, far}, {far, c}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			ended <- struct{}{}
		}()
	}
	select {
	case <-ended:
		ended <- struct{}{} // the other one is ended by the closing
	case <-ctx.Done():
	}
	_, _ = c.Close(), far.Close()
	<-ended
	<-ended
}

package elected

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
	"picot.dev/picot/learning/reclaim"
)

// clearRate is how many deletes a second clear up after dead nodes.
const clearRate = 100

// page is how many objects one list brings.
const page = 500

// errOverturned: what a node was cleared for is no longer true.
var errOverturned = errors.New("no longer to be cleared")

// clearAll clears up after dead nodes, one after another, until ctx ends. A node
// that is cleared is looked at again now and then: the verdict is a level.
func (n *nodes) clearAll(ctx context.Context) {
	c := &clearing{nodes: n, limit: rate.NewLimiter(clearRate, clearRate),
		again: map[string]time.Time{}, what: map[string]reclaim.What{}}
	tick := time.NewTicker(n.every())
	defer tick.Stop()
	counted := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !counted && n.sees() {
			if err := n.census(ctx); err != nil {
				n.log.Warn("counting the nodes that bindings name", "error", err)
			}
			counted = true
		}
		for _, v := range n.toClear() {
			c.node(ctx, v)
		}
	}
}

// sees reports whether nothing hides a node now.
func (n *nodes) sees() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.whole == [watches]bool{true, true, true}
}

// toClear returns the verdicts by which something goes.
func (n *nodes) toClear() (list []reclaim.Verdict) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, v := range n.verdicts {
		if v.Goes != reclaim.Nothing {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b reclaim.Verdict) int {
		if a.Node < b.Node {
			return -1
		}
		return 1
	})
	return list
}

// clearing is clearAll's.
type clearing struct {
	*nodes
	limit *rate.Limiter
	again map[string]time.Time // when to clear a node again
	what  map[string]reclaim.What
}

// node clears up after one node, if it is time to.
func (c *clearing) node(ctx context.Context, v reclaim.Verdict) {
	if c.what[v.Node] == v.Goes && time.Now().Before(c.again[v.Node]) {
		return
	}
	deleted, err := c.clear(ctx, v)
	wait := max(c.o.Times.Stale, 100*time.Millisecond)
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, errOverturned):
		wait = 0
	case err != nil:
		c.log.Warn("clearing up after a node", "node", v.Node, "error", err)
	}
	if deleted > 0 {
		c.log.Info("cleared up after a node", "node", v.Node, "because", v.Why, "what", v.Goes.String(), "objects", deleted)
	}
	c.what[v.Node], c.again[v.Node] = v.Goes, time.Now().Add(wait)
}

// clear deletes what goes of a node: bindings, then finalizers, then its Lease.
func (c *clearing) clear(ctx context.Context, v reclaim.Verdict) (deleted int, err error) {
	own := fields.OneTermEqualSelector("status.managingNode", v.Node).String()
	fdb, err := c.bindings(ctx, v, v1alpha1.ResourceFDBEntries, own)
	neighbors, err2 := c.bindings(ctx, v, v1alpha1.ResourceNeighbors, own)
	deleted = fdb + neighbors
	if err = errors.Join(err, err2); err != nil || v.Goes != reclaim.All {
		return deleted, err
	}
	n, err := c.finalizers(ctx, v)
	deleted += n
	if err != nil {
		return deleted, err
	}
	return deleted, c.deleteLease(ctx, v)
}

// bindings deletes the bindings of one kind that go. Each delete holds for the
// one state that was listed.
func (c *clearing) bindings(ctx context.Context, v reclaim.Verdict, resource, selector string) (deleted int, err error) {
	r := client.Resource{Name: resource}
	more := metav1.ListOptions{FieldSelector: selector, Limit: page}
	for first := true; first || more.Continue != ""; first = false {
		list, next, err := c.listBindings(ctx, resource, more)
		if err != nil {
			return deleted, err
		}
		more.Continue = next
		for _, b := range list {
			if b.byHand || b.static && v.Goes != reclaim.All {
				continue
			}
			if err := c.turn(ctx, v); err != nil {
				return deleted, err
			}
			err := c.client.Delete(ctx, r, b.name, b.uid, b.version)
			if err == nil {
				deleted++
			} else if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return deleted, fmt.Errorf("%s %s: %w", resource, b.name, err)
			}
		}
	}
	return deleted, nil
}

// turn waits for the budget and sees that the verdict still stands.
func (c *clearing) turn(ctx context.Context, v reclaim.Verdict) error {
	if err := c.limit.Wait(ctx); err != nil {
		return err
	}
	if c.verdict(v.Node).Goes < v.Goes {
		return errOverturned
	}
	return nil
}

// binding is what a list says of one.
type binding struct {
	name, uid, version, node string
	static                   bool
	byHand                   bool // static, and of no endpoint: nobody of us made it
}

func (n *nodes) listBindings(ctx context.Context, resource string, o metav1.ListOptions) (list []binding, more string, err error) {
	r := client.Resource{Name: resource}
	add := func(m *metav1.ObjectMeta, node string, source v1alpha1.Source, e *v1alpha1.EndpointReference) {
		static := source == v1alpha1.SourceStatic
		list = append(list, binding{m.Name, string(m.UID), m.ResourceVersion, node, static, static && (e == nil || e.UID == "")})
	}
	if resource == v1alpha1.ResourceFDBEntries {
		var l v1alpha1.FDBEntryList
		err = n.client.List(ctx, r, o, &l)
		for i := range l.Items {
			if x := &l.Items[i]; x.Status != nil {
				add(&x.ObjectMeta, x.Status.ManagingNode, x.Spec.Source, x.Status.Endpoint)
			}
		}
		return list, l.Continue, err
	}
	var l v1alpha1.NeighborList
	err = n.client.List(ctx, r, o, &l)
	for i := range l.Items {
		if x := &l.Items[i]; x.Status != nil {
			add(&x.ObjectMeta, x.Status.ManagingNode, x.Spec.Source, x.Status.Endpoint)
		}
	}
	return list, l.Continue, err
}

// finalizers takes picot's finalizer off the node's endpoints.
func (c *clearing) finalizers(ctx context.Context, v reclaim.Verdict) (taken int, err error) {
	more := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", v.Node).String(), Limit: page}
	for first := true; first || more.Continue != ""; first = false {
		var l v1alpha1.NetworkEndpointList
		if err := c.client.List(ctx, client.Resource{Name: v1alpha1.ResourceNetworkEndpoints}, more, &l); err != nil {
			return taken, err
		}
		more.Continue = l.Continue
		for i := range l.Items {
			e := &l.Items[i]
			if !slices.Contains(e.Finalizers, v1alpha1.EndpointFinalizer) {
				continue
			}
			if err := c.turn(ctx, v); err != nil {
				return taken, err
			}
			left := slices.DeleteFunc(slices.Clone(e.Finalizers), func(s string) bool { return s == v1alpha1.EndpointFinalizer })
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
				"uid": e.UID, "resourceVersion": e.ResourceVersion, "finalizers": left}})
			if err != nil {
				return taken, err
			}
			r := client.Resource{Name: v1alpha1.ResourceNetworkEndpoints, Namespace: e.Namespace}
			err = c.client.Patch(ctx, r, e.Name, "", patch, &v1alpha1.NetworkEndpoint{})
			if err == nil {
				taken++
			} else if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return taken, fmt.Errorf("finalizer of endpoint %s/%s: %w", e.Namespace, e.Name, err)
			}
		}
	}
	return taken, nil
}

// deleteLease forgets a node of which nothing is left.
func (c *clearing) deleteLease(ctx context.Context, v reclaim.Verdict) error {
	c.mu.Lock()
	rv := c.lease[v.Node]
	delete(c.found, v.Node)
	c.dirty[v.Node] = true
	c.mu.Unlock()
	if rv == "" {
		return nil
	}
	if err := c.turn(ctx, v); err != nil {
		return err
	}
	err := c.leases.Delete().Namespace(c.o.Namespace).Resource("leases").Name(v.Node).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &rv}}).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// census finds nodes that only bindings and endpoints still name: neither a Lease
// nor an SRv6Node is left of them. It runs once a term.
func (n *nodes) census(ctx context.Context) error {
	named := map[string]bool{}
	for _, resource := range []string{v1alpha1.ResourceFDBEntries, v1alpha1.ResourceNeighbors} {
		o := metav1.ListOptions{Limit: page}
		for first := true; first || o.Continue != ""; first = false {
			list, more, err := n.listBindings(ctx, resource, o)
			if err != nil {
				return err
			}
			o.Continue = more
			for _, b := range list {
				if !b.byHand {
					named[b.node] = true
				}
			}
		}
	}
	o := metav1.ListOptions{Limit: page}
	for first := true; first || o.Continue != ""; first = false {
		var l v1alpha1.NetworkEndpointList
		if err := n.client.List(ctx, client.Resource{Name: v1alpha1.ResourceNetworkEndpoints}, o, &l); err != nil {
			return err
		}
		o.Continue = l.Continue
		for i := range l.Items {
			if slices.Contains(l.Items[i].Finalizers, v1alpha1.EndpointFinalizer) {
				named[l.Items[i].Spec.NodeName] = true
			}
		}
	}
	delete(named, "")
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range named {
		n.found[name], n.dirty[name] = true, true
	}
	return nil
}

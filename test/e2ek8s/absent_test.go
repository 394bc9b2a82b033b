package e2ek8s

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/client"
)

// TestKindIsAbsent: a CRD that is not installed stops no network. Agents that start
// without it say which one and how to mend that; those that had everything before
// forward from their checkpoints. Once it is installed they go on unaided.
func TestKindIsAbsent(t *testing.T) {
	c := newCluster(t)
	c.addRed()
	a, b := c.addPod(c.n1, "a"), c.addPod(c.n2, "b")
	c.removeKind(v1alpha1.ResourceNeighbors)
	for _, n := range c.Nodes() {
		must(t, n.Start(within(t, 20*time.Second)))
	}
	c.wantAbsent(v1alpha1.ResourceNeighbors, 0)
	c.installKind(v1alpha1.ResourceNeighbors)
	for _, n := range c.Nodes() {
		must(t, n.WaitReady(within(t, time.Minute), 1))
	}
	c.wantImplied(time.Minute)
	c.reaches(a, b)

	for _, n := range c.Nodes() {
		c.eventually(20*time.Second, "all in the checkpoint of "+n.Name, func() error {
			st, err := os.Stat(filepath.Join(n.RunDir(), "checkpoint"))
			if err == nil && time.Since(st.ModTime()) < 5*time.Second {
				err = errors.New("it is just written")
			}
			return err
		})
	}
	for _, n := range c.Nodes() {
		must(t, n.Kill())
	}
	c.removeKind(v1alpha1.ResourceNeighbors) // and every object of it
	for _, n := range c.Nodes() {
		must(t, n.Start(within(t, 20*time.Second)))
	}
	c.wantAbsent(v1alpha1.ResourceNeighbors, 1)
	for _, p := range []*lab.Pod{a, b} {
		if _, err := p.Run(within(t, 10*time.Second), "ip", "neigh", "flush", "all"); err != nil {
			t.Error(err)
		}
	}
	c.reaches(a, b)
	c.reaches(b, a)
	c.installKind(v1alpha1.ResourceNeighbors)
	for _, n := range c.Nodes() {
		must(t, n.WaitReady(within(t, time.Minute), 1))
	}
	c.wantImplied(time.Minute)
	c.reaches(a, b)
}

// wantAbsent waits until both agents name a kind that is not installed, as what
// they wait for, and have that many ports up.
func (c *cluster) wantAbsent(resource string, ports int) {
	c.t.Helper()
	name := resource + "." + v1alpha1.Group + ": "
	for _, n := range c.Nodes() {
		_, err := n.WaitStatus(within(c.t, 30*time.Second), func(s status.Status) error {
			up := 0
			for _, p := range s.Ports {
				if p.Up && p.Error == "" && len(p.Sockets) > 0 {
					up++
				}
			}
			named := slices.ContainsFunc(s.Waiting, func(w string) bool {
				return strings.Contains(w, name) && strings.Contains(w, "deploy/crd")
			})
			if s.Ready || !named || up != ports {
				return fmt.Errorf("ready %t, %d ports up, waiting for %q", s.Ready, up, s.Waiting)
			}
			return nil
		})
		must(c.t, err)
	}
}

// removeKind takes a CRD out of the server, and its objects.
func (c *cluster) removeKind(resource string) {
	c.t.Helper()
	c.server.Delete(c.t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+resource+"."+v1alpha1.Group)
	c.eventually(30*time.Second, resource+" to be gone", func() error {
		if err := c.listKind(resource); !apierrors.IsNotFound(err) {
			return fmt.Errorf("listing it: %w", err)
		}
		return nil
	})
}

// installKind puts it back.
func (c *cluster) installKind(resource string) {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(apitest.Root(), "deploy", "crd", v1alpha1.Group+"_"+resource+".yaml"))
	must(c.t, err)
	c.server.Apply(c.t, string(text))
	c.eventually(30*time.Second, resource+" to be served", func() error { return c.listKind(resource) })
}

func (c *cluster) listKind(resource string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.api.List(ctx, client.Resource{Name: resource}, metav1.ListOptions{}, &metav1.PartialObjectMetadataList{})
}

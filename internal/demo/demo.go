package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"picot.dev/picot/internal/lab"
)

// Options of a run.
type Options struct {
	Picot string      // the binary; default: the running one
	Tell  func(Check) // each check as it ends; may be nil
	Log   io.Writer   // what the lab makes; nil: nowhere
	Keep  bool        // leave the cluster up
	// Kubeconfig, if set, is of an API server of this machine that has picot's
	// CRDs: the objects are written there and the agents follow it.
	Kubeconfig string
}

// Run builds the cluster, checks it and takes it down, also after a failure and
// at ctx's end. Result.OK false is no error; an error is a cluster that could not
// be built or taken down. The cluster is nil unless it was kept.
func Run(ctx context.Context, o Options) (r Result, kept *Cluster, err error) {
	if err := MissingTools(); err != nil {
		return r, nil, err
	}
	l, err := lab.New(ctx, lab.Options{Picot: o.Picot, Log: o.Log, Kubeconfig: o.Kubeconfig})
	if err != nil {
		return r, nil, err
	}
	defer func() {
		if kept == nil {
			err = errors.Join(err, l.Close())
		}
	}()
	c, err := Build(l)
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		return r, nil, err
	}
	r = c.Check(ctx, o.Tell)
	if o.Keep && ctx.Err() == nil {
		if err := l.Keep(); err != nil {
			return r, nil, err
		}
		return r, c, nil
	}
	return r, nil, nil
}

// Hints says how to look inside a kept cluster, in commands to paste.
func (c *Cluster) Hints(w io.Writer, picot string) {
	pod, far, node := c.Red[0], c.Red[2], c.Nodes[0]
	fmt.Fprintf(w, `The cluster is still up. To look inside:

  in a pod             nsenter --net=%s ping %s
                       nsenter --net=%s ip neigh
  what an agent sees   %s show ports --run-dir %s
                       %s show fdb --run-dir %s
                       %s show drops --run-dir %s
  frames on the wire   nsenter --net=%s tshark -i %s -V
                       (while the ping above runs; its frames are SRv6 between the nodes)
  what is wanted       %s/*.yaml  (edit them: the agents follow)
  logs                 tail -f %s
`, pod.Netns(), far.IP4(), pod.Netns(),
		picot, node.RunDir(), picot, node.RunDir(), picot, node.RunDir(),
		c.Lab.UnderlayNetns(), node.RouterIf, c.Lab.Manifests(), node.LogFile())
	fmt.Fprintf(w, "\nPods:\n")
	for _, p := range c.Lab.Pods() {
		fmt.Fprintf(w, "  %-8s on %s, %s, %s  %s\n", p.Name, p.Node.Name, p.MAC, p.IP4(), p.Netns())
	}
	fmt.Fprintf(w, "\nTo take it down:\n\n  %s demo --down\n", picot)
}

const downTimeout = 30 * time.Second

// Down takes every kept cluster down and says so.
func Down(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	all, err := lab.Found()
	if err != nil {
		return err
	}
	var errs []error
	done := 0
	for _, l := range all {
		if !l.Kept {
			continue
		}
		if err := l.Remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.Tag, err))
			continue
		}
		fmt.Fprintf(w, "taken down: %s\n", l.Tag)
		done++
	}
	if done == 0 && len(errs) == 0 {
		fmt.Fprintln(w, "no kept cluster is up")
	}
	return errors.Join(errs...)
}

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Underlay says what lies between the nodes.
type Underlay uint8

const (
	// Routed is a router with a link to each node and static routes to the
	// locators, on the router and on the nodes.
	Routed Underlay = iota
	// Shared is one bridge all uplinks are on. SRv6Nodes name their nextHop, and
	// the agents make the routes themselves.
	Shared
)

// Options of a lab.
type Options struct {
	Picot    string    // the picot binary; default: the running executable
	Dir      string    // for manifests, logs, sockets and the bpffs; default: a new one in os.TempDir
	Log      io.Writer // what the lab does, a line each; nil: nowhere
	Underlay Underlay
	// Kubeconfig, if set, is an administrator's of an API server of this machine
	// that has picot's CRDs: objects are written there instead of files, and the
	// agents follow it. The lab leaves its objects behind.
	Kubeconfig string
}

// Lab is one cluster.
type Lab struct {
	picot    string
	dir      string
	tag      string
	log      io.Writer
	underlay Underlay
	config   string          // Options.Kubeconfig
	objects  *objects        // nil: files
	relays   sync.WaitGroup  // of the nodes to the API server
	life     context.Context // ends with the lab: commands in it end, too
	end      context.CancelFunc

	nodes    []*Node
	pods     []*Pod
	networks map[string]bool
	spaces   []string // names of network namespaces made
	mounted  bool
	ownDir   bool // made by New
}

// New makes a lab without nodes. ctx bounds the construction and the lab's
// commands; call Close also after it ended. Needs root.
func New(ctx context.Context, o Options) (l *Lab, err error) {
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	if err := Sweep(ctx, false); err != nil {
		return nil, fmt.Errorf("sweeping what dead labs left: %w", err)
	}
	l = &Lab{
		picot: o.Picot, dir: o.Dir, tag: fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), rand.Uint32N(1e6)),
		log: o.Log, underlay: o.Underlay, networks: map[string]bool{},
	}
	l.life, l.end = context.WithCancel(ctx)
	l.config = o.Kubeconfig
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
			l = nil
		}
	}()
	if l.config != "" {
		if l.objects, err = newObjects(l.config); err != nil {
			return l, err
		}
	}
	if l.picot == "" {
		if l.picot, err = os.Executable(); err != nil {
			return l, fmt.Errorf("finding the picot binary: %w", err)
		}
	}
	if l.dir == "" {
		l.dir = filepath.Join(os.TempDir(), l.tag)
		l.ownDir = true
	}
	for _, d := range []string{l.dir, l.Manifests(), l.BPFFS()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return l, fmt.Errorf("lab directory: %w", err)
		}
	}
	// The mount's source is the tag: the sweep finds the directory by it.
	if err := unix.Mount(l.tag, l.BPFFS(), "bpf", 0, ""); err != nil {
		return l, fmt.Errorf("mount bpffs on %s: %w", l.BPFFS(), err)
	}
	l.mounted = true
	return l, l.makeUnderlay()
}

// ErrNotRoot is returned where namespaces, devices and mounts may not be made.
var ErrNotRoot = errors.New("needs root: it makes network namespaces, devices and mounts")

// Tag is what the names of everything this lab made begin with.
func (l *Lab) Tag() string { return l.tag }

// Dir holds the manifests, the agents' run directories and logs, and the bpffs.
func (l *Lab) Dir() string { return l.dir }

// BPFFS is where the agents' pins are.
func (l *Lab) BPFFS() string { return filepath.Join(l.dir, "bpf") }

// Nodes are the lab's nodes in the order they were added.
func (l *Lab) Nodes() []*Node { return l.nodes }

// Pods are the lab's pods in the order they were added.
func (l *Lab) Pods() []*Pod { return l.pods }

func (l *Lab) logf(format string, args ...any) {
	if l.log != nil {
		fmt.Fprintf(l.log, format+"\n", args...)
	}
}

// Underlay namespace: the router, or the bridge.
func (l *Lab) underlayNS() string { return l.tag + "-underlay" }

func (l *Lab) makeUnderlay() error {
	if err := l.addNetns(l.underlayNS()); err != nil {
		return err
	}
	if l.underlay == Shared {
		// No snooping: the bridge is a plain wire for the nodes' ND.
		return l.ip(l.underlayNS(), "link add br0 type bridge mcast_snooping 0", "link set br0 up")
	}
	return l.sysctl(l.underlayNS(), "net.ipv6.conf.all.forwarding=1", "net.ipv4.ip_forward=1")
}

// UnderlayNetns is the path of the namespace between the nodes.
func (l *Lab) UnderlayNetns() string { return netnsPath(l.underlayNS()) }

const closeTimeout = 20 * time.Second

// Close ends the agents and every other process in the lab's namespaces, then
// removes namespaces, mount and directory (of a directory the caller gave: only
// what the lab put there). It reports what it could not remove.
func (l *Lab) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	l.end()
	var errs []error
	for _, n := range l.nodes {
		if n.Running() {
			// Its exit status says nothing new here.
			_ = n.Stop(ctx)
		}
	}
	l.relays.Wait()
	errs = append(errs, removeNetns(ctx, l.spaces))
	l.spaces = nil
	if l.mounted {
		if err := unix.Unmount(l.BPFFS(), unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", l.BPFFS(), err))
		} else {
			l.mounted = false
		}
	}
	if !l.mounted {
		errs = append(errs, removeDir(l.dir, l.ownDir))
	}
	return errors.Join(errs...)
}

// removeDir removes a lab's files, and the directory if it is the lab's own.
func removeDir(dir string, own bool) error {
	if own {
		return os.RemoveAll(dir)
	}
	var errs []error
	entries, err := filepath.Glob(filepath.Join(dir, nodePrefix+"*"))
	errs = append(errs, err)
	for _, e := range append(entries, filepath.Join(dir, "manifests"), filepath.Join(dir, "bpf"), filepath.Join(dir, keptFile)) {
		errs = append(errs, os.RemoveAll(e))
	}
	return errors.Join(errs...)
}

// Keep leaves the lab and its agents up after this process's end; no sweep
// touches it, only [Sweep] of kept ones. The caller no longer calls Close.
func (l *Lab) Keep() error {
	return os.WriteFile(filepath.Join(l.dir, keptFile), nil, 0o644)
}

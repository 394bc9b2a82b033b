package lab

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
)

// Do runs f on the calling goroutine with its thread in the pod's network
// namespace: sockets it makes stay there. Goroutines that f starts do not. If the
// thread cannot be brought back it ends with its goroutine.
func (p *Pod) Do(f func() error) error { return do(p.Netns(), f) }

// Do is [Pod.Do] for the node's namespace.
func (n *Node) Do(f func() error) error { return do(n.Netns(), f) }

func do(path string, f func() error) (err error) {
	there, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open netns %s: %w", path, err)
	}
	defer there.Close()
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("read own netns: %w", err)
	}
	defer home.Close()
	if err := netns.Set(there); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter netns %s: %w", path, err)
	}
	defer func() {
		if back := netns.Set(home); back != nil {
			err = errors.Join(err, fmt.Errorf("leave netns %s: %w", path, back))
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// DoUnderlay is [Pod.Do] for the namespace between the nodes.
func (l *Lab) DoUnderlay(f func() error) error { return do(l.UnderlayNetns(), f) }

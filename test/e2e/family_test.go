package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"picot.dev/picot/internal/lab"
)

// family is one of the address families workloads speak. What a test wants of
// one it wants of the other; between the nodes there is IPv6 only (SRv6).
type family struct {
	name string // also what a mark of its frames ends with
	of   func(*lab.Pod) netip.Addr
}

// families are both, for tables.
var families = []family{{"v4", (*lab.Pod).IP4}, {"v6", (*lab.Pod).IP6}}

// mark tells the frames of a family apart from others with the same marker; it is
// at most the 16 bytes a ping repeats.
func (f family) mark(marker string) string { return marker + f.name }

// inBoth runs do for both families at once and returns what failed, by family.
func inBoth(do func(family) error) error {
	errs := make([]error, len(families))
	var group sync.WaitGroup
	for i, f := range families {
		group.Go(func() {
			if err := do(f); err != nil {
				errs[i] = fmt.Errorf("%s: %w", f.name, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// pingBoth pings a pod in both families at once, with the same arguments; the
// error names the families in which it does not answer.
func pingBoth(ctx context.Context, from, to *lab.Pod, args ...string) error {
	return inBoth(func(f family) error {
		out, err := from.Run(ctx, "ping", append(append([]string{"-q"}, args...), f.of(to).String())...)
		if err != nil {
			return fmt.Errorf("%s to %s: %w: %s", from.Name, to.Name, err, out)
		}
		return nil
	})
}

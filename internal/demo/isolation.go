package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"

	"picot.dev/picot/internal/lab"
)

// newMarker is a pattern no other frame has; 16 bytes are ping's most.
func newMarker() []byte {
	m := make([]byte, 16)
	_, _ = rand.Read(m) // never fails
	return m
}

// watchPods listens in every pod but one.
func watchPods(but *lab.Pod, lists ...[]*lab.Pod) (all watchers, err error) {
	for _, list := range lists {
		for _, p := range list {
			if p == but {
				continue
			}
			w, err := watch("pod "+p.Name, p.Do, lab.PodDevice)
			if err != nil {
				all.close()
				return nil, err
			}
			all = append(all, w)
		}
	}
	return all, nil
}

// sameAddresses: a red ping to an address that a blue pod has, too, with the same
// MAC, is seen by the red one only; and the other way round.
func (s *session) sameAddresses(ctx context.Context) (string, error) {
	const count = 20
	total := 0
	for _, list := range [][]*lab.Pod{s.Red, s.Blue} {
		for _, cross := range []bool{false, true} {
			for _, family := range []int{4, 6} {
				from, to := list[0], list[target(cross)]
				if err := s.seenOnlyBy(ctx, from, to, family, count); err != nil {
					return "", err
				}
				total += count
			}
		}
	}
	return fmt.Sprintf("%d marked pings, red to red and blue to blue, same MACs and addresses: each seen by the pod of its own network, by no other of the 8", total), nil
}

func (s *session) seenOnlyBy(ctx context.Context, from, to *lab.Pod, family, count int) error {
	marker := newMarker()
	all, err := watchPods(from, s.Red, s.Blue)
	if err != nil {
		return err
	}
	defer all.close()
	got, strange, err := ping(ctx, from, address(to, family), count, "-p", hex.EncodeToString(marker))
	if err != nil || got != count {
		return fmt.Errorf("%s to %s: %d of %d answered %s: %w", from.Name, to.Name, got, count, strange, errors.Join(err, errLoss))
	}
	// The answers are back: whatever a request led to has happened. What another
	// pod might get later still is caught by the accounting.
	if err := all.drain(); err != nil {
		return err
	}
	for _, w := range all {
		want := 0
		if w.name == "pod "+to.Name {
			want = count
		}
		if n := w.with(marker); n != want {
			return fmt.Errorf("%s pings %s: %s saw %d of the frames, should see %d", from.Name, to.Name, w.name, n, want)
		}
	}
	return nil
}

var errLoss = errors.New("some were lost")

// unreachable: an address only blue has is there for blue, not for red.
func (s *session) unreachable(ctx context.Context) (string, error) {
	const count = 3
	at := netip.MustParseAddr(s.OnlyBlue)
	marker := newMarker()
	all, err := watchPods(nil, s.Blue)
	if err != nil {
		return "", err
	}
	defer all.close()
	for _, from := range []*lab.Pod{s.Red[1], s.Red[2]} {
		// No error: losing all is what ping says by its status.
		if got, _, _ := ping(ctx, from, at, count, "-W", "1", "-p", hex.EncodeToString(marker)); got != 0 {
			return "", fmt.Errorf("%s of network blue answered %d pings of %s", at, got, from.Name)
		}
	}
	if err := all.drain(); err != nil {
		return "", err
	}
	for _, w := range all {
		if n := w.with(marker); n != 0 {
			return "", fmt.Errorf("%s saw %d red frames", w.name, n)
		}
	}
	for _, from := range []*lab.Pod{s.Blue[1], s.Blue[2]} {
		if got, strange, err := ping(ctx, from, at, count); err != nil || got != count {
			return "", fmt.Errorf("%s does not reach %s in its own network: %d of %d answered %s", from.Name, at, got, count, strange)
		}
	}
	return fmt.Sprintf("%s, a blue pod's: answers blue pods on both nodes, no red one", at), nil
}

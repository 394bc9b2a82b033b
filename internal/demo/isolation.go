package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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

func podName(p *lab.Pod) string { return "pod " + p.Name }

// watchPods listens in every pod but one.
func watchPods(but *lab.Pod, lists ...[]*lab.Pod) (all watchers, err error) {
	for _, list := range lists {
		for _, p := range list {
			if p == but {
				continue
			}
			w, err := watch(podName(p), p.Do, lab.PodDevice)
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
// MAC, is seen by the red one only; and the other way round. The marks in the
// requests come back in the answers, so the asking pod sees them as well.
func (s *session) sameAddresses(ctx context.Context) (string, error) {
	all, err := watchPods(nil, s.Red, s.Blue)
	if err != nil {
		return "", err
	}
	defer all.close()
	type marked struct {
		pair
		family int
		marker []byte
	}
	var asked []marked
	for _, list := range [][]*lab.Pod{s.Red, s.Blue} {
		for _, cross := range []bool{false, true} {
			for _, family := range []int{4, 6} {
				asked = append(asked, marked{pair{list[0], list[target(cross)]}, family, newMarker()})
			}
		}
	}
	err = inParallel(asked, func(m marked) error {
		if _, err := ping(ctx, m.from, address(m.to, m.family), pingCount, "-p", hex.EncodeToString(m.marker)); err != nil {
			return fmt.Errorf("%s to %s: %w", m.from.Name, m.to.Name, err)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	// The answers are back: whatever a request led to has happened.
	if err := all.drain(); err != nil {
		return "", err
	}
	for _, m := range asked {
		for _, w := range all {
			n := w.with(m.marker)
			if w.name == podName(m.from) || w.name == podName(m.to) {
				if n < pingCount {
					return "", fmt.Errorf("%s pings %s: %s saw %d of %d frames", m.from.Name, m.to.Name, w.name, n, pingCount)
				}
			} else if n > 0 {
				return "", fmt.Errorf("%s pings %s: %s saw %d of the frames", m.from.Name, m.to.Name, w.name, n)
			}
		}
	}
	return fmt.Sprintf("%d marked pings, red to red and blue to blue, same MACs and addresses: each seen by the two pods it concerns, by no other of the 8",
		len(asked)*pingCount), nil
}

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
		// Its error is that none was answered, as it should be.
		if got, _ := ping(ctx, from, at, count, "-w", "2", "-p", hex.EncodeToString(marker)); got != 0 {
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
		if _, err := ping(ctx, from, at, count); err != nil {
			return "", fmt.Errorf("%s does not reach %s in its own network: %w", from.Name, at, err)
		}
	}
	return fmt.Sprintf("%s, a blue pod's: answers blue pods on both nodes, no red one", at), nil
}

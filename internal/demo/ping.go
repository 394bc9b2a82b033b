package demo

import (
	"context"
	"fmt"
	"net/netip"

	"picot.dev/picot/internal/lab"
)

type pair struct{ from, to *lab.Pod }

// pairs are all ordered pairs of pods on the same node, or on two.
func pairs(pods []*lab.Pod, cross bool) []pair {
	var all []pair
	for _, a := range pods {
		for _, b := range pods {
			if a != b && (a.Node != b.Node) == cross {
				all = append(all, pair{a, b})
			}
		}
	}
	return all
}

func address(p *lab.Pod, family int) netip.Addr {
	if family == 4 {
		return p.IP4()
	}
	return p.IP6()
}

const pingCount = 10

// pings sends echo requests between all pairs; every one must come back, once.
func pings(ctx context.Context, all []pair, family int) (string, error) {
	err := inParallel(all, func(p pair) error {
		to := address(p.to, family)
		if _, err := ping(ctx, p.from, to, pingCount); err != nil {
			return fmt.Errorf("%s to %s: %w", p.from.Name, p.to.Name, err)
		}
		return nil
	})
	return fmt.Sprintf("%d pairs of pods, %d of %d answered", len(all), len(all)*pingCount, len(all)*pingCount), err
}

// ping returns how many of the first count requests were answered; fewer is an error.
func ping(ctx context.Context, from *lab.Pod, to netip.Addr, count int, args ...string) (int, error) {
	return lab.Echoes(ctx, from, count, append(append([]string{"-i", "0.1"}, args...), to.String())...)
}

func (s *session) pingBlue(ctx context.Context) (string, error) {
	all := append(pairs(s.Blue, false), pairs(s.Blue, true)...)
	err := inParallel([]int{4, 6}, func(family int) error {
		_, err := pings(ctx, all, family)
		return err
	})
	return fmt.Sprintf("the blue pods reach each other at the same addresses: %d pairs, v4 and v6, %d of %d answered",
		len(all), 2*len(all)*pingCount, 2*len(all)*pingCount), err
}

package demo

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"

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

const pingCount = 20

// pings sends echo requests between all pairs; every one must come back, once.
func pings(ctx context.Context, all []pair, family int) (string, error) {
	err := inParallel(all, func(p pair) error {
		to := address(p.to, family)
		got, out, err := ping(ctx, p.from, to, pingCount)
		if err != nil || got != pingCount {
			return fmt.Errorf("%s to %s (%s): %d of %d answered %s", p.from.Name, p.to.Name, to, got, pingCount, out)
		}
		return nil
	})
	return fmt.Sprintf("%d pairs of pods, %d of %d answered", len(all), len(all)*pingCount, len(all)*pingCount), err
}

var received = regexp.MustCompile(`(\d+) received((?:, \+\d+ [a-z]+)*), `)

// ping returns how many requests were answered, and what was strange.
func ping(ctx context.Context, from *lab.Pod, to netip.Addr, count int, args ...string) (got int, strange string, err error) {
	args = append([]string{"-q", "-n", "-c", strconv.Itoa(count), "-i", "0.01", "-W", "2"}, args...)
	out, err := from.Run(ctx, "ping", append(args, to.String())...)
	m := received.FindStringSubmatch(out)
	if m == nil {
		return 0, out, err
	}
	got, _ = strconv.Atoi(m[1])
	if m[2] != "" && err == nil {
		err = fmt.Errorf("%s", m[2][2:]) // duplicates, errors, corrupted
	}
	if err != nil {
		strange = m[2]
	}
	return got, strange, err
}

func (s *session) pingBlue(ctx context.Context) (string, error) {
	all := append(pairs(s.Blue, false), pairs(s.Blue, true)...)
	for _, family := range []int{4, 6} {
		if _, err := pings(ctx, all, family); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("the blue pods reach each other at the same addresses: %d pairs, v4 and v6, %d of %d answered",
		len(all), 2*len(all)*pingCount, 2*len(all)*pingCount), nil
}

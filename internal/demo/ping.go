package demo

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

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
		got, out, err := ping(ctx, p.from, to, pingCount)
		if err != nil || got != pingCount {
			return fmt.Errorf("%s to %s (%s): %d of %d answered %s", p.from.Name, p.to.Name, to, got, pingCount, out)
		}
		return nil
	})
	return fmt.Sprintf("%d pairs of pods, %d of %d answered", len(all), len(all)*pingCount, len(all)*pingCount), err
}

var answer = regexp.MustCompile(`icmp_seq=(\d+) .*time=.*`)

// ping returns how many of the first count requests were answered, and what was
// strange. With -w it goes on until count answers came, so one that is late on a
// busy machine is not taken for a lost one: which were answered says that.
func ping(ctx context.Context, from *lab.Pod, to netip.Addr, count int, args ...string) (got int, strange string, err error) {
	args = append([]string{"-n", "-c", strconv.Itoa(count), "-i", "0.1", "-w", "8"}, args...)
	out, err := from.Run(ctx, "ping", append(args, to.String())...)
	seen := map[int]bool{}
	for _, m := range answer.FindAllStringSubmatch(out, -1) {
		n, _ := strconv.Atoi(m[1])
		if seen[n] || strings.Contains(m[0], "DUP!") {
			return len(seen), m[0], fmt.Errorf("answered twice: %s", m[0])
		}
		if n <= count {
			seen[n] = true
		}
	}
	if len(seen) < count {
		strange = fmt.Sprintf("(answered: %v)", slices.Sorted(maps.Keys(seen)))
	} else {
		err = nil
	}
	return len(seen), strange, err
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

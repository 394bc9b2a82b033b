package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"picot.dev/picot/internal/lab"
)

// Check is one promise and whether it held.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // what was seen; if not OK what was wrong
}

// Result is what "picot demo --json" prints.
type Result struct {
	OK     bool    `json:"ok"`
	Checks []Check `json:"checks"`
}

// Names are the checks of a complete run, in order.
func Names() []string {
	var names []string
	for _, s := range steps() {
		names = append(names, s.name)
	}
	return names
}

type step struct {
	name string
	run  func(*session, context.Context) (detail string, err error)
}

func steps() []step {
	all := []step{{"agents-ready", (*session).ready}}
	for _, family := range []int{4, 6} {
		for _, cross := range []bool{false, true} {
			all = append(all, step{fmt.Sprintf("ping-v%d-%s", family, where(cross)), func(s *session, ctx context.Context) (string, error) {
				return pings(ctx, pairs(s.Red, cross), family)
			}})
		}
	}
	for _, family := range []int{4, 6} {
		for _, cross := range []bool{false, true} {
			all = append(all, step{fmt.Sprintf("tcp-v%d-%s", family, where(cross)), func(s *session, ctx context.Context) (string, error) {
				return bothWays(ctx, s.Red[0], s.Red[target(cross)], family)
			}})
		}
	}
	return append(all,
		step{"checksums", (*session).checksums},
		step{"isolation-same-addresses", (*session).sameAddresses},
		step{"isolation-unreachable", (*session).unreachable},
		step{"isolation-ping-blue", (*session).pingBlue},
		step{"not-delivered", (*session).notDelivered},
		step{"accounting-node1", func(s *session, ctx context.Context) (string, error) { return s.account(ctx, s.Nodes[0]) }},
		step{"accounting-node2", func(s *session, ctx context.Context) (string, error) { return s.account(ctx, s.Nodes[1]) }},
	)
}

func where(cross bool) string {
	if cross {
		return "cross-node"
	}
	return "same-node"
}

// target is the index of a pod on the same node as the first, or on the other.
func target(cross bool) int {
	if cross {
		return 2
	}
	return 1
}

// session is one run of the checks.
type session struct{ *Cluster }

// stepTimeout bounds a step that something broken hangs; readyTimeout the first,
// since a broken cluster shows in every check.
const (
	stepTimeout  = time.Minute
	readyTimeout = 10 * time.Second
)

// Check runs every check, also after one that failed, and tells each as it ends.
// When ctx ends it stops with a failed check "interrupted".
func (c *Cluster) Check(ctx context.Context, tell func(Check)) Result {
	s := &session{c}
	r := Result{OK: true, Checks: []Check{}}
	add := func(check Check) {
		r.Checks = append(r.Checks, check)
		r.OK = r.OK && check.OK
		if tell != nil {
			tell(check)
		}
	}
	for _, step := range steps() {
		bounded, cancel := context.WithTimeout(ctx, stepTimeout)
		detail, err := step.run(s, bounded)
		cancel()
		if ctx.Err() != nil {
			add(Check{Name: "interrupted", Detail: fmt.Sprintf("during %s: %v", step.name, context.Cause(ctx))})
			return r
		}
		if err != nil {
			detail = strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
		}
		add(Check{Name: step.name, OK: err == nil, Detail: detail})
	}
	return r
}

func (s *session) ready(ctx context.Context) (string, error) {
	var errs []error
	for _, n := range s.Nodes {
		bounded, cancel := context.WithTimeout(ctx, readyTimeout)
		errs = append(errs, n.WaitReady(bounded, portsPerNode))
		cancel()
	}
	return fmt.Sprintf("%d agents, %d ports each, each has a way to the other", len(s.Nodes), portsPerNode), errors.Join(errs...)
}

// account checks one node's books since its agent started.
func (s *session) account(ctx context.Context, n *lab.Node) (string, error) {
	sample, err := n.Account(ctx, lab.Sample{})
	if err != nil {
		return "", err
	}
	var rx, delivered, answered, dropped uint64
	for _, p := range sample.Status.Ports {
		rx, delivered = rx+p.RX, delivered+p.Local+p.Remote
		answered, dropped = answered+p.Answered, dropped+p.Dropped
	}
	return fmt.Sprintf("%d frames from pods = %d delivered + %d answered + %d dropped, as the devices count; %d frames in the pool, none lost",
		rx, delivered, answered, dropped, sample.Status.Frames.Total), nil
}

// checksums looks at what the pods' stacks made of the checksums they got.
func (s *session) checksums(context.Context) (string, error) {
	var errs []error
	seen := uint64(0)
	for _, p := range append(append([]*lab.Pod{}, s.Red...), s.Blue...) {
		err := p.Do(func() error {
			for _, file := range []string{"snmp", "snmp6"} {
				b, err := os.ReadFile("/proc/thread-self/net/" + file)
				if err != nil {
					return err
				}
				bad, segments := csumErrors(string(b))
				seen += segments
				if bad > 0 {
					return fmt.Errorf("pod %s: %d bad checksums in /proc/net/%s", p.Name, bad, file)
				}
			}
			return nil
		})
		errs = append(errs, err)
	}
	if seen == 0 {
		errs = append(errs, errors.New("no pod received a TCP segment"))
	}
	return fmt.Sprintf("%d TCP segments received by all pods, no bad checksum of any protocol", seen), errors.Join(errs...)
}

// csumErrors sums the checksum errors of /proc/net/snmp (a line of names, a line
// of values) or snmp6 (a name and a value a line), and the TCP segments received.
func csumErrors(text string) (bad, segments uint64) {
	count := func(name, value string) {
		var n uint64
		if _, err := fmt.Sscan(value, &n); err != nil {
			return
		}
		if strings.HasSuffix(name, "InCsumErrors") {
			bad += n
		}
		if name == "InSegs" {
			segments += n
		}
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && !strings.HasSuffix(fields[0], ":"):
			count(fields[0], fields[1])
		case len(fields) > 0 && i+1 < len(lines):
			if values := strings.Fields(lines[i+1]); len(values) == len(fields) && values[0] == fields[0] {
				for j := range fields {
					count(fields[j], values[j])
				}
			}
		}
	}
	return bad, segments
}

// atOnce bounds what runs at the same time: these are processes, mostly waiting.
const atOnce = 12

func inParallel[T any](all []T, f func(T) error) error {
	errs := make([]error, len(all))
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, x := range all {
		wg.Go(func() {
			slots <- struct{}{}
			errs[i] = f(x)
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// MissingTools names the commands the demo needs and this machine has not.
func MissingTools() error {
	var missing []string
	for tool, pkg := range map[string]string{"ip": "iproute2", "nsenter": "util-linux", "sysctl": "procps", "ping": "iputils-ping", "ethtool": "ethtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, fmt.Sprintf("%s (package %s)", tool, pkg))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing commands: %s", strings.Join(missing, ", "))
	}
	return nil
}

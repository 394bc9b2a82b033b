package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk/xdp"
)

// Config is what to run and how long.
type Config struct {
	Only     []string      // names of benchmarks; empty: all
	Pairs    int           // pairs of a comparison
	Duration time.Duration // of one run of a lane
	// Binary is this program, for the benchmark of the idle agent; empty: that
	// one is skipped.
	Binary string
	// Progress gets a line before each benchmark; nil: none.
	Progress func(string)
}

// Benchmark is one of the list.
type Benchmark struct {
	Name  string
	About string
	run   func(context.Context, *session) error
}

// List is all benchmarks in the order they run.
func List() []Benchmark {
	return []Benchmark{
		{"veth", "veth to veth on one core: bare AF_XDP, kernel bridge and XDP redirect, asavie/xdp, OVS netdev-afxdp", benchVeth},
		{"srv6", "SRv6 encapsulation on one core, against the kernel's seg6 l2encap", benchSRv6},
		{"walk", "decision and encapsulation in memory, 1 k and 1 M FDB entries", benchWalk},
		{"arp", "ARP and ND answers: rate, latency, in memory", benchAnswers},
		{"cost", "CPU time of all cores per delivered frame, against a bare AF_XDP forwarder", benchCost},
		{"ports", "500 idle ports beside a busy one, and memory per port", benchPorts},
		{"change", "one change in a network of 1 M entries, to the published snapshot", benchChange},
		{"agent", "CPU time of an idle agent", benchAgent},
		{"restart", "a killed agent with 100 ports: from process start to the first frame", benchRestart},
		{"upgrade", "an agent taken over ten times at 200,000 frames/s and more: pause, frames lost or twice", benchUpgrade},
	}
}

// session is a running benchmark's surroundings.
type session struct {
	Config
	report    *Report
	pins      string // a directory in a bpffs
	lanes     int    // made so far, for names
	memory    int    // entries of the big table
	idlePorts int
	livePorts int // of a real agent
	// upgrades is how often one is taken over, upgradeRate under how many frames/s.
	upgrades, upgradeRate int
}

func (s *session) add(r Row) { s.report.Rows = append(s.report.Rows, r) }

func (s *session) setup(format string, args ...any) {
	s.report.Setup = append(s.report.Setup, fmt.Sprintf(format, args...))
}

// ErrUnknown names a benchmark that is not in List.
var ErrUnknown = errors.New("no such benchmark")

// Run runs benchmarks. It needs root and two CPUs. A benchmark that cannot run
// ends the report with an error; what came before is in it.
func Run(ctx context.Context, c Config) (report *Report, err error) {
	if c.Pairs < 1 || c.Duration <= 0 {
		return nil, fmt.Errorf("%d pairs of %s: give at least one pair and a duration", c.Pairs, c.Duration)
	}
	todo, err := choose(c.Only)
	if err != nil {
		return nil, err
	}
	if runtime.NumCPU() < 2 {
		return nil, errors.New("one CPU: source and forwarder need one each")
	}
	if err := prioritize(niceMost); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, prioritize(niceNormal)) }()
	s := &session{
		Config: c, report: &Report{Machine: machine(), Pairs: c.Pairs, Run: c.Duration.String()}, memory: 1_000_000, idlePorts: 500, livePorts: 100,
		upgrades: 10, upgradeRate: 220_000,
	}
	if s.pins, err = os.MkdirTemp("", "picot-bench-"); err != nil {
		return nil, fmt.Errorf("directory for pins: %w", err)
	}
	defer func() {
		uerr := unix.Unmount(s.pins, unix.MNT_DETACH)
		if errors.Is(uerr, unix.EINVAL) {
			uerr = nil // was never mounted
		}
		err = errors.Join(err, uerr, os.Remove(s.pins))
	}()
	if err := xdp.EnsureBPFFS(s.pins); err != nil {
		return nil, err
	}
	for _, b := range todo {
		if c.Progress != nil {
			c.Progress(b.Name + ": " + b.About)
		}
		if err := b.run(ctx, s); err != nil {
			return s.report, fmt.Errorf("benchmark %s: %w", b.Name, err)
		}
	}
	s.report.Machine.LoadEnd = loadAverage()
	return s.report, nil
}

func choose(only []string) ([]Benchmark, error) {
	all := List()
	if len(only) == 0 {
		return all, nil
	}
	var todo []Benchmark
	for _, name := range only {
		i := slices.IndexFunc(all, func(b Benchmark) bool { return b.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: %q: see --list", ErrUnknown, name)
		}
		todo = append(todo, all[i])
	}
	return todo, nil
}

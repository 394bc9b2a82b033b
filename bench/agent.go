package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// agentPorts is how many ports the idle agent has.
const agentPorts = 10

// benchAgent measures the CPU time of the real agent while nothing happens.
func benchAgent(ctx context.Context, s *session) (err error) {
	name := fmt.Sprintf("agent with %d ports and an uplink, idle", agentPorts)
	if s.Binary == "" {
		s.add(skipped("agent", name, "the program's own file is not known"))
		return nil
	}
	a, err := newLiveAgent(s, agentPorts, "--max-ports", "16")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	p, err := a.start(ctx)
	if err != nil {
		return err
	}
	if err := a.attached(agentPorts); err != nil {
		return err
	}
	// Let what starting left behind settle, then watch.
	if err := sleep(ctx, 4*s.Duration); err != nil {
		return err
	}
	var cores []float64
	for range 5 {
		before, err := cpuOf(p.cmd.Process.Pid)
		if err != nil {
			return err
		}
		start := time.Now()
		if err := sleep(ctx, 4*s.Duration); err != nil {
			return err
		}
		after, err := cpuOf(p.cmd.Process.Pid)
		if err != nil {
			return err
		}
		cores = append(cores, 100*(after-before).Seconds()/time.Since(start).Seconds())
	}
	if err := a.end(p, unix.SIGTERM); err != nil {
		return err
	}
	r := single("agent", name, "% of a core", spreadOf(cores), atMost(1))
	r.Note = fmt.Sprintf("CPU time of all its threads in 5 spans of %s", 4*s.Duration)
	s.add(r)
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// cpuOf is the CPU time of all threads a process has now.
func cpuOf(pid int) (time.Duration, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "task")
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	var total time.Duration
	for _, t := range tasks {
		total += runTime(filepath.Join(dir, t.Name()))
	}
	return total, nil
}

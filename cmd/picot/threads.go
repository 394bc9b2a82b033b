package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// makeRoom gives the workers what this process can: a P of the Go scheduler for
// each on top of what it would have, so that one that comes back from a system
// call never waits for the control part to give one up; and the CPUs they are
// bound to, which all other threads leave, here and now and whenever new ones
// start, if there are others to run on. CPUs that are none are for the agent to
// complain of.
func makeRoom(workers int, cpus []int) error {
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + max(0, workers))
	var rest unix.CPUSet
	if err := unix.SchedGetaffinity(0, &rest); err != nil {
		return fmt.Errorf("own CPUs: %w", err)
	}
	for _, c := range cpus {
		rest.Clear(c)
	}
	if len(cpus) == 0 || rest.Count() == 0 {
		return nil
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("own threads: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(tid, &rest); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("keeping thread %d off the workers' CPUs: %w", tid, err)
		}
	}
	return nil
}

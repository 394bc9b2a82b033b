package agent

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// MakeRoom gives the workers what this process can: a P of the Go scheduler for
// each on top of what it would have, so that one that comes back from a system
// call never waits for the control part to give one up; and the CPUs they are
// bound to, which all other threads leave, here and now and whenever new ones
// start, if there are others to run on. CPUs that are none are for New to complain
// of. It is the whole process that changes, so whoever has the process calls this.
func MakeRoom(workers int, cpus []int) error {
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + max(0, workers))
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("own CPUs: %w", err)
	}
	rest := all
	for _, c := range cpus {
		rest.Clear(c)
	}
	if rest.Count() == 0 {
		return nil
	}
	return moveThreads(&all, &rest)
}

// moveThreads binds every thread that may run on exactly one set of CPUs to
// another, until there is none: a thread has what the one had that started it.
func moveThreads(from, to *unix.CPUSet) error {
	for *from != *to {
		moved, err := moveThreadsOnce(from, to)
		if err != nil || !moved {
			return err
		}
	}
	return nil
}

func moveThreadsOnce(from, to *unix.CPUSet) (moved bool, err error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return false, fmt.Errorf("own threads: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		var now unix.CPUSet
		err = unix.SchedGetaffinity(tid, &now)
		if err == nil && now == *from {
			moved = true
			err = unix.SchedSetaffinity(tid, to)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return moved, fmt.Errorf("moving thread %d to other CPUs: %w", tid, err)
		}
	}
	return moved, nil
}

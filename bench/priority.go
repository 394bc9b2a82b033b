package bench

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Nice values: what measures goes before everything else that is fairly
// scheduled, so that other work on the machine disturbs a run less.
const (
	niceMost   = -20
	niceNormal = 0
)

// prioritize sets the nice value of every thread of the process, and of its
// session where the kernel shares the CPUs out by session (sched(7), The
// autogroup feature). Threads and processes it starts later have it too.
func prioritize(nice int) error {
	err := eachThread(func(tid int) error { return unix.Setpriority(unix.PRIO_PROCESS, tid, nice) })
	if err != nil {
		return fmt.Errorf("set nice value %d: %w", nice, err)
	}
	// EINVAL: the session is in the root task group, which has no shares to set
	// (kernel/sched/fair.c, __sched_group_set_shares); the threads' values suffice.
	err = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("set the session's nice value %d: %w", nice, err)
	}
	return nil
}

// confine keeps every thread of the process on one CPU, and those that start
// later, for what is measured to have the others for itself.
func confine(cpu int) (release func() error, err error) {
	// Set once, or the runtime would follow the one CPU with it.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("own CPUs: %w", err)
	}
	one.Set(cpu)
	bind := func(set *unix.CPUSet) error {
		return eachThread(func(tid int) error { return unix.SchedSetaffinity(tid, set) })
	}
	if err := bind(&one); err != nil {
		return nil, fmt.Errorf("keep to CPU %d: %w", cpu, err)
	}
	return func() error { return bind(&all) }, nil
}

// eachThread does something to every thread of the process there is now.
func eachThread(do func(tid int) error) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list own threads: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := do(tid); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

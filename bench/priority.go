package bench

import (
	"errors"
	"fmt"
	"os"
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
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list own threads: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("set nice value %d: %w", nice, err)
		}
	}
	// EINVAL: the session is in the root task group, which has no shares to set
	// (kernel/sched/fair.c, __sched_group_set_shares); the threads' values suffice.
	err = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("set the session's nice value %d: %w", nice, err)
	}
	return nil
}

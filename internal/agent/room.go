package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Room is what this process leaves to its workers: CPUs that its other threads
// keep off. It is the whole process's, so that whoever has the process makes it.
type Room struct{ all, rest unix.CPUSet }

// MakeRoom gives the workers what this process can: a P of the Go scheduler for
// each on top of what it would have, so that one that comes back from a system
// call never waits for the control part to give one up; and the CPUs they are
// bound to, which all other threads leave, here and now and whenever new ones
// start, if there are others to run on. CPUs that are none are for New to complain
// of.
func MakeRoom(workers int, cpus []int) (*Room, error) {
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + max(0, workers))
	r := &Room{}
	if err := unix.SchedGetaffinity(0, &r.all); err != nil {
		return nil, fmt.Errorf("own CPUs: %w", err)
	}
	r.rest = r.all
	for _, c := range cpus {
		r.rest.Clear(c)
	}
	if r.rest.Count() == 0 {
		r.rest = r.all
	}
	return r, r.leave()
}

func (r *Room) leave() error { return moveThreads(&r.all, &r.rest) }

// enter lets all threads use the workers' CPUs, while these stand still and wait
// for them, until leave is called. A nil Room has nothing to enter. Both are to be
// had or not: without, everybody waits a little longer.
func (r *Room) enter(log *slog.Logger) (leave func()) {
	if r == nil {
		return func() {}
	}
	warn := func(err error) {
		if err != nil {
			log.Warn("CPUs of a takeover", "error", err)
		}
	}
	warn(moveThreads(&r.rest, &r.all))
	return func() { warn(r.leave()) }
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

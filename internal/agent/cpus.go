package agent

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// tryCPUs binds a thread to each CPU in turn, as the workers will: a CPU that
// cannot be had is known before an older agent is asked to go.
func tryCPUs(cpus []int) error {
	tried := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		for _, cpu := range cpus {
			if cpu < 0 || cpu >= maxCPUs {
				tried <- fmt.Errorf("%d is no CPU: give 0 to %d", cpu, maxCPUs-1)
				return
			}
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				tried <- fmt.Errorf("binding a thread to CPU %d: %w: name one that this process may run on", cpu, err)
				return
			}
		}
		tried <- nil
	}()
	return <-tried
}

// maxCPUs is the size of a unix.CPUSet.
const maxCPUs = 1024

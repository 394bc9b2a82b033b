package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processTime is the CPU time of this process, of the kernel's receiving
// threads made for it and of its softirq threads. Softirqs in a thread's time
// count as its own (CONFIG_IRQ_TIME_ACCOUNTING off; else they are not seen).
func processTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		return 0
	}
	total := time.Duration(now.Nano())
	for _, dir := range kernelThreads(receivingThreads(), "ksoftirqd/") {
		total += runTime(dir)
	}
	return total
}

// coreTime is the CPU time of what forwards: this process's threads that are
// bound to forwardCPU, and the kernel's receiving threads made for it.
func coreTime() time.Duration {
	var total time.Duration
	for _, dir := range kernelThreads(receivingThreads()) {
		total += runTime(dir)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		var set unix.CPUSet
		if err == nil && unix.SchedGetaffinity(tid, &set) == nil && set.Count() == 1 && set.IsSet(forwardCPU) {
			total += runTime(filepath.Join("/proc/self/task", t.Name()))
		}
	}
	return total
}

// receivingThreads is how the kernel names the receiving threads of devices
// with names made by uniqueName.
func receivingThreads() string { return "napi/" + uniquePrefix() }

// kernelThreads lists the /proc directories of threads with such names.
func kernelThreads(prefixes ...string) (dirs []string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.Name()[0] < '0' || e.Name()[0] > '9' {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		comm, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil {
			continue // it ended
		}
		for _, p := range prefixes {
			if strings.HasPrefix(string(comm), p) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// runTime is the time a task ran, from its /proc directory; 0 if it is gone.
func runTime(dir string) time.Duration {
	b, err := os.ReadFile(filepath.Join(dir, "schedstat"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n)
}

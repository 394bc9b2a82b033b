package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// inChild runs this test alone in a process of its own, whose threads it may
// change, and is false there.
func inChild(t *testing.T) bool {
	t.Helper()
	const mark = "PICOT_TEST_CHILD"
	if os.Getenv(mark) != "" {
		return false
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	return true
}

// Threads that are there and threads that start later keep off the workers' CPUs,
// and each worker adds a P.
func TestThreadsKeepOffTheWorkersCPUs(t *testing.T) {
	if inChild(t) {
		return
	}
	own, cpu := ownCPUs(t)
	if own.Count() < 2 {
		t.Fatalf("%d CPU to run on: this test needs two", own.Count())
	}
	before := runtime.GOMAXPROCS(0)
	if err := MakeRoom(1, []int{cpu}); err != nil {
		t.Fatal(err)
	}
	if got := runtime.GOMAXPROCS(0); got != before+1 {
		t.Errorf("%d Ps, want %d", got, before+1)
	}
	own.Clear(cpu)
	had := len(threads(t))
	let, done := make(chan struct{}), sync.WaitGroup{}
	for range 8 {
		locked := make(chan struct{})
		done.Go(func() {
			runtime.LockOSThread()
			close(locked)
			<-let
		})
		<-locked
	}
	if now := len(threads(t)); now < had+4 {
		t.Errorf("%d threads, then %d: none started", had, now)
	}
	for _, tid := range threads(t) {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(tid, &set); err != nil {
			t.Fatal(err)
		}
		if set != own {
			t.Errorf("thread %d may not run on exactly the CPUs without the worker's", tid)
		}
	}
	close(let)
	done.Wait()
}

// With no other CPU, and with workers bound to none, everybody stays where it is.
func TestThreadsStayWithoutOtherCPUs(t *testing.T) {
	if inChild(t) {
		return
	}
	own, _ := ownCPUs(t)
	var every []int
	for c := range 1024 {
		if own.IsSet(c) {
			every = append(every, c)
		}
	}
	for _, cpus := range [][]int{nil, every} {
		if err := MakeRoom(len(cpus), cpus); err != nil {
			t.Fatal(err)
		}
		if now, _ := ownCPUs(t); now != own {
			t.Errorf("--cpus %v: other CPUs than before", cpus)
		}
	}
}

// ownCPUs are those this thread may run on, and the last of them.
func ownCPUs(t *testing.T) (set unix.CPUSet, last int) {
	t.Helper()
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for c := range 1024 {
		if set.IsSet(c) {
			last = c
		}
	}
	return set, last
}

func threads(t *testing.T) (tids []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(paths) == 0 {
		t.Fatal(fmt.Errorf("own threads: %w", err))
	}
	for _, p := range paths {
		tid, err := strconv.Atoi(filepath.Base(p))
		if err != nil {
			t.Fatal(err)
		}
		tids = append(tids, tid)
	}
	return tids
}

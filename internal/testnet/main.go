package testnet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Main runs the tests and then fails the run if they left an open descriptor, a
// network namespace or a bpffs mount:
//
//	func TestMain(m *testing.M) { os.Exit(testnet.Main(m)) }
//
// It never forces a garbage collection: a finalizer must not hide a forgotten
// Close.
func Main(m *testing.M) int {
	before := settledFDs()
	code := m.Run()
	if left := Leftovers(before, 5*time.Second); len(left) > 0 {
		for _, l := range left {
			fmt.Fprintln(os.Stderr, "left behind:", l)
		}
		return max(code, 1)
	}
	return code
}

// FDs is a picture of the process's open descriptors: number -> what it is.
type FDs map[string]string

// OpenFDs takes that picture.
func OpenFDs() FDs {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	fds := FDs{}
	for _, e := range entries {
		// The descriptor of this very ReadDir is gone by now.
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			fds[e.Name()] = target
		}
	}
	return fds
}

// Leftovers says what is there that was not before: descriptors opened since,
// namespaces and mounts of this process. It waits up to the given time for
// closers still at work.
func Leftovers(before FDs, within time.Duration) []string {
	deadline := time.Now().Add(within)
	for {
		var left []string
		for fd, target := range OpenFDs() {
			if before[fd] != target {
				left = append(left, fmt.Sprintf("descriptor %s: %s", fd, target))
			}
		}
		for _, name := range namespaces() {
			if ownerPID(name) == os.Getpid() {
				left = append(left, "netns "+name)
			}
		}
		for _, dir := range mounts() {
			if ownerPID(filepath.Base(dir)) == os.Getpid() {
				left = append(left, "mount "+dir)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			slices.Sort(left)
			return left
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// settledFDs is OpenFDs after the runtime made its own lazy descriptors (the
// poller's epoll and eventfd), which are no leak.
func settledFDs() FDs {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	return OpenFDs()
}

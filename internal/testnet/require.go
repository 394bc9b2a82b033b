package testnet

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// RequireRoot skips the test when the process may not make namespaces.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces, devices and mounts")
	}
}

// RequireTool fails the test when a command is missing.
func RequireTool(t testing.TB, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			t.Fatalf("needs the command %q, not found in PATH: run scripts/install-deps", n)
		}
	}
}

// Eventually polls check until it returns nil, and fails the test with its last
// error when that did not happen within the deadline. Give deadlines generously:
// they cost nothing when things work.
func Eventually(t testing.TB, within time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	pause := time.Millisecond
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, within, err)
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

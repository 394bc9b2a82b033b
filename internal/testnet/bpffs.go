package testnet

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// BPFFS mounts a bpf filesystem of the test's own and returns its directory. The
// pins in it go with the mount.
func BPFFS(t testing.TB) string {
	t.Helper()
	RequireRoot(t)
	sweepOnce()
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s-%d-bpffs-", prefix, os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Errorf("remove %s: %v", dir, err)
		}
	})
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatalf("mount bpffs on %s: %v", dir, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount bpffs %s: %v", dir, err)
		}
	})
	return dir
}

// mounts lists the directories made by any run of BPFFS that are still mounted.
func mounts() []string {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil
	}
	defer f.Close()
	var found []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) > 1 && ownerPID(filepath.Base(fields[1])) > 0 {
			found = append(found, fields[1])
		}
	}
	return found
}

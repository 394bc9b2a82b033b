package xdp

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/testnet"
)

func TestEnsureBPFFSMountsOnce(t *testing.T) {
	testnet.RequireRoot(t)
	dir := filepath.Join(t.TempDir(), "deep", "bpf")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := EnsureBPFFS(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := mountsOn(t, dir); n != 1 {
		t.Errorf("%d mounts on %s, want 1", n, dir)
	}
	below := filepath.Join(dir, "below")
	if err := EnsureBPFFS(below); err != nil {
		t.Fatal(err)
	}
	if in, err := inBPFFS(below); err != nil || !in {
		t.Errorf("%s in a bpffs: %v, %v", below, in, err)
	}
	if n := mountsOn(t, below); n != 0 {
		t.Errorf("%d mounts on %s, want none: it is in one", n, below)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Error(err)
	}
}

func mountsOn(t *testing.T, dir string) (n int) {
	t.Helper()
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); fields[1] == dir {
			n++
		}
	}
	return n
}

// What `ip netns exec` does to its command.
func TestEnsureBPFFSRefusesAPassingMountNamespace(t *testing.T) {
	testnet.RequireRoot(t)
	testnet.RequireTool(t, "unshare")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mounted := testnet.BPFFS(t)
	for dir, want := range map[string]string{
		t.TempDir(): ErrMountNamespace.Error(),
		mounted:     "fine", // mounted outside, and seen here
	} {
		cmd := exec.Command("unshare", "--mount", self)
		cmd.Env = append(os.Environ(), ensureEnv+"="+dir)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %q, want %q", dir, err, out, want)
		}
	}
}

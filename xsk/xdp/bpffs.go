package xdp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// systemBPFFS is where a distribution mounts its bpffs. The directory is in
// sysfs, so nothing can be made below it before that mount.
const systemBPFFS = "/sys/fs/bpf"

// EnsureBPFFS makes dir and mounts a bpffs on it, unless dir is in one
// already. A dir below /sys/fs/bpf gets the bpffs mounted there. Safe to call
// from several processes.
//
// A mount belongs to a mount namespace, and pins live as long as their mount. In
// a namespace that ends with the process the death of the process would open
// the ports. So nothing is mounted in a mount namespace other than that of
// process 1 ([ErrMountNamespace]): `ip netns exec` makes such a one for its
// command, and hides /sys/fs/bpf in it; a service manager may, too. There the
// bpffs is mounted beforehand, outside, on a directory that is not below /sys. A
// container gets the host's bpffs as a volume.
func EnsureBPFFS(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("bpffs %s: %w", dir, err)
	}
	if dir == systemBPFFS || strings.HasPrefix(dir, systemBPFFS+"/") {
		if err := mountBPFFS(systemBPFFS); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("bpffs %s: %w", dir, err)
	}
	return mountBPFFS(dir)
}

func mountBPFFS(dir string) error {
	// The lock keeps a second process from mounting over the first's mount.
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("bpffs %s: %w", dir, err)
	}
	defer d.Close()
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	in, err := inBPFFS(dir)
	if err != nil || in {
		return err
	}
	if err := checkMountNamespace(); err != nil {
		return fmt.Errorf("mount a bpffs on %s: %w", dir, err)
	}
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount a bpffs on %s (needs CAP_SYS_ADMIN; or mount it beforehand): %w", dir, err)
	}
	return nil
}

func inBPFFS(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return int64(st.Type) == unix.BPF_FS_MAGIC, nil
}

// checkMountNamespace compares with process 1. One that may not look there is
// taken at its word.
func checkMountNamespace() error {
	own, ok := mountNamespace("self")
	if first, ok1 := mountNamespace("1"); ok && ok1 && own != first {
		return ErrMountNamespace
	}
	return nil
}

// mountNamespace identifies the mount namespace of a process by its root mount,
// whose ID no other namespace has (a hardened process 1 hides its ns links).
func mountNamespace(process string) (rootMountID string, ok bool) {
	info, err := os.ReadFile("/proc/" + process + "/mountinfo")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == "/" { // proc_pid_mountinfo(5)
			return f[0], true
		}
	}
	return "", false
}

// requireBPFFS makes dir, which must be in a bpffs then.
func requireBPFFS(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("pin directory: %w", err)
	}
	in, err := inBPFFS(dir)
	if err == nil && !in {
		err = fmt.Errorf("pin directory %s: %w", dir, ErrNotBPFFS)
	}
	return err
}

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
// already. A dir below /sys/fs/bpf gets the bpffs mounted there.
//
// The mount belongs to the mount namespace of the process. A pin lives as long
// as its mount, so a process in a short-lived mount namespace (`ip netns exec`
// makes one for its command, and also hides /sys/fs/bpf) loses the mount, and
// with it the pins, when it ends: mount the bpffs before entering such a
// namespace, on a directory outside /sys. Safe to call from several processes.
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

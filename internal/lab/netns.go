package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const netnsDir = "/run/netns" // where iproute2 keeps named namespaces

func netnsPath(name string) string { return filepath.Join(netnsDir, name) }

// run runs a command to its end. The error holds what it said.
func run(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), err
}

// inNetns prepares a command in a namespace. nsenter execs, so the process is the
// command itself; the mount namespace stays the caller's, unlike with `ip netns
// exec`: bpffs and files are the same ones.
func (l *Lab) inNetns(ctx context.Context, netns, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(l.life, cancel)
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + netnsPath(netns), "--", name}, args...)...)
	// A descendant that holds the pipes must not hold up Wait.
	cmd.WaitDelay = time.Second
	return cmd
}

func (l *Lab) addNetns(name string) error {
	l.spaces = append(l.spaces, name)
	if _, err := run(exec.CommandContext(l.life, "ip", "netns", "add", name)); err != nil {
		return err
	}
	if err := l.ip(name, "link set lo up"); err != nil {
		return err
	}
	// Addresses are to be usable at once.
	return l.sysctl(name, "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")
}

// ip runs `ip` commands in a namespace, one a line.
func (l *Lab) ip(netns string, lines ...string) error {
	cmd := exec.CommandContext(l.life, "ip", "-n", netns, "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if _, err := run(cmd); err != nil {
		return fmt.Errorf("%w (%s)", err, strings.Join(lines, "; "))
	}
	return nil
}

func (l *Lab) sysctl(netns string, settings ...string) error {
	_, err := run(l.inNetns(l.life, netns, "sysctl", append([]string{"-qw"}, settings...)...))
	return err
}

// removeNetns ends what runs in the namespaces, then deletes them.
func removeNetns(ctx context.Context, names []string) error {
	var errs []error
	inodes := map[uint64]bool{}
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Stat(netnsPath(name), &st); err == nil {
			inodes[st.Ino] = true
		}
	}
	errs = append(errs, endProcesses(ctx, inodes))
	for _, name := range names {
		if _, err := os.Stat(netnsPath(name)); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if _, err := run(exec.CommandContext(ctx, "ip", "netns", "delete", name)); err != nil {
			if _, gone := os.Stat(netnsPath(name)); !errors.Is(gone, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// endProcesses ends every process whose network namespace is one of a lab's own:
// nobody is there but what was started for it. SIGTERM first.
func endProcesses(ctx context.Context, inodes map[uint64]bool) error {
	if len(inodes) == 0 {
		return nil
	}
	signal := unix.SIGTERM
	started := time.Now()
	for {
		pids := processesIn(inodes)
		if len(pids) == 0 {
			return nil
		}
		if time.Since(started) > 3*time.Second {
			signal = unix.SIGKILL
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, signal) // it may be gone by now
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes %v in the lab's namespaces do not end: %w", pids, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func processesIn(inodes map[uint64]bool) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A zombie has no namespace any more: stat fails.
		var st unix.Stat_t
		if unix.Stat(filepath.Join("/proc", e.Name(), "ns/net"), &st) == nil && inodes[st.Ino] {
			pids = append(pids, pid)
		}
	}
	return pids
}

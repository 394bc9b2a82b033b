package lab

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	prefix   = "picot-lab-"
	keptFile = "kept"
)

// Leftover is what a lab has on the machine, found by its tag.
type Leftover struct {
	Tag    string
	Netns  []string // names
	Mounts []string // bpffs
	Kept   bool     // on purpose
}

// Found lists the labs of other processes that are dead, kept ones included.
func Found() ([]Leftover, error) { return found(dead) }

func dead(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

func found(want func(pid int) bool) ([]Leftover, error) {
	byTag := map[string]*Leftover{}
	var order []string
	get := func(tag string) *Leftover {
		if byTag[tag] == nil {
			byTag[tag] = &Leftover{Tag: tag}
			order = append(order, tag)
		}
		return byTag[tag]
	}
	entries, err := os.ReadDir(netnsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if tag, pid := tagOf(e.Name()); pid > 0 && want(pid) {
			l := get(tag)
			l.Netns = append(l.Netns, e.Name())
		}
	}
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		fields := strings.Fields(s.Text())
		if len(fields) < 3 || fields[2] != "bpf" {
			continue
		}
		tag, pid := tagOf(fields[0])
		if pid == 0 || !want(pid) {
			continue
		}
		l := get(tag)
		l.Mounts = append(l.Mounts, fields[1])
		if _, err := os.Stat(filepath.Join(filepath.Dir(fields[1]), keptFile)); err == nil {
			l.Kept = true
		}
	}
	var all []Leftover
	for _, tag := range order {
		all = append(all, *byTag[tag])
	}
	return all, s.Err()
}

// tagOf splits a tag picot-lab-PID-N off a name; pid 0 if it has none.
func tagOf(name string) (tag string, pid int) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return "", 0
	}
	parts := strings.SplitN(rest, "-", 3)
	if len(parts) < 2 {
		return "", 0
	}
	pid, err := strconv.Atoi(parts[0])
	if _, nerr := strconv.Atoi(parts[1]); err != nil || nerr != nil || pid <= 0 {
		return "", 0
	}
	return prefix + parts[0] + "-" + parts[1], pid
}

// Sweep removes what labs of dead processes left: their processes, namespaces,
// mounts and directories. Kept labs only if kept is true.
func Sweep(ctx context.Context, kept bool) error {
	all, err := Found()
	errs := []error{err}
	for _, l := range all {
		if l.Kept && !kept {
			continue
		}
		errs = append(errs, l.Remove(ctx))
	}
	return errors.Join(errs...)
}

// Remove takes it down. Another process may be doing the same.
func (l Leftover) Remove(ctx context.Context) error {
	errs := []error{removeNetns(ctx, l.Netns)}
	for _, m := range l.Mounts {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, err)
			continue
		}
		dir := filepath.Dir(m)
		errs = append(errs, removeDir(dir, filepath.Base(dir) == l.Tag))
	}
	return errors.Join(errs...)
}

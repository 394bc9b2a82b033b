package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	Dirs   []string // holding the mounts, or in os.TempDir
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
	mounts, err := bpfMounts()
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if tag, pid := tagOf(m.source); pid > 0 && want(pid) {
			l := get(tag)
			l.Mounts = append(l.Mounts, m.dir)
			l.Dirs = append(l.Dirs, filepath.Dir(m.dir))
		}
	}
	temp, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range temp {
		tag, pid := tagOf(filepath.Base(dir))
		if pid == 0 || !want(pid) {
			continue
		}
		if l := get(tag); !slices.Contains(l.Dirs, dir) {
			l.Dirs = append(l.Dirs, dir)
		}
	}
	var all []Leftover
	for _, tag := range order {
		l := *byTag[tag]
		l.Kept = slices.ContainsFunc(l.Dirs, func(dir string) bool {
			_, err := os.Stat(filepath.Join(dir, keptFile))
			return err == nil
		})
		all = append(all, l)
	}
	return all, nil
}

type bpfMount struct{ source, dir string }

func bpfMounts() ([]bpfMount, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []bpfMount
	s := bufio.NewScanner(f)
	for s.Scan() {
		if fields := strings.Fields(s.Text()); len(fields) > 2 && fields[2] == "bpf" {
			all = append(all, bpfMount{fields[0], fields[1]})
		}
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
			return errors.Join(append(errs, fmt.Errorf("unmount %s: %w", m, err))...)
		}
	}
	for _, dir := range l.Dirs {
		errs = append(errs, removeDir(dir, filepath.Base(dir) == l.Tag))
	}
	return errors.Join(errs...)
}

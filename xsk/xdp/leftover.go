package xdp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/pin"
	"golang.org/x/sys/unix"
)

// An older build may have pinned other files, in other places of PinDir, of maps
// of other layouts. What of that is ours is known by its name in the kernel; it
// goes. What is somebody else's stays, wherever it is.

// thing is what a path in a bpffs is.
type thing uint8

const (
	foreign thing = iota // somebody else's, or not to be told
	ours                 // a pin of a program or map of a name of ours, or of a link that runs one
	litter               // a symbolic link: nobody loses anything with it
	emptyDir
	fullDir
)

// whatIs says what a path is, and whether it is a link that is attached.
func whatIs(path string) (is thing, alive bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return foreign, false
	}
	if info.IsDir() {
		if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
			return fullDir, false
		}
		return emptyDir, false
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return litter, false
	}
	object, err := pin.Load(path, nil)
	if err != nil {
		return foreign, false
	}
	defer object.Close()
	switch o := object.(type) {
	case *ebpf.Map:
		if info, err := o.Info(); err == nil && strings.HasPrefix(info.Name, prefix) {
			return ours, false
		}
	case *ebpf.Program:
		if info, err := o.Info(); err == nil && strings.HasPrefix(info.Name, prefix) {
			return ours, false
		}
	case link.Link:
		p, err := openPinned(path)
		if err != nil || p == nil {
			return foreign, true // of another kind: somewhere it may be
		}
		defer p.link.Close()
		if _, err := p.kind(); err != nil {
			return foreign, p.ifindex != 0
		}
		return ours, p.ifindex != 0
	}
	return foreign, false
}

// clearDir removes what is ours, and what is nobody's, from a pin directory and the
// directories in it, but no link that is attached; and the directory if nothing
// is left. Files of the names in keep stay.
func clearDir(dir string, keep ...string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove pin: %w", err)
	}
	// The link goes first: a directory without one is recognised as a leftover.
	slices.SortFunc(entries, func(a, b os.DirEntry) int {
		switch pinLink {
		case a.Name():
			return -1
		case b.Name():
			return 1
		}
		return 0
	})
	var errs []error
	for _, e := range entries {
		if slices.Contains(keep, e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		switch is, alive := whatIs(path); {
		case is == fullDir:
			errs = append(errs, clearDir(path))
		case is != foreign && !alive:
			errs = append(errs, removeFile(path))
		}
	}
	if len(keep) == 0 {
		errs = append(errs, removeEmpty(dir))
	}
	return errors.Join(errs...)
}

// removeEmpty removes a directory, if it is empty.
func removeEmpty(dir string) error {
	if err := removeFile(dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// makeWay removes what is not a directory where a pin directory is to be: of a
// map or program only the pin goes. A link is somebody's.
func makeWay(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil || info.IsDir() {
		return nil // what is wrong is said by who makes it
	}
	p, err := openPinned(dir)
	if err != nil {
		return err
	}
	if p != nil && p.ifindex != 0 {
		err = fmt.Errorf("%s is the pin of link %d of interface index %d: %w", dir, p.linkID, p.ifindex, ErrPinBusy)
	}
	if p != nil {
		p.link.Close()
	}
	if err != nil {
		return err
	}
	return removeFile(dir)
}

// adopt moves the pin of a link of ours that is attached to the device from where
// an older build pinned it to dir, in which this build does.
func (o *AttachOptions) adopt(dev *device, dir string) (*pinned, error) {
	for _, path := range strays(o.PinDir) {
		p, err := openPinned(path)
		if err != nil || p == nil {
			continue
		}
		_, err = p.kind()
		p.link.Close()
		if err != nil || p.ifindex != o.IfIndex || !dev.runs(p.program) {
			continue
		}
		if path == dir { // a file where the directory is to be
			path += "-older"
			err = os.Rename(dir, path)
		}
		err = errors.Join(err, os.MkdirAll(dir, 0o700), os.Rename(path, filepath.Join(dir, pinLink)))
		if err != nil {
			return nil, fmt.Errorf("take over the pin of an older build: %w", err)
		}
		removeEmptyUpTo(o.PinDir, path)
		return openPinned(filepath.Join(dir, pinLink))
	}
	return nil, nil
}

// strays are the files in pinDir, two directories deep, that are not where this
// build pins a link.
func strays(pinDir string) (paths []string) {
	var walk func(dir string, depth int)
	walk = func(dir string, depth int) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return // gone by now, or said by who looks there for more
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch {
			case e.IsDir() && depth < 2:
				walk(path, depth+1)
			case !e.IsDir() && !(depth == 1 && slices.Contains(pinFiles, e.Name())):
				paths = append(paths, path)
			}
		}
	}
	walk(pinDir, 0)
	return paths
}

// removeEmptyUpTo removes the directories above path that are empty now, but not
// root.
func removeEmptyUpTo(root, path string) {
	for dir := filepath.Dir(path); dir != root && len(dir) > len(root); dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil {
			return // not empty
		}
	}
}

// listStrays lists what of an older build is pinned elsewhere in pinDir: links
// that are attached, and files that are in no directory.
func listStrays(pinDir string) (pins []Pin) {
	for _, path := range strays(pinDir) {
		is, alive := whatIs(path)
		loose := filepath.Dir(path) == pinDir
		if is == foreign || !alive && !loose {
			continue
		}
		found := Pin{Stray: true, Name: PinName(filepath.Base(path)), dir: pinDir, file: path}
		if !loose {
			found.Name = PinName(filepath.Base(filepath.Dir(path)))
		}
		if alive && found.read(path) != nil {
			continue
		}
		pins = append(pins, found)
	}
	return pins
}

// holdsOurs says whether clearDir would remove something, or all: the directory is
// empty.
func holdsOurs(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch is, alive := whatIs(path); {
		case is == fullDir && holdsOurs(path), is != fullDir && is != foreign && !alive:
			return true
		}
	}
	return len(entries) == 0
}

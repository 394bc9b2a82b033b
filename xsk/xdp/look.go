package xdp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// LookBPFFS says, and changes nothing, what [EnsureBPFFS] would find: whether dir
// is, or would be made, in a bpffs, and why that will not do: it cannot be written
// to, or none is mounted and none may be mounted from here ([ErrMountNamespace]).
func LookBPFFS(dir string) (mounted bool, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return false, fmt.Errorf("bpffs %s: %w", dir, err)
	}
	at := dir // or the nearest directory above it
	for {
		_, err := os.Stat(at)
		if err == nil || at == filepath.Dir(at) {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		at = filepath.Dir(at)
	}
	if mounted, err = inBPFFS(at); err != nil {
		return false, err
	}
	// Of a directory in sysfs nothing is written: the mount covers it.
	covered := !mounted && (at == systemBPFFS || strings.HasPrefix(systemBPFFS, at+"/"))
	if !covered {
		if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
			return mounted, fmt.Errorf("write to %s: %w", at, err)
		}
	}
	if !mounted {
		if err := checkMountNamespace(); err != nil {
			return false, fmt.Errorf("mount a bpffs on %s: %w", dir, err)
		}
	}
	return mounted, nil
}

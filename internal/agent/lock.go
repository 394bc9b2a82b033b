package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockPins keeps this node's pins to one process until the file is closed: two
// agents of one node would take each other's devices away. A process that ends
// may take wait to let go of them.
func lockPins(c *Config, wait time.Duration) (*os.File, error) {
	for until := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
		d, err := tryLock(c.pinDir())
		switch {
		case err == nil:
			return d, nil
		case errors.Is(err, errMoved):
		case errors.Is(err, fs.ErrNotExist): // a cleanup took it away
			if err := os.MkdirAll(c.pinDir(), 0o700); err != nil {
				return nil, fmt.Errorf("--bpffs: pin directory: %w", err)
			}
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, fmt.Errorf("pin directory: %w", err)
		case time.Now().After(until):
			return nil, fmt.Errorf("%w: it holds the pins in %s; an agent beside it needs another --node-name or --bpffs", ErrRuns, c.pinDir())
		}
	}
}

// errMoved: what was locked is not what has the name.
var errMoved = errors.New("it is another one by now")

func tryLock(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), d.Close())
	}
	// A cleanup may have removed it between the two.
	locked, err := d.Stat()
	var named os.FileInfo
	if err == nil {
		named, err = os.Stat(dir)
	}
	if err == nil && !os.SameFile(locked, named) {
		err = errMoved
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// ErrPrivilege says that the process may not do what it has to.
var ErrPrivilege = errors.New("not privileged enough")

// checkCapabilities looks for what every agent needs, so that the first refusal
// is a clear one.
func checkCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("reading the capabilities: %w", err)
	}
	has := func(c int) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	var missing []string
	for _, c := range []struct {
		name string
		any  []int
	}{
		{"CAP_NET_ADMIN", []int{unix.CAP_NET_ADMIN}},
		{"CAP_NET_RAW", []int{unix.CAP_NET_RAW}},
		{"CAP_BPF", []int{unix.CAP_BPF, unix.CAP_SYS_ADMIN}},
	} {
		ok := false
		for _, n := range c.any {
			ok = ok || has(n)
		}
		if !ok {
			missing = append(missing, c.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s missing: run it as root, or give it these capabilities", ErrPrivilege, strings.Join(missing, ", "))
	}
	return nil
}

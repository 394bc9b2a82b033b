package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// lockPins keeps this node's pins to one process until the file is closed: two
// agents of one node would take each other's devices away.
func lockPins(c *Config) (*os.File, error) {
	d, err := os.Open(c.pinDir())
	if err != nil {
		return nil, fmt.Errorf("pin directory: %w", err)
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = d.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: it holds the pins in %s; an agent beside it needs another --node-name or --bpffs", ErrRuns, c.pinDir())
		}
		return nil, fmt.Errorf("lock %s: %w", c.pinDir(), err)
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

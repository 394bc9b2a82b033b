package agent

import (
	"errors"
	"fmt"
	"net"
	"os"

	"picot.dev/picot/internal/device"
	"picot.dev/picot/internal/routes"
	"picot.dev/picot/xsk/xdp"
)

// Cleanup removes everything an agent of this node name left in this network
// namespace, and nothing else: pins and XDP programs (workload devices are set
// down first, so that no frame of theirs passes), routes and rules of our
// protocol, the managed flag of neighbours, the control socket. It tells say what
// it removes; with dryRun it only tells. It refuses while an agent runs, and
// goes on after what fails.
//
// Of c it reads NodeName, BPFFS, RunDir and Owner. The bpffs itself stays: others
// may have pins there.
func Cleanup(c Config, dryRun bool, say func(string)) error {
	var errs []error
	c.place(func(setting, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s: %s", ErrConfig, setting, fmt.Sprintf(format, args...)))
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := checkCapabilities(); err != nil {
		return err
	}
	if conn, err := net.Dial("unix", c.ControlPath()); err == nil {
		_ = conn.Close()
		return fmt.Errorf("%w: it answers at %s", ErrRuns, c.ControlPath())
	}
	if _, err := os.Stat(c.pinDir()); err == nil {
		lock, err := lockPins(&c, endsWithin)
		if err != nil {
			return err
		}
		defer lock.Close()
	}
	do := func(what string, f func() error) {
		if !dryRun {
			if err := f(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", what, err))
				return
			}
		}
		say(what)
	}
	errs = append(errs, cleanPins(&c, do), cleanRoutes(&c, do))
	for what, path := range map[string]string{
		"control socket ": c.ControlPath(), "takeover socket ": c.takeoverPath(), "checkpoint ": c.checkpointPath(),
	} {
		if _, err := os.Lstat(path); err == nil {
			do(what+path, func() error { return os.Remove(path) })
		}
	}
	for _, path := range halfCheckpoints(c.RunDir) {
		do("half a checkpoint "+path, func() error { return os.Remove(path) })
	}
	if entries, err := os.ReadDir(c.RunDir); err == nil && !dryRun && len(entries) == 0 {
		errs = append(errs, os.Remove(c.RunDir))
	}
	return errors.Join(errs...)
}

// ErrRuns says that an agent is at work.
var ErrRuns = errors.New("an agent of this node runs: stop it first")

func cleanPins(c *Config, do func(string, func() error)) error {
	pins, err := xdp.List(c.pinDir())
	errs := []error{err}
	for _, pin := range pins {
		what := fmt.Sprintf("XDP program and pin of %s device %s", pin.Kind, pin.Name)
		switch {
		case pin.Stray && !pin.Alive:
			what = "pin of an older build: " + pin.Name
		case !pin.Alive:
			what = fmt.Sprintf("pin of device %s, which is gone", pin.Name)
		}
		do(what, func() error { return device.Netlink{}.RemovePin(pin) })
	}
	// Only an empty one goes: what is not ours keeps its place.
	if entries, err := os.ReadDir(c.pinDir()); err == nil && len(entries) == 0 {
		do("pin directory "+c.pinDir(), func() error { return os.Remove(c.pinDir()) })
	}
	return errors.Join(errs...)
}

func cleanRoutes(c *Config, do func(string, func() error)) error {
	kernel, err := routes.Open(nil)
	if err != nil {
		return err
	}
	defer kernel.Close()
	found, err := c.Owner.Find(kernel)
	if err != nil {
		return err
	}
	for _, r := range found.Routes {
		do(fmt.Sprintf("route %s in table %d", r.Prefix, r.Table), func() error { return kernel.DeleteRoute(r) })
	}
	for _, n := range found.Neighbors {
		do(fmt.Sprintf("managed flag of neighbour %s on link %d", n.IP, n.Link), func() error { return kernel.Unmanage(n.NeighborKey) })
	}
	// The rules go last: by them the tables are found again if something fails.
	for _, r := range found.Rules {
		do(fmt.Sprintf("rule %d to table %d", r.Priority, r.Table), func() error { return kernel.DeleteRule(r) })
	}
	return nil
}

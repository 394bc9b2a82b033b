package doctor

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/control"
	"picot.dev/picot/internal/health"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/xsk/xdp"
)

// askAgentFor is more than the five seconds an agent gives its own loop.
const askAgentFor = 7 * time.Second

// readAgent asks the agent at the run directory's control socket.
func readAgent(ctx context.Context, c *Config) Agent {
	ctx, cancel := context.WithTimeoutCause(ctx, askAgentFor, errNoAnswer)
	defer cancel()
	s, err := control.Status(ctx, c.RunDir)
	if errors.Is(err, control.ErrNoAgent) {
		return Agent{Err: err}
	}
	if isPermission(err) {
		return Agent{Denied: true, Err: err}
	}
	a := Agent{Runs: true, Err: err, Status: s}
	if err != nil && ctx.Err() != nil {
		a.Err = context.Cause(ctx)
	}
	if body, err := control.Get(ctx, c.RunDir, "/healthz"); len(body) > 0 || err == nil {
		var h struct {
			Parts []health.Report `json:"parts"`
		}
		if json.Unmarshal(body, &h) == nil {
			a.Health = h.Parts
		}
	}
	a.PID = peer(control.Socket(c.RunDir))
	a.Build, a.SameBuild = builds(a.PID)
	return a
}

var errNoAnswer = fmt.Errorf("there is one, and it does not answer within %v", askAgentFor)

var errNoBuild = errors.New("its process or program is not to be seen from here")

// peer is the process that listens at a socket; 0: not told.
func peer(path string) int {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if u, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(u.Pid)
		}
	})
	return pid
}

// builds describes the program a process runs, and whether it is this one.
func builds(pid int) (build string, same bool) {
	theirs := fmt.Sprintf("/proc/%d/exe", pid)
	info, err := buildinfo.ReadFile(theirs)
	if pid == 0 || err != nil {
		return "", false
	}
	build = info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			build = strings.TrimSpace(build + " " + s.Value[:min(12, len(s.Value))])
		}
	}
	a, b := digest(theirs), digest("/proc/self/exe")
	return build, a != "" && a == b
}

func digest(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return string(h.Sum(nil))
}

// readLeftovers lists what of ours nobody uses.
func readLeftovers(c *Config, a *Agent) {
	if !a.Runs {
		if c.Own.Leftovers != nil {
			a.LeftErr = c.Own.Leftovers(func(what string) { a.Leftovers = append(a.Leftovers, what) })
		}
		return
	}
	pins, err := xdp.List(c.PinDir())
	a.LeftErr = err
	for _, p := range pins {
		if p.Stray || !p.Alive || !a.uses(p.Name) {
			a.Leftovers = append(a.Leftovers, fmt.Sprintf("pin of %s device %s", p.Kind, p.Name))
		}
	}
}

func (a *Agent) uses(device string) bool {
	return slices.ContainsFunc(a.Status.Ports, func(p status.Port) bool { return p.Device == device }) ||
		slices.ContainsFunc(a.Status.Uplinks, func(u status.Uplink) bool { return u.Device == device })
}

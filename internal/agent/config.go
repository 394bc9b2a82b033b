package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/gateway"
	"picot.dev/picot/internal/routes"
)

// Config is what an operator sets. The zero value of a field means its default
// where Validate gives one.
type Config struct {
	NodeName    string
	Uplinks     []string // device names
	Manifests   string   // directory; or
	Kubeconfig  string   // file; or
	InCluster   bool     // the pod's service account
	Workers     int
	CPUs        []int
	MaxPorts    int
	BPFFS       string // directory in, or to become, a bpffs
	RunDir      string // for the control socket
	MetricsAddr string // host:port; empty: none
	Function    uint16 // of our SIDs
	FixedSource bool   // no entropy in the outer source address
	// AllowGeneric lets a device without native XDP run in generic mode.
	AllowGeneric bool
	HugePages    bool
	Limits       fastpath.Limits
	Takeover     Takeover
	Learning     Learning
	Leases       Leases
	// Refresh is the mean time between looks at the kernel for drift that nobody
	// reported. Zero: 30 s.
	Refresh time.Duration
	// SweepGrace is how long after its sources are in sync, or were listed again, the agent leaves alone
	// what is ours on a living device that no endpoint names: the list may be
	// stale. Zero: no time.
	SweepGrace time.Duration
	// InSync, if set, is called once, beside the loop, when its sources are.
	InSync func()
	Owner  routes.Owner
	// Gateway switches the gateway on; its Node and Log are set here.
	Gateway *gateway.Config
	Log     *slog.Logger
}

// Takeover says when to take a living agent's place.
type Takeover string

// The ways to start beside a living agent.
const (
	TakeoverAuto   Takeover = "auto" // if it is of another build
	TakeoverAlways Takeover = "always"
	TakeoverNever  Takeover = "never" // refuse to start
)

// ErrConfig is wrapped by every error of Validate.
var ErrConfig = errors.New("bad configuration")

var nodeNamePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// Validate fills in defaults and names every setting that cannot be used.
func (c *Config) Validate() error {
	var errs []error
	bad := func(setting, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s: %s", ErrConfig, setting, fmt.Sprintf(format, args...)))
	}
	c.place(bad)
	seen := map[string]bool{}
	for _, u := range c.Uplinks {
		if u == "" || len(u) > 15 || strings.ContainsAny(u, "/ ") {
			bad("--uplink", "%q is no device name", u)
		}
		if seen[u] {
			bad("--uplink", "%s is given twice", u)
		}
		seen[u] = true
	}
	sources := 0
	for _, given := range []bool{c.Manifests != "", c.Kubeconfig != "", c.InCluster} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		bad("--manifests, --kubeconfig, --in-cluster", "%d of them given: say where to read what to carry with exactly one", sources)
	}
	if c.Workers == 0 {
		c.Workers = 1
	}
	if c.Workers < 1 || c.Workers > 64 {
		bad("--workers", "%d: give 1 to 64", c.Workers)
	}
	if c.CPUs != nil && len(c.CPUs) != c.Workers {
		bad("--cpus", "%d CPUs for %d workers: name one for each", len(c.CPUs), c.Workers)
	} else if err := tryCPUs(c.CPUs); err != nil {
		bad("--cpus", "%v", err)
	}
	if c.MaxPorts == 0 {
		c.MaxPorts = 256
	}
	if c.MaxPorts < 1 || c.MaxPorts > 16384 {
		bad("--max-ports", "%d: give 1 to 16384", c.MaxPorts)
	}
	if c.MetricsAddr != "" {
		if _, err := netip.ParseAddrPort(c.MetricsAddr); err != nil && !strings.Contains(c.MetricsAddr, ":") {
			bad("--metrics-addr", "%q: give address:port", c.MetricsAddr)
		}
	}
	switch c.Takeover {
	case "":
		c.Takeover = TakeoverAuto
	case TakeoverAuto, TakeoverAlways, TakeoverNever:
	default:
		bad("--takeover", "%q: give auto, always or never", c.Takeover)
	}
	if c.Function == 0 {
		c.Function = srv6.DefaultFunction
	}
	if c.Refresh == 0 {
		c.Refresh = defaultRefresh
	}
	if c.Refresh < minRefresh {
		bad("--refresh", "%v: give at least %v", c.Refresh, minRefresh)
	}
	if c.SweepGrace < 0 {
		bad("--sweep-grace", "%v: give no negative time", c.SweepGrace)
	}
	c.Learning.complete(bad)
	c.Leases.complete(bad)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Gateway != nil {
		own := *c.Gateway
		own.Node, own.Log = c.NodeName, c.Log.With("part", "gateway")
		if err := own.Validate(); err != nil {
			bad("--gateway", "%v", err)
		}
		c.Gateway = &own
	}
	return errors.Join(errs...)
}

// place is the part of Validate about what says where an agent's things are.
func (c *Config) place(bad func(setting, format string, args ...any)) {
	if c.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			bad("--node-name", "not given, and the host has no name: %v", err)
		}
		c.NodeName = strings.ToLower(name)
	}
	if len(c.NodeName) > 253 || !nodeNamePattern.MatchString(c.NodeName) {
		bad("--node-name", "%q is no DNS name: give the name of the SRv6Node object", c.NodeName)
	}
	if c.BPFFS == "" {
		c.BPFFS = "/sys/fs/bpf/picot"
	}
	if c.RunDir == "" {
		c.RunDir = "/run/picot"
	}
	if n := len(c.ControlPath()); n > 107 {
		bad("--run-dir", "the control socket's path is %d bytes long: 107 at most", n)
	}
	if c.Owner == (routes.Owner{}) {
		c.Owner = routes.DefaultOwner()
	}
}

// fromManifests says that a directory is the source of what is desired.
func (c *Config) fromManifests() bool { return c.Manifests != "" }

// ControlPath is the control socket.
func (c *Config) ControlPath() string { return filepath.Join(c.RunDir, "picot.sock") }

// pinDir is where this node's pins are: agents that share a machine and a bpffs
// never see each other's.
func (c *Config) pinDir() string { return filepath.Join(c.BPFFS, c.NodeName) }

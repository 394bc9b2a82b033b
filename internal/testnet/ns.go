package testnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	runDir = "/run/netns" // where iproute2 keeps named namespaces
	prefix = "picot-test"
)

var counter atomic.Uint32

// NS is a named network namespace that lives as long as its test.
type NS struct {
	Name string // as `ip netns` shows it

	handle netns.NsHandle
	nl     *netlink.Handle
}

// New makes a network namespace with loopback up and duplicate address detection
// off (addresses are usable at once; a test about DAD turns it on by
// [NS.Sysctl]). The label only makes the name readable.
func New(t testing.TB, label string) *NS {
	t.Helper()
	RequireRoot(t)
	RequireTool(t, "ip", "nsenter")
	sweepOnce()

	n := &NS{Name: fmt.Sprintf("%s-%d-%d-%s", prefix, os.Getpid(), counter.Add(1), label)}
	if out, err := exec.Command("ip", "netns", "add", n.Name).CombinedOutput(); err != nil {
		t.Fatalf("make netns %s: %v: %s", n.Name, err, out)
	}
	// Registered first, so it runs after every other cleanup of this namespace.
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "delete", n.Name).CombinedOutput(); err != nil {
			t.Errorf("delete netns %s: %v: %s", n.Name, err, out)
		}
	})
	var err error
	if n.handle, err = netns.GetFromPath(n.Path()); err != nil {
		t.Fatalf("open netns %s: %v", n.Name, err)
	}
	t.Cleanup(func() { n.handle.Close() })
	if n.nl, err = netlink.NewHandleAt(n.handle, unix.NETLINK_ROUTE); err != nil {
		t.Fatalf("netlink in netns %s: %v", n.Name, err)
	}
	t.Cleanup(n.nl.Close)

	n.Sysctl(t, "net.ipv6.conf.all.accept_dad", "0")
	n.Sysctl(t, "net.ipv6.conf.default.accept_dad", "0")
	n.Up(t, "lo")
	return n
}

// Path is the file that names the namespace; it can be opened for setns.
func (n *NS) Path() string { return filepath.Join(runDir, n.Name) }

// FD is an open descriptor of the namespace, owned by n.
func (n *NS) FD() int { return int(n.handle) }

// Netlink is a route netlink handle inside the namespace, owned by n.
func (n *NS) Netlink() *netlink.Handle { return n.nl }

// Do runs f on the calling goroutine with its thread in the namespace, and
// returns f's error. If the thread cannot be brought back it stays locked, so
// that it ends with its goroutine instead of serving others from a wrong
// namespace.
func (n *NS) Do(f func() error) (err error) {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("read own netns: %w", err)
	}
	defer home.Close()
	if err := netns.Set(n.handle); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter netns %s: %w", n.Name, err)
	}
	// Deferred: f may end the goroutine (testing's FailNow).
	defer func() {
		if back := netns.Set(home); back != nil {
			err = errors.Join(err, fmt.Errorf("leave netns %s: %w", n.Name, back))
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// Run is [NS.Do] for functions that fail the test themselves.
func (n *NS) Run(t testing.TB, f func()) {
	t.Helper()
	if err := n.Do(func() error { f(); return nil }); err != nil {
		t.Fatal(err)
	}
}

// Command prepares a command that runs in the namespace. The mount namespace
// stays the caller's (unlike `ip netns exec`), so bpffs and files are the same
// ones; /sys/class/net therefore still shows the caller's devices. nsenter execs,
// so the process id is the command's own.
func (n *NS) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + n.Path(), "--", name}, args...)...)
}

// Try runs a command to its end and returns stdout and stderr together.
func (n *NS) Try(name string, args ...string) (string, error) {
	out, err := n.Command(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("in %s: %s %s: %w: %s", n.Name, name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), err
}

// Exec is [NS.Try] for a command that must succeed.
func (n *NS) Exec(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := n.Try(name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Start runs a command in the background; it is killed and waited for at the
// test's end, if it still runs then.
func (n *NS) Start(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := n.Command(ctx, name, args...)
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatalf("in %s: start %s: %v", n.Name, name, err)
	}
	t.Cleanup(func() { cancel(); cmd.Wait() })
	return cmd
}

// IP runs `ip` with the space-separated words of args.
func (n *NS) IP(t testing.TB, args string) string {
	t.Helper()
	return n.Exec(t, "ip", strings.Fields(args)...)
}

// Sysctl sets a dotted sysctl name; a literal dot inside an interface name is
// written as a slash, as sysctl(8) does.
func (n *NS) Sysctl(t testing.TB, name, value string) {
	t.Helper()
	swap := strings.NewReplacer(".", "/", "/", ".")
	err := n.Do(func() error {
		return os.WriteFile("/proc/sys/"+swap.Replace(name), []byte(value), 0)
	})
	if err != nil {
		t.Fatalf("sysctl %s=%s in %s: %v", name, value, n.Name, err)
	}
}

// Link returns the named link, which must exist.
func (n *NS) Link(t testing.TB, name string) netlink.Link {
	t.Helper()
	l, err := n.nl.LinkByName(name)
	if err != nil {
		t.Fatalf("link %s in %s: %v", name, n.Name, err)
	}
	return l
}

// Up sets the named link up.
func (n *NS) Up(t testing.TB, name string) {
	t.Helper()
	if err := n.nl.LinkSetUp(n.Link(t, name)); err != nil {
		t.Fatalf("set %s up in %s: %v", name, n.Name, err)
	}
}

// Down sets the named link down.
func (n *NS) Down(t testing.TB, name string) {
	t.Helper()
	if err := n.nl.LinkSetDown(n.Link(t, name)); err != nil {
		t.Fatalf("set %s down in %s: %v", name, n.Name, err)
	}
}

// Addr adds addresses in CIDR form, without duplicate address detection.
func (n *NS) Addr(t testing.TB, link string, cidrs ...string) {
	t.Helper()
	l := n.Link(t, link)
	for _, c := range cidrs {
		ip, ipnet, err := net.ParseCIDR(c)
		if err != nil {
			t.Fatal(err)
		}
		a := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: ipnet.Mask}}
		if ip.To4() == nil {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := n.nl.AddrAdd(l, a); err != nil {
			t.Fatalf("add %s to %s in %s: %v", c, link, n.Name, err)
		}
	}
}

var sweepOnce = sync.OnceFunc(sweepDead)

// sweepDead deletes what dead test processes left. Another test binary may sweep
// the same at the same time: no error matters here.
func sweepDead() {
	for _, name := range namespaces() {
		if pid := ownerPID(name); pid > 0 && !alive(pid) {
			_ = exec.Command("ip", "netns", "delete", name).Run()
		}
	}
	for _, dir := range mounts() {
		if !alive(ownerPID(filepath.Base(dir))) {
			_ = unix.Unmount(dir, unix.MNT_DETACH)
			_ = os.Remove(dir)
		}
	}
}

// namespaces lists the named namespaces made by any run of this package.
func namespaces() []string {
	entries, err := os.ReadDir(runDir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if ownerPID(e.Name()) > 0 {
			names = append(names, e.Name())
		}
	}
	return names
}

// ownerPID reads the process id out of a name made by New or BPFFS; 0 if it is
// not such a name.
func ownerPID(name string) int {
	rest, ok := strings.CutPrefix(name, prefix+"-")
	if !ok {
		return 0
	}
	digits, _, ok := strings.Cut(rest, "-")
	if !ok {
		return 0
	}
	pid, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return pid
}

func alive(pid int) bool {
	return !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

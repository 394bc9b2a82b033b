package bench

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// space is a network namespace without a name: it ends with the process, if
// not before.
type space struct {
	ns netns.NsHandle
	nl *netlink.Handle
}

// newSpace makes a namespace with loopback up.
func newSpace() (*space, error) {
	s := &space{}
	type made struct {
		ns  netns.NsHandle
		err error
	}
	done := make(chan made)
	go func() {
		// The thread stays in the new namespace and ends with the goroutine.
		runtime.LockOSThread()
		ns, err := netns.New()
		done <- made{ns, err}
	}()
	m := <-done
	if m.err != nil {
		return nil, fmt.Errorf("make a network namespace (needs root): %w", m.err)
	}
	s.ns = m.ns
	var err error
	if s.nl, err = netlink.NewHandleAt(s.ns, unix.NETLINK_ROUTE); err != nil {
		return nil, errors.Join(fmt.Errorf("netlink in a new namespace: %w", err), s.close())
	}
	lo, err := s.nl.LinkByName("lo")
	if err == nil {
		err = s.nl.LinkSetUp(lo)
	}
	// Nothing but the benchmark's frames: no router solicitations, no DAD.
	for _, knob := range []string{"all/disable_ipv6", "default/disable_ipv6"} {
		err = errors.Join(err, s.sysctl("ipv6/conf/"+knob, "1"))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up a new namespace: %w", err), s.close())
	}
	return s, nil
}

func (s *space) close() error {
	if s.nl != nil {
		s.nl.Close()
	}
	return s.ns.Close()
}

// do runs f with the calling thread in the namespace.
func (s *space) do(f func() error) (err error) {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("read own namespace: %w", err)
	}
	defer home.Close()
	if err := netns.Set(s.ns); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter a namespace: %w", err)
	}
	defer func() {
		if back := netns.Set(home); back != nil {
			err = errors.Join(err, fmt.Errorf("leave a namespace: %w", back))
			return // still locked: the thread ends with its goroutine
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// sysctl writes a file below /proc/sys/net.
func (s *space) sysctl(name, value string) error {
	return s.do(func() error { return os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0) })
}

// run runs a command in the namespace to its end.
func (s *space) run(name string, args ...string) error {
	return s.do(func() error {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
		return nil
	})
}

func (s *space) index(device string) (int, error) {
	l, err := s.nl.LinkByName(device)
	if err != nil {
		return 0, fmt.Errorf("device %s: %w", device, err)
	}
	return l.Attrs().Index, nil
}

// end is one end of a veth pair.
type end struct {
	in   *space
	name string
	mac  string // empty: the kernel draws one
}

// pair makes a veth pair, one queue, both ends up, offload settings as the
// kernel makes them.
func pair(a, b end) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.NumTxQueues, attrs.NumRxQueues = a.name, 1, 1
	attrs.HardwareAddr = hardware(a.mac)
	err := a.in.nl.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: b.name, PeerHardwareAddr: hardware(b.mac),
		PeerNumTxQueues: 1, PeerNumRxQueues: 1, PeerNamespace: netlink.NsFd(b.in.ns),
	})
	if err != nil {
		return fmt.Errorf("make veth %s - %s: %w", a.name, b.name, err)
	}
	for _, e := range []end{a, b} {
		l, err := e.in.nl.LinkByName(e.name)
		if err == nil {
			err = e.in.nl.LinkSetUp(l)
		}
		if err != nil {
			return fmt.Errorf("set %s up: %w", e.name, err)
		}
	}
	return nil
}

func hardware(mac string) net.HardwareAddr {
	if mac == "" {
		return nil
	}
	a, err := net.ParseMAC(mac)
	if err != nil {
		return nil // the kernel draws one; the constants of this package parse
	}
	return a
}

// uniqueName is a device name no other process and no other lane uses. The
// kernel names threads after devices, which is how they are found.
func uniqueName(lane int, role string) string { return uniquePrefix() + strconv.Itoa(lane) + role }

func uniquePrefix() string { return "p" + strconv.FormatInt(int64(os.Getpid()), 36) + "-" }

// receiveOn gives the receiving of a device to a kernel thread and binds that
// to a CPU: so a forwarder inside the kernel works where ours does, and not on
// the source's CPU. It returns the thread's id.
func (s *space) receiveOn(device string, cpu int) (int, error) {
	// A sysfs shows the devices of the namespace it was mounted in.
	err := s.run("unshare", "--mount", "sh", "-ec", `mount -t sysfs sysfs /sys && echo 1 >"/sys/class/net/$0/threaded"`, device)
	if err != nil {
		return 0, fmt.Errorf("give %s's receiving to a thread: %w", device, err)
	}
	deadline := time.Now().Add(2 * time.Second)
	for {
		if pid := threadNamed("napi/" + device + "-"); pid != 0 {
			if err := unix.Setpriority(unix.PRIO_PROCESS, pid, niceMost); err != nil {
				return 0, fmt.Errorf("raise the priority of thread %d: %w", pid, err)
			}
			return pid, pin(pid, cpu)
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("the kernel made no thread for %s", device)
		}
		time.Sleep(time.Millisecond)
	}
}

func threadNamed(prefix string) int {
	for _, dir := range kernelThreads(prefix) {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			return pid
		}
	}
	return 0
}

// pin binds a thread to one CPU; 0 is the calling one.
func pin(tid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("bind thread %d to CPU %d: %w", tid, cpu, err)
	}
	return nil
}

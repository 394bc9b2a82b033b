package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/routes"
	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xdp"
)

// What is tried, in this order, each with what the agent itself does it with.
const (
	stepBPFFS    = "bpf pins"
	stepVeth     = "veth"
	stepSocket   = "af_xdp socket"
	stepWorkload = "workload program"
	stepUplink   = "uplink program"
	stepSlot     = "xskmap"
	stepFrame    = "frame by af_xdp"
	stepRules    = "policy rules"
	stepManaged  = "managed neighbours"
)

var allSteps = []string{stepBPFFS, stepVeth, stepSocket, stepWorkload, stepUplink, stepSlot, stepFrame, stepRules, stepManaged}

// tryKernel does what the agent does, in network and mount namespaces of a thread
// that ends with it.
func tryKernel(owner routes.Owner) []Step {
	done := make(chan []Step, 1)
	go onOwnThread(func() { done <- inSandbox(owner) })
	return <-done
}

// onOwnThread runs f on a thread that ends with it; not on the process's first,
// which could not end, and by whose namespaces /proc/self is read.
func onOwnThread(f func()) {
	runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
	runtime.UnlockOSThread()
}

func inSandbox(owner routes.Owner) (steps []Step) {
	dir, err := os.MkdirTemp("", "picot-doctor-")
	if err != nil {
		err = fmt.Errorf("a directory to try it in ($TMPDIR names another place): %w", err)
	} else {
		defer os.Remove(dir) // after the mount, which nobody else has, is off
		err = leaveNamespaces()
	}
	s := &sandbox{dir: dir, owner: owner}
	if err != nil {
		for _, name := range allSteps {
			s.steps = append(s.steps, Step{Name: name, Err: err, Unmade: true})
		}
		return s.steps
	}
	defer s.close()
	s.run()
	return s.steps
}

// leaveNamespaces gives the calling thread a network and mounts of its own.
func leaveNamespaces() error {
	err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNET | unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		return fmt.Errorf("namespaces to try it in: %w", err)
	}
	return nil
}

// sandbox is what was made of it; all of it goes with close.
type sandbox struct {
	dir   string
	owner routes.Owner
	steps []Step

	mounted           bool
	ours, other       int // interface indexes of the veth's ends
	mem               *xsk.Memory
	socket            *xsk.Socket
	workload, locator *xdp.Program
}

func (s *sandbox) close() {
	for _, p := range []*xdp.Program{s.workload, s.locator} {
		if p != nil {
			_ = p.Detach()
		}
	}
	if s.socket != nil {
		_ = s.socket.Close()
	}
	if s.mem != nil {
		_ = s.mem.Close()
	}
	if s.mounted {
		_ = unix.Unmount(s.dir, unix.MNT_DETACH)
	}
}

// run tries one after the other; what needs one that failed is not made.
func (s *sandbox) run() {
	needs := map[string]string{
		stepSocket: stepVeth, stepWorkload: stepVeth, stepUplink: stepVeth, stepSlot: stepWorkload, stepFrame: stepSlot, stepManaged: stepVeth,
	}
	try := map[string]func() (string, error){
		stepBPFFS: s.mount, stepVeth: s.veth, stepSocket: s.open, stepWorkload: s.attachWorkload, stepUplink: s.attachUplink,
		stepSlot: s.slot, stepFrame: s.frame, stepRules: s.rules, stepManaged: s.managed,
	}
	failed := map[string]error{}
	for _, name := range allSteps {
		if err := failed[needs[name]]; err != nil {
			failed[name] = err
			s.steps = append(s.steps, Step{Name: name, Err: fmt.Errorf("%s: %w", needs[name], err), Unmade: true, Needs: needs[name]})
			continue
		}
		note, err := try[name]()
		failed[name] = err
		s.steps = append(s.steps, Step{Name: name, Err: err, Note: note})
	}
}

func (s *sandbox) mount() (string, error) {
	if err := unix.Mount("bpf", s.dir, "bpf", 0, ""); err != nil {
		return "", fmt.Errorf("mount a bpffs: %w", err)
	}
	s.mounted = true
	return "a bpffs can be mounted", nil
}

const (
	sandboxOurs  = "pd-a"
	sandboxOther = "pd-b"
)

func (s *sandbox) veth() (string, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = sandboxOurs
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: sandboxOther}); err != nil {
		return "", fmt.Errorf("make a veth pair: %w", err)
	}
	for name, index := range map[string]*int{sandboxOurs: &s.ours, sandboxOther: &s.other} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return "", err
		}
		*index = l.Attrs().Index
		if err := netlink.LinkSetUp(l); err != nil {
			return "", fmt.Errorf("set a veth up: %w", err)
		}
	}
	return "a pair can be made", nil
}

// sandboxChunks is a small memory's: the kernel pins it.
const sandboxChunks = 64

func (s *sandbox) open() (note string, err error) {
	if s.mem, err = xsk.NewMemory(xsk.MemoryOptions{ChunksPerShard: sandboxChunks}); err != nil {
		return "", err
	}
	s.socket, err = xsk.Open(s.mem, s.mem.Whole(), xsk.Options{
		IfIndex: s.ours, Fill: sandboxChunks, RX: sandboxChunks, TX: 256, Completion: 256,
		TXBudget: 256, MultiBuffer: true, NeedWakeup: true,
	})
	if err != nil {
		return "", err
	}
	note = "bound, with frames of several buffers"
	for _, f := range s.socket.Options().Fallbacks {
		note += fmt.Sprintf("; without %s (%v)", f.What, f.Err)
	}
	return note, nil
}

// sandboxLocator is of the documentation prefix (RFC 3849).
var sandboxLocator = netip.MustParsePrefix("2001:db8::/64")

func (s *sandbox) attach(kind xdp.Kind, index int, name string) (*xdp.Program, error) {
	o := xdp.AttachOptions{IfIndex: index, Kind: kind, Queues: 1, PinDir: filepath.Join(s.dir, "pins"), Name: name}
	if kind == xdp.Uplink {
		o.Locator = sandboxLocator
	}
	return xdp.Attach(o)
}

func (s *sandbox) attachWorkload() (note string, err error) {
	if s.workload, err = s.attach(xdp.Workload, s.ours, sandboxOurs); err != nil {
		return "", err
	}
	note = "loaded, attached by a link in " + s.workload.Mode().String() + " mode, pinned"
	if !s.workload.ReadsTags() {
		note += "; it cannot read offloaded VLAN tags (Linux >= 6.8 can)"
	}
	return note, nil
}

func (s *sandbox) attachUplink() (note string, err error) {
	if s.locator, err = s.attach(xdp.Uplink, s.other, sandboxOther); err != nil {
		return "", err
	}
	return "loaded, attached by a link in " + s.locator.Mode().String() + " mode, pinned", nil
}

func (s *sandbox) slot() (string, error) {
	if s.socket == nil {
		return "", errors.New("no AF_XDP socket to fill a slot with")
	}
	return "takes a socket", s.workload.SetSocket(0, s.socket.FD())
}

// frame sends a frame to our end of the veth and waits for it at the socket.
func (s *sandbox) frame() (string, error) {
	for i := range sandboxChunks / 2 {
		s.socket.Fill([]xsk.Addr{xsk.Addr(i * xsk.ChunkSize)})
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("packet socket: %w", err)
	}
	defer unix.Close(fd)
	// 0x88b5 is for local experiments (IEEE 802).
	payload := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5}, bytes.Repeat([]byte{0x70}, 50)...)
	descs := make([]xsk.Desc, sandboxChunks)
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
		if err := unix.Sendto(fd, payload, 0, &unix.SockaddrLinklayer{Ifindex: s.other, Halen: 6}); err != nil {
			return "", fmt.Errorf("send a frame: %w", err)
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(s.socket.FD()), Events: unix.POLLIN}}, 50); err != nil && !errors.Is(err, unix.EINTR) {
			return "", fmt.Errorf("wait for a frame: %w", err)
		}
		for _, d := range descs[:s.socket.Receive(descs)] {
			if bytes.Equal(s.mem.Frame(d.Addr, int(d.Len)), payload) {
				return "sent over a veth, redirected by the program, received at the socket", nil
			}
		}
	}
	return "", errors.New("a frame sent over a veth did not arrive at the socket within 2s")
}

func (s *sandbox) rules() (string, error) {
	k, err := routes.Open(nil)
	if err != nil {
		return "", err
	}
	defer k.Close()
	o := s.owner
	err = errors.Join(
		k.AddRule(routes.Rule{Priority: o.Priority, Protocol: o.Protocol, Mark: o.Mark, Not: true, Table: o.GuardTable}),
		k.AddRoute(routes.Route{Table: o.GuardTable, Prefix: sandboxLocator, Metric: o.Metric, Protocol: o.Protocol, Unreachable: true}))
	return "rules by mark and unreachable routes can be made", err
}

var errUnmanaged = errors.New("the kernel ignores NTF_EXT_MANAGED: next hops would be forgotten")

func (s *sandbox) managed() (string, error) {
	k, err := routes.Open(nil)
	if err != nil {
		return "", err
	}
	defer k.Close()
	key := routes.NeighborKey{Link: s.other, IP: netip.MustParseAddr("fe80::1")}
	if err := k.Manage(key, s.owner.Protocol); err != nil {
		return "", err
	}
	all, err := k.Neighbors()
	if err != nil {
		return "", err
	}
	for _, n := range all {
		if n.NeighborKey == key && n.Managed {
			return "the kernel keeps next hops resolved by itself", nil
		}
	}
	return "", errUnmanaged
}

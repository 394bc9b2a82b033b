package xsk_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// etherType marks the tests' frames: IEEE local experimental.
const etherType = 0x88b5

// inNetns moves the test to a network namespace of its own for its whole life.
// The namespace has no name and goes with the thread, which is not reused.
func inNetns(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	runtime.LockOSThread() // never unlocked: the runtime ends the thread
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("cannot make a network namespace: %v: run it with CAP_SYS_ADMIN", err)
	}
	// New devices must not speak by themselves.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// veth makes a pair of up devices with the given queues and MTU.
func veth(t *testing.T, name string, queues, mtu int) (a, b netlink.Link) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.NumTxQueues, attrs.NumRxQueues = name+"0", mtu, queues, queues
	if err := netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: name + "1", PeerMTU: uint32(mtu),
		PeerNumTxQueues: uint32(queues), PeerNumRxQueues: uint32(queues),
	}); err != nil {
		t.Fatal(err)
	}
	a, b = linkNamed(t, name+"0"), linkNamed(t, name+"1")
	up(t, a)
	up(t, b)
	return a, b
}

func linkNamed(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func up(t *testing.T, l netlink.Link) {
	t.Helper()
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
}

func down(t *testing.T, l netlink.Link) {
	t.Helper()
	if err := netlink.LinkSetDown(l); err != nil {
		t.Fatal(err)
	}
}

// redirector is the smallest XDP program that feeds AF_XDP sockets: the XSKMAP
// slot of the queue, else XDP_PASS. frags says that it takes jumbo frames.
func redirector(t *testing.T, l netlink.Link, frags bool) *ebpf.Map {
	t.Helper()
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 16})
	if err != nil {
		t.Fatalf("cannot make an XSKMAP: %v: use a kernel with CONFIG_XDP_SOCKETS", err)
	}
	t.Cleanup(func() { m.Close() })
	spec := &ebpf.ProgramSpec{Type: ebpf.XDP, License: "Apache-2.0", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 16, asm.Word), // xdp_md.rx_queue_index
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Imm(asm.R3, 2), // XDP_PASS
		asm.FnRedirectMap.Call(),
		asm.Return(),
	}}
	if frags {
		spec.Flags = unix.BPF_F_XDP_HAS_FRAGS
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	at, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: l.Attrs().Index, Flags: link.XDPDriverMode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { at.Close() })
	return m
}

// packetSocket is a plain AF_PACKET socket: the peer nobody here wrote.
type packetSocket struct{ fd int }

func openPacket(t *testing.T, l netlink.Link) packetSocket {
	t.Helper()
	proto := binary.NativeEndian.Uint16([]byte{etherType >> 8, etherType & 0xff})
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(proto))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: l.Attrs().Index}); err != nil {
		t.Fatal(err)
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	return packetSocket{fd}
}

func (p packetSocket) send(t *testing.T, frame []byte) {
	t.Helper()
	if _, err := unix.Write(p.fd, frame); err != nil {
		t.Fatalf("packet socket: %v", err)
	}
}

func (p packetSocket) tryReceive() []byte {
	b := make([]byte, 1<<16)
	n, err := unix.Read(p.fd, b)
	if err != nil {
		return nil
	}
	return b[:n]
}

func (p packetSocket) receive(t *testing.T) (frame []byte) {
	t.Helper()
	eventually(t, "a frame on the packet socket", func() bool {
		frame = p.tryReceive()
		return frame != nil
	})
	return frame
}

// eventually polls ok with a deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within 10 s", what)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// frame is an Ethernet frame of n bytes whose payload names seq everywhere.
func frame(seq, n int) []byte {
	b := make([]byte, n)
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, etherType >> 8, etherType & 0xff})
	for i := 14; i < n; i++ {
		b[i] = byte(seq + i)
	}
	if n >= 18 {
		binary.BigEndian.PutUint32(b[14:], uint32(seq))
	}
	return b
}

func seqOf(b []byte) int { return int(binary.BigEndian.Uint32(b[14:])) }

func TestMain(m *testing.M) {
	before := openFiles()
	code := m.Run()
	if leaked := leakedFiles(before); code == 0 && len(leaked) > 0 {
		fmt.Fprintln(os.Stderr, "FAIL: leaked descriptors:", leaked)
		code = 1
	}
	os.Exit(code)
}

func openFiles() map[string]string {
	files := map[string]string{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return files
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			files[e.Name()] = to
		}
	}
	return files
}

// leakedFiles lists what is open besides before and the runtime's own epoll.
func leakedFiles(before map[string]string) (leaked []string) {
	for fd, to := range openFiles() {
		if _, old := before[fd]; !old && to != "anon_inode:[eventpoll]" && to != "anon_inode:[eventfd]" {
			leaked = append(leaked, fd+" -> "+to)
		}
	}
	return leaked
}

package xdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/testnet"
)

const patience = 20 * time.Second

// wire is a veth pair: pod in one namespace, port (the end under test) in
// another. Frames are sent from pod by an AF_PACKET socket, and what passes
// port's XDP program is seen by one at port.
type wire struct {
	podNS, hostNS *testnet.NS
	port          int // ifindex
	pinDir        string
	sender, stack int // packet sockets
}

const (
	podDev  = "pod"
	portDev = "port.7" // the dot: bpffs refuses it in a name
)

func newWire(t testing.TB, mtu, queues int) *wire {
	t.Helper()
	w := &wire{podNS: testnet.New(t, "pod"), hostNS: testnet.New(t, "host"), pinDir: filepath.Join(testnet.BPFFS(t), "picot")}
	// No IPv6: the kernels' own chatter would be counted.
	w.podNS.Sysctl(t, "net.ipv6.conf.default.disable_ipv6", "1")
	w.hostNS.Sysctl(t, "net.ipv6.conf.default.disable_ipv6", "1")
	w.plug(t, mtu, queues)
	return w
}

func (w *wire) plug(t testing.TB, mtu, queues int) {
	t.Helper()
	testnet.Veth(t,
		testnet.End{NS: w.podNS, Name: podDev, MTU: mtu, Queues: queues},
		testnet.End{NS: w.hostNS, Name: portDev, MTU: mtu, Queues: queues})
	w.port = w.hostNS.Link(t, portDev).Attrs().Index
	w.sender = packetSocket(t, w.podNS, w.podNS.Link(t, podDev).Attrs().Index)
	w.stack = packetSocket(t, w.hostNS, w.port)
}

func packetSocket(t testing.TB, ns *testnet.NS, ifindex int) int {
	t.Helper()
	fd := -1
	ns.Run(t, func() {
		proto := binary.BigEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff})
		net := int(proto>>8 | proto<<8)
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, net); err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(net), Ifindex: ifindex}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func (w *wire) options(kind Kind) AttachOptions {
	return AttachOptions{IfIndex: w.port, Kind: kind, Queues: 4, PinDir: w.pinDir, Name: portDev}
}

// attach attaches to the port and detaches at the test's end.
func (w *wire) attach(t *testing.T, o AttachOptions) *Program {
	t.Helper()
	p, err := w.try(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (w *wire) try(o AttachOptions) (p *Program, err error) {
	err = w.hostNS.Do(func() error {
		p, err = Attach(o)
		return err
	})
	return p, err
}

func (w *wire) send(t *testing.T, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		if err := unix.Send(w.sender, f, 0); err != nil {
			t.Fatalf("send: %v", err)
		}
	}
}

// stream sends f until stop is called, which says how many were sent.
func (w *wire) stream(t *testing.T, f []byte) (stop func() uint64) {
	t.Helper()
	quit, sent := make(chan struct{}), make(chan uint64)
	go func() {
		n := uint64(0)
		for {
			select {
			case <-quit:
				sent <- n
				return
			default:
			}
			switch err := unix.Send(w.sender, f, 0); {
			case err == nil:
				n++
			case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS):
				t.Errorf("send: %v", err)
				sent <- n
				return
			}
			time.Sleep(20 * time.Microsecond) // leaves the CPU to the others
		}
	}()
	return func() uint64 { close(quit); return <-sent }
}

// seen is all frames that met the program.
func seen(c Counters) uint64 { return c.Redirected + c.DroppedEmpty + c.Passed + c.Errors }

// wantSeen waits until the program has seen n frames.
func wantSeen(t *testing.T, p *Program, n uint64) (c Counters) {
	t.Helper()
	testnet.Eventually(t, patience, "frames in the program", func() (err error) {
		if c, err = p.Counters(); err == nil && seen(c) != n {
			err = fmt.Errorf("%d of %d", seen(c), n)
		}
		return err
	})
	return c
}

// stackSaw returns how many frames with the mark are in the port's packet
// socket by now, sending aside.
func (w *wire) stackSaw(t *testing.T, mark string) int {
	t.Helper()
	n, buf := 0, make([]byte, 65536)
	for {
		size, from, err := unix.Recvfrom(w.stack, buf, 0)
		if errors.Is(err, unix.EAGAIN) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		if sll, ok := from.(*unix.SockaddrLinklayer); ok && sll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if bytes.Contains(buf[:size], []byte(mark)) {
			n++
		}
	}
}

// wantCounters waits until the counters are these.
func wantCounters(t *testing.T, p *Program, want Counters) {
	t.Helper()
	testnet.Eventually(t, patience, "counters", func() error {
		got, err := p.Counters()
		if err == nil && got != want {
			err = fmt.Errorf("got %+v, want %+v", got, want)
		}
		return err
	})
}

// frame is an Ethernet frame of the local experimental type carrying mark.
func frame(mark string) []byte {
	f := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5}
	f = append(f, mark...)
	return append(f, make([]byte, max(0, 60-len(f)))...)
}

func repeat(f []byte, n int) [][]byte {
	fs := make([][]byte, n)
	for i := range fs {
		fs[i] = f
	}
	return fs
}

// ipv6Frame is an IPv6 frame to dst carrying mark.
func ipv6Frame(dst netip.Addr, mark string) []byte {
	f := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0}
	f = binary.BigEndian.AppendUint16(f, uint16(len(mark)))
	f = append(f, 59, 64) // no next header
	src := netip.MustParseAddr("2001:db8:ffff::1").As16()
	to := dst.As16()
	f = append(append(f, src[:]...), to[:]...)
	return append(f, mark...)
}

// tagged returns f with an 802.1Q or 802.1ad tag in it.
func tagged(f []byte, tpid, tci uint16) []byte {
	out := append([]byte{}, f[:12]...)
	out = binary.BigEndian.AppendUint16(out, tpid)
	out = binary.BigEndian.AppendUint16(out, tci)
	return append(out, f[12:]...)
}

// pushOffloaded makes pod's egress put a VLAN tag on every frame the way a tc
// program does: into the skb's metadata, not into the frame. The returned
// function takes it away.
func (w *wire) pushOffloaded(t *testing.T, tpid, tci uint16) (stop func()) {
	t.Helper()
	return w.egress(t, asm.Instructions{
		asm.Mov.Imm(asm.R2, int32(tpid>>8|tpid<<8)), // in network order
		asm.Mov.Imm(asm.R3, int32(tci)),
		asm.FnSkbVlanPush.Call(),
	})
}

// steer makes pod's egress choose the transmit queue, and so the port's receive
// queue of the same number.
func (w *wire) steer(t *testing.T, queue int) (stop func()) {
	t.Helper()
	const queueMapping = 12 // offset in struct __sk_buff; the value is queue + 1
	return w.egress(t, asm.Instructions{
		asm.Mov.Imm(asm.R2, int32(queue+1)),
		asm.StoreMem(asm.R1, queueMapping, asm.R2, asm.Word),
	})
}

// egress runs insns (skb in R1) on every frame that leaves pod.
func (w *wire) egress(t *testing.T, insns asm.Instructions) (stop func()) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "pod_egress", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: append(insns, asm.Mov.Imm(asm.R0, 0), asm.Return()), // TCX_PASS
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	var l link.Link
	w.podNS.Run(t, func() {
		l, err = link.AttachTCX(link.TCXOptions{
			Interface: w.podNS.Link(t, podDev).Attrs().Index, Program: prog, Attach: ebpf.AttachTCXEgress,
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() { l.Close() }
}

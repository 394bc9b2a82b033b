package e2e

import (
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// inNetns runs f on a thread of its own in the namespace at path. The thread
// ends with it, so no other goroutine ever runs there.
func inNetns(t *testing.T, path string, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		ns, err := netns.GetFromPath(path)
		if err == nil {
			defer ns.Close()
			if err = netns.Set(ns); err == nil {
				err = f()
			}
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("in %s: %v", path, err)
	}
}

// packetSocket opens an AF_PACKET socket on a device, with the tag the kernel
// took out of a frame as auxiliary data.
func packetSocket(t *testing.T, path, device string) int {
	t.Helper()
	fd := -1
	inNetns(t, path, func() (err error) {
		link, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL))); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: link.Index})
	})
	return fd
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// captured is one frame a device received or sent, with its tag, if any, back in
// place.
type captured struct {
	data     []byte
	outgoing bool
}

// capture records what passes a device until the test ends.
type capture struct {
	fd     int
	ended  chan struct{}
	mu     sync.Mutex
	frames []captured
}

// startCapture records frames of a device in the namespace at path.
func startCapture(t *testing.T, path, device string) *capture {
	t.Helper()
	c := &capture{fd: packetSocket(t, path, device), ended: make(chan struct{})}
	tv := unix.NsecToTimeval(int64(50 * time.Millisecond))
	if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	go c.read(stop)
	t.Cleanup(func() {
		close(stop)
		<-c.ended
		_ = unix.Close(c.fd)
	})
	return c
}

func (c *capture) read(stop <-chan struct{}) {
	defer close(c.ended)
	buf, oob := make([]byte, 1<<16), make([]byte, 256)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, oobn, _, from, err := unix.Recvmsg(c.fd, buf, oob, 0)
		if err != nil {
			continue // the timeout, or the device is down
		}
		ll, ok := from.(*unix.SockaddrLinklayer)
		f := captured{data: withTag(append([]byte{}, buf[:n]...), oob[:oobn]), outgoing: ok && ll.Pkttype == unix.PACKET_OUTGOING}
		c.mu.Lock()
		c.frames = append(c.frames, f)
		c.mu.Unlock()
	}
}

// withTag puts the tag of a tpacket_auxdata back into the frame.
func withTag(frame, oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(frame) < 14 {
		return frame
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < 20 {
			continue
		}
		status := binary.NativeEndian.Uint32(m.Data)
		if status&unix.TP_STATUS_VLAN_VALID == 0 {
			continue
		}
		tci, tpid := binary.NativeEndian.Uint16(m.Data[16:]), uint16(0x8100)
		if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			tpid = binary.NativeEndian.Uint16(m.Data[18:])
		}
		tag := binary.BigEndian.AppendUint16(nil, tpid)
		tag = binary.BigEndian.AppendUint16(tag, tci)
		frame = append(append(append([]byte{}, frame[:12]...), tag...), frame[12:]...)
	}
	return frame
}

// all returns the frames so far for which keep holds.
func (c *capture) all(keep func(captured) bool) []captured {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []captured
	for _, f := range c.frames {
		if keep(f) {
			out = append(out, f)
		}
	}
	return out
}

// sendRaw sends frames from a device as they are.
func sendRaw(t *testing.T, path, device string, frames ...[]byte) {
	t.Helper()
	fd := packetSocket(t, path, device)
	defer unix.Close(fd)
	for _, f := range frames {
		if _, err := unix.Write(fd, f); err != nil {
			t.Fatalf("sending a frame of %d bytes: %v", len(f), err)
		}
	}
}

// eventually polls until check returns nil.
func eventually(t *testing.T, d time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(d)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, d, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var errNone = fmt.Errorf("none seen")

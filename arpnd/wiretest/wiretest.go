// Package wiretest puts a function in the place of a network: each frame that
// arrives on a link is handed to it, and what it makes of the frame goes back.
// So the pure code that answers frames meets a real stack without a data path.
//
// Only tests import this package. The function runs on one goroutine, which ends
// before the test's cleanup does. Packet sockets see VLAN tags stripped; tagged
// frames are not for this package.
package wiretest

import (
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/testnet"
)

// Wire is the far end of a link.
type Wire struct {
	fd int
}

// Attach hands each frame that link receives to answer, as chunk[:n] with room
// behind it. If the result is m > 0, chunk[:m] is sent back.
func Attach(t testing.TB, ns *testnet.NS, link string, answer func(chunk []byte, n int) int) *Wire {
	t.Helper()
	w := &Wire{fd: -1}
	index := ns.Link(t, link).Attrs().Index
	ns.Run(t, func() {
		var err error
		if w.fd, err = open(index); err != nil {
			t.Fatalf("packet socket on %s: %v", link, err)
		}
	})
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { w.serve(answer, stop) })
	t.Cleanup(func() {
		close(stop)
		done.Wait()
		unix.Close(w.fd)
	})
	return w
}

// open binds a packet socket whose reads give up after a while, so that its
// reader can be stopped.
func open(index int) (int, error) {
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}),
	)
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (w *Wire) serve(answer func([]byte, int) int, stop <-chan struct{}) {
	chunk := make([]byte, 4096)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, _, err := unix.Recvfrom(w.fd, chunk, 0)
		if err != nil {
			continue // nothing within the timeout, or the link is down for now
		}
		if m := answer(chunk, n); m > 0 {
			// A link that has gone down loses the frame, as a wire would.
			_, _ = unix.Write(w.fd, chunk[:m])
		}
	}
}

// Send puts a frame on the link.
func (w *Wire) Send(t testing.TB, frame []byte) {
	t.Helper()
	if _, err := unix.Write(w.fd, frame); err != nil {
		t.Fatalf("send: %v", err)
	}
}

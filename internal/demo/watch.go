package demo

import (
	"bytes"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// watcher is a packet socket that sees every frame a device receives.
type watcher struct {
	name   string
	fd     int
	frames [][]byte
}

// inside runs a function in a network namespace.
type inside func(func() error) error

// watch begins to listen. Close it.
func watch(name string, enter inside, device string) (*watcher, error) {
	w := &watcher{name: name, fd: -1}
	err := enter(func() (err error) {
		w.fd, err = packetSocket(device, unix.ETH_P_ALL)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", name, errors.Join(err, w.close()))
	}
	return w, nil
}

// packetSocket opens one in the thread's namespace. Protocol 0 receives nothing.
func packetSocket(device string, protocol uint16) (fd int, err error) {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return -1, err
	}
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: link.Index}))
	return fd, err
}

// drain takes in what arrived so far. A watcher that missed frames is an error: it
// cannot say what was not there.
func (w *watcher) drain() error {
	var b [65536]byte
	for {
		n, err := unix.Read(w.fd, b[:])
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("watching %s: %w", w.name, err)
		}
		w.frames = append(w.frames, bytes.Clone(b[:n]))
	}
	stats, err := unix.GetsockoptTpacketStats(w.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return fmt.Errorf("watching %s: %w", w.name, err)
	}
	if stats.Drops > 0 {
		return fmt.Errorf("watching %s: %d frames missed", w.name, stats.Drops)
	}
	return nil
}

// with counts the frames that hold a marker, encapsulated or not.
func (w *watcher) with(marker []byte) int {
	n := 0
	for _, f := range w.frames {
		if bytes.Contains(f, marker) {
			n++
		}
	}
	return n
}

func (w *watcher) close() error {
	if w.fd < 0 {
		return nil
	}
	err := unix.Close(w.fd)
	w.fd = -1
	return err
}

// watchers are several, drained and closed together.
type watchers []*watcher

func (all watchers) drain() error {
	var errs []error
	for _, w := range all {
		errs = append(errs, w.drain())
	}
	return errors.Join(errs...)
}

func (all watchers) close() {
	for _, w := range all {
		_ = w.close()
	}
}

// send puts frames on a device, as a program in that namespace would.
func send(enter inside, device string, frames [][]byte) error {
	return enter(func() error {
		fd, err := packetSocket(device, 0)
		if fd >= 0 {
			defer unix.Close(fd)
		}
		for i := 0; err == nil && i < len(frames); i++ {
			_, err = unix.Write(fd, frames[i])
		}
		if err != nil {
			return fmt.Errorf("sending on %s: %w", device, err)
		}
		return nil
	})
}

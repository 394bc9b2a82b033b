package agent

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath"
)

// statePage is memory that two processes have: the older one writes where each
// frame is, the newer one reads it. Nothing is copied through a socket while
// nobody forwards. With it goes a token: who takes it has the frames, and the
// other one keeps its hands off, whoever was late and whatever got lost.
type statePage struct {
	fd    int
	token int // eventfd
	data  []byte
}

// newStatePage makes one for a handover, every page of it there.
func newStatePage(h *fastpath.Handover) (*statePage, error) {
	n, err := h.StateLen()
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("picot-state", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("state page: %w", err)
	}
	token, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("token: %w", err), unix.Close(fd))
	}
	err = unix.Ftruncate(fd, int64(n))
	if err == nil { // nobody takes pages away under the other's mapping
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("state page of %d bytes: %w", n, err), unix.Close(fd), unix.Close(token))
	}
	return openStatePage(h, fd, token)
}

// openStatePage maps one. It owns the descriptors, whatever comes of it.
func openStatePage(h *fastpath.Handover, fd, token int) (*statePage, error) {
	n, err := h.StateLen()
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err == nil && st.Size != int64(n) {
		err = fmt.Errorf("it has %d bytes, want %d", st.Size, n)
	}
	var data []byte
	if err == nil {
		data, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("state page: %w", err), unix.Close(fd), unix.Close(token))
	}
	return &statePage{fd: fd, token: token, data: data}, nil
}

// take takes the token; false: the other process has it.
func (p *statePage) take() bool {
	var b [8]byte
	n, err := unix.Read(p.token, b[:])
	return n == len(b) && err == nil
}

// fds are the descriptors to send, in openStatePage's order.
func (p *statePage) fds() []int { return []int{p.fd, p.token} }

func (p *statePage) close() error {
	return errors.Join(unix.Munmap(p.data), unix.Close(p.fd), unix.Close(p.token))
}

// monotonic is a time that is the same for all processes.
func monotonic() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0 // it has no way to fail
	}
	return t.Nano()
}

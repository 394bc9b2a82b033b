package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath"
)

// statePage is memory that two processes have: the older one writes where each
// frame is, the newer one reads it. Nothing is copied through a socket while
// nobody forwards. With it goes a token: who takes it has the frames, and the
// other one keeps its hands off, whoever was late and whatever got lost.
type statePage struct {
	fds  [pageFDs]int // memfd, eventfds
	data []byte
}

// What descriptors a page has, in the order in which they are sent: the memory, the
// token, and what tells that the state is written.
const (
	pageMemory = iota
	pageToken
	pageWritten
	pageFDs
)

// newStatePage makes one for a handover, every page of it there.
func newStatePage(h *fastpath.Handover) (*statePage, error) {
	n, err := h.StateLen()
	if err != nil {
		return nil, err
	}
	fds := [pageFDs]int{-1, -1, -1}
	fds[pageMemory], err = unix.MemfdCreate("picot-state", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		fds[pageToken], err = unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		fds[pageWritten], err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = unix.Ftruncate(fds[pageMemory], int64(n))
	}
	if err == nil { // nobody takes pages away under the other's mapping
		_, err = unix.FcntlInt(uintptr(fds[pageMemory]), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("state page of %d bytes: %w", n, err), closeFDs(fds[:]))
	}
	return openStatePage(h, fds)
}

// closeFDs closes those that are open.
func closeFDs(fds []int) error {
	var err error
	for _, fd := range fds {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

// openStatePage maps one, before anything is written, and touches each page: the
// first access costs 20 us on some virtual machines (docs/decisions/0113). It owns
// the descriptors, whatever comes of it.
func openStatePage(h *fastpath.Handover, fds [pageFDs]int) (*statePage, error) {
	fd := fds[pageMemory]
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
		return nil, errors.Join(fmt.Errorf("state page: %w", err), closeFDs(fds[:]))
	}
	for i := 0; i < n; i += unix.Getpagesize() {
		data[i] = 0
	}
	return &statePage{fds: fds, data: data}, nil
}

// take takes the token; false: the other process has it.
func (p *statePage) take() bool {
	var b [8]byte
	n, err := unix.Read(p.fds[pageToken], b[:])
	return n == len(b) && err == nil
}

// tell says that the state is written.
func (p *statePage) tell() {
	one := [8]byte{1}                             // any non-zero count
	_, _ = unix.Write(p.fds[pageWritten], one[:]) // the first one always fits
}

// await blocks the thread, not only the goroutine, until the state is written, for
// d at most, or who writes it is gone.
func (p *statePage) await(writer *net.UnixConn, d time.Duration) error {
	raw, err := writer.SyscallConn()
	if err != nil {
		return err
	}
	var perr error
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(p.fds[pageWritten]), Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLRDHUP}}
		for end := time.Now().Add(d); ; {
			n, err := unix.Poll(fds, int(max(0, time.Until(end)).Milliseconds()))
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case err != nil:
				perr = fmt.Errorf("state page: %w", err)
			case fds[0].Revents != 0:
			case n == 0:
				perr = fmt.Errorf("state page: nothing written within %v: %w", d, os.ErrDeadlineExceeded)
			default:
				perr = fmt.Errorf("state page: %w", io.EOF)
			}
			return
		}
	})
	return errors.Join(err, perr)
}

func (p *statePage) close() error { return errors.Join(unix.Munmap(p.data), closeFDs(p.fds[:])) }

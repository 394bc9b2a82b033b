package xsk

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is one AF_XDP socket: a (device, queue) and its four rings.
type Socket struct {
	// The owner's goroutine only.
	fill        fillRing
	completion  completionRing
	rx          rxRing
	tx          txRing
	region      Region // fixed, here because every call reads it
	outstanding int
	faults      Faults
	errno       unix.Errno
	peer        *Peer // plays the kernel in tests; nil with a real socket

	// Fixed after Open.
	fd         int
	options    Options
	negotiated Negotiated
	closed     bool
	rings      [][]byte // mappings
}

// Faults counts what neither side should ever do. All stay 0 with a sound
// kernel and a sound caller.
type Faults struct {
	BogusRX           uint64 // received descriptors outside the region or their chunk
	BogusCompletions  uint64 // completions outside the region
	ExcessCompletions uint64 // more completions than frames transmitted
	BadIndex          uint64 // ring indices the kernel cannot have reached
	RejectedFill      uint64 // Fill calls stopped by an address outside the region
	RejectedTX        uint64 // Transmit calls stopped by a descriptor the kernel would not take
}

var (
	// ErrQueueBusy says that another socket holds the (device, queue).
	ErrQueueBusy = errors.New("queue is held by another AF_XDP socket")
	// ErrNotSocket says that an inherited descriptor is not the socket
	// described.
	ErrNotSocket = errors.New("not the AF_XDP socket described")
)

// Open makes a socket on o's device and queue with r of m as its UMEM. The
// device must be in the network namespace of the calling thread, so a caller
// that changed it has locked the goroutine to the thread. The socket starts
// with empty rings; for RX an XDP program must put it into its XSKMAP.
//
// Errors wrap ErrOptions, ErrMemoryGeometry, ErrQueueBusy or the errno.
func Open(m *Memory, r Region, o Options) (*Socket, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := o.withDevice(); err != nil {
		return nil, err
	}
	if err := m.check(r); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making an AF_XDP socket: %w", err)
	}
	s := newSocket(fd, r, o)
	if err := s.setUp(m); err != nil {
		s.Close()
		return nil, fmt.Errorf("AF_XDP socket on ifindex %d queue %d: %w", o.IfIndex, o.Queue, err)
	}
	return s, nil
}

func (m *Memory) check(r Region) error {
	if r.size == 0 || uint64(r.base)+r.size > uint64(len(m.data)) {
		return fmt.Errorf("region of %d bytes at %d in a memory of %d: %w", r.size, r.base, len(m.data), ErrMemoryGeometry)
	}
	return nil
}

func newSocket(fd int, r Region, o Options) *Socket {
	return &Socket{fd: fd, region: r, options: o, negotiated: Negotiated{
		NeedWakeup: o.NeedWakeup, MultiBuffer: o.MultiBuffer, TXMetadata: o.TXMetadata,
	}}
}

func (s *Socket) setUp(m *Memory) error {
	if err := registerUMEM(s.fd, m, s.region, s.options); err != nil {
		return err
	}
	for _, r := range []struct {
		name    string
		opt     int
		entries int
	}{
		{"fill", unix.XDP_UMEM_FILL_RING, s.options.Fill},
		{"completion", unix.XDP_UMEM_COMPLETION_RING, s.options.Completion},
		{"rx", unix.XDP_RX_RING, s.options.RX},
		{"tx", unix.XDP_TX_RING, s.options.TX},
	} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_XDP, r.opt, r.entries); err != nil {
			return fmt.Errorf("sizing the %s ring to %d: %w", r.name, r.entries, err)
		}
	}
	if err := s.mapRings(); err != nil {
		return err
	}
	s.tune()
	if err := s.bind(); err != nil {
		return err
	}
	return s.readOptions()
}

// tune sets what a socket works without.
func (s *Socket) tune() {
	s.soften("send buffer", setInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, s.options.SndBuf))
	s.negotiated.TXBudget = KernelTXBudget
	if b := s.options.TXBudget; b != 0 {
		err := setInt(s.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, b)
		s.soften("tx budget", err)
		if err == nil {
			s.negotiated.TXBudget = b
		}
	}
	if b := s.options.BusyPoll; b.Microseconds != 0 {
		err := setInt(s.fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL, b.Microseconds)
		if b.Prefer {
			err = errors.Join(err, setInt(s.fd, unix.SOL_SOCKET, unix.SO_PREFER_BUSY_POLL, 1))
		}
		if b.Budget != 0 {
			err = errors.Join(err, setInt(s.fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL_BUDGET, b.Budget))
		}
		s.soften("busy poll", err)
	}
}

func setInt(fd, level, opt, value int) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, opt, value))
}

func (s *Socket) soften(what string, err error) {
	if err != nil {
		s.negotiated.Fallbacks = append(s.negotiated.Fallbacks, Fallback{What: what, Err: err})
	}
}

func (s *Socket) bind() error {
	flags := uint16(0)
	if s.options.NeedWakeup {
		flags |= unix.XDP_USE_NEED_WAKEUP
	}
	if s.options.MultiBuffer {
		flags |= unix.XDP_USE_SG
	}
	if s.options.ZeroCopy == ZeroCopyOff {
		return s.bindWait(flags | unix.XDP_COPY)
	}
	err := s.bindWait(flags | unix.XDP_ZEROCOPY)
	if err == nil || s.options.ZeroCopy == ZeroCopyRequire || errors.Is(err, ErrQueueBusy) {
		return err
	}
	if copyErr := s.bindWait(flags | unix.XDP_COPY); copyErr != nil {
		return copyErr
	}
	s.soften("zero-copy", err)
	return nil
}

// bindWait binds, waiting within the bound for a queue whose last socket is
// closed but not freed yet. The kernel gives no event for that, hence the
// short sleeps.
func (s *Socket) bindWait(flags uint16) error {
	sa := &unix.SockaddrXDP{Flags: flags, Ifindex: uint32(s.options.IfIndex), QueueID: uint32(s.options.Queue)}
	deadline := time.Now().Add(s.options.BindTimeout)
	for {
		err := unix.Bind(s.fd, sa)
		switch {
		case err == nil:
			return nil
		case err != unix.EBUSY:
			return fmt.Errorf("binding: %w", err)
		case !time.Now().Before(deadline):
			return fmt.Errorf("binding: %w (%w): stop its owner", ErrQueueBusy, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// Close frees the queue: the rings are unmapped first, because each mapping
// holds the socket as the descriptor does. Chunks still with the kernel are the
// caller's again, except that packets in flight may be read by the kernel a
// little longer.
func (s *Socket) Close() error {
	if s.closed {
		return os.ErrClosed
	}
	s.closed = true
	if s.peer != nil {
		return errors.Join(s.unmap(), s.peer.close())
	}
	err := errors.Join(s.unmap(), unix.Close(s.fd))
	s.fd = -1
	return err
}

// unmap unmaps the rings and puts empty ones in their place, so that a late
// call takes and gives nothing.
func (s *Socket) unmap() error {
	var err error
	for _, r := range s.rings {
		err = errors.Join(err, unix.Munmap(r))
	}
	s.rings = nil
	s.attach(plainRing[ringAddr](0, 0), plainRing[ringAddr](0, 0), plainRing[ringDesc](0, 0), plainRing[ringDesc](0, 0))
	return err
}

// FD is the socket's descriptor, for an XSKMAP, epoll or another process. It
// stays the Socket's; -1 after Close.
func (s *Socket) FD() int { return s.fd }

// Region is what the socket registered.
func (s *Socket) Region() Region { return s.region }

// Options is what the socket got of the Options it was opened with.
func (s *Socket) Options() Negotiated { return s.negotiated }

// Requested is the Options the socket was opened with, defaults filled in: what
// FromFD needs to adopt it elsewhere.
func (s *Socket) Requested() Options { return s.options }

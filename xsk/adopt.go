package xsk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FromFD adopts a bound socket another process opened with r of the same
// memory and o, and has stopped using; or will have, then Reload is to be called
// before anything else. The rings are mapped again and the indices taken from
// them, so frames in the rings and in flight carry on. On success the Socket
// owns fd; on error the caller still does.
func FromFD(fd int, m *Memory, r Region, o Options) (*Socket, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := m.check(r); err != nil {
		return nil, err
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return nil, fmt.Errorf("adopting fd %d: %w: %w", fd, ErrNotSocket, err)
	}
	if domain != unix.AF_XDP {
		return nil, fmt.Errorf("adopting fd %d of address family %d: %w", fd, domain, ErrNotSocket)
	}
	s := newSocket(fd, r, o)
	if err := s.adopt(); err != nil {
		s.unmap()
		return nil, fmt.Errorf("adopting fd %d: %w", fd, err)
	}
	unix.CloseOnExec(fd)
	return s, nil
}

// Reload takes the rings' indices again: another process has moved them since
// FromFD, and has stopped.
func (s *Socket) Reload() {
	s.fill.reload()
	s.completion.reload()
	s.rx.reload()
	s.tx.reload()
	s.countOutstanding()
}

func (s *Socket) adopt() error {
	if err := s.mapRings(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSocket, err)
	}
	if err := s.readOptions(); err != nil {
		return err
	}
	s.negotiated.TXBudget = s.options.TXBudget
	if s.negotiated.TXBudget == 0 {
		s.negotiated.TXBudget = KernelTXBudget
	}
	return nil
}

package xsk

import "fmt"

// Stats is XDP_STATISTICS, counted by the kernel since the socket was made.
type Stats struct {
	RXDropped   uint64 // frames dropped for want of a chunk (also in RXFillEmpty) or longer than one
	RXInvalid   uint64 // fill entries the kernel did not take
	TXInvalid   uint64 // TX descriptors not sent: skipped without a completion, or of a frame with too many fragments, completed
	RXRingFull  uint64 // frames dropped because Receive was late
	RXFillEmpty uint64 // frames dropped because there was no chunk for them
	TXRingEmpty uint64 // times the kernel found nothing to send
}

// Stats asks the kernel. Any goroutine may call it until Close.
func (s *Socket) Stats() (Stats, error) {
	if s.peer != nil {
		return s.peer.stats(), nil
	}
	st, err := statistics(s.fd)
	if err != nil {
		return st, fmt.Errorf("reading AF_XDP statistics of ifindex %d queue %d: %w", s.options.IfIndex, s.options.Queue, err)
	}
	return st, nil
}

func (s *Socket) readOptions() error {
	zc, err := zeroCopyMode(s.fd)
	if err != nil {
		return fmt.Errorf("reading AF_XDP options: %w", err)
	}
	s.negotiated.ZeroCopy = zc
	return nil
}

package gen

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/packet"
)

// Socket is the AF_PACKET source, a system call a frame.
type Socket struct {
	fd int
	writer
}

// writer writes one frame after the other, as gen_source in bpf/gen.c does.
type writer struct {
	options  Options
	frame    []byte
	replaced uint64
	flow     uint32
	sequence uint64
}

func newWriter(o Options) writer {
	w := writer{options: o, frame: append([]byte{}, o.Frame...)}
	w.replaced = w.replacedSum()
	return w
}

var _ Source = (*Socket)(nil)

// NewSocket makes a source that sends out of the device. It needs nothing of
// the device's other end. Refresh and Batch do not matter here.
func NewSocket(ifindex int, o Options) (*Socket, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // protocol 0: receives nothing
	if err != nil {
		return nil, fmt.Errorf("make a packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: ifindex}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind a packet socket to interface index %d: %w", ifindex, err)
	}
	return &Socket{fd: fd, writer: newWriter(o)}, nil
}

// Run implements [Source].
func (s *Socket) Run(ctx context.Context, l Load) (Result, error) {
	return pace(ctx, l, 256, func(n int) (int, error) {
		for i := range n {
			s.next()
			err := unix.Send(s.fd, s.frame, 0)
			if errors.Is(err, unix.ENOBUFS) { // the device dropped it
				err = nil
			}
			if err != nil {
				return i, fmt.Errorf("send: %w", err)
			}
		}
		return n, nil
	})
}

// next writes the next frame.
func (s *writer) next() {
	for _, f := range s.options.Fields {
		binary.BigEndian.PutUint16(s.frame[f.Offset:], f.Base+uint16(s.flow))
	}
	if at := s.options.Stamp; at != 0 {
		stamp := s.frame[at : at+StampLen]
		binary.BigEndian.PutUint16(stamp, stampMagic)
		binary.BigEndian.PutUint16(stamp[2:], 0)
		binary.BigEndian.PutUint32(stamp[4:], s.flow)
		binary.BigEndian.PutUint64(stamp[8:], s.sequence)
		balance := packet.Fold(packet.Add(s.replaced, uint64(^packet.Fold(s.replacedSum()))))
		binary.BigEndian.PutUint16(stamp[2:], balance)
	}
	if s.flow++; s.flow >= uint32(s.options.Flows) {
		s.flow = 0
		s.sequence++
	}
}

// replacedSum is the sum of the words a frame replaces, as they are now.
func (s *writer) replacedSum() (sum uint64) {
	if at := s.options.Stamp; at != 0 {
		sum = packet.Sum(s.frame[at : at+StampLen])
	}
	for _, f := range s.options.Fields {
		if f.Summed {
			sum = packet.Add(sum, uint64(binary.BigEndian.Uint16(s.frame[f.Offset:])))
		}
	}
	return sum
}

// Close closes the socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }

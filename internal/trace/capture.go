package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"picot.dev/picot/fastpath"
)

// ErrCapture is wrapped by the errors of [ReadCapture] about what a file holds.
var ErrCapture = errors.New("no frame in the capture")

// Of capture files: the numbers they begin with, and the link type of Ethernet
// (draft-ietf-opsawg-pcap sections 4 and 5, draft-ietf-opsawg-pcapng sections 4.1 to 4.4).
const (
	pcapMicros, pcapNanos = 0xa1b2c3d4, 0xa1b23c4d
	ngSection, ngOrder    = 0x0a0d0d0a, 0x1a2b3c4d
	ngInterface           = 1
	ngPacketOld, ngSimple = 2, 3
	ngEnhanced            = 6
	linkEthernet          = 1
	// longestBlock bounds what is read at once, far above any packet's.
	longestBlock = 1 << 20
)

// ReadCapture returns frame number n, from 1, of a pcap or pcapng file. It reads no
// further than that frame.
func ReadCapture(r io.Reader, n int) ([]byte, error) {
	if n < 1 {
		return nil, fmt.Errorf("%w: frame %d: the first is 1", ErrCapture, n)
	}
	c := capture{r: r, want: n}
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("%w: it is shorter than any capture: %w", ErrCapture, err)
	}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		c.order = order
		switch order.Uint32(head[:]) {
		case pcapMicros, pcapNanos:
			return c.pcap()
		case ngSection:
			return c.pcapng()
		}
	}
	return nil, fmt.Errorf("%w: it is neither pcap nor pcapng (it begins with %x)", ErrCapture, head)
}

// capture reads one file.
type capture struct {
	r     io.Reader
	order binary.ByteOrder
	want  int
	seen  int
	links []link // of pcapng: the section's interfaces
}

// link is an interface of a section.
type link struct{ kind, snap uint32 }

func (c *capture) read(n uint32) ([]byte, error) {
	if n > longestBlock {
		return nil, fmt.Errorf("%w: after frame %d comes a piece of %d bytes: the file is damaged", ErrCapture, c.seen, n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(c.r, b)
	return b, err
}

// ended is what the end of the file, or of what can be read, means.
func (c *capture) ended(err error) error {
	if errors.Is(err, ErrCapture) {
		return err
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it has no frame %d: it ends after %d", ErrCapture, c.want, c.seen)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is cut off in or after frame %d, and frame %d is wanted", ErrCapture, c.seen, c.want)
	}
	return fmt.Errorf("%w: after frame %d: %w", ErrCapture, c.seen, err)
}

// frame is the wanted frame, captured bytes of which are there.
func (c *capture) frame(b []byte, captured, length, kind uint32) ([]byte, error) {
	switch {
	case kind != linkEthernet:
		return nil, fmt.Errorf("%w: frame %d has link type %d, not Ethernet (1): capture on the device itself, not on \"any\"", ErrCapture, c.seen, kind)
	case uint64(captured) > uint64(len(b)):
		return nil, fmt.Errorf("%w: frame %d: %d bytes are said to be in a piece of %d: the file is damaged", ErrCapture, c.seen, captured, len(b))
	case captured < length:
		return nil, fmt.Errorf("%w: of frame %d only %d of %d bytes were captured: capture it whole (picot pcap --snaplen %d, tcpdump -s 0)", ErrCapture, c.seen, captured, length, fastpath.TraceMax)
	case captured > fastpath.TraceMax:
		return nil, fmt.Errorf("%w: frame %d has %d bytes: at most %d", ErrCapture, c.seen, captured, fastpath.TraceMax)
	}
	return b[:captured], nil
}

func (c *capture) pcap() ([]byte, error) {
	head, err := c.read(20)
	if err != nil {
		return nil, c.ended(err)
	}
	kind := c.order.Uint32(head[16:]) & 0x0fffffff // above: FCS length and flags
	for {
		record, err := c.read(16)
		if err != nil {
			return nil, c.ended(err)
		}
		captured, length := c.order.Uint32(record[8:]), c.order.Uint32(record[12:])
		c.seen++
		b, err := c.read(captured)
		if err != nil {
			return nil, c.ended(noEnd(err))
		}
		if c.seen == c.want {
			return c.frame(b, captured, length, kind)
		}
	}
}

// noEnd is err where the file may not end.
func noEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// pcapng reads blocks; the first one's type has been read.
func (c *capture) pcapng() ([]byte, error) {
	for kind := uint32(ngSection); ; {
		body, err := c.block(kind)
		if err != nil {
			return nil, c.ended(noEnd(err))
		}
		b, found, err := c.take(kind, body)
		if found || err != nil {
			return b, err
		}
		next, err := c.read(4)
		if err != nil {
			return nil, c.ended(err)
		}
		kind = c.order.Uint32(next)
	}
}

// block reads a block's length, body and length again. A section header says in
// which order the bytes of its section are.
func (c *capture) block(kind uint32) ([]byte, error) {
	head, err := c.read(4)
	if err != nil {
		return nil, err
	}
	var magic []byte
	if kind == ngSection {
		if magic, err = c.read(4); err != nil {
			return nil, err
		}
		c.order = binary.LittleEndian
		if binary.BigEndian.Uint32(magic) == ngOrder {
			c.order = binary.BigEndian
		}
		if c.order.Uint32(magic) != ngOrder {
			return nil, fmt.Errorf("%w: after frame %d: a section without a byte order: the file is damaged", ErrCapture, c.seen)
		}
		c.links = nil
	}
	total := c.order.Uint32(head)
	if total < uint32(12+len(magic)) || total%4 != 0 {
		return nil, fmt.Errorf("%w: after frame %d: a block of %d bytes: the file is damaged", ErrCapture, c.seen, total)
	}
	rest, err := c.read(total - 8 - uint32(len(magic)))
	if err != nil {
		return nil, err
	}
	return rest[:len(rest)-4], nil
}

// take looks at a block: an interface, or a packet, maybe the wanted one.
func (c *capture) take(kind uint32, b []byte) (frame []byte, found bool, err error) {
	var at, captured, length, nic uint32
	short := uint32(len(b))
	switch kind {
	case ngInterface:
		if short < 8 {
			return nil, true, fmt.Errorf("%w: after frame %d: an interface block of %d bytes: the file is damaged", ErrCapture, c.seen, len(b))
		}
		c.links = append(c.links, link{kind: uint32(c.order.Uint16(b)), snap: c.order.Uint32(b[4:])})
		return nil, false, nil
	case ngEnhanced, ngPacketOld:
		at = 20
	case ngSimple:
		at = 4
	default:
		return nil, false, nil
	}
	c.seen++
	if c.seen != c.want {
		return nil, false, nil
	}
	if short < at {
		return nil, true, fmt.Errorf("%w: frame %d: its block has %d bytes: the file is damaged", ErrCapture, c.seen, len(b))
	}
	switch kind {
	case ngEnhanced:
		nic, captured, length = c.order.Uint32(b), c.order.Uint32(b[12:]), c.order.Uint32(b[16:])
	case ngPacketOld:
		nic, captured, length = uint32(c.order.Uint16(b)), c.order.Uint32(b[12:]), c.order.Uint32(b[16:])
	case ngSimple:
		length = c.order.Uint32(b)
		captured = length
	}
	if uint64(nic) >= uint64(len(c.links)) {
		return nil, true, fmt.Errorf("%w: frame %d names interface %d of %d: the file is damaged", ErrCapture, c.seen, nic, len(c.links))
	}
	if l := c.links[nic]; kind == ngSimple && l.snap != 0 {
		captured = min(captured, l.snap)
	}
	frame, err = c.frame(b[at:], captured, length, c.links[nic].kind)
	return frame, true, err
}

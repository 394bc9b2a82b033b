package srv6

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"picot.dev/picot/internal/packet"
)

const (
	hopLimit = 64
	// BaseOverhead is the bytes before the inner frame without an SRH.
	BaseOverhead = packet.EthernetLen + packet.IPv6Len
	// MaxVia bounds a segment list: the outer headers must fit the 256 bytes
	// that the kernel leaves before a received frame.
	MaxVia      = 8
	maxOverhead = BaseOverhead + 8 + 16*(MaxVia+1)
	// fixedEntropy is the source's last bits when they must not vary.
	fixedEntropy = 1
)

// ErrEncap is wrapped by every error of [NewEncap].
var ErrEncap = errors.New("cannot encapsulate")

// EncapConfig is what the outer headers toward one node over one next hop need.
type EncapConfig struct {
	SrcMAC, DstMAC packet.MAC // the uplink's and the next hop's
	Source         Locator    // ours
	Dest           Locator    // the node's
	Function       uint16     // the node's End.DT2U function
	Via            []netip.Addr
	FixedSource    bool // no entropy in the source address: some clouds filter sources
}

// Encap is the precomputed outer headers toward one node over one next hop.
// Immutable.
type Encap struct {
	header      [BaseOverhead]byte // all that is the same for every frame
	low         uint64             // function of the final SID, in place
	entropyMask uint64             // 0xffff, or 0 with a fixed source
	overhead    int
	srh         []byte // the SRH with a zero final SID; nil without Via
	firstLo     uint64 // low word of the first SID on the way, if srh is there
	finalHi     uint64 // high word of the final SID, if srh is there
}

// NewEncap precomputes. Without Via it is H.Encaps.L2.Red toward one SID, which
// needs no SRH; with Via it is H.Encaps.L2, the segment list holding Via and
// then the node's SID.
func NewEncap(c EncapConfig) (*Encap, error) {
	switch {
	case c.Source.Bits == 0 || c.Dest.Bits == 0:
		return nil, fmt.Errorf("%w: source %s, destination %s: both need a locator", ErrEncap, c.Source, c.Dest)
	case c.Function == 0:
		return nil, fmt.Errorf("%w: function 0 takes ICMPv6 only: give another, by default %#04x", ErrEncap, DefaultFunction)
	case c.DstMAC.IsZero() || c.DstMAC.IsGroup():
		return nil, fmt.Errorf("%w: next hop %s: needs a unicast MAC", ErrEncap, c.DstMAC)
	case c.SrcMAC.IsZero() || c.SrcMAC.IsGroup():
		return nil, fmt.Errorf("%w: uplink address %s: needs a unicast MAC", ErrEncap, c.SrcMAC)
	case len(c.Via) > MaxVia:
		return nil, fmt.Errorf("%w: %d SIDs on the way: give at most %d", ErrEncap, len(c.Via), MaxVia)
	}
	for i, a := range c.Via {
		if !a.Is6() || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() {
			return nil, fmt.Errorf("%w: via[%d] %s: give a routable IPv6 SID", ErrEncap, i, a)
		}
	}
	e := &Encap{
		low:         uint64(c.Function) << 48,
		entropyMask: 0xffff,
		overhead:    BaseOverhead,
	}
	if c.FixedSource {
		e.entropyMask = 0
	}
	copy(e.header[0:6], c.DstMAC[:])
	copy(e.header[6:12], c.SrcMAC[:])
	binary.BigEndian.PutUint16(e.header[12:14], packet.EtherTypeIPv6)
	binary.BigEndian.PutUint64(e.header[22:30], c.Source.Hi)
	binary.BigEndian.PutUint64(e.header[38:46], c.Dest.Hi)
	if len(c.Via) > 0 {
		e.addVia(c)
	}
	return e, nil
}

// addVia lays out the SRH of RFC 8754 section 2: the list runs from the last
// segment to the first, Segments Left and Last Entry name the first.
func (e *Encap) addVia(c EncapConfig) {
	n := len(c.Via) + 1
	e.srh = make([]byte, 8+16*n)
	e.srh[0] = packet.ProtoEthernet
	e.srh[1] = byte(2 * n)
	e.srh[2] = 4
	e.srh[3] = byte(n - 1)
	e.srh[4] = byte(n - 1)
	for i, a := range c.Via {
		sid := a.As16()
		copy(e.srh[8+16*(n-1-i):], sid[:])
	}
	first := packet.IPFromAddr(c.Via[0])
	e.finalHi, e.firstLo = c.Dest.Hi, first.Lo
	binary.BigEndian.PutUint64(e.header[38:46], first.Hi)
	e.overhead += len(e.srh)
}

// Overhead is the number of bytes put before the inner frame.
func (e *Encap) Overhead() int { return e.overhead }

// MACs are the outer Ethernet addresses.
func (e *Encap) MACs() (src, dst packet.MAC) {
	return packet.MAC(e.header[6:12]), packet.MAC(e.header[0:6])
}

// FlowLabel is the outer flow label for an inner flow's hash: 20 bits, never 0
// (RFC 6437 section 2: 0 means none).
func FlowLabel(hash uint64) uint32 {
	if v := uint32(hash & 0xfffff); v != 0 {
		return v
	}
	return 1
}

// Entropy is the last 16 bits of the outer source for an inner flow's hash. It
// is never 0, the subnet-router anycast address (RFC 4291 section 2.6.1), and
// uses other bits of the hash than [FlowLabel].
func Entropy(hash uint64) uint16 {
	if v := uint16(hash >> 32); v != 0 {
		return v
	}
	return fixedEntropy
}

// Push writes the outer headers into b[:Overhead()]; the inner frame of n bytes
// follows them. len(b) must be at least Overhead() and n below 65,536 less the
// SRH: a frame too long for the way never gets here. tos is the inner DSCP and
// ECN byte, copied as RFC 6040 section 4.1 (normal mode) and RFC 2983 (uniform
// model) say. The hash is the inner flow's.
func (e *Encap) Push(b []byte, n int, network, segment uint32, hash uint64, tos byte) {
	h := (*[BaseOverhead]byte)(b)
	final := e.low | uint64(network&MaxNetwork)<<24 | uint64(segment&MaxSegment)
	first := uint64(6)<<60 | uint64(tos)<<52 | uint64(FlowLabel(hash))<<32 | hopLimit
	dstLo := final
	if e.srh == nil {
		first |= uint64(n)<<16&0xffff0000 | packet.ProtoEthernet<<8
	} else {
		first |= uint64(n+len(e.srh))<<16&0xffff0000 | packet.ProtoRouting<<8
		dstLo = e.firstLo
		s := b[BaseOverhead:e.overhead]
		copy(s, e.srh)
		binary.BigEndian.PutUint64(s[8:16], e.finalHi)
		binary.BigEndian.PutUint64(s[16:24], final)
	}
	*h = e.header
	binary.BigEndian.PutUint64(h[14:22], first)
	binary.BigEndian.PutUint16(h[36:38], Entropy(hash&(e.entropyMask<<32)))
	binary.BigEndian.PutUint64(h[46:54], dstLo)
}

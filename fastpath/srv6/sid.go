package srv6

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"picot.dev/picot/internal/packet"
)

const (
	// DefaultFunction is the function bits of End.DT2U unless configured.
	DefaultFunction = 0x0d20
	// MaxNetwork is the largest network ID, MaxSegment the largest argument.
	MaxNetwork = 1<<24 - 1
	MaxSegment = 1<<24 - 1
)

// ErrLocator is wrapped by every error of [LocatorFrom].
var ErrLocator = errors.New("not a usable locator")

// Locator is a node's SRv6 prefix (RFC 8986 section 3.1). The zero value
// contains nothing and belongs to no node.
type Locator struct {
	Hi   uint64 // top 64 bits of the prefix, host bits zero
	Bits uint8  // 32..64
}

// LocatorFrom takes an IPv6 unicast prefix of 32 to 64 bits without host bits.
func LocatorFrom(p netip.Prefix) (Locator, error) {
	a := p.Addr()
	switch {
	case !p.IsValid() || !a.Is6() || a.Is4In6() || a.Zone() != "":
		return Locator{}, fmt.Errorf("%w: %s: give an IPv6 prefix, like 2001:db8:0:1::/64", ErrLocator, p)
	case p.Bits() < 32 || p.Bits() > 64:
		return Locator{}, fmt.Errorf("%w: %s: give a prefix of 32 to 64 bits", ErrLocator, p)
	case p.Masked() != p:
		return Locator{}, fmt.Errorf("%w: %s has host bits: write %s", ErrLocator, p, p.Masked())
	case a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast():
		return Locator{}, fmt.Errorf("%w: %s: give a routable unicast prefix", ErrLocator, p)
	}
	return Locator{Hi: packet.IPFromAddr(a).Hi, Bits: uint8(p.Bits())}, nil
}

// Mask has the locator's bits set within the top 64 of an address.
func (l Locator) Mask() uint64 { return ^uint64(0) << (64 - l.Bits) }

// Contains reports that an address with these top 64 bits is in the locator.
func (l Locator) Contains(hi uint64) bool { return l.Bits != 0 && (hi^l.Hi)&l.Mask() == 0 }

// Overlaps reports that some address is in both locators.
func (l Locator) Overlaps(o Locator) bool {
	return l.Bits != 0 && o.Bits != 0 && (l.Hi^o.Hi)&l.Mask()&o.Mask() == 0
}

// Prefix is the locator as a prefix; invalid for the zero Locator.
func (l Locator) Prefix() netip.Prefix {
	if l.Bits == 0 {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(packet.IP{Hi: l.Hi}.Addr(), int(l.Bits))
}

func (l Locator) String() string { return l.Prefix().String() }

// SID is an address in a locator, in wire order.
type SID [16]byte

// NewSID is the SID for a function, a network and an argument in l. Bits of
// network and arg above 24 are dropped.
func NewSID(l Locator, function uint16, network, arg uint32) SID {
	var s SID
	binary.BigEndian.PutUint64(s[:8], l.Hi)
	binary.BigEndian.PutUint64(s[8:], sidLow(function, network, arg))
	return s
}

// SourceSID is the outer source for a flow: function 0 and the flow's entropy.
func SourceSID(l Locator, entropy uint16) SID {
	return NewSID(l, 0, 0, uint32(entropy))
}

func sidLow(function uint16, network, arg uint32) uint64 {
	return uint64(function)<<48 | uint64(network&MaxNetwork)<<24 | uint64(arg&MaxSegment)
}

// Addr is the SID as an address.
func (s SID) Addr() netip.Addr { return netip.AddrFrom16(s) }

// Hi is the top 64 bits: locator and the zero bits after it.
func (s *SID) Hi() uint64 { return binary.BigEndian.Uint64(s[:8]) }

func (s SID) String() string { return s.Addr().String() }

// Function, Network and Argument are the parts after the locator.
func (s *SID) Function() uint16 { return binary.BigEndian.Uint16(s[8:10]) }
func (s *SID) Network() uint32  { return uint32(binary.BigEndian.Uint64(s[8:]) >> 24 & MaxNetwork) }
func (s *SID) Argument() uint32 { return uint32(binary.BigEndian.Uint64(s[8:]) & MaxSegment) }

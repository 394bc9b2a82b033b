package desired

import (
	"net/netip"
	"regexp"
	"strings"

	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
)

var (
	dnsLabel     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	dnsSubdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

const (
	maxSubdomain = 253
	maxInterface = 15 // IFNAMSIZ less its zero byte
	minMTU6      = 1280
	minMTU       = 68
	maxMTU       = 65535
	minLocator   = 32
	maxLocator   = 64
)

// mac parses a unicast MAC in lower case.
func (p *problems) mac(field, s string) packet.MAC {
	m, err := packet.ParseMAC(s)
	switch {
	case err != nil:
		p.invalid(field, "write six pairs of hex digits, like 02:00:00:00:00:0a", "%q is not a MAC address", s)
	case s != m.String():
		p.invalid(field, "write "+m.String(), "%q has upper-case digits", s)
	case m.IsGroup():
		p.invalid(field, "give a unicast address: the lowest bit of the first byte zero", "%s is a group address", s)
	case m.IsZero():
		p.invalid(field, "give the workload's own address", "%s names nobody", s)
	default:
		return m
	}
	return packet.MAC{}
}

// ip parses an address that one host may have.
func (p *problems) ip(field, s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		p.invalid(field, "write an IPv4 or IPv6 address without a prefix length", "%q is not an IP address", s)
	case a.Zone() != "":
		p.invalid(field, "write "+a.WithZone("").String(), "%q carries a zone", s)
	case a.Is4In6():
		p.invalid(field, "write "+a.Unmap().String(), "%q is IPv4-mapped", s)
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		p.invalid(field, "give the address of one host", "%s cannot belong to a host", s)
	default:
		return a
	}
	return netip.Addr{}
}

// prefix parses a prefix with zero host bits.
func (p *problems) prefix(field, s string) netip.Prefix {
	x, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		p.invalid(field, "write a prefix such as 10.0.0.0/24 or fd00::/64", "%q is not a prefix", s)
	case x.Addr().Is4In6():
		p.invalid(field, "write it as an IPv4 prefix", "%q is IPv4-mapped", s)
	case x != x.Masked():
		p.invalid(field, "write "+x.Masked().String(), "%s has host bits set", s)
	case x.Addr().IsMulticast() || x.Addr().IsLoopback():
		p.invalid(field, "give a prefix of unicast addresses", "%s holds no host addresses", s)
	default:
		return x
	}
	return netip.Prefix{}
}

func (p *problems) locator(field, s string) netip.Prefix {
	const mend = "write an IPv6 prefix of 32 to 64 bits, such as 2001:db8:0:1::/64"
	x, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		p.invalid(field, mend, "%q is not a prefix", s)
	case !x.Addr().Is6() || x.Addr().Is4In6():
		p.invalid(field, mend, "%q is not IPv6", s)
	case x.Bits() < minLocator || x.Bits() > maxLocator:
		p.invalid(field, mend, "a locator has 32 to 64 bits, not %d", x.Bits())
	case x != x.Masked():
		p.invalid(field, "write "+x.Masked().String(), "%s has host bits set", s)
	case x.Addr().IsMulticast() || x.Addr().IsLinkLocalUnicast() || x.Addr().IsUnspecified():
		p.invalid(field, mend, "%s cannot be routed to one node", s)
	default:
		return x
	}
	return netip.Prefix{}
}

func (p *problems) networkName(field, s string) string {
	if !dnsLabel.MatchString(s) {
		p.invalid(field, "write a DNS label: at most 63 of a-z, 0-9 and -", "%q cannot be the name of a network", s)
	}
	return s
}

func (p *problems) subdomain(field, s string) string {
	if len(s) > maxSubdomain || !dnsSubdomain.MatchString(s) {
		p.invalid(field, "write a DNS subdomain: a-z, 0-9, - and dots", "%q is not a name", s)
	}
	return s
}

func (p *problems) device(field, s string) string {
	switch {
	case len(s) > maxInterface:
		p.invalid(field, "give a name of at most 15 bytes", "%q is too long for a device", s)
	case s == "." || s == ".." || strings.ContainsFunc(s, notDevice):
		p.invalid(field, "give the name of a device, without spaces, / and :", "%q cannot be a device", s)
	}
	return s
}

// notDevice follows dev_valid_name (net/core/dev.c).
func notDevice(r rune) bool {
	return r == '/' || r == ':' || r == ' ' || r >= '\t' && r <= '\r' || r == 0
}

func (p *problems) rangeOf(field string, v, lo, hi int32) int {
	if v < lo || v > hi {
		p.invalid(field, "", "%d is not within %d to %d", v, lo, hi)
		return 0
	}
	return int(v)
}

func (p *problems) segment(field string, s v1alpha1.Segment) uint32 {
	return uint32(p.rangeOf(field, int32(s), 0, v1alpha1.MaxID))
}

func (p *problems) security(field string, s v1alpha1.PortSecurity) PortSecurity {
	switch s {
	case "":
		return SecurityUnset
	case v1alpha1.PortSecurityOff:
		return SecurityOff
	case v1alpha1.PortSecurityMAC:
		return SecurityMAC
	case v1alpha1.PortSecurityMACIP:
		return SecurityMACIP
	}
	p.invalid(field, `write "off", "mac" or "mac+ip"`, "%q is no port security", s)
	return SecurityUnset
}

func (p *problems) source(field string, s v1alpha1.Source) (static bool) {
	switch s {
	case v1alpha1.SourceStatic:
		return true
	case v1alpha1.SourceLearned:
		return false
	}
	p.invalid(field, "write learned or static", "%q is no source", s)
	return false
}

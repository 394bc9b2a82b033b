package arpnd

import "picot.dev/picot/internal/packet"

// Op is the kind of an address resolution message.
type Op uint8

const (
	// OpNone marks a frame that is neither ARP, RARP nor Neighbor Discovery.
	OpNone Op = iota
	ARPRequest
	ARPReply
	// ARPOther is an ARP packet with an operation other than 1 and 2.
	ARPOther
	// RARP is a reverse ARP frame (EtherType 0x8035, RFC 903); hypervisors send
	// it when a guest has moved.
	RARP
	RS       // ICMPv6 133
	RA       // ICMPv6 134
	NS       // ICMPv6 135
	NA       // ICMPv6 136
	Redirect // ICMPv6 137
	numOps
)

var opNames = [numOps]string{
	"none", "arp-request", "arp-reply", "arp-other", "rarp", "rs", "ra", "ns", "na", "redirect",
}

// String returns a short lower-case name that does not change between versions.
func (o Op) String() string { return name(opNames[:], int(o)) }

// IsND says whether the message is one of the five of RFC 4861.
func (o Op) IsND() bool { return o >= RS && o <= Redirect }

// Malformed names the rule a message breaks; the zero value is OK. Each value
// is a drop reason and a counter of its own.
type Malformed uint8

const (
	OK Malformed = iota
	// ARPLength: shorter than 28 bytes (RFC 826).
	ARPLength
	// ARPHeader: not hrd 1, pro 0x0800, hln 6, pln 4 (RFC 826).
	ARPHeader
	// NDFragment: a Fragment header before the message, even an atomic one
	// (RFC 6980 section 5).
	NDFragment
	// NDHopLimit: hop limit not 255, so a router may have forwarded it
	// (RFC 4861 sections 6.1, 7.1, 8.1; so are the ones below).
	NDHopLimit
	// NDLength: shorter than the fixed part of its type.
	NDLength
	// NDChecksum: ICMPv6 checksum wrong.
	NDChecksum
	// NDCode: ICMPv6 code not 0.
	NDCode
	// NDSource: a source the type does not allow: multicast (RFC 4291 section
	// 2.7), :: in an NA, not link-local in an RA or Redirect.
	NDSource
	// NDTargetMulticast: the target is a multicast address.
	NDTargetMulticast
	// NDMapped: an IPv4-mapped address on the wire (RFC 4291 section 2.5.5.2
	// keeps these inside a host). Refused because it would name an IPv4 binding.
	NDMapped
	// NDUnspecifiedDest: NS from :: to something other than a solicited-node
	// group (RFC 4861 section 7.1.1).
	NDUnspecifiedDest
	// NDUnspecifiedSLLAO: NS or RS from :: with a source link-layer address.
	NDUnspecifiedSLLAO
	// NDSolicitedGroup: NA to a group with the Solicited flag set (7.1.2).
	NDSolicitedGroup
	// NDTarget: Redirect whose target is neither link-local nor its
	// destination, or whose destination is a group (8.1).
	NDTarget
	// NDOption: an option of length 0 or reaching past the end, or a link-layer
	// address option that is not 8 bytes long (RFC 4861 4.6, RFC 2464 section 6).
	NDOption
	numMalformed
)

var malformedNames = [numMalformed]string{
	"ok", "arp-length", "arp-header", "nd-fragment", "nd-hop-limit", "nd-length", "nd-checksum",
	"nd-code", "nd-source", "nd-target-multicast", "nd-mapped", "nd-unspecified-dest",
	"nd-unspecified-sllao", "nd-solicited-group", "nd-target", "nd-option",
}

// NumMalformed is the number of Malformed values, for arrays of counters.
const NumMalformed = int(numMalformed)

// String returns a short lower-case name that does not change between versions.
func (m Malformed) String() string { return name(malformedNames[:], int(m)) }

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "invalid"
}

// Message is a parsed ARP, RARP or Neighbor Discovery message. Addresses an
// operation does not carry are zero.
type Message struct {
	Op Op
	// Unicast: the Ethernet destination is one station.
	Unicast bool
	// Probe: ARP request with spa 0.0.0.0 (RFC 5227 section 2.1.1), or NS or RS
	// from ::. Nobody owns its source yet.
	Probe bool
	// Announcement: ARP with spa = tpa (RFC 5227 section 2.3), or an NA nobody
	// solicited (RFC 4861 section 7.2.6).
	Announcement bool
	// HasLLAO: SenderMAC comes from the packet. Always true for ARP and RARP.
	HasLLAO bool
	// ShaMismatch: sha or a link-layer address option names another station
	// than the Ethernet source. A Redirect's TLLAO is the next hop's and is
	// not compared.
	ShaMismatch bool
	// Router, Solicited, Override are the flags of an NA; Router is set for an
	// RA as well.
	Router, Solicited, Override bool

	// Target is tpa, or the Target Address of NS, NA and Redirect.
	Target packet.IP
	// Sender is spa, or the IPv6 source.
	Sender packet.IP
	// SenderMAC is sha, the SLLAO of RS, RA and NS, the TLLAO of NA and
	// Redirect. Without one it is the Ethernet source.
	SenderMAC packet.MAC
	// EtherSrc and EtherDst are the addresses of the frame.
	EtherSrc, EtherDst packet.MAC
}

package arpnd

import (
	"encoding/binary"

	"picot.dev/picot/internal/packet"
)

const (
	// GARPLen, NALen and ProbeLen are the room the frames below need: untagged,
	// without padding and without FCS.
	GARPLen  = packet.EthernetLen + arpLen
	NALen    = packet.EthernetLen + packet.IPv6Len + naLen
	ProbeLen = NALen
)

// BuildGARP writes a broadcast ARP announcement that ip is at mac to dst and
// returns its length, 0 if dst is shorter than GARPLen or ip is not IPv4.
//
// It is the request form, sha/spa the owner, tha zero, tpa = spa, as RFC 5227
// section 2.3 has it. RFC 826 makes every host merge sha/spa before it looks at
// the operation, so a request repairs a cache as a reply does; section 3 of
// RFC 5227 lists why replies do worse, and Linux takes a reply for gratuitous
// only if tha repeats sha.
func BuildGARP(dst []byte, ip packet.IP, mac packet.MAC) int {
	if len(dst) < GARPLen || !ip.Is4() {
		return 0
	}
	putEther(dst, packet.Broadcast, mac, packet.EtherTypeARP)
	putARP(dst[packet.EthernetLen:], 1, mac, ip.V4(), packet.MAC{}, ip.V4())
	return GARPLen
}

// BuildUnsolicitedNA writes an NA to all nodes that ip is at mac to dst and
// returns its length, 0 if dst is shorter than NALen or ip is not IPv6.
// S=0, and O=1 so that it replaces what a cache holds (RFC 4861 section 7.2.6).
func BuildUnsolicitedNA(dst []byte, ip packet.IP, mac packet.MAC, router bool) int {
	if len(dst) < NALen || ip.Is4() {
		return 0
	}
	flags := byte(flagOverride)
	if router {
		flags |= flagRouter
	}
	putEther(dst, allNodesMAC(), mac, packet.EtherTypeIPv6)
	putND(dst[packet.EthernetLen:], icmpNA, flags, ip, allNodes, ip, optTLLAO, mac)
	return NALen
}

// ProbeMAC is the source of liveness probes in a network without a gateway MAC:
// locally administered, the same on every node, never leaving one. No station
// has it, so the host's answer is observed and then has nowhere to go. It must
// not be learned, whoever sends from it.
func ProbeMAC() packet.MAC { return packet.MAC{0x02, 'p', 'i', 'c', 'o', 't'} }

// Prober is who a liveness probe comes from.
type Prober struct {
	// MAC is the network's gateway MAC, or ProbeMAC.
	MAC packet.MAC
	// IP is the network's gateway address of the target's family. Zero or of
	// the other family: none.
	IP packet.IP
	// Tags are those the host's own frames carry.
	Tags packet.Tags
}

// BuildProbe writes a frame to dst that makes the living owner of ip at mac
// answer, and returns its length, 0 if dst is shorter than ProbeLen and the tags.
// Everything about it is unicast.
//
// IPv4: an ARP request from the gateway's address. Without a gateway spa is
// 0.0.0.0: any other address would be an invention that pollutes the host's
// cache and that reverse path filters discard. A host that is itself still
// probing for ip takes such a frame for a conflict (RFC 5227 section 2.1.1), so
// probes without a gateway must wait 10 s after an ARP probe from that MAC.
//
// IPv6: an NS with SLLAO, from the gateway's address or else from the
// link-local address of p.MAC. Never from ::, which would be DAD and make a
// tentative host give up the address (RFC 4862 section 5.4.3); a unicast source
// makes it ignore the NS.
func BuildProbe(dst []byte, p Prober, ip packet.IP, mac packet.MAC) int {
	tags := p.Tags.Len()
	if len(dst) < ProbeLen+tags {
		return 0
	}
	n := buildProbe(dst[tags:], p, ip, mac)
	copy(dst, dst[tags:tags+packet.EthernetLen-2])
	p.Tags.Put(dst[packet.EthernetLen-2:][:tags])
	return tags + n
}

func buildProbe(dst []byte, p Prober, ip packet.IP, mac packet.MAC) int {
	if ip.Is4() {
		var spa uint32
		if p.IP.Is4() {
			spa = p.IP.V4()
		}
		putEther(dst, mac, p.MAC, packet.EtherTypeARP)
		putARP(dst[packet.EthernetLen:], 1, p.MAC, spa, packet.MAC{}, ip.V4())
		return GARPLen
	}
	src := p.IP
	if src.Is4() || src.IsUnspecified() {
		src = linkLocal(p.MAC)
	}
	putEther(dst, mac, p.MAC, packet.EtherTypeIPv6)
	putND(dst[packet.EthernetLen:], icmpNS, 0, src, ip, ip, optSLLAO, p.MAC)
	return ProbeLen
}

// linkLocal is fe80::/64 with the modified EUI-64 of mac (RFC 4291 appendix A).
func linkLocal(mac packet.MAC) packet.IP {
	u := mac.Uint64()
	return packet.IP{Hi: 0xfe80 << 48, Lo: (u>>24<<40 | 0xfffe<<24 | u&0xffffff) ^ 1<<57}
}

func putEther(b []byte, dst, src packet.MAC, etherType uint16) {
	putMAC(b, 0, dst)
	putMAC(b, 6, src)
	binary.BigEndian.PutUint16(b[12:], etherType)
}

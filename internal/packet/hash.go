package packet

import (
	"encoding/binary"
	"math/bits"
)

// HashKey is the secret of [FlowHash], drawn once per boot.
type HashKey [2]uint64

// The odd constants spread the key over the rounds (bits of the fraction of pi).
const (
	pi0 = 0x243f6a8885a308d3
	pi1 = 0x13198a2e03707345
	pi2 = 0xa4093822299f31d1
)

// mix is one round: the two halves of a 128-bit product, folded.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// FlowHash is a keyed hash, equal for all frames of a flow and not for a sender
// to steer. A flow is: addresses, protocol and ports for whole TCP, UDP, SCTP
// and UDP-Lite packets; addresses alone for any fragment, so that all of a
// packet stay together; addresses and protocol for other IP; MACs and EtherType
// for the rest. VLAN tags do not count. All 64 bits are usable.
func FlowHash(k *HashKey, frame []byte, l *Layout) uint64 {
	hash, _, _ := ReadFlow(k, frame, l)
	return hash
}

// ReadFlow reads all at once that a tunnel needs of a frame: its FlowHash, the
// DSCP and ECN byte of its packet (0 if it is not IP), and whether its checksum
// is known to be complete; if not, [CompleteChecksum] has to see to it.
func ReadFlow(k *HashKey, frame []byte, l *Layout) (hash uint64, tos uint8, complete bool) {
	if !l.Plain {
		return flowHash(k, frame, l), tosOf(frame, l), false
	}
	if l.L4 != plain4 {
		return readFlow6(k, frame, l)
	}
	h := (*[plain4 + udpLen]byte)(frame)
	addresses := binary.BigEndian.Uint64(h[plain4-8 : plain4])
	ports := uint64(binary.BigEndian.Uint32(h[plain4 : plain4+4]))
	pseudo := addresses>>32 + addresses&0xffffffff + uint64(l.L3Len-IPv4MinLen) + uint64(l.Proto)
	return finish(k, addresses^k[0], uint64(l.Proto)<<32|ports), h[EthernetLen+1], checksumField(frame, l) != Fold(pseudo)
}

// readFlow6 is ReadFlow of a Plain frame of IPv6.
func readFlow6(k *HashKey, frame []byte, l *Layout) (hash uint64, tos uint8, complete bool) {
	h := (*[plain6 + udpLen]byte)(frame)
	dst := IPFrom16((*[16]byte)(h[plain6-16 : plain6]))
	ports := uint64(binary.BigEndian.Uint32(h[plain6 : plain6+4]))
	pseudo := PseudoHeader6(l.Source, dst, l.Proto, l.L3Len-IPv6Len)
	hash = finish(k, hash6(k, (*[32]byte)(h[plain6-32:plain6])), uint64(l.Proto)<<32|ports)
	return hash, uint8(binary.BigEndian.Uint16(h[EthernetLen:EthernetLen+2]) >> 4), checksumField(frame, l) != Fold(pseudo)
}

// checksumField is the transport checksum of a Plain frame.
func checksumField(frame []byte, l *Layout) uint16 {
	at := l.L4 + 6
	if l.Proto == ProtoTCP {
		at = l.L4 + 16
	}
	return binary.BigEndian.Uint16(frame[at : at+2])
}

func tosOf(frame []byte, l *Layout) uint8 {
	switch {
	case l.IsIPv4():
		return IPv4(frame[l.L3:]).TOS()
	case l.IsIPv6():
		return IPv6(frame[l.L3:]).TrafficClass()
	}
	return 0
}

// hash6 mixes the addresses of an IPv6 header.
func hash6(k *HashKey, h *[32]byte) uint64 {
	a := mix(binary.BigEndian.Uint64(h[0:8])^k[0], binary.BigEndian.Uint64(h[8:16])^k[1])
	b := mix(binary.BigEndian.Uint64(h[16:24])^k[1]^pi0, binary.BigEndian.Uint64(h[24:32])^k[0]^pi1)
	return bits.RotateLeft64(a, 23) ^ b
}

func flowHash(k *HashKey, frame []byte, l *Layout) uint64 {
	proto := uint64(l.Proto)
	var ports uint64
	if l.Fragment {
		// Fragments of one packet may name different next headers.
		proto = 1 << 8
	} else if hasPorts(l.Proto) && l.L4 != 0 {
		if p := frame[min(l.L4, len(frame)):]; len(p) >= 4 {
			ports = uint64(binary.BigEndian.Uint32(p))
		}
	}
	last := proto<<32 | ports
	if l.L3Len != 0 {
		p := frame[min(l.L3, len(frame)):]
		switch {
		case l.EtherType == EtherTypeIPv4 && len(p) >= IPv4MinLen:
			h := (*[IPv4MinLen]byte)(p)
			return finish(k, binary.BigEndian.Uint64(h[12:20])^k[0], last)
		case l.EtherType == EtherTypeIPv6 && len(p) >= IPv6Len:
			return finish(k, hash6(k, (*[32]byte)(p[8:40])), last)
		}
	}
	if len(frame) < EthernetLen {
		return finish(k, k[0], 0)
	}
	h := (*[EthernetLen]byte)(frame)
	return finish(k, binary.BigEndian.Uint64(h[:8])^k[0],
		uint64(binary.BigEndian.Uint32(h[8:12]))<<16|uint64(l.EtherType))
}

func finish(k *HashKey, a, b uint64) uint64 {
	return mix(mix(a, b^k[1])^k[0]^pi2, pi0^k[1]|1)
}

func hasPorts(proto uint8) bool {
	return proto == ProtoTCP || proto == ProtoUDP || proto == ProtoSCTP || proto == ProtoUDPLite
}

package gen

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"picot.dev/picot/internal/packet"
)

// UDP describes frames of UDP over IPv4 or IPv6, untagged.
type UDP struct {
	SrcMAC, DstMAC packet.MAC
	Src, Dst       netip.AddrPort
	Size           int // bytes of the frame without FCS; a "64-byte frame" is 60
	Flows          int // the source port counts up from Src's with the flow
}

// Options returns the frames' template: stamped, with valid checksums.
func (u UDP) Options() (Options, error) {
	src, dst := u.Src.Addr().Unmap(), u.Dst.Addr().Unmap()
	if !src.IsValid() || !dst.IsValid() || src.Is4() != dst.Is4() {
		return Options{}, fmt.Errorf("UDP frames from %s to %s: want two addresses of one family", u.Src, u.Dst)
	}
	ipLen, etherType := 40, uint16(0x86dd)
	if src.Is4() {
		ipLen, etherType = 20, 0x0800
	}
	udpAt := 14 + ipLen
	stamp := udpAt + 8
	if u.Size < stamp+StampLen || u.Size > maxFrame {
		return Options{}, fmt.Errorf("UDP frames of %d bytes, want %d to %d", u.Size, stamp+StampLen, maxFrame)
	}

	f := make([]byte, u.Size)
	copy(f, u.DstMAC[:])
	copy(f[6:], u.SrcMAC[:])
	binary.BigEndian.PutUint16(f[12:], etherType)
	if src.Is4() {
		putIPv4(f[14:], src, dst)
	} else {
		putIPv6(f[14:], src, dst)
	}
	udp := f[udpAt:]
	binary.BigEndian.PutUint16(udp, u.Src.Port())
	binary.BigEndian.PutUint16(udp[2:], u.Dst.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	pseudo := packet.PseudoHeader6(packet.IPFromAddr(src), packet.IPFromAddr(dst), 17, len(udp))
	if src.Is4() {
		pseudo = packet.PseudoHeader4(packet.IPFromAddr(src).V4(), packet.IPFromAddr(dst).V4(), 17, len(udp))
	}
	check := ^packet.Fold(packet.Add(pseudo, packet.Sum(udp)))
	if check == 0 {
		check = 0xffff // RFC 768: 0 says there is none
	}
	binary.BigEndian.PutUint16(udp[6:], check)
	return Options{
		Frame: f, Stamp: stamp, Flows: max(u.Flows, 1),
		Fields: []Field{{Offset: udpAt, Base: u.Src.Port(), Summed: true}},
	}, nil
}

func putIPv4(b []byte, src, dst netip.Addr) {
	b[0] = 0x45
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	binary.BigEndian.PutUint16(b[6:], 0x4000) // do not fragment
	b[8], b[9] = 64, 17
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(b[10:], ^packet.Fold(packet.Sum(b[:20])))
}

func putIPv6(b []byte, src, dst netip.Addr) {
	b[0] = 0x60
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
	b[6], b[7] = 17, 64
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
}

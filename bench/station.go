package bench

import (
	"fmt"
	"net/netip"

	"picot.dev/picot/bench/gen"
	"picot.dev/picot/internal/packet"
)

// The stations of every lane.
const (
	macIn   = "02:00:00:00:00:0a" // host end of the source's veth
	macOut  = "02:00:00:00:00:0b" // host end of the sink's veth
	macSink = "02:00:00:00:00:0c"
)

var (
	sourceMAC = packet.MAC{2, 0, 0, 0, 1, 1}
	sourceIP  = netip.MustParseAddr("10.0.0.10")
	targetIP  = netip.MustParseAddr("10.0.9.20")
	frameSize = 60 // a 64-byte frame without FCS
)

// targets are how many MACs frames go to, in turn, each with a flow of its
// own.
const targets = 1000

// target is the i-th of them.
func target(i int) packet.MAC { return packet.MACFromUint64(0x020000050000 + uint64(firstTarget+i)) }

const firstTarget = 0x1000

// load64 are 64-byte UDP frames to all targets in turn.
func load64() (gen.Options, error) {
	o, err := gen.UDP{
		SrcMAC: sourceMAC, DstMAC: target(0), Src: netip.AddrPortFrom(sourceIP, 1024), Dst: netip.AddrPortFrom(targetIP, 9),
		Size: frameSize, Flows: targets,
	}.Options()
	if err != nil {
		return o, fmt.Errorf("frames to send: %w", err)
	}
	o.Fields = append(o.Fields, gen.Field{Offset: 4, Base: firstTarget}) // low half of the destination MAC
	return o, nil
}

package learning

import (
	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// Flags say more about an observed frame.
type Flags uint8

const (
	// Announce marks ARP that announces, RARP and NA: frames a station sends
	// because something changed. They have the short slot.
	Announce Flags = 1 << iota
	// ARPProbe marks an ARP probe (RFC 5227 section 2.1.1): for a while its
	// sender takes our own probes for a conflict. It has the short slot, too.
	ARPProbe
	// Advert marks an NA, AdvertRouter one with the R flag.
	Advert
	AdvertRouter
)

// short are the flags of frames with the short slot.
const short = Announce | ARPProbe

// Observation is one frame's claim, on its way from the worker that received the
// frame to the Core. 40 bytes, no pointers: it travels by a spsc.Ring.
type Observation struct {
	IP    packet.IP // zero: none, or none of the network's
	Time  int64     // monotonic ns
	Port  table.PortID
	MAC   packet.MAC
	Class arpnd.Class
	Flags Flags
	Tags  packet.Tags // the frame's, so that a probe can carry them
}

package learning

import (
	"fmt"
	"math/bits"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/internal/packet"
)

// SuppressorOptions are the size and times of a port's Suppressor. All times in
// nanoseconds.
type SuppressorOptions struct {
	Slots    int   // of 64 bytes, a power of two of at least 4; default 512
	ReReport int64 // the slot of a claim that is held here; default 30 s
	// ShortSlot is that of announcements, of ARP probes, and of claims not held
	// here while the snapshot does not change; default 1 s.
	ShortSlot int64
	Rate      int // observations a second and the burst; default 1000
	Burst     int // default Rate
}

const ways = 4

// slot is one claim that was reported: a cache line.
type slot struct {
	ip      packet.IP
	tag     uint64 // MAC, flags of the short slot above it; 0: empty
	until   int64  // quiet before this time
	seen    int64  // last frame
	armed   int64
	version uint64 // snapshot under which it was looked up last whether the claim is held here
	class   arpnd.Class
	here    bool
}

// Suppressor is one port's memory of what was reported: it turns a frame rate
// into an observation rate. Its size is fixed, so a port that sends from a
// million MACs forgets its own claims and no other's.
//
// It belongs to the worker that owns the port. For every frame that proves
// something:
//
//	if !s.Quiet(mac, ip, class, flags, version, now) {
//		here := ... // two lookups in the snapshot
//		if s.Due(here, version, now) && ring.Push(Observation{...}) {
//			s.Arm(now)
//		}
//	}
//
// Due and Arm go on about the claim Quiet was last asked about. A claim that was
// not armed, because the ring was full, is due again with its next frame.
type Suppressor struct {
	slots       []slot
	mask        uint64
	long, short int64

	// Observation limit, by the generic cell rate algorithm.
	interval, tolerance int64
	arrival             int64

	// The claim Quiet was last asked about.
	at    *slot
	hit   bool
	tag   uint64
	ip    packet.IP
	class arpnd.Class
	here  bool
	under uint64

	limited uint64
}

// NewSuppressor returns an empty Suppressor, defaults put in for zeroes.
func NewSuppressor(o SuppressorOptions) (*Suppressor, error) {
	orDefault(&o.Slots, 512)
	orDefault(&o.ReReport, 30*second)
	orDefault(&o.ShortSlot, second)
	orDefault(&o.Rate, 1000)
	orDefault(&o.Burst, o.Rate)
	if o.Slots < ways || bits.OnesCount(uint(o.Slots)) != 1 || o.Slots > 1<<20 {
		return nil, fmt.Errorf("suppression slots %d: use a power of two in %d..%d", o.Slots, ways, 1<<20)
	}
	if o.ReReport < o.ShortSlot || o.ShortSlot < 0 {
		return nil, fmt.Errorf("short suppression slot of %d ns: make it shorter than the re-report interval of %d ns", o.ShortSlot, o.ReReport)
	}
	if o.Rate < 0 || o.Rate > second || o.Burst < 0 || o.Burst > second {
		return nil, fmt.Errorf("observation limit %d/s with a burst of %d: use numbers in 1..%d", o.Rate, o.Burst, second)
	}
	s := &Suppressor{
		slots: make([]slot, o.Slots), mask: uint64(o.Slots/ways - 1),
		long: o.ReReport, short: o.ShortSlot,
		interval: second / int64(o.Rate),
	}
	s.tolerance = s.interval * int64(o.Burst-1)
	s.at = &s.slots[0]
	return s, nil
}

// Reset forgets everything: the port is another one.
func (s *Suppressor) Reset() {
	clear(s.slots)
	s.arrival, s.limited, s.hit = 0, 0, false
}

// Limited counts the frames whose claims were not reported because the port's
// observation limit was reached.
func (s *Suppressor) Limited() uint64 { return s.limited }

// Quiet says that nothing needs to be done about a claim: it was reported not
// long ago with the same or better evidence, and the snapshot is the one it was
// last compared with; or the port has used up its observations. mac is the MAC as
// a number; ip is zero unless the address belongs to the network, else a router's
// MAC would have a slot for the whole world.
func (s *Suppressor) Quiet(mac uint64, ip packet.IP, class arpnd.Class, flags Flags, version uint64, now int64) bool {
	tag := mac&(1<<48-1) | uint64(flags&short)<<48
	set := (mix(tag^k0, ip.Lo^k1) ^ ip.Hi*k0) & s.mask
	w := s.slots[set*ways:][:ways:ways]
	for i := range w {
		e := &w[i]
		if e.tag != tag || e.ip != ip {
			continue
		}
		e.seen = now
		if now < e.until && e.version == version && class <= e.class {
			return true
		}
		s.at, s.hit = e, true
		s.tag, s.ip, s.class = tag, ip, class
		return false
	}
	if s.arrival-now > s.tolerance {
		s.limited++
		return true
	}
	v := &w[0]
	for i := range w[1:] {
		if e := &w[i+1]; e.seen < v.seen {
			v = e
		}
	}
	s.at, s.hit = v, false
	s.tag, s.ip, s.class = tag, ip, class
	return false
}

// Due says that the claim must be reported. here says what the snapshot of this
// version does: that the MAC is on the frame's own port and that the address, if
// the claim has one, is bound to that MAC.
//
// A slot counts for ReReport only while that is so: a station that left and came
// back within one slot must be heard. Else it counts for ShortSlot, and only under
// the snapshot it was armed under: in any other the key may have moved meanwhile,
// even to and fro.
func (s *Suppressor) Due(here bool, version uint64, now int64) bool {
	e := s.at
	s.here, s.under = here, version
	if s.hit && s.class <= e.class && (here || e.version == version) {
		if here && !e.here {
			e.until = e.armed + s.length(e.tag, true) // what was pending has come true
		}
		if now < e.until {
			e.version, e.here = version, here
			return false
		}
	}
	if s.arrival-now > s.tolerance {
		s.limited++
		return false
	}
	return true
}

// Arm starts the claim's slot: it was reported.
func (s *Suppressor) Arm(now int64) {
	s.arrival = max(s.arrival, now) + s.interval
	*s.at = slot{
		ip: s.ip, tag: s.tag, until: now + s.length(s.tag, s.here), seen: now, armed: now,
		version: s.under, class: s.class, here: s.here,
	}
}

func (s *Suppressor) length(tag uint64, here bool) int64 {
	if here && tag>>48 == 0 {
		return s.long
	}
	return s.short
}

// LastSeen is when a frame with this MAC and address last came, of those with a
// slot; with a zero ip, with any address. ok is false if there is none.
func (s *Suppressor) LastSeen(mac uint64, ip packet.IP) (t int64, ok bool) {
	for i := range s.slots {
		e := &s.slots[i]
		if e.tag != 0 && e.tag&(1<<48-1) == mac && (ip == packet.IP{} || e.ip == ip) {
			t, ok = max(t, e.seen), true
		}
	}
	return t, ok
}

// Odd constants without pattern: the first digits of pi.
const (
	k0 = 0x243f6a8885a308d3
	k1 = 0x13198a2e03707345
)

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

const second = 1_000_000_000

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

package learning

import (
	"testing"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/spsc"
)

func newSupp(t testing.TB, o SuppressorOptions) *Suppressor {
	t.Helper()
	s, err := NewSuppressor(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// see is a frame whose observation finds room on the ring.
func see(s *Suppressor, mac uint64, ip packet.IP, class arpnd.Class, flags Flags, here bool, version uint64, now int64) bool {
	if s.Quiet(mac, ip, class, flags, version, now) || !s.Due(here, version, now) {
		return false
	}
	s.Arm(now)
	return true
}

func TestSuppressionSlots(t *testing.T) {
	const ms = 1_000_000
	ip := packet.IPFrom4(0x0a000001)
	type frame struct {
		at      int64 // ms
		class   arpnd.Class
		flags   Flags
		here    bool
		version uint64
		want    bool
	}
	for _, tt := range []struct {
		name   string
		frames []frame
	}{
		{"held here: once a re-report interval", []frame{
			{0, arpnd.Strong, 0, true, 1, true}, {1, arpnd.Strong, 0, true, 1, false},
			{29_999, arpnd.Strong, 0, true, 1, false}, {30_000, arpnd.Strong, 0, true, 1, true},
		}},
		{"held here: another snapshot that says so too changes nothing", []frame{
			{0, arpnd.Strong, 0, true, 1, true}, {5000, arpnd.Strong, 0, true, 2, false}, {6000, arpnd.Strong, 0, true, 9, false},
			{30_000, arpnd.Strong, 0, true, 9, true},
		}},
		{"lost: at once", []frame{
			{0, arpnd.Strong, 0, true, 1, true}, {10, arpnd.Strong, 0, false, 2, true},
		}},
		{"pending: the short slot, then the long one when it came true", []frame{
			{0, arpnd.Strong, 0, false, 1, true}, {10, arpnd.Strong, 0, false, 1, false}, {20, arpnd.Strong, 0, true, 2, false},
			{29_000, arpnd.Strong, 0, true, 2, false}, {30_000, arpnd.Strong, 0, true, 2, true},
		}},
		{"refused: again after the short slot", []frame{
			{0, arpnd.Strong, 0, false, 1, true}, {999, arpnd.Strong, 0, false, 1, false}, {1000, arpnd.Strong, 0, false, 1, true},
		}},
		{"not held, new snapshot: it may have moved to and fro", []frame{
			{0, arpnd.Strong, 0, false, 1, true}, {10, arpnd.Strong, 0, false, 3, true},
		}},
		{"strong after weak: at once", []frame{
			{0, arpnd.Weak, 0, false, 1, true}, {1, arpnd.Weak, 0, false, 1, false}, {2, arpnd.Strong, 0, false, 1, true},
			{3, arpnd.Weak, 0, false, 1, false},
		}},
		{"strong after weak, held here: at once", []frame{
			{0, arpnd.Weak, 0, true, 1, true}, {2, arpnd.Strong, 0, true, 1, true}, {3, arpnd.Strong, 0, true, 1, false},
		}},
		{"an announcement is heard within the claim's slot", []frame{
			{0, arpnd.Strong, 0, true, 1, true}, {100, arpnd.Strong, Announce, true, 1, true},
			{200, arpnd.Strong, Announce, true, 1, false}, {1100, arpnd.Strong, Announce, true, 1, true},
			{1200, arpnd.Strong, 0, true, 1, false},
		}},
		{"an ARP probe is heard within the claim's slot", []frame{
			{0, arpnd.Weak, 0, true, 1, true}, {100, arpnd.Weak, ARPProbe, true, 1, true}, {200, arpnd.Weak, ARPProbe, true, 1, false},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSupp(t, SuppressorOptions{})
			for i, f := range tt.frames {
				if got := see(s, 0x020000000001, ip, f.class, f.flags, f.here, f.version, 7*second+f.at*ms); got != f.want {
					t.Fatalf("frame %d at %d ms: reported %v, want %v", i, f.at, got, f.want)
				}
			}
		})
	}
}

// A full ring costs nothing but the next frame's try.
func TestSlotIsArmedOnlyIfThePushSucceeded(t *testing.T) {
	s := newSupp(t, SuppressorOptions{})
	ring, err := spsc.New[Observation](1)
	if err != nil {
		t.Fatal(err)
	}
	ring.Push(Observation{})
	try := func(now int64) bool {
		if s.Quiet(1, packet.IP{}, arpnd.Strong, 0, 1, now) || !s.Due(true, 1, now) || !ring.Push(Observation{}) {
			return false
		}
		s.Arm(now)
		return true
	}
	if try(second) || try(second+1) {
		t.Fatal("pushed into a full ring")
	}
	ring.Pop()
	if !try(second + 2) {
		t.Fatal("the claim that found no room is suppressed")
	}
	ring.Pop()
	if try(second + 3) {
		t.Fatal("the claim that was reported is not suppressed")
	}
}

func TestObservationLimit(t *testing.T) {
	s := newSupp(t, SuppressorOptions{Rate: 100, Burst: 10})
	reported := 0
	for i := range 100_000 { // 10 s of 10,000 new MACs a second
		if see(s, uint64(0x020000000000+i), packet.IP{}, arpnd.Strong, 0, false, 1, second+int64(i)*100_000) {
			reported++
		}
	}
	if reported < 1000 || reported > 1011 {
		t.Errorf("%d reported in 10 s at 100/s with a burst of 10", reported)
	}
	if got := s.Limited(); got != uint64(100_000-reported) {
		t.Errorf("%d counted as limited, %d were not reported", got, 100_000-reported)
	}
}

// A flood of MACs has no memory to take, and a port of its own to forget in.
func TestMACFloodIsBounded(t *testing.T) {
	flooded, other := newSupp(t, SuppressorOptions{}), newSupp(t, SuppressorOptions{})
	remembered := func() (n int) {
		for i := range 100 {
			if other.Quiet(uint64(0x060000000000+i), packet.IP{}, arpnd.Strong, 0, 1, second) {
				n++
			}
		}
		return n
	}
	for i := range 100 {
		see(other, uint64(0x060000000000+i), packet.IP{}, arpnd.Strong, 0, true, 1, second)
	}
	before, reported := remembered(), 0
	allocs := testing.AllocsPerRun(1, func() {
		for i := range 1_000_000 {
			if see(flooded, uint64(0x020000000000+i*7919), packet.IP{}, arpnd.Strong, 0, false, 1, second+int64(i)*1000) {
				reported++
			}
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	if len(flooded.slots) != 512 || reported > 2*(1000+1000) {
		t.Errorf("%d slots, %d reported of 2 x 1 M in 2 x 1 s", len(flooded.slots), reported)
	}
	if after := remembered(); before < 90 || after != before {
		t.Errorf("another port remembers %d of 100 claims after the flood, %d before", after, before)
	}
}

func TestLastSeenIsTheLastFrame(t *testing.T) {
	s := newSupp(t, SuppressorOptions{})
	a, b := packet.IPFrom4(1<<24), packet.IPFrom4(2<<24)
	see(s, 1, a, arpnd.Strong, 0, true, 1, 10)
	see(s, 1, b, arpnd.Strong, 0, true, 1, 20)
	see(s, 1, a, arpnd.Strong, 0, true, 1, 300)
	see(s, 2, a, arpnd.Strong, 0, true, 1, 900)
	for _, tt := range []struct {
		mac  uint64
		ip   packet.IP
		want int64
		ok   bool
	}{{1, a, 300, true}, {1, b, 20, true}, {1, packet.IP{}, 300, true}, {2, b, 0, false}, {3, packet.IP{}, 0, false}} {
		if got, ok := s.LastSeen(tt.mac, tt.ip); got != tt.want || ok != tt.ok {
			t.Errorf("LastSeen(%d, %v) = %d, %v, want %d, %v", tt.mac, tt.ip, got, ok, tt.want, tt.ok)
		}
	}
	s.Reset()
	if _, ok := s.LastSeen(1, a); ok {
		t.Error("remembers after Reset")
	}
}

func TestSuppressorOptions(t *testing.T) {
	for _, o := range []SuppressorOptions{
		{Slots: 3}, {Slots: 100}, {Slots: 1 << 21}, {ReReport: 10, ShortSlot: 20}, {Rate: -1}, {Burst: -1}, {ShortSlot: -1},
	} {
		if _, err := NewSuppressor(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func BenchmarkQuiet(b *testing.B) {
	s := newSupp(b, SuppressorOptions{})
	ip := packet.IPFrom4(0x0a000001)
	see(s, 0x020000000001, ip, arpnd.Strong, 0, true, 1, 1)
	b.ReportAllocs()
	for b.Loop() {
		if !s.Quiet(0x020000000001, ip, arpnd.Strong, 0, 1, 2) {
			b.Fatal("not quiet")
		}
	}
}

func BenchmarkQuiet64Claims(b *testing.B) {
	s := newSupp(b, SuppressorOptions{})
	for i := range 64 {
		see(s, uint64(0x020000000000+i), packet.IPFrom4(uint32(0x0a000000+i)), arpnd.Strong, 0, true, 1, 1)
	}
	b.ReportAllocs()
	i := uint32(0)
	for b.Loop() {
		i = (i + 1) & 63
		s.Quiet(uint64(0x020000000000+uint64(i)), packet.IPFrom4(0x0a000000+i), arpnd.Strong, 0, 1, 2)
	}
}

// BenchmarkMACFlood is what each frame of a flood costs.
func BenchmarkMACFlood(b *testing.B) {
	s := newSupp(b, SuppressorOptions{})
	b.ReportAllocs()
	i := uint64(0)
	for b.Loop() {
		i++
		see(s, 0x020000000000|i*7919&0xffffffff, packet.IP{}, arpnd.Strong, 0, false, 1, second+int64(i))
	}
}

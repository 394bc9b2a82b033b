package learning

import (
	"math/rand/v2"
	"testing"
	"time"

	"picot.dev/picot/arpnd"
)

// TestAddressesGoWithTheirMAC: a station goes A, B, A within moments, announces
// itself once each time and is silent then. However long writes and news take, its
// MAC and all its addresses end on A, long before anything expires.
func TestAddressesGoWithTheirMAC(t *testing.T) {
	mac := macN(1)
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := lab(t, Options{}, "A", "B", "C")
		a, b := s.nodes[0], s.nodes[1]
		s.observe(a, "vm", mac, ipN(1), arpnd.Strong, Announce)
		if r.IntN(2) == 0 {
			s.observe(a, "vm", mac, ipN(2), arpnd.Strong, Announce)
		}
		s.advance(time.Second)
		s.hosts[host{"A", "vm", mac, ipN(1)}] = true // it answers who asks
		s.jitter = func() int64 { return r.Int64N(100 * int64(time.Millisecond)) }
		s.frame(b, "vm", mac, ipN(1), arpnd.Strong, Announce)
		s.advance(time.Duration(r.IntN(150)) * time.Millisecond)
		s.frame(a, "vm", mac, ipN(1), arpnd.Strong, Announce)
		s.advance(s.opt.WithDefaults().ReReport + 5*time.Second)
		for k, got := range s.store {
			if got.Node != "A" {
				t.Errorf("seed %d: %v ends on %s, want A", seed, k, got.Node)
			}
		}
		if _, ok := s.store[Neighbor(modelNet, ipN(1))]; !ok {
			t.Errorf("seed %d: the address is gone", seed)
		}
		if t.Failed() {
			return
		}
	}
}

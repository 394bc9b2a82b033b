package fastpath

import (
	"testing"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

// TestLastPortOfAShardHasItsShare: ports that come first are idle and give
// nothing back, so they must not have taken what those who come later, or carry
// much, need.
func TestLastPortOfAShardHasItsShare(t *testing.T) {
	const seats = 16
	e, err := New(Config{Workers: 1, MaxPorts: seats, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	for port := 1; port <= seats; port++ {
		at, err := e.Place()
		if err != nil {
			t.Fatal(err)
		}
		xs, _ := xsktest.New(t, e.Memory(), e.Memory().Shard(at.Shard), xsk.Options{})
		if err := e.AddPort(port, 0, at, xs); err != nil {
			t.Fatal(err)
		}
	}
	socks, err := e.Sockets()
	if err != nil {
		t.Fatal(err)
	}
	const share = xsk.DefaultChunksPerShard * 6 / 16 / seats
	for _, s := range socks {
		if s.Filled != share {
			t.Errorf("idle port %d in shard %d has %d frames to receive into, want %d", s.Port, s.Shard, s.Filled, share)
		}
	}
	if free := e.Audit().Free; free < xsk.DefaultChunksPerShard/4 {
		t.Errorf("%d frames are left for frames under way", free)
	}
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
}

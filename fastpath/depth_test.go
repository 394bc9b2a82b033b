package fastpath

import (
	"testing"
	"time"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

// seats is an engine that is not started: the test plays its worker.
type seats struct {
	*testing.T
	w       *worker
	socks   []*sock
	kernels []*xsktest.Kernel
}

// seated has as many ports in one shard of the usual size.
func seated(t *testing.T, ports int) *seats {
	t.Helper()
	e, err := New(Config{Workers: 1, MaxPorts: 16, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	s := &seats{T: t, w: e.workers[0]}
	for port := 1; port <= ports; port++ {
		at, err := e.Place()
		if err != nil {
			t.Fatal(err)
		}
		xs, k := xsktest.New(t, e.Memory(), e.Memory().Shard(at.Shard), xsk.Options{Fill: fillDeep, RX: fillDeep})
		if err := e.AddPort(port, 0, at, xs); err != nil {
			t.Fatal(err)
		}
		s.kernels = append(s.kernels, k)
	}
	s.socks = e.shards[0].members
	t.Cleanup(func() {
		if c := e.Audit(); c.Total() != xsk.DefaultChunksPerShard {
			t.Errorf("%d frames", c.Total())
		}
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// carry has frames come at a rate for a time, at each of these ports. They are
// dropped: there are no tables.
func (s *seats) carry(rate int, d time.Duration, ports ...int) {
	s.Helper()
	const step = 5 * time.Millisecond
	for range d / step {
		s.w.walk.Now += int64(step)
		for _, p := range ports {
			for n := rate * int(step/time.Microsecond) / 1_000_000; n > 0; {
				at, ok := s.kernels[p].Peer().TakeFill()
				if ok && s.kernels[p].ReceiveRaw(at+room, 60, 0) {
					n--
					continue
				}
				if s.w.poll(s.socks[p]) == 0 {
					s.Fatalf("port %d is deaf", p)
				}
			}
			for s.w.poll(s.socks[p]) > 0 {
			}
		}
	}
}

// A ring is as deep as its port's rate needs for a worker that is late, within
// what the shard has; not deeper where that would not help.
func TestRingIsAsDeepAsTheRateAsks(t *testing.T) {
	const total = xsk.DefaultChunksPerShard
	const share = total * 6 / 16 / 16
	const most = share + (total*13/16-16*share)*3/4 // three quarters of the growth
	for _, c := range []struct {
		name        string
		rate        int
		after       time.Duration
		depth, most int
	}{
		{"idle", 0, 10 * time.Second, share, share},
		{"little so far", 1000, time.Second, share, share},
		{"little for long", 1000, 10 * time.Second, busyDepth, busyDepth},
		{"fast, and new", 50_000, 15 * time.Millisecond, most, most},
		{"20 ms of it", 25_000, time.Second, 500, 500},
		{"more than one may have", 60_000, time.Second, most, most},
		{"too fast for any depth", 2_000_000, time.Second, busyDepth, busyDepth},
	} {
		s := seated(t, 1)
		s.carry(c.rate, c.after, 0)
		if k := s.socks[0]; k.depth < c.depth || k.depth > c.most || k.inFill != k.depth {
			t.Errorf("%s: depth %d, %d frames in the ring, want %d to %d", c.name, k.depth, k.inFill, c.depth, c.most)
		}
	}
}

// A gap takes nothing back at once; less for long does.
func TestDepthOutlastsAGap(t *testing.T) {
	s := seated(t, 1)
	k := s.socks[0]
	s.carry(50_000, time.Second, 0)
	deep := k.depth
	s.carry(0, 100*time.Millisecond, 0)
	s.carry(50_000, 5*time.Millisecond, 0)
	if k.depth < deep*7/8 {
		t.Errorf("depth %d after a gap, was %d", k.depth, deep)
	}
	s.carry(25_000, time.Second, 0)
	if k.depth > 520 || k.inFill != k.depth {
		t.Errorf("depth %d at half the rate, want 500 or so; %d in the ring", k.depth, k.inFill)
	}
}

// Members that are busy together share what is for growth: what one had before
// the others came goes to them as its frames come.
func TestBusyPortsShareTheGrowth(t *testing.T) {
	s := seated(t, 16)
	s.carry(50_000, time.Second, 0)
	s.carry(50_000, time.Second, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
	for i, k := range s.socks {
		if want := k.shard.share + k.shard.growth/16; k.inFill != want {
			t.Errorf("port %d: %d in the ring, want %d", i, k.inFill, want)
		}
	}
}

// What a port had when it fell idle stays in its ring. The others have their
// shares all the same, and one that comes later has a quarter of the growth.
func TestIdlePortKeepsNobodyFromGrowing(t *testing.T) {
	s := seated(t, 16)
	s.carry(50_000, time.Second, 0)
	s.carry(0, time.Minute, 0)
	s.carry(50_000, time.Second, 1)
	sh := s.socks[1].shard
	if k := s.socks[1]; k.inFill < sh.share+sh.growth/4 {
		t.Errorf("%d frames in the ring, want %d", k.inFill, sh.share+sh.growth/4)
	}
	for i, k := range s.socks[2:] {
		if k.inFill != sh.share {
			t.Errorf("port %d has %d frames to receive into, want %d", i+2, k.inFill, sh.share)
		}
	}
	if free, want := len(sh.free), xsk.DefaultChunksPerShard*3/16; free < want {
		t.Errorf("%d frames are left for those under way, want %d", free, want)
	}
}

// Who joins or leaves takes nothing out of a deep ring, nor does a new process.
func TestDepthOutlastsNewNeighbours(t *testing.T) {
	s := seated(t, 2)
	k := s.socks[0]
	s.carry(50_000, time.Second, 0)
	deep := k.inFill
	s.w.eng.seat(k)
	s.w.refill(k)
	if k.depth != deep || k.inFill != deep {
		t.Errorf("depth %d, %d in the ring, was %d", k.depth, k.inFill, deep)
	}
}

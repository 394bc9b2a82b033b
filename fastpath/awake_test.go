package fastpath

import (
	"testing"
	"time"
)

// A worker that is to stay awake looks on for longer after its last frame, and
// one that carries nothing sleeps all the same.
func TestStayAwake(t *testing.T) {
	r := newRig(t, Config{Workers: 1})
	w := r.workers[0]
	a, b := r.kernels[r.portA], r.kernels[r.portB]
	asleep := func() {
		t.Helper()
		eventually(t, "the worker sleeps", w.sleeping.Load)
	}
	rounds := map[bool]uint64{}
	for range 20 {
		for _, awake := range []bool{false, true} {
			asleep()
			r.awake.Store(0)
			if awake {
				r.StayAwake(time.Minute)
				r.StayAwake(time.Nanosecond) // takes nothing back
			}
			before := r.Beats()[0]
			r.deliver(a, udpTo(t, macB, ipB, 1))
			eventually(t, "the frame", func() bool { return len(b.Sent()) == 1 })
			asleep()
			rounds[awake] += r.Beats()[0] - before
		}
	}
	t.Logf("rounds from a frame to the sleep after it: %d, awake %d", rounds[false], rounds[true])
	if rounds[true] < 3*rounds[false] {
		t.Errorf("%d rounds until the next sleep, awake %d: want three times as many", rounds[false], rounds[true])
	}
}

package agent

import (
	"testing"
	"time"

	"picot.dev/picot/internal/desired"
)

// Ten thousand updates in a burst: applies and snapshots are bounded by time, not
// by updates, and the last value wins.
func TestBurstOfUpdatesIsBounded(t *testing.T) {
	const updates = 10000
	for name, pause := range map[string]time.Duration{"at once": 0, "over a second": 100 * time.Microsecond} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.started()
				applies, published := w.agent.applies, w.agent.published
				key := endpoint(1).EndpointKey
				began := time.Now()
				for i := range updates {
					e := good().Endpoints[key]
					e.Segment = uint32(i + 1)
					w.say(desired.Delta{Endpoints: map[desired.EndpointKey]*desired.Endpoint{key: &e}})
					if pause > 0 {
						time.Sleep(pause)
					}
				}
				w.pass(time.Second)
				took := time.Since(began)
				bound := uint64(took/applyEvery) + 2
				applies, published = w.agent.applies-applies, w.agent.published-published
				t.Logf("%d updates in %v: %d applies, %d snapshots", updates, took, applies, published)
				if applies == 0 || applies > bound || published > applies {
					t.Errorf("%d applies, %d snapshots, want at most %d", applies, published, bound)
				}
				if pause == 0 && applies > 10 {
					t.Errorf("%d applies of what came at once", applies)
				}
				for _, p := range w.agent.tables.last.Ports {
					if p.Name == "v1" && p.Segment != updates {
						t.Errorf("segment %d, want the last, %d", p.Segment, updates)
					}
				}
				w.want("a change of segments")
			})
		})
	}
}

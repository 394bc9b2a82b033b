package agent

import (
	"slices"
	"testing"
	"time"

	"picot.dev/picot/internal/device/devicetest"
)

// slowUplink has an uplink's socket take long, and looks at what is there by then.
type slowUplink struct {
	*devicetest.Kernel
	takes time.Duration
	look  func()
}

func (k slowUplink) OpenUplink(uplink, queue, ifindex int) (int, error) {
	k.look()
	time.Sleep(k.takes)
	return k.Kernel.OpenUplink(uplink, queue, ifindex)
}

// Ports wait neither for an uplink nor for one another: those that can talk come
// first, are in the workers' tables before the uplink's socket is opened, and the
// rest follows without a pause.
func TestFirstPortsForwardBeforeAllIsAttached(t *testing.T) {
	const each, uplink = attachFor * 3 / 4, 5 * time.Second
	inWorld(t, func(w *world) {
		w.start()
		var published []string
		w.agent.ports.kernel = slowKernel{w.devices, each}
		w.agent.ups.sockets = slowUplink{Kernel: w.devices, takes: uplink, look: func() {
			for _, p := range w.agent.tables.last.Ports {
				if p.ID != 0 && !p.Down && w.agent.published == w.agent.tables.last.Version {
					published = append(published, p.Name)
				}
			}
		}}
		w.listLinks()
		began := time.Now()
		w.say(all(good()))
		for len(w.devices.IDs()) < workloads+1 {
			w.pass(time.Millisecond)
		}
		if want := []string{"v1", "v2"}; !slices.Equal(published, want) {
			t.Errorf("with the workers when the uplink came: %v, want %v", published, want)
		}
		if took, most := time.Since(began), workloads*each+uplink+applyEvery; took > most {
			t.Errorf("all attached after %v, want %v at most", took, most)
		}
	})
}

package fastpath

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A worker that cannot run must not leave the others running, nor Stop waiting
// for one that never ran.
func TestStartFailsWholeAndStopReturns(t *testing.T) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	good := 0
	for !set.IsSet(good) {
		good++
	}
	const none = 1 << 16 // more than a set can name
	for name, cpus := range map[string][]int{"first": {none, good}, "second": {good, none}, "both": {none, none}} {
		t.Run(name, func(t *testing.T) {
			e, err := New(Config{Workers: 2, CPUs: cpus, MaxPorts: 2, NUMANode: -1, ChunksPerShard: 256, PortsPerShard: 2})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Start(); !errors.Is(err, unix.EINVAL) {
				t.Errorf("Start with CPUs %v: %v, want EINVAL", cpus, err)
			}
			stopped := make(chan error, 1)
			go func() { stopped <- e.Stop() }()
			select {
			case err := <-stopped:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("Stop does not return")
			}
		})
	}
}

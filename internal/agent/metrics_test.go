package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The metrics are registered before the loop runs: nothing may be asked of it then,
// or the start waits for an answer that cannot come.
func TestMetricsAreRegisteredWithoutTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := prometheus.NewRegistry().Register(newMetrics(&Agent{requests: make(chan request)})); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the start waited %v", took)
		}
	})
}

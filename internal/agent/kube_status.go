package agent

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"picot.dev/picot/internal/status"
	"picot.dev/picot/k8s/writer"
)

// writes counts attempts to write to the API, for the writer's goroutines and
// the loop.
type writes struct {
	mu     sync.Mutex
	counts map[status.APIWrites]uint64 // Count 0 in the key
}

func newWrites() *writes { return &writes{counts: map[status.APIWrites]uint64{}} }

// observe is the writer's hook.
func (w *writes) observe(resource string, v writer.Verb, result string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[status.APIWrites{Resource: resource, Verb: v.String(), Result: result}]++
}

// status is what the node wrote so far and what waits.
func (k *kube) status() *status.API {
	s := &status.API{Queued: map[string]int{
		"static": k.writer.Len(writer.Static), "learned": k.writer.Len(writer.Learned), "refresh": k.writer.Len(writer.Refresh),
	}}
	k.writes.mu.Lock()
	defer k.writes.mu.Unlock()
	for key, n := range k.writes.counts {
		key.Count = n
		s.Writes = append(s.Writes, key)
	}
	slices.SortFunc(s.Writes, func(a, b status.APIWrites) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Result, b.Result))
	})
	return s
}

// apiMetrics describes what status.API becomes as metrics.
type apiMetrics struct {
	writes, queued *prometheus.Desc
}

func newAPIMetrics() apiMetrics {
	return apiMetrics{
		writes: prometheus.NewDesc("picot_api_writes_total", "Writes to the Kubernetes API by how they ended: ok, conflict, transport or the API's reason.", []string{"resource", "verb", "result"}, nil),
		queued: prometheus.NewDesc("picot_api_queued", "Objects that wait for a write, its retry, or its result to be seen.", []string{"class"}, nil),
	}
}

func (m *apiMetrics) collect(ch chan<- prometheus.Metric, s *status.API) {
	if s == nil {
		return
	}
	for _, w := range s.Writes {
		ch <- prometheus.MustNewConstMetric(m.writes, prometheus.CounterValue, float64(w.Count), w.Resource, w.Verb, w.Result)
	}
	for class, n := range s.Queued {
		ch <- prometheus.MustNewConstMetric(m.queued, prometheus.GaugeValue, float64(n), class)
	}
}

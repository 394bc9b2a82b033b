package agent

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"picot.dev/picot/internal/status"
	"picot.dev/picot/learning"
)

// learningCollector collects the metrics of one status.
type learningCollector struct {
	m learningMetrics
	s *status.Learning
}

func (c learningCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

func (c learningCollector) Collect(ch chan<- prometheus.Metric) {
	c.m.collect(c.s, func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}, func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	})
}

// gathered are the metrics of a status as a scrape has them: name and label value.
func gathered(t *testing.T, s *status.Learning) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(learningCollector{newLearningMetrics(func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("picot_"+name, help, labels, nil)
	}), s})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

// TestLearningMetrics: every count of the status has its metric.
func TestLearningMetrics(t *testing.T) {
	s := &status.Learning{
		Open: true, Entries: 2, Reported: 3, RingFull: 4, Limited: 5, Observations: 6,
		Refused: map[string]uint64{"static": 7, "weak": 8}, Writes: map[string]uint64{"create": 9, "delete": 10},
		Conflicts: 11, Failures: 12, Events: map[string]uint64{"moved": 13}, Probes: 14, RefreshesWaiting: 15,
	}
	want := map[string]float64{
		"picot_learning_open": 1, "picot_learning_entries": 2,
		"picot_learning_observations_total reported": 3, "picot_learning_observations_total ring_full": 4,
		"picot_learning_observations_total limited": 5, "picot_learning_observations_total looked_at": 6,
		"picot_learning_refused_total static": 7, "picot_learning_refused_total weak": 8,
		"picot_learning_writes_total create": 9, "picot_learning_writes_total delete": 10,
		"picot_learning_write_troubles_total conflict": 11, "picot_learning_write_troubles_total failure": 12,
		"picot_learning_events_total moved": 13, "picot_learning_probes_total": 14, "picot_learning_refreshes_waiting": 15,
	}
	if got := gathered(t, s); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	v := reflect.ValueOf(*s)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("no metric of %s", v.Type().Field(i).Name)
		}
	}
	if got := gathered(t, nil); len(got) != 0 {
		t.Errorf("of a node that does not learn: %v", got)
	}
}

// TestLearningStatusCounts: what a station and its move make shows in the status,
// the metrics and the list of moves.
func TestLearningStatusCounts(t *testing.T) {
	learnInBoth(t, func(t *testing.T, bench func() *learnBench) { learningStatusCounts(t, bench()) })
}

func learningStatusCounts(t *testing.T, b *learnBench) {
	b.oneStation()
	for i, w := range b.sink.writes {
		moved := b.store(w)
		moved.Node, moved.Endpoint, moved.Moves = "node2", learning.EndpointRef{}, i+1
		moved.Version.ResourceVersion = "6"
		b.onStored(w.Key, moved)
	}
	b.all()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	done := make(chan struct{})
	go func() { defer close(done); b.run(ctx) }()
	defer func() { stop(); <-done }()
	s := b.status(ctx)
	if s == nil {
		t.Fatal("no status")
	}
	got := gathered(t, s)
	for name, want := range map[string]float64{
		"picot_learning_open": 1, "picot_learning_entries": 2, "picot_learning_observations_total looked_at": 1,
		"picot_learning_writes_total create": 2, "picot_learning_events_total lost": 2, "picot_learning_writes_total takeover": 0,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	moves, err := b.moves(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range moves {
		lines = append(lines, fmt.Sprint(m.Network, " ", m.Key, " ", m.MAC, " from ", m.FromNode, " ", m.FromEndpoint, " to ", m.Node, m.Endpoint, " ", m.Moves))
	}
	want := []string{fmt.Sprintf("red %v 02:00:00:00:00:07 from node1 default/vm to node2 2", b.of(7)), "red 02:00:00:00:00:07  from node1 default/vm to node2 1"}
	if !slices.Equal(lines, want) {
		t.Errorf("moves %q, want %q", lines, want)
	}
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/learning"
)

// status is what became of what the ports claimed; nil where nothing is learned,
// or where the learner does not answer in time.
func (l *learner) status(ctx context.Context) *status.Learning {
	if l == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s := &status.Learning{}
	err := l.ask(ctx, func() {
		c := l.core.Stats()
		s.Open = l.gate.source && l.gate.ports && l.gate.writes
		s.Entries, s.Observations, s.Conflicts, s.Failures = c.Entries, c.Observations, c.Conflicts, c.Failures
		s.Probes, s.RefreshesWaiting = c.Probes, c.RefreshesQueue
		s.Refused = map[string]uint64{
			"no port": c.NoPort, "off": c.Off, "gateway": c.Gateway, "static": c.Static, "frozen": c.Frozen, "weak": c.Weak,
			"mac limit": c.MACLimit, "address limit": c.AddressLimit, "out of prefix": c.OutOfPrefix, "stale": c.Stale,
		}
		s.Writes = map[string]uint64{}
		for op, n := range c.Writes {
			if op > 0 {
				s.Writes[learning.Op(op).String()] = n
			}
		}
		s.Events = map[string]uint64{}
		for kind, n := range l.events {
			s.Events[kind.String()] = n
		}
		for _, n := range l.limited {
			s.Limited += n
		}
	})
	if err != nil {
		return nil
	}
	s.Reported, s.RingFull = l.source.Counts()
	return s
}

func (l *learner) moves(ctx context.Context) ([]status.Move, error) {
	out := []status.Move{}
	err := l.ask(ctx, func() {
		for _, m := range l.core.Moves() {
			out = append(out, moveStatus(m))
		}
	})
	if err != nil {
		return nil, err // out may still be written to
	}
	return out, nil
}

func moveStatus(m learning.Move) status.Move {
	s := status.Move{
		Time: time.UnixMicro(m.Wall), Network: m.Key.Network, Key: m.Key.MAC.String(),
		FromNode: m.From.Node, Node: m.To.Node, Moves: m.To.Moves,
	}
	if m.Key.IsNeighbor() {
		s.Key, s.MAC = m.Key.IP.String(), m.To.MAC.String()
	}
	if e := m.From.Endpoint.EndpointKey; e.Name != "" {
		s.FromEndpoint = e.String()
	}
	if e := m.To.Endpoint.EndpointKey; e.Name != "" {
		s.Endpoint = e.String()
	}
	if m.To.FrozenUntil != 0 {
		t := time.UnixMicro(m.To.FrozenUntil)
		s.FrozenUntil = &t
	}
	return s
}

// errClear is wrapped by every error of clear.
var errClear = errors.New("not cleared")

// clear lets a binding of this node move again.
func (l *learner) clear(ctx context.Context, network, key string) error {
	k, err := parseKey(network, key)
	if err != nil {
		return err
	}
	var holder string
	var ok bool
	if err := l.ask(ctx, func() { holder, ok = l.core.Release(k, l.now) }); err != nil {
		return err
	}
	switch {
	case ok:
		return nil
	case holder == "":
		return fmt.Errorf("%w: nothing is known of %s: look at picot show fdb and picot show neigh", errClear, k)
	case holder == l.node:
		return fmt.Errorf("%w: %s is static: learning does not move it", errClear, k)
	}
	return fmt.Errorf("%w: %s is managed by node %s: clear it there", errClear, k, holder)
}

// parseKey reads a MAC or an address.
func parseKey(network, key string) (learning.Key, error) {
	if network == "" {
		return learning.Key{}, fmt.Errorf("%w: name the network", errClear)
	}
	if mac, err := packet.ParseMAC(key); err == nil {
		return learning.FDB(network, mac), nil
	}
	if a, err := netip.ParseAddr(key); err == nil && a.Zone() == "" {
		return learning.Neighbor(network, packet.IPFromAddr(a)), nil
	}
	return learning.Key{}, fmt.Errorf("%w: %q is neither a MAC nor an address", errClear, key)
}

// handleLearning adds what "picot show moves" and "picot fdb clear" ask.
func (a *Agent) handleLearning(mux *http.ServeMux) {
	serve := func(pattern string, f func(ctx context.Context, r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if a.learner == nil {
				http.Error(w, "nothing is learned: bindings come from manifests", http.StatusNotFound)
				return
			}
			ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
			defer cancel()
			switch v, err := f(ctx, r); {
			case errors.Is(err, errClear):
				http.Error(w, err.Error(), http.StatusConflict)
			case err != nil:
				http.Error(w, "learning does not answer: "+err.Error(), http.StatusServiceUnavailable)
			default:
				reply(w, http.StatusOK, v)
			}
		})
	}
	serve("GET /moves", func(ctx context.Context, _ *http.Request) (any, error) { return a.learner.moves(ctx) })
	serve("POST /fdb/clear", func(ctx context.Context, r *http.Request) (any, error) {
		q := r.URL.Query()
		return map[string]bool{"cleared": true}, a.learner.clear(ctx, q.Get("network"), q.Get("key"))
	})
}

// learningMetrics are the counters of learning.
type learningMetrics struct {
	observations, refused, writes, trouble, events, probes, entries, waiting, open *prometheus.Desc
}

func newLearningMetrics(desc func(name, help string, labels ...string) *prometheus.Desc) learningMetrics {
	return learningMetrics{
		observations: desc("learning_observations_total", "Claims of frames: reported by the workers, ring_full (made again by the next frame), limited by the port, looked at.", "outcome"),
		refused:      desc("learning_refused_total", "Observations that changed nothing, by why.", "reason"),
		writes:       desc("learning_writes_total", "Writes of learned bindings, by what they are for.", "op"),
		trouble:      desc("learning_write_troubles_total", "Writes of learned bindings that met a conflict or failed; each is decided anew.", "outcome"),
		events:       desc("learning_events_total", "What learning told people: moves, freezes, limits reached, collisions.", "kind"),
		probes:       desc("learning_probes_total", "Questions to silent hosts."),
		entries:      desc("learning_entries", "Keys the learning core knows."),
		waiting:      desc("learning_refreshes_waiting", "Refreshes that wait for their share of the budget."),
		open:         desc("learning_open", "Whether learning writes: its sources are in sync."),
	}
}

func (m *learningMetrics) collect(s *status.Learning, counter func(*prometheus.Desc, uint64, ...string), gauge func(*prometheus.Desc, float64, ...string)) {
	if s == nil {
		return
	}
	for outcome, n := range map[string]uint64{"reported": s.Reported, "ring_full": s.RingFull, "limited": s.Limited, "looked_at": s.Observations} {
		counter(m.observations, n, outcome)
	}
	for reason, n := range s.Refused {
		counter(m.refused, n, reason)
	}
	for op, n := range s.Writes {
		counter(m.writes, n, op)
	}
	counter(m.trouble, s.Conflicts, "conflict")
	counter(m.trouble, s.Failures, "failure")
	for kind, n := range s.Events {
		counter(m.events, n, kind)
	}
	counter(m.probes, s.Probes)
	gauge(m.entries, float64(s.Entries))
	gauge(m.waiting, float64(s.RefreshesWaiting))
	gauge(m.open, number(s.Open))
}

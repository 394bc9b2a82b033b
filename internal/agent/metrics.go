package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/status"
)

// metrics turns the status into Prometheus metrics at each scrape: nothing is
// counted twice, and nothing is kept.
type metrics struct {
	agent                                   *Agent
	frames, bytes, drops, kernel, xdp, icmp *prometheus.Desc
	up, ready, snapshot, rounds, handed     *prometheus.Desc
	fdb, neighbors, nextHops, problems      *prometheus.Desc
	learning                                learningMetrics
	api                                     apiMetrics
}

func newMetrics(a *Agent) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("picot_"+name, help, labels, nil)
	}
	return &metrics{
		agent:     a,
		learning:  newLearningMetrics(desc),
		api:       newAPIMetrics(),
		frames:    desc("port_frames_total", "Frames by port and what became of them: rx and tx, and for each rx one of local, remote, answered, dropped.", "device", "network", "kind"),
		bytes:     desc("port_bytes_total", "Bytes received and sent by port.", "device", "network", "kind"),
		drops:     desc("drops_total", "Dropped frames by port and reason; the sum over reasons is kind=dropped.", "device", "network", "reason"),
		kernel:    desc("socket_losses_total", "Frames the kernel lost at a port's AF_XDP sockets.", "device", "network", "cause"),
		xdp:       desc("xdp_frames_total", "Frames by what the XDP program did.", "device", "network", "action"),
		icmp:      desc("icmp_errors_total", "ICMP errors sent to a port.", "device", "network"),
		up:        desc("port_up", "Whether the port is up.", "device", "network"),
		ready:     desc("ready", "Whether the agent is ready."),
		snapshot:  desc("snapshot_version", "Version of the tables the workers use."),
		rounds:    desc("worker_rounds_total", "Rounds of each worker.", "worker"),
		handed:    desc("worker_handed_over_total", "Frames a worker gave to others.", "worker"),
		fdb:       desc("fdb_entries", "FDB entries desired."),
		neighbors: desc("neighbors", "Neighbours desired."),
		nextHops:  desc("node_next_hops", "Resolved next hops toward a node.", "node"),
		problems:  desc("problems", "Objects that could not be taken, see picot show status."),
	}
}

// Describe implements prometheus.Collector. It names nothing, which makes the
// collector an unchecked one: to find out by a collection would ask the loop, which
// does not run yet when this is asked.
func (*metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var s status.Status
	if err := m.agent.ask(ctx, func() { s = m.agent.status(false) }); err != nil {
		ch <- prometheus.NewInvalidMetric(m.ready, err)
		return
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	port := func(device, network string, up bool, t status.Traffic) {
		for kind, v := range map[string]uint64{
			"rx": t.RX, "tx": t.TX, "local": t.Local, "remote": t.Remote, "answered": t.Answered, "dropped": t.Dropped,
		} {
			counter(m.frames, v, device, network, kind)
		}
		counter(m.bytes, t.RXBytes, device, network, "rx")
		counter(m.bytes, t.TXBytes, device, network, "tx")
		for reason, v := range t.Drops {
			counter(m.drops, v, device, network, reason)
		}
		for cause, v := range map[string]uint64{
			"rx_dropped": t.Socket.RXDropped, "ring_full": t.Socket.RingFull, "fill_empty": t.Socket.FillEmpty,
			"tx_busy": t.TXBusy, "tx_invalid": t.Socket.TXInvalid, "bogus": t.Bogus,
		} {
			counter(m.kernel, v, device, network, cause)
		}
		if x := t.XDP; x != nil {
			for action, v := range map[string]uint64{
				"redirected": x.Redirected, "dropped_empty": x.DroppedEmpty, "passed": x.Passed, "error": x.Errors,
			} {
				counter(m.xdp, v, device, network, action)
			}
		}
		counter(m.icmp, t.ICMPErrors, device, network)
		gauge(m.up, number(up), device, network)
	}
	for _, p := range s.Ports {
		port(p.Device, p.Network, p.Up, p.Traffic)
	}
	for _, u := range s.Uplinks {
		port(u.Device, "", u.Up, u.Traffic)
	}
	for _, w := range s.Workers {
		counter(m.rounds, w.Rounds, strconv.Itoa(w.Worker))
		counter(m.handed, w.HandedOver, strconv.Itoa(w.Worker))
	}
	for _, n := range s.Nodes {
		gauge(m.nextHops, float64(len(n.NextHops)), n.Node)
	}
	gauge(m.ready, number(s.Ready))
	gauge(m.snapshot, float64(s.Snapshot))
	gauge(m.fdb, float64(s.FDBSize))
	gauge(m.neighbors, float64(s.Neighbors))
	gauge(m.problems, float64(len(s.Problems)))
	m.api.collect(ch, s.API)
	m.learning.collect(m.agent.learner.status(ctx), counter, gauge)
	m.agent.gateway.collect(ch)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// listenMetrics listens so that a newer agent that takes over may listen beside
// the one that goes.
func listenMetrics(ctx context.Context, addr string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		return errors.Join(err, set)
	}}
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--metrics-addr %s: %w", addr, err)
	}
	return l, nil
}

// serveMetrics serves /metrics and the health paths over TCP until stop.
func (a *Agent) serveMetrics(ctx context.Context) (stop func(), err error) {
	if a.config.MetricsAddr == "" {
		return func() {}, nil
	}
	l, err := listenMetrics(ctx, a.config.MetricsAddr)
	if err != nil {
		return nil, err
	}
	r := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{newMetrics(a), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := r.Register(c); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	a.health(mux)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }()
	return func() { _ = server.Close() }, nil
}

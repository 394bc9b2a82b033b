package agent

import (
	"github.com/prometheus/client_golang/prometheus"
)

// gatewayHelp says what the gateway's samples are, by name.
var gatewayHelp = map[string]string{
	"mirror_writes_total":         "Rows of followers written into MAC_Binding, by reason.",
	"static_writes_total":         "Rows written into Static_MAC_Binding, by reason.",
	"refused_rows_total":          "Rows a database refused even alone.",
	"flows_total":                 "Flows added, deleted, and put back after another program removed them.",
	"redesignations_total":        "How often another network became the source of an uplink bridge.",
	"lag_seconds":                 "Time from the last change seen to its last row written.",
	"database_up":                 "Whether the database is connected and synchronised.",
	"database_sessions_total":     "Connections made to the database.",
	"transactions_total":          "Transactions sent to the database.",
	"transactions_rejected_total": "Transactions the database refused.",
	"transaction_max_seconds":     "The longest transaction so far.",
	"followers":                   "Gateway routers that follow the bridge's source.",
	"bindings":                    "Bindings of the source that are mirrored.",
	"bindings_lacking":            "Rows the followers still need.",
	"resubmits_saved_per_packet":  "About how many OpenFlow resubmits an external ARP or NDP packet is spared.",
}

// collect turns the gateway's samples into metrics.
func (g *gatewayPart) collect(ch chan<- prometheus.Metric) {
	if g == nil {
		return
	}
	ready, _, _ := g.conditions()
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("picot_gateway_ready", "Whether the gateway is ready.", nil, nil),
		prometheus.GaugeValue, number(ready))
	for _, s := range g.controller.Samples() {
		var names, values []string
		for i := 0; i+1 < len(s.Labels); i += 2 {
			names, values = append(names, s.Labels[i]), append(values, s.Labels[i+1])
		}
		kind := prometheus.GaugeValue
		if s.Counter {
			kind = prometheus.CounterValue
		}
		m, err := prometheus.NewConstMetric(prometheus.NewDesc("picot_gateway_"+s.Name, gatewayHelp[s.Name], names, nil), kind, s.Value, values...)
		if err != nil {
			m = prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		}
		ch <- m
	}
}

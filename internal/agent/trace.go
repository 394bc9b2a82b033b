package agent

import (
	"errors"
	"net/http"

	"picot.dev/picot/internal/trace"
)

// handleTrace answers what "picot trace" asks: the frame's way over the snapshot
// that is published, with the rates of this agent. Of the loop it takes what the
// ports are called; the walk is done here.
func (a *Agent) handleTrace(mux *http.ServeMux) {
	mux.HandleFunc("GET /trace", func(w http.ResponseWriter, r *http.Request) {
		request, err := trace.ParseQuery(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var n trace.Node
		if !a.answers(w, r, func() { n = a.traced() }) {
			return
		}
		result, err := trace.Run(n, request)
		switch {
		case errors.Is(err, trace.ErrRequest):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			reply(w, http.StatusOK, result)
		}
	})
}

// traced is what a trace needs. In the loop's goroutine only; the snapshot may be
// kept, for nothing in it ever changes.
func (a *Agent) traced() trace.Node {
	n := trace.Node{Name: a.config.NodeName, Snapshot: a.tables.last, Limits: a.config.Limits, FixedSource: a.config.FixedSource}
	n.Via = a.tables.state.Nodes[n.Name].Via
	for name, p := range a.ports.attached {
		one := trace.Port{Device: name, Endpoint: p.key.String()}
		if p.sockets {
			one.ID = p.entry.ID
		}
		if b := a.ports.retry[name]; b != nil && b.err != nil {
			one.Error = b.err.Error()
		}
		n.Ports = append(n.Ports, one)
	}
	for device, endpoint := range a.ports.missing {
		n.Ports = append(n.Ports, trace.Port{Device: device, Endpoint: endpoint.String(), Error: a.ports.missingError(device).Error()})
	}
	for _, u := range a.ups.all {
		n.Uplinks = append(n.Uplinks, u.name)
	}
	return n
}

package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/status"
)

// serve answers on the control socket: HTTP with JSON bodies.
//
//	/status /fdb /neighbors   what "picot show" prints
//	/trace                    what "picot trace" asks
//	/moves, POST /fdb/clear   what "picot show moves" prints, "picot fdb clear" does
//	/gateway /gateway/flows   what "picot show gateway" and "picot gateway flows" print
//	/capture, POST /capture/stop   what "picot pcap" writes: pcapng, until it is stopped
//	/livez /readyz /healthz   200, or 503 with the reasons
func (a *Agent) serve(ctx context.Context) (stop func(), err error) {
	path := a.config.ControlPath()
	// An older agent whose place this one has may be slow to end: it is no reason
	// to end as well, with its sockets.
	if conn, err := net.Dial("unix", path); err == nil && a.older == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("control socket %s: another agent answers there: stop it, or give another --run-dir", path)
	} else if err == nil {
		_ = conn.Close()
	}
	l, err := a.listen(path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	server := &http.Server{Handler: a.handler(ctx), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }()
	return func() {
		a.release(l, path)
		_ = server.Close()
	}, nil
}

// listen makes a socket that only its owner may use, in place of what is left of
// an earlier one.
func (a *Agent) listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// release ends l and removes its file, unless by now a successor listens there.
func (a *Agent) release(l *net.UnixListener, path string) {
	if !a.handedOver {
		_ = os.Remove(path)
	}
	_ = l.Close()
}

func (a *Agent) handler(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		var s status.Status
		if a.answers(w, r, func() { s = a.status(true) }) {
			s.Learning = a.learner.status(r.Context())
			reply(w, http.StatusOK, s)
		}
	})
	mux.HandleFunc("GET /fdb", func(w http.ResponseWriter, r *http.Request) {
		var s *table.Snapshot
		if a.answers(w, r, func() { s = a.tables.last }) {
			replyRows(w, fdbStatus(s))
		}
	})
	mux.HandleFunc("GET /neighbors", func(w http.ResponseWriter, r *http.Request) {
		var s *table.Snapshot
		if a.answers(w, r, func() { s = a.tables.last }) {
			replyRows(w, neighborStatus(s))
		}
	})
	a.handleLearning(mux)
	a.handleTrace(mux)
	a.handleCapture(ctx, mux)
	a.gateway.handle(mux)
	a.health(mux)
	return mux
}

// answers runs f in the loop and reports whether it ran.
func (a *Agent) answers(w http.ResponseWriter, r *http.Request, f func()) bool {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	if err := a.ask(ctx, f); err != nil {
		http.Error(w, "the agent's loop does not answer: "+err.Error(), http.StatusServiceUnavailable)
		return false
	}
	return true
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}

// replyRows is reply for a table of any length: it is written row by row, and
// never held as text.
func replyRows[T any](w http.ResponseWriter, rows []T) {
	w.Header().Set("Content-Type", "application/json")
	b := bufio.NewWriterSize(w, 64<<10)
	separator := "[\n  "
	for i := range rows {
		row, err := json.MarshalIndent(&rows[i], "  ", "  ")
		if err != nil { // of texts, numbers and flags: cannot be
			return
		}
		_, _ = b.WriteString(separator)
		_, _ = b.Write(row)
		separator = ",\n  "
	}
	end := "\n]\n"
	if len(rows) == 0 {
		end = "[]\n"
	}
	_, _ = b.WriteString(end)
	_ = b.Flush()
}

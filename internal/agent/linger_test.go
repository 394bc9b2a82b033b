package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
)

// livesAt asks whoever answers on an agent's control socket.
func livesAt(t *testing.T, path string) bool {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", path)
		},
	}}
	r, err := client.Get("http://picot/livez")
	if err != nil {
		t.Log(err)
		return false
	}
	return r.Body.Close() == nil && r.StatusCode == http.StatusOK
}

// An older agent that has handed over and is slow to end keeps its successor from
// nothing, and takes none of its sockets along. One that has not is left alone.
func TestSuccessorListensWhileTheOlderAgentLingers(t *testing.T) {
	agent := func(older *takeover, dir string) *Agent {
		return &Agent{config: Config{RunDir: dir, NodeName: "node1"}, log: slog.New(slog.DiscardHandler), vitals: newVitals(), older: older}
	}
	dir := t.TempDir()
	old := agent(nil, dir)
	path := old.config.ControlPath()
	var ends []func()
	serve := func(a *Agent) {
		t.Helper()
		for _, f := range []func(context.Context) (func(), error){a.serve, a.serveTakeover} {
			stop, err := f(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, stop)
		}
	}
	serve(old)
	if _, err := agent(nil, dir).serve(t.Context()); err == nil {
		t.Error("a stranger took the socket of a living agent")
	}
	next := agent(&takeover{}, dir)
	serve(next)
	old.handedOver = true
	ends[0]()
	ends[1]()
	if !livesAt(t, path) {
		t.Error("the older agent took its successor's control socket along")
	}
	conn, err := net.Dial("unix", next.config.takeoverPath())
	if err != nil {
		t.Fatalf("the older agent took its successor's takeover socket along: %v", err)
	}
	conn.Close()
	ends[2]()
	ends[3]()
	for _, p := range []string{path, next.config.takeoverPath()} {
		if conn, err := net.Dial("unix", p); err == nil {
			conn.Close()
			t.Errorf("%s is still answered", p)
		}
	}
}

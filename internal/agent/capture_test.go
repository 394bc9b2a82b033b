package agent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/fastpath/table"
)

// TestCaptureAsksForEndpointsAgain: a port that came a moment after others is known
// with the next question; and a loop that is busy is waited for once, not for each
// frame.
func TestCaptureAsksForEndpointsAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.started()
		var id table.PortID
		w.ask(func() { id = w.agent.ports.attached["v1"].entry.ID })
		c := &capturing{agent: w.agent, ctx: context.Background(), asked: time.Now()}
		took := func(want string) time.Duration {
			t.Helper()
			start := time.Now()
			if got := c.Endpoint(id); got != want {
				t.Errorf("port %v is %q, want %q", id, got, want)
			}
			return time.Since(start)
		}
		took("")
		time.Sleep(askAgain)
		took("default/p1")

		c.endpoints = nil
		time.Sleep(askAgain)
		done, asked := make(chan struct{}), make(chan error, 1)
		begun := make(chan struct{})
		go func() { asked <- w.agent.ask(context.Background(), func() { close(begun); <-done }) }()
		<-begun
		if d := took(""); d != askAgain {
			t.Errorf("a busy loop is waited for %v, want %v", d, askAgain)
		}
		if d := took(""); d != 0 {
			t.Errorf("the next frame waits %v", d)
		}
		close(done)
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
		time.Sleep(askAgain)
		took("default/p1")
	})
}

// TestCaptureRefusesUnknownParameters: a filter that is misspelt or given twice does
// not show every frame.
func TestCaptureRefusesUnknownParameters(t *testing.T) {
	inWorld(t, func(w *world) {
		w.started()
		mux := http.NewServeMux()
		w.agent.handleCapture(context.Background(), mux)
		for query, say := range map[string]string{
			"prot=v1": `parameter "prot" is none`, "port=v1&port=v2": `parameter "port", 2 times`, "ip=": "--ip is given, but empty",
		} {
			rec := httptest.NewRecorder()
			mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/capture?"+query, nil))
			if rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), say) {
				t.Errorf("%s: %d %q", query, rec.Code, rec.Body)
			}
		}
	})
}

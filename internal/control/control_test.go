package control

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// listen is an agent that takes connections and never answers.
func listen(t *testing.T) (runDir string) {
	t.Helper()
	runDir = t.TempDir()
	l, err := net.Listen("unix", Socket(runDir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return runDir
}

func TestSilentAgentIsNamed(t *testing.T) {
	runDir := listen(t)
	_, err := get(t.Context(), runDir, "/status", 50*time.Millisecond)
	if !errors.Is(err, errSilent) || !strings.Contains(err.Error(), Socket(runDir)) {
		t.Errorf("%v, want errSilent and the socket", err)
	}
}

func TestCancelledQuestionNamesTheAgent(t *testing.T) {
	runDir := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := Get(ctx, runDir, "/status")
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "http://") {
		t.Errorf("%v, want context.Canceled and no made-up address", err)
	}
}

func TestNobodyThere(t *testing.T) {
	if _, err := Get(t.Context(), t.TempDir(), "/status"); !errors.Is(err, ErrNoAgent) {
		t.Errorf("%v, want ErrNoAgent", err)
	}
}

func TestSilentStreamIsNamed(t *testing.T) {
	runDir := listen(t)
	_, err := stream(t.Context(), runDir, "/capture", 50*time.Millisecond)
	if !errors.Is(err, errSilent) || !strings.Contains(err.Error(), Socket(runDir)) {
		t.Errorf("%v, want errSilent and the socket", err)
	}
	if _, err := Stream(t.Context(), t.TempDir(), "/capture"); !errors.Is(err, ErrNoAgent) {
		t.Errorf("%v, want ErrNoAgent", err)
	}
}

// TestStreamOutlivesTheWait: only its beginning has to come in time; what is no
// answer is an error.
func TestStreamOutlivesTheWait(t *testing.T) {
	runDir := t.TempDir()
	l, err := net.Listen("unix", Socket(runDir))
	if err != nil {
		t.Fatal(err)
	}
	const wait = 2 * time.Second
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/capture" {
			http.Error(w, "no such thing", http.StatusBadRequest)
			return
		}
		w.Header().Set("Trailer", "End")
		_, _ = io.WriteString(w, "first ")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(wait + wait/4)
		_, _ = io.WriteString(w, "last")
		w.Header().Set("End", "here")
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	res, err := stream(t.Context(), runDir, "/capture", wait)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if string(body) != "first last" || err != nil || res.Trailer.Get("End") != "here" || res.Body.Close() != nil {
		t.Errorf("%q, %v, trailer %v", body, err, res.Trailer)
	}
	if _, err := stream(t.Context(), runDir, "/other", wait); err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("a refusal: %v", err)
	}
}

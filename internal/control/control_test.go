package control

import (
	"context"
	"errors"
	"net"
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

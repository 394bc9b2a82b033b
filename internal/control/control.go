// Package control asks a running agent over its control socket: HTTP with JSON
// bodies, as internal/agent serves it. Safe for concurrent use; it keeps no
// connection.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"picot.dev/picot/internal/status"
)

// ErrNoAgent is wrapped by the error of a question nobody answers.
var ErrNoAgent = errors.New("no agent answers")

// answerIn bounds an answer: more than the five seconds an agent gives its own
// loop, so that one whose loop hangs still says so.
const answerIn = 10 * time.Second

// Socket is the control socket of the agent with that --run-dir.
func Socket(runDir string) string { return filepath.Join(runDir, "picot.sock") }

// errSilent is the end of the wait for an agent that is there and says nothing.
var errSilent = errors.New("it takes the question and does not answer: see whether it is stopped, or start it anew")

// Get asks the agent with that --run-dir for a path, such as /status, and
// returns the body of its answer.
func Get(ctx context.Context, runDir, path string) ([]byte, error) {
	return get(ctx, runDir, path, answerIn)
}

// Post has the agent with that --run-dir do something, such as /fdb/clear, and
// returns the body of its answer. The path carries what is needed as a query.
func Post(ctx context.Context, runDir, path string) ([]byte, error) {
	return ask(ctx, http.MethodPost, runDir, path, answerIn)
}

func get(ctx context.Context, runDir, path string, wait time.Duration) ([]byte, error) {
	return ask(ctx, http.MethodGet, runDir, path, wait)
}

func ask(ctx context.Context, method, runDir, path string, wait time.Duration) ([]byte, error) {
	socket := Socket(runDir)
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errSilent)
	defer cancel()
	res, err := do(ctx, method, socket, path)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, told(ctx, socket, err)
	}
	if res.StatusCode != http.StatusOK {
		return body, fmt.Errorf("agent at %s: %s", socket, strings.TrimSpace(string(body)))
	}
	return body, nil
}

// do sends a request and returns what comes after its header.
func do(ctx context.Context, method, socket, path string) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w at %s: start one, or give its --run-dir", ErrNoAgent, socket)
	}
	if err != nil {
		return nil, told(ctx, socket, err)
	}
	return res, nil
}

// told names the agent that was asked, and what kept it from answering.
func told(ctx context.Context, socket string, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	var asked *url.Error
	if errors.As(err, &asked) {
		err = asked.Err // its text names a made-up address
	}
	return fmt.Errorf("agent at %s: %w", socket, err)
}

// Status asks for everything the agent tells about itself.
func Status(ctx context.Context, runDir string) (status.Status, error) {
	var s status.Status
	body, err := Get(ctx, runDir, "/status")
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return s, fmt.Errorf("agent at %s: %w", Socket(runDir), err)
	}
	return s, nil
}

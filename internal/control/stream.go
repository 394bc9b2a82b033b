package control

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Stream asks the agent with that --run-dir for an answer that goes on until ctx
// ends or the agent ends it. The answer's beginning is waited for as Get waits; its
// Body is the caller's to close, and its Trailer is there once the Body has ended.
func Stream(ctx context.Context, runDir, path string) (*http.Response, error) {
	return stream(ctx, runDir, path, answerIn)
}

func stream(ctx context.Context, runDir, path string, wait time.Duration) (*http.Response, error) {
	socket := Socket(runDir)
	ctx, cancel := context.WithCancelCause(ctx)
	silent := time.AfterFunc(wait, func() { cancel(errSilent) })
	res, err := do(ctx, http.MethodGet, socket, path)
	if err != nil {
		silent.Stop()
		cancel(nil)
		return nil, err
	}
	if !silent.Stop() || res.StatusCode != http.StatusOK {
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			err = told(ctx, socket, err)
		} else {
			err = fmt.Errorf("agent at %s: %s", socket, strings.TrimSpace(string(body)))
		}
		cancel(nil)
		return nil, err
	}
	res.Body = &streamed{res.Body, cancel}
	return res, nil
}

// streamed is a body whose request ends with it.
type streamed struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (s *streamed) Close() error {
	err := s.ReadCloser.Close()
	s.cancel(nil)
	return err
}

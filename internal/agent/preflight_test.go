package agent

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPreflight: what cannot work is said before a living agent is asked to go.
func TestPreflight(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	missing := filepath.Join(t.TempDir(), "kubeconfig")
	full := t.TempDir() // of what cannot make way for a socket
	if err := os.MkdirAll(filepath.Join(full, "takeover.sock", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"run directory is gone":     {Config{Manifests: "x", RunDir: missing}, "--run-dir"},
		"a socket's place is taken": {Config{Manifests: "x", RunDir: full}, "takeover.sock is a directory"},
		"fine":                      {Config{Manifests: "x", MetricsAddr: "127.0.0.1:0"}, ""},
		"port is no port":           {Config{Manifests: "x", MetricsAddr: "127.0.0.1:b"}, "--metrics-addr"},
		"port is taken":             {Config{Manifests: "x", MetricsAddr: l.Addr().String()}, "--metrics-addr"},
		"no kubeconfig":             {Config{Kubeconfig: missing}, "--kubeconfig"},
	} {
		if c.config.RunDir == "" {
			c.config.RunDir = t.TempDir()
		}
		err := preflight(&c.config)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

package e2ek8s

import (
	"encoding/json"
	"os/exec"
	"testing"
	"time"

	"picot.dev/picot/internal/testnet"
	"picot.dev/picot/k8s/apitest"
)

// TestDemo: every check of the demo holds with an API server in place of files.
func TestDemo(t *testing.T) {
	testnet.RequireRoot(t)
	s := apitest.Start(t, apitest.Options{})
	out, err := exec.CommandContext(within(t, 3*time.Minute), picot, "demo", "--kubeconfig", s.Kubeconfig, "--json").Output()
	var r struct {
		OK     bool
		Checks []any
	}
	if jerr := json.Unmarshal(out, &r); err != nil || jerr != nil || !r.OK || len(r.Checks) == 0 {
		t.Fatalf("demo: %v, %v:\n%s", err, jerr, out)
	}
}

// Package e2e tests whole clusters: real agents, real stacks in network
// namespaces. It needs root.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/testnet"
)

// picot is the binary under test, built once.
var picot string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "picot-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	picot = filepath.Join(dir, "picot")
	build := exec.Command("go", "build", "-o", picot, "../../cmd/picot")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building picot: %v\n%s", err, out)
		return 1
	}
	return testnet.Main(m)
}

// newLab makes an empty lab that is closed, and its agents' logs shown if the
// test failed, at the end.
func newLab(t *testing.T, underlay lab.Underlay) *lab.Lab {
	t.Helper()
	testnet.RequireRoot(t)
	l, err := lab.New(context.Background(), lab.Options{Picot: picot, Underlay: underlay})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range l.Nodes() {
				t.Logf("log of %s:\n%s", n.Name, n.Log())
			}
		}
		if err := l.Close(); err != nil {
			t.Errorf("closing the lab: %v", err)
		}
	})
	return l
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within is a context for one step of a test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

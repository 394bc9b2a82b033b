package lab

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/testnet"
)

// build makes a picot binary for the test.
func build(t *testing.T) string {
	t.Helper()
	testnet.RequireRoot(t)
	testnet.RequireTool(t, "ip", "nsenter", "sysctl", "ping", "go")
	bin := filepath.Join(t.TempDir(), "picot")
	if out, err := exec.Command("go", "build", "-o", bin, "picot.dev/picot/cmd/picot").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return bin
}

func newLab(t *testing.T, o Options) *Lab {
	t.Helper()
	l, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if left := remains(t, l); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	return l
}

// remains is what of a lab is still on the machine.
func remains(t *testing.T, l *Lab) []string {
	t.Helper()
	var left []string
	all, err := found(func(int) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if x.Tag == l.Tag() {
			left = slices.Concat(left, x.Netns, x.Mounts, x.Dirs)
		}
	}
	return left
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// twoNodes adds two nodes with a pod each in network red.
func twoNodes(t *testing.T, l *Lab, o NodeOptions) (nodes [2]*Node, pods [2]*Pod) {
	t.Helper()
	must(t, l.AddNetwork("red", 100, []string{"10.0.0.0/24", "fd00:10::/64"}, "mtu: 1446"))
	for i := range nodes {
		var err error
		nodes[i], err = l.AddNode(o)
		must(t, err)
		n := string(rune('1' + i))
		pods[i], err = l.AddPod(PodOptions{
			Name: "pod" + n, Node: nodes[i], Network: "red", MAC: "02:00:00:00:00:0" + n,
			Addresses: []string{"10.0.0.1" + n, "fd00:10::1" + n}, Segment: 7,
		})
		must(t, err)
	}
	return nodes, pods
}

func TestRoutedAndSharedUnderlay(t *testing.T) {
	bin := build(t)
	for name, u := range map[string]Underlay{"routed": Routed, "shared": Shared} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, Options{Picot: bin, Underlay: u})
			nodes, pods := twoNodes(t, l, NodeOptions{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, n := range nodes {
				must(t, n.Start(ctx))
			}
			for _, n := range nodes {
				must(t, n.WaitReady(ctx, 1))
			}
			for _, to := range pods[1].Addresses {
				if _, err := pods[0].Run(ctx, "ping", "-c3", "-i0.1", "-W5", to.String()); err != nil {
					t.Fatalf("%s: %v\n%s", to, err, nodes[0].Log())
				}
			}
			for _, n := range nodes {
				must(t, n.Stop(ctx))
				if n.Running() || n.PID() != 0 {
					t.Error("runs after Stop")
				}
				if !strings.Contains(n.Log(), "picot agent runs") {
					t.Errorf("log: %s", n.Log())
				}
			}
		})
	}
}

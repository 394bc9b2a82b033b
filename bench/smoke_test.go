package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"picot.dev/picot/internal/testnet"
)

func TestMain(m *testing.M) { os.Exit(testnet.Main(m)) }

// smoke runs one benchmark as shortly as it goes. It holds that it runs, that
// frames arrive and that all rows are there; never a figure.
func smoke(t *testing.T, name, binary string, rows int) *Report {
	t.Helper()
	testnet.RequireRoot(t)
	testnet.RequireTool(t, "ip", "unshare", "ethtool")
	b, err := choose([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	s := &session{
		Config: Config{Pairs: 1, Duration: 50 * time.Millisecond, Binary: binary},
		report: &Report{}, pins: testnet.BPFFS(t), memory: 20_000, idlePorts: 20, livePorts: 8, upgrades: 2, upgradeRate: 10_000,
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = b[0].run(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.report.Rows) != rows {
		t.Errorf("%d rows, want %d: %+v", len(s.report.Rows), rows, s.report.Rows)
	}
	for _, r := range s.report.Rows {
		if r.Outcome == Skipped {
			t.Logf("%s: skipped: %s", r.Name, r.Note)
			continue
		}
		// A difference of two latencies may be below 0, and nothing may be lost.
		none := r.Goal == atMost(0)
		if r.Ours.N == 0 || r.Ours.Median <= 0 && !none || r.Figure.N == 0 {
			t.Errorf("%s has no figure: %+v", r.Name, r)
		}
	}
	return s.report
}

func TestVeth(t *testing.T)    { smoke(t, "veth", "", 7) }
func TestSRv6(t *testing.T)    { smoke(t, "srv6", "", 2) }
func TestWalk(t *testing.T)    { smoke(t, "walk", "", 2) }
func TestAnswers(t *testing.T) { smoke(t, "arp", "", 5) }
func TestCost(t *testing.T)    { smoke(t, "cost", "", 2) }
func TestPorts(t *testing.T)   { smoke(t, "ports", "", 2) }
func TestChange(t *testing.T)  { smoke(t, "change", "", 1) }

func TestAgent(t *testing.T) {
	testnet.RequireRoot(t)
	binary := filepath.Join(t.TempDir(), "picot")
	if out, err := exec.Command("go", "build", "-o", binary, "picot.dev/picot/cmd/picot").CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v: %s", err, out)
	}
	smoke(t, "agent", binary, 1)
	smoke(t, "restart", binary, 2)
	smoke(t, "upgrade", binary, 2)
}

// The whole of Run, surroundings included, with the cheapest benchmark.
func TestRunLeavesNothingBehind(t *testing.T) {
	testnet.RequireRoot(t)
	before, err := filepath.Glob(filepath.Join(os.TempDir(), "picot-bench-*"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), Config{Only: []string{"change"}, Pairs: 1, Duration: 10 * time.Millisecond})
	if err != nil || len(r.Rows) != 1 {
		t.Fatalf("%v: %+v", err, r)
	}
	after, err := filepath.Glob(filepath.Join(os.TempDir(), "picot-bench-*"))
	if err != nil || len(after) != len(before) {
		t.Errorf("directories before %q, after %q, %v", before, after, err)
	}
	if _, err := Run(context.Background(), Config{Pairs: 0, Duration: time.Second}); err == nil {
		t.Error("no pairs: accepted")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, Config{Only: []string{"walk"}, Pairs: 1, Duration: time.Second}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"picot.dev/picot/internal/demo"
	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/testnet"
)

const demoTimeout = 3 * time.Minute // of a very busy machine

// left is what a demo of that process has on the machine: namespaces, mounts,
// its directory, and processes that name it.
func left(t *testing.T, pid int) []string {
	t.Helper()
	tag := "picot-lab-" + strconv.Itoa(pid) + "-"
	var found []string
	for _, pattern := range []string{"/run/netns/", os.TempDir() + "/"} {
		paths, err := filepath.Glob(pattern + tag + "*")
		must(t, err)
		found = append(found, paths...)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, tag) {
			found = append(found, line)
		}
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, c := range commands {
		if b, err := os.ReadFile(c); err == nil && bytes.Contains(b, []byte(tag)) {
			found = append(found, c+": "+string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
		}
	}
	return found
}

func nothingLeft(t *testing.T, pid int) {
	t.Helper()
	if l := left(t, pid); len(l) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(l, "\n"))
	}
}

// oneObject decodes stdout, which must be one JSON object and nothing else.
func oneObject(t *testing.T, stdout []byte) demo.Result {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(stdout))
	d.DisallowUnknownFields()
	var r demo.Result
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%v:\n%s", err, stdout)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Errorf("more than one object: %v:\n%s", err, stdout)
	}
	return r
}

func names(checks []demo.Check) (all []string) {
	for _, c := range checks {
		all = append(all, c.Name)
	}
	return all
}

func TestDemoEveryCheckHolds(t *testing.T) {
	testnet.RequireRoot(t)
	cmd := exec.CommandContext(within(t, demoTimeout), picot, "demo", "--json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	begin := time.Now()
	out, err := cmd.Output()
	t.Logf("took %v", time.Since(begin))
	r := oneObject(t, out)
	for _, c := range r.Checks {
		t.Logf("%t %s: %s", c.OK, c.Name, c.Detail)
		if !c.OK || c.Detail == "" {
			t.Errorf("%s does not hold: %s", c.Name, c.Detail)
		}
	}
	if err != nil || !r.OK {
		t.Errorf("ok %t, %v, %s", r.OK, err, &stderr)
	}
	want := []string{
		"agents-ready", "ping-v4-same-node", "ping-v4-cross-node", "ping-v6-same-node", "ping-v6-cross-node",
		"tcp-v4-same-node", "tcp-v4-cross-node", "tcp-v6-same-node", "tcp-v6-cross-node", "checksums",
		"isolation-same-addresses", "isolation-unreachable", "isolation-ping-blue", "not-delivered",
		"accounting-node1", "accounting-node2",
	}
	if got := names(r.Checks); !slices.Equal(got, want) || !slices.Equal(demo.Names(), want) {
		t.Errorf("checks %q\nwant   %q", got, want)
	}
	nothingLeft(t, cmd.Process.Pid)
}

// A pod nobody declared fails exactly the checks that need it.
func TestDemoSaysWhatIsBroken(t *testing.T) {
	c, err := demo.Build(newLab(t, lab.Routed))
	must(t, err)
	must(t, c.Red[3].RemoveEndpoint())
	ctx := within(t, demoTimeout)
	must(t, c.Start(ctx))
	r := c.Check(ctx, nil)
	if r.OK {
		t.Error("ok without the endpoint of red-2b")
	}
	var failed []string
	for _, check := range r.Checks {
		if !check.OK {
			failed = append(failed, check.Name)
			t.Logf("%s: %s", check.Name, check.Detail)
		}
	}
	want := []string{"agents-ready", "ping-v4-same-node", "ping-v4-cross-node", "ping-v6-same-node", "ping-v6-cross-node"}
	if !slices.Equal(failed, want) {
		t.Errorf("failed: %q\nwant:   %q", failed, want)
	}
	for _, check := range r.Checks {
		if strings.HasPrefix(check.Name, "ping-") && !strings.Contains(check.Detail, "red-2b") {
			t.Errorf("%s does not name the pod: %s", check.Name, check.Detail)
		}
	}
}

// started runs a demo until its output has that text, or until something is on
// the machine if text is empty.
func started(t *testing.T, text string, args ...string) *exec.Cmd {
	t.Helper()
	testnet.RequireRoot(t)
	cmd := exec.CommandContext(within(t, demoTimeout), picot, append([]string{"demo"}, args...)...)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if text == "" {
		testnet.Eventually(t, demoTimeout, "the demo begins", func() error {
			if len(left(t, cmd.Process.Pid)) < 5 {
				return io.ErrNoProgress
			}
			return nil
		})
	}
	s := bufio.NewScanner(out)
	for text != "" && s.Scan() {
		if strings.Contains(s.Text(), text) {
			text = ""
		}
	}
	if text != "" {
		t.Fatalf("the demo ended without %q: %v", text, cmd.Wait())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return cmd
}

func TestDemoInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		at     string
		signal syscall.Signal
	}{
		"while it builds":  {"", syscall.SIGINT},
		"while it pings":   {"agents-ready", syscall.SIGINT},
		"in a TCP stream":  {"ping-v6-cross-node", syscall.SIGTERM},
		"while it watches": {"checksums", syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := started(t, c.at)
			must(t, cmd.Process.Signal(c.signal))
			if err := cmd.Wait(); err == nil {
				t.Error("exit status 0 after an interruption")
			}
			nothingLeft(t, cmd.Process.Pid)
		})
	}
}

// What a killed demo left, agents included, the next lab sweeps.
func TestDemoKilledIsSweptByTheNext(t *testing.T) {
	cmd := started(t, "agents-ready")
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	if len(left(t, cmd.Process.Pid)) == 0 {
		t.Fatal("nothing was left: the test shows nothing")
	}
	newLab(t, lab.Routed)
	nothingLeft(t, cmd.Process.Pid)
}

func TestDemoKeepAndDown(t *testing.T) {
	testnet.RequireRoot(t)
	ctx := within(t, demoTimeout)
	cmd := exec.CommandContext(ctx, picot, "demo", "--keep", "--json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	pid := cmd.Process.Pid
	t.Cleanup(func() {
		down, err := exec.Command(picot, "demo", "--down").CombinedOutput()
		if err != nil || !strings.Contains(string(down), "picot-lab-"+strconv.Itoa(pid)+"-") {
			t.Errorf("--down: %v: %s", err, down)
		}
		nothingLeft(t, pid)
	})
	if r := oneObject(t, out); err != nil || !r.OK {
		t.Fatalf("ok %t, %v: %s", r.OK, err, out)
	}
	// Another lab's sweep leaves it alone.
	newLab(t, lab.Routed)
	ran := 0
	for line := range strings.Lines(stderr.String()) {
		_, command, ok := strings.Cut(line, "nsenter ")
		if ok && strings.Contains(command, " ping ") {
			command = "nsenter " + strings.Replace(command, " ping ", " ping -c2 -i0.1 ", 1)
		} else if _, command, ok = strings.Cut(line, picot+" show "); ok {
			command = picot + " show " + command
		} else {
			continue
		}
		if out, err := exec.CommandContext(ctx, "sh", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
		ran++
	}
	if ran < 4 {
		t.Errorf("only %d of the hints could be run:\n%s", ran, &stderr)
	}
}

func TestDemoNeedsRoot(t *testing.T) {
	testnet.RequireRoot(t) // to become somebody else
	// Where anybody may execute it.
	dir, err := os.MkdirTemp("", "picot-e2e-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	binary, err := os.ReadFile(picot)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "picot"), binary, 0o755))
	cmd := exec.CommandContext(within(t, time.Minute), filepath.Join(dir, "picot"), "demo")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "needs root") {
		t.Errorf("%v: %q, want one line that says it needs root", err, out)
	}
}

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// agentPorts is how many ports the idle agent has.
const agentPorts = 10

// benchAgent measures the CPU time of the real agent while nothing happens.
func benchAgent(ctx context.Context, s *session) (err error) {
	name := fmt.Sprintf("agent with %d ports and an uplink, idle", agentPorts)
	if s.Binary == "" {
		s.add(skipped("agent", name, "the program's own file is not known"))
		return nil
	}
	host, err := newSpace()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.close()) }()
	pods, err := newSpace()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pods.close()) }()
	dir, err := os.MkdirTemp("", "picot-bench-agent-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := agentSurroundings(host, pods, dir); err != nil {
		return err
	}
	pins := filepath.Join(s.pins, "agent")
	var log lines
	cmd := exec.CommandContext(ctx, s.Binary, "agent", "--node-name", "node1", "--uplink", "up0",
		"--manifests", filepath.Join(dir, "manifests"), "--run-dir", filepath.Join(dir, "run"), "--bpffs", pins,
		"--max-ports", "16")
	cmd.Stderr = &log
	if err := host.do(cmd.Start); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	stopped := false
	stop := func() error {
		if stopped {
			return nil
		}
		stopped = true
		_ = cmd.Process.Signal(unix.SIGTERM) // has ended already
		timer := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		return cmd.Wait()
	}
	defer func() { err = errors.Join(err, stop(), removeAll(pins)) }()
	if err := waitFor(20*time.Second, func() bool { return log.count("port attached") == agentPorts }); err != nil {
		return fmt.Errorf("the agent has not attached its ports %w; its log: %s", err, log.tail())
	}
	// Let what starting left behind settle, then watch.
	if err := sleep(ctx, 4*s.Duration); err != nil {
		return err
	}
	var cores []float64
	for range 5 {
		before, err := cpuOf(cmd.Process.Pid)
		if err != nil {
			return err
		}
		start := time.Now()
		if err := sleep(ctx, 4*s.Duration); err != nil {
			return err
		}
		after, err := cpuOf(cmd.Process.Pid)
		if err != nil {
			return err
		}
		cores = append(cores, 100*(after-before).Seconds()/time.Since(start).Seconds())
	}
	if err := stop(); err != nil {
		return fmt.Errorf("the agent: %w; its log: %s", err, log.tail())
	}
	r := single("agent", name, "% of a core", spreadOf(cores), atMost(1))
	r.Note = fmt.Sprintf("CPU time of all its threads in 5 spans of %s", 4*s.Duration)
	s.add(r)
	return nil
}

// agentSurroundings makes the agent's devices and manifests.
func agentSurroundings(host, pods *space, dir string) error {
	var m strings.Builder
	m.WriteString(`apiVersion: picot.dev/v1alpha1
kind: Network
metadata: {name: red}
spec: {id: 100, prefixes: [10.0.0.0/24, "fd00:10::/64"]}
---
apiVersion: picot.dev/v1alpha1
kind: SRv6Node
metadata: {name: node1}
spec: {locator: "2001:db8:0:1::/64"}
---
apiVersion: picot.dev/v1alpha1
kind: SRv6Node
metadata: {name: node2}
spec: {locator: "2001:db8:0:2::/64", nextHop: "fd00:99::2"}
`)
	for i := range agentPorts {
		name := "v" + strconv.Itoa(i)
		if err := pair(end{in: host, name: name}, end{in: pods, name: name}); err != nil {
			return err
		}
		fmt.Fprintf(&m, `---
apiVersion: picot.dev/v1alpha1
kind: NetworkEndpoint
metadata: {name: pod-%d, namespace: default}
spec: {network: red, nodeName: node1, mac: "02:00:00:00:01:%02x", addresses: [10.0.0.%d, "fd00:10::%x"], segment: 7, interface: %s}
`, i, i, i+10, i+10, name)
	}
	if err := pair(end{in: host, name: "up0"}, end{in: pods, name: "up0", mac: macSink}); err != nil {
		return err
	}
	for _, knob := range []string{"all", "default", "up0"} {
		if err := host.sysctl("ipv6/conf/"+knob+"/disable_ipv6", "0"); err != nil {
			return err
		}
	}
	if err := host.run("ip", "-6", "addr", "add", "fd00:99::1/64", "dev", "up0", "nodad"); err != nil {
		return err
	}
	if err := host.run("ip", "-6", "neigh", "replace", "fd00:99::2", "lladdr", macSink, "dev", "up0", "nud", "permanent"); err != nil {
		return err
	}
	manifests := filepath.Join(dir, "manifests")
	if err := os.Mkdir(manifests, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(manifests, "bench.yaml"), []byte(m.String()), 0o600)
}

// removeAll removes a directory of pins: only names, the objects go with the
// agent and its devices.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the agent's pins: %w", err)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// cpuOf is the CPU time of all threads a process has now.
func cpuOf(pid int) (time.Duration, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "task")
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	var total time.Duration
	for _, t := range tasks {
		total += runTime(filepath.Join(dir, t.Name()))
	}
	return total, nil
}

// lines gathers a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), s)
}

func (l *lines) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.TrimSpace(l.buf.String())
	return s[max(0, len(s)-1000):]
}

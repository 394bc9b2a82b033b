package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/packet"
)

// liveAgent is the real program as a node's agent: an uplink, and ports whose
// other ends are in a namespace beside it.
type liveAgent struct {
	binary, dir, pins string
	host, pods        *space
	ports             int
	args              []string
	log               lines // of all its lives
	lives             []*agentProcess
}

// agentProcess is one life of a liveAgent.
type agentProcess struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed once it is reaped
	err   error         // of its end, then
}

// newLiveAgent makes the surroundings of an agent with that many ports, which
// are v0, v1 and so on. It does not start it.
func newLiveAgent(s *session, ports int, args ...string) (a *liveAgent, err error) {
	a = &liveAgent{binary: s.Binary, pins: filepath.Join(s.pins, "agent"), ports: ports, args: args}
	defer func() {
		if err != nil {
			a, err = nil, errors.Join(err, a.close())
		}
	}()
	for _, sp := range []**space{&a.host, &a.pods} {
		if *sp, err = newSpace(); err != nil {
			return a, err
		}
	}
	if a.dir, err = os.MkdirTemp("", "picot-bench-agent-"); err != nil {
		return a, err
	}
	return a, agentSurroundings(a.host, a.pods, a.dir, ports)
}

// portMAC is the MAC of the endpoint behind the i-th port.
func portMAC(i int) packet.MAC { return packet.MACFromUint64(0x020000000100 + uint64(i)) }

func portName(i int) string { return "v" + strconv.Itoa(i) }

// portAddr is a UDP port of the endpoint behind the i-th port.
func portAddr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(1 + i/200), byte(10 + i%200)}), 9)
}

// start starts the program. Its predecessor may still run.
func (a *liveAgent) start(ctx context.Context, more ...string) (*agentProcess, error) {
	args := slices.Concat([]string{"agent", "--node-name", "node1", "--uplink", "up0",
		"--manifests", filepath.Join(a.dir, "manifests"), "--run-dir", filepath.Join(a.dir, "run"), "--bpffs", a.pins}, a.args, more)
	p := &agentProcess{cmd: exec.CommandContext(ctx, a.binary, args...), ended: make(chan struct{})}
	p.cmd.Stderr = &a.log
	if err := a.host.do(func() error { return asUsual(p.cmd.Start) }); err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	a.lives = append(a.lives, p)
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// asUsual starts a process that is no part of the bench and runs as it would on a
// node: it has the nice value of the thread that starts it.
func asUsual(start func() error) error {
	now, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return err
	}
	now = 20 - now // as the system call has it
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, niceNormal); err != nil {
		return err
	}
	return errors.Join(start(), unix.Setpriority(unix.PRIO_PROCESS, 0, now))
}

// attached waits until that many ports were attached since the log was empty.
func (a *liveAgent) attached(ports int) error {
	if err := waitFor(20*time.Second, func() bool { return a.log.count("port attached") >= ports }); err != nil {
		return fmt.Errorf("the agent has not attached its ports %w; its log: %s", err, a.log.tail())
	}
	return nil
}

// end ends a life with a signal, if it has not ended by itself. Only an end by
// SIGTERM has a status to speak of.
func (a *liveAgent) end(p *agentProcess, signal os.Signal) error {
	_ = p.cmd.Process.Signal(signal) // has ended already
	timer := time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	if err := a.reap(p); signal != unix.SIGKILL {
		return err
	}
	return nil
}

// reap waits for the end of a life.
func (a *liveAgent) reap(p *agentProcess) error {
	<-p.ended
	a.lives = slices.DeleteFunc(a.lives, func(q *agentProcess) bool { return q == p })
	if p.err != nil {
		return fmt.Errorf("the agent: %w; its log: %s", p.err, a.log.tail())
	}
	return nil
}

// close ends what still runs, and takes its surroundings down.
func (a *liveAgent) close() error {
	var err error
	for len(a.lives) > 0 {
		err = errors.Join(err, a.end(a.lives[0], unix.SIGTERM))
	}
	for _, s := range []*space{a.host, a.pods} {
		if s != nil {
			err = errors.Join(err, s.close())
		}
	}
	if a.dir != "" {
		err = errors.Join(err, os.RemoveAll(a.dir))
	}
	return errors.Join(err, removeAll(a.pins))
}

// agentSurroundings makes the agent's devices and manifests.
func agentSurroundings(host, pods *space, dir string, ports int) error {
	var m strings.Builder
	m.WriteString(`apiVersion: picot.dev/v1alpha1
kind: Network
metadata: {name: red}
spec: {id: 100, prefixes: [10.0.0.0/16, "fd00:10::/64"]}
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
	for i := range ports {
		name := portName(i)
		if err := pair(end{in: host, name: name}, end{in: pods, name: name}); err != nil {
			return err
		}
		fmt.Fprintf(&m, `---
apiVersion: picot.dev/v1alpha1
kind: NetworkEndpoint
metadata: {name: pod-%d, namespace: default}
spec: {network: red, nodeName: node1, mac: %q, addresses: [%s, "fd00:10::%x"], segment: 7, interface: %s}
`, i, portMAC(i), portAddr(i).Addr(), i+10, name)
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

// lines gathers a log.
type lines struct {
	mu  sync.Mutex
	buf []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}

func (l *lines) count(s string) int { return strings.Count(l.String(), s) }

func (l *lines) tail() string {
	s := strings.TrimSpace(l.String())
	return s[max(0, len(s)-1000):]
}

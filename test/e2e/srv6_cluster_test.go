package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
)

// cluster is a lab for one test. Its end checks that no frame got lost.
type cluster struct {
	*lab.Lab
	t   *testing.T
	ctx context.Context
}

// newCluster makes a lab without nodes that has network red.
func newCluster(t *testing.T, underlay lab.Underlay) *cluster {
	t.Helper()
	testnet.RequireTool(t, "ip", "nsenter", "sysctl", "ping", "ethtool")
	c := &cluster{Lab: newLab(t, underlay), t: t, ctx: within(t, 3*time.Minute)}
	c.must(c.AddNetwork("red", 100, []string{"10.0.0.0/24", "fd00:10::/64"}, "mtu: 1446"))
	return c
}

// fourPods adds two nodes with two pods each, starts the agents and waits.
func fourPods(t *testing.T, o ...lab.NodeOptions) *cluster {
	t.Helper()
	c := newCluster(t, lab.Routed)
	o = append(o, lab.NodeOptions{}, lab.NodeOptions{})
	for i := range 2 {
		n := c.node(o[i])
		c.pod(n, 2*i+1)
		c.pod(n, 2*i+2)
	}
	c.start(2)
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	must(c.t, err)
}

func (c *cluster) node(o lab.NodeOptions) *lab.Node {
	c.t.Helper()
	n, err := c.AddNode(o)
	c.must(err)
	return n
}

// pod adds pod<number> with MAC 02:..:<number> and the addresses .1<number>.
func (c *cluster) pod(n *lab.Node, number int) *lab.Pod {
	c.t.Helper()
	p, err := c.AddPod(podOptions(n, number))
	c.must(err)
	return p
}

func podOptions(n *lab.Node, number int) lab.PodOptions {
	return lab.PodOptions{
		Name: fmt.Sprintf("pod%d", number), Node: n, Network: "red", MAC: fmt.Sprintf("02:00:00:00:00:%02x", number),
		Addresses: []string{fmt.Sprintf("10.0.0.1%d", number), fmt.Sprintf("fd00:10::1%d", number)}, Segment: 7,
	}
}

// start starts every agent and waits until it has that many ports.
func (c *cluster) start(ports int) {
	c.t.Helper()
	for _, n := range c.agents() {
		c.must(n.Start(c.ctx))
	}
	for _, n := range c.agents() {
		c.must(n.WaitReady(c.ctx, ports))
	}
}

// agents are the nodes with an agent: the plain ones route nothing by picot.
func (c *cluster) agents() []*lab.Node {
	var all []*lab.Node
	for _, n := range c.Nodes() {
		if !plain[n.Name] {
			all = append(all, n)
		}
	}
	return all
}

// plain names the nodes of tests that run without an agent.
var plain = map[string]bool{"linux": true}

func (c *cluster) status(n *lab.Node) status.Status {
	c.t.Helper()
	s, err := n.Status(c.ctx)
	c.must(err)
	return s
}

func portOf(t *testing.T, s status.Status, device string) status.Port {
	t.Helper()
	for _, p := range s.Ports {
		if p.Device == device {
			return p
		}
	}
	t.Fatalf("no port %s in the status", device)
	return status.Port{}
}

// account holds the books of every port of every node, since its start.
func (c *cluster) account() {
	c.t.Helper()
	for _, n := range c.agents() {
		if _, err := n.Account(c.ctx, lab.Sample{}); err != nil {
			c.t.Errorf("accounting: %v", err)
		}
	}
}

// ping sends echo requests from a pod, a node or the underlay, and wants each answered once.
func (c *cluster) ping(from lab.Commander, count int, args ...string) {
	c.t.Helper()
	if _, err := lab.Echoes(c.ctx, from, count, args...); err != nil {
		c.t.Error(err)
	}
}

// underlay runs commands in the namespace between the nodes.
type underlay struct{ netns string }

func (u underlay) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + u.netns, "--", name}, args...)...)
}

func (c *cluster) underlay() underlay { return underlay{c.UnderlayNetns()} }

// dump is a running tcpdump.
type dump struct {
	c      *cluster
	File   string
	cmd    *exec.Cmd
	stderr *lockedBuffer
}

// lockedBuffer may be read while a command still writes to it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// dump starts a tcpdump on a device and waits until it listens.
func (c *cluster) dump(where lab.Commander, device string, filter ...string) *dump {
	c.t.Helper()
	testnet.RequireTool(c.t, "tcpdump", "tshark")
	k := &dump{c: c, File: filepath.Join(c.t.TempDir(), "capture.pcap"), stderr: &lockedBuffer{}}
	args := append([]string{"-i", device, "-U", "-n", "-B", "65536", "--immediate-mode", "-Z", "root", "-w", k.File}, filter...)
	k.cmd = where.Command(c.ctx, "tcpdump", args...)
	k.cmd.Stderr = k.stderr
	c.must(k.cmd.Start())
	c.t.Cleanup(func() {
		if k.cmd.ProcessState == nil {
			_ = k.cmd.Process.Kill()
			_ = k.cmd.Wait()
		}
	})
	eventually(c.t, 10*time.Second, "tcpdump on "+device, func() error {
		if s := k.stderr.String(); !strings.Contains(s, "listening on") {
			return fmt.Errorf("it says %q", s)
		}
		return nil
	})
	return k
}

var dumpCounts = regexp.MustCompile(`(\d+) packets? captured\D+(\d+) packets? received by filter\D+(\d+) packets? dropped by kernel`)

// stop ends the capture once all that the kernel has for it is in the file.
func (k *dump) stop() {
	t := k.c.t
	t.Helper()
	if k.cmd.ProcessState != nil {
		return
	}
	asked := 0
	eventually(t, 20*time.Second, "tcpdump's reading", func() error {
		m := dumpCounts.FindAllStringSubmatch(k.stderr.String(), -1)
		if len(m) < asked {
			return errors.New("it says nothing")
		}
		asked = len(m) + 1
		if asked > 1 {
			last := m[len(m)-1]
			if atoi(t, last[1])+atoi(t, last[3]) == atoi(t, last[2]) {
				return nil
			}
		}
		return errors.Join(k.cmd.Process.Signal(unix.SIGUSR1), errors.New("it has not caught up")) // it says its counts
	})
	must(t, k.cmd.Process.Signal(os.Interrupt))
	if err := k.cmd.Wait(); err != nil {
		t.Fatalf("tcpdump: %v: %s", err, k.stderr)
	}
	m := dumpCounts.FindAllStringSubmatch(k.stderr.String(), -1)
	if len(m) == 0 || m[len(m)-1][3] != "0" {
		t.Errorf("the capture is not whole: %s", k.stderr)
	}
}

// tshark stops the capture and reads fields of the frames that match, a row a
// frame, a tab between fields and commas between several values of one.
func (k *dump) tshark(filter string, fields ...string) [][]string {
	k.c.t.Helper()
	k.stop()
	args := []string{"-r", k.File, "-n", "-o", "sctp.checksum:CRC 32c", "-o", "ip.check_checksum:TRUE",
		"-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-T", "fields"}
	if filter != "" {
		args = append(args, "-Y", filter)
	}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	cmd := exec.CommandContext(k.c.ctx, "tshark", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		k.c.t.Fatalf("tshark %v: %v: %s", args, err, stderr.String())
	}
	var rows [][]string
	for line := range strings.Lines(stdout.String()) {
		rows = append(rows, strings.Split(strings.TrimRight(line, "\n"), "\t"))
	}
	return rows
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(s), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

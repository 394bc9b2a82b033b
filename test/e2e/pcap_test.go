package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/testnet"
)

// pcapCluster is two nodes: pods 1 and 2 on the first, whose workers are two so that
// each has one, pod 3 on the other. Pod 1 is held to its addresses.
func pcapCluster(t *testing.T) (c *cluster, n *lab.Node, a, b, far *lab.Pod) {
	t.Helper()
	testnet.RequireTool(t, "tshark", "arping", "ping", "ip")
	c = newCluster(t, lab.Routed)
	n = c.node(lab.NodeOptions{Workers: 2})
	other := c.node(lab.NodeOptions{})
	o := podOptions(n, 1)
	o.Spec = "portSecurity: mac+ip"
	a, err := c.AddPod(o)
	c.must(err)
	b, far = c.pod(n, 2), c.pod(other, 3)
	for _, x := range c.agents() {
		c.must(x.Start(c.ctx))
	}
	c.must(n.WaitReady(c.ctx, 2))
	c.must(other.WaitReady(c.ctx, 1))
	return c, n, a, b, far
}

// pcap is a running "picot pcap".
type pcap struct {
	cmd    *exec.Cmd
	stderr *lockedBuffer
}

// pcap starts one for a node and waits until it is on.
func (c *cluster) pcap(n *lab.Node, stdout *os.File, args ...string) *pcap {
	c.t.Helper()
	k := &pcap{cmd: exec.CommandContext(c.ctx, picot, append([]string{"pcap", "--run-dir", n.RunDir()}, args...)...), stderr: &lockedBuffer{}}
	k.cmd.Stdout, k.cmd.Stderr = stdout, k.stderr
	begun := strings.Count(n.Log(), "capture begins")
	c.must(k.cmd.Start())
	c.t.Cleanup(func() {
		if k.cmd.ProcessState == nil {
			_ = k.cmd.Process.Kill()
			_ = k.cmd.Wait()
		}
	})
	eventually(c.t, patience, "the capture begins", func() error {
		if strings.Count(n.Log(), "capture begins") == begun {
			return fmt.Errorf("it says %q", k.stderr)
		}
		return nil
	})
	return k
}

// pcapRefused runs a capture that cannot begin and returns what it says.
func (c *cluster) pcapRefused(n *lab.Node, args ...string) string {
	c.t.Helper()
	out, err := exec.CommandContext(c.ctx, picot, append([]string{"pcap", "--run-dir", n.RunDir(), "-w", filepath.Join(c.t.TempDir(), "none")}, args...)...).CombinedOutput()
	if err == nil {
		c.t.Errorf("pcap %v succeeded", args)
	}
	return string(out)
}

// pcapOff waits until no capture runs: then a new one is not refused.
func (c *cluster) pcapOff(n *lab.Node, within time.Duration) {
	c.t.Helper()
	eventually(c.t, within, "the capture is off", func() error {
		cmd := exec.CommandContext(c.ctx, picot, "pcap", "--run-dir", n.RunDir(), "-w", filepath.Join(c.t.TempDir(), "probe"), "--duration", "1ms")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// commented is a frame of a capture as tshark reads it.
type commented struct{ comment, device, protocols, arp string }

func readCommented(t *testing.T, ctx context.Context, args ...string) (all []commented) {
	t.Helper()
	args = append(args, "-n", "-T", "fields", "-e", "frame.comment", "-e", "frame.interface_name", "-e", "frame.protocols", "-e", "arp.opcode")
	cmd := exec.CommandContext(ctx, "tshark", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("tshark %v: %v: %s", args, err, &stderr)
	}
	for line := range strings.Lines(stdout.String()) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(f) != 4 {
			t.Fatalf("tshark: %q", line)
		}
		all = append(all, commented{f[0], f[1], f[2], f[3]})
	}
	return all
}

// TestPcapTellsWhatBecameOfFrames holds, by tshark's reading, that frames delivered
// here and sent to another node and come from there, answered and dropped ones are in
// a live capture with their verdict, reason, port, network and target; and that a
// capture by filter has nothing else.
func TestPcapTellsWhatBecameOfFrames(t *testing.T) {
	c, n, a, b, far := pcapCluster(t)
	file := filepath.Join(t.TempDir(), "all.pcapng")
	all := c.pcap(n, nil, "-w", file)
	for _, to := range []*lab.Pod{b, far} {
		c.must(pingBoth(c.ctx, a, to, "-c", "5", "-i", "0.05", "-W", "2"))
	}
	_, err := a.Run(c.ctx, "arping", "-c", "3", "-w", "5", "-I", lab.PodDevice, b.IP4().String())
	c.must(err)
	// Addresses that are not the pod's: the kernel repeats its questions by itself.
	for _, spoofed := range []struct{ address, to string }{{"10.0.0.99/24", b.IP4().String()}, {"fd00:10::99/64", b.IP6().String()}} {
		_, err := a.Run(c.ctx, "ip", "addr", "add", spoofed.address, "dev", lab.PodDevice, "nodad")
		c.must(err)
		if out, err := a.Run(c.ctx, "ping", "-c", "5", "-i", "0.05", "-W", "1", "-I", strings.Split(spoofed.address, "/")[0], spoofed.to); err == nil {
			t.Errorf("a ping from %s is answered:\n%s", spoofed.address, out)
		}
	}
	c.must(all.cmd.Process.Signal(os.Interrupt))
	if err := all.cmd.Wait(); err != nil || !strings.Contains(all.stderr.String(), "frames captured, 0 missed (stopped)") {
		t.Errorf("the capture's end: %v: %s", err, all.stderr)
	}
	frames := readCommented(t, c.ctx, "-r", file)
	from := "port=" + a.Device + " endpoint=default/pod1 network=red"
	back := "port=" + lab.UplinkDevice + " network=red to=" + a.Device + " to-endpoint=default/pod1"
	for _, want := range []commented{
		{"verdict=local " + from + " to=" + b.Device + " to-endpoint=default/pod2", a.Device, "ip:icmp:data", ""},
		{"verdict=local " + from + " to=" + b.Device + " to-endpoint=default/pod2", a.Device, "ipv6:icmpv6:data", ""},
		{"verdict=remote " + from + " to=" + lab.UplinkDevice + " node=node2 sid=2001:db8:0:2:", a.Device, "ip:icmp:data", ""},
		{"verdict=remote " + from + " to=" + lab.UplinkDevice + " node=node2 sid=2001:db8:0:2:", a.Device, "ipv6:icmpv6:data", ""},
		{"verdict=local " + back, lab.UplinkDevice, "ipv6:eth:ethertype:ip:icmp:data", ""},
		{"verdict=local " + back, lab.UplinkDevice, "ipv6:eth:ethertype:ipv6:icmpv6:data", ""},
		{"verdict=answered " + from + " to=" + a.Device, a.Device, "arp", "1"}, // as it was asked
		{"verdict=dropped reason=spoofed_ip " + from, a.Device, "ip:icmp:data", ""},
		{"verdict=dropped reason=spoofed_ip " + from, a.Device, "ipv6:icmpv6:data", ""},
	} {
		found := 0
		for _, f := range frames {
			if strings.HasPrefix(f.comment, want.comment) && f.device == want.device && strings.HasSuffix(f.protocols, want.protocols) && f.arp == want.arp {
				found++
			}
		}
		if found == 0 {
			t.Errorf("no frame is %+v", want)
		}
	}
	if t.Failed() {
		for _, f := range frames {
			t.Logf("%+v", f)
		}
	}
	c.traces(n, file, frames)
	c.pcapFilters(n, a, b, far)
	c.account()
}

// traces holds that "picot trace" says of a captured frame what became of it.
func (c *cluster) traces(n *lab.Node, file string, frames []commented) {
	c.t.Helper()
	number := 1 + slices.IndexFunc(frames, func(f commented) bool { return strings.Contains(f.comment, "reason=spoofed_ip") })
	if number == 0 {
		return // said above
	}
	out, err := exec.CommandContext(c.ctx, picot, "trace", "--run-dir", n.RunDir(), "--in", frames[number-1].device,
		"--read", file, "--number", fmt.Sprint(number)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "dropped spoofed_ip") {
		c.t.Errorf("trace of frame %d, %+v: %v\n%s", number, frames[number-1], err, out)
	}
}

// pcapFilters pipes captures into tshark, as a user does, while a pings b and far and
// is dropped for another's address.
func (c *cluster) pcapFilters(n *lab.Node, a, b, far *lab.Pod) {
	c.t.Helper()
	for _, x := range []struct {
		args  []string
		count int
		holds func(commented) bool
	}{
		{[]string{"--reason", "spoofed_ip,spoofed_mac", "--port", "default/pod1"}, 3, func(f commented) bool {
			return strings.HasPrefix(f.comment, "verdict=dropped reason=spoofed_ip port="+a.Device)
		}},
		{[]string{"--ip", b.IP4().String(), "--network", "red", "--port", b.Device, "--mac", b.MAC, "--snaplen", "512"}, 4, func(f commented) bool {
			return strings.Contains(f.comment, b.Device) && strings.HasPrefix(f.comment, "verdict=local ")
		}},
		{[]string{"--port", lab.UplinkDevice, "--mac", far.MAC, "--ip", far.IP4().String()}, 6, func(f commented) bool {
			return strings.HasPrefix(f.comment, "verdict=remote port="+a.Device) || strings.HasPrefix(f.comment, "verdict=local port="+lab.UplinkDevice)
		}},
	} {
		r, w, err := os.Pipe()
		c.must(err)
		k := c.pcap(n, w, append(x.args, "--count", fmt.Sprint(x.count))...)
		c.must(w.Close())
		done := make(chan error, 1)
		go func() { done <- k.cmd.Wait() }()
		tshark := exec.CommandContext(c.ctx, "tshark", "-r", "-", "-n", "-T", "fields", "-e", "frame.comment")
		tshark.Stdin = r
		var out, stderr bytes.Buffer
		tshark.Stdout, tshark.Stderr = &out, &stderr
		c.must(tshark.Start())
		c.must(r.Close())
		eventually(c.t, patience, fmt.Sprint(x.args, " ends by itself"), func() error {
			_, _ = a.Run(c.ctx, "ping", "-c", "3", "-i", "0.05", "-W", "1", b.IP4().String())
			_, _ = a.Run(c.ctx, "ping", "-c", "3", "-i", "0.05", "-W", "1", far.IP4().String())
			_, _ = a.Run(c.ctx, "ping", "-c", "3", "-i", "0.05", "-W", "1", "-I", "10.0.0.99", b.IP4().String())
			select {
			case err := <-done:
				c.must(err)
				return nil
			default:
				return fmt.Errorf("it says %q", k.stderr)
			}
		})
		if err := tshark.Wait(); err != nil {
			c.t.Fatalf("tshark: %v: %s", err, &stderr)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != x.count {
			c.t.Errorf("%v: %d frames, want %d", x.args, len(lines), x.count)
		}
		for _, l := range lines {
			if !x.holds(commented{comment: l}) {
				c.t.Errorf("%v: %s", x.args, l)
			}
		}
	}
}

// TestPcapEndsWithItsReader: whatever becomes of the reader, the capture is off soon
// and the pods' pings are answered throughout.
func TestPcapEndsWithItsReader(t *testing.T) {
	c, n, a, b, far := pcapCluster(t)
	pings := make(chan error, 1)
	ctx, stop := context.WithCancel(c.ctx)
	go func() {
		for ctx.Err() == nil {
			if err := pingBoth(c.ctx, a, far, "-c", "10", "-i", "0.05", "-W", "5", "-s", "1300"); err != nil {
				pings <- err
				return
			}
		}
		pings <- nil
	}()

	reader := func() *os.File {
		r, w, err := os.Pipe()
		c.must(err)
		t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
		return w
	}
	killed := c.pcap(n, reader())
	if out := c.pcapRefused(n); !strings.Contains(out, "another capture runs since") {
		t.Errorf("a second one: %s", out)
	}
	c.must(killed.cmd.Process.Kill())
	_ = killed.cmd.Wait()
	c.pcapOff(n, patience)

	// The end of the pipe closes, and no frame comes that would tell.
	r, w, err := os.Pipe()
	c.must(err)
	left := c.pcap(n, w, "--network", "red", "--mac", "02:00:00:00:00:77")
	c.must(w.Close())
	c.must(r.Close())
	_ = left.cmd.Wait()
	c.pcapOff(n, patience)

	// A reader that takes nothing.
	slow := c.pcap(n, reader())
	c.must(slow.cmd.Process.Signal(syscall.SIGSTOP))
	_, err = a.Run(c.ctx, "ping", "-q", "-f", "-c", "2000", "-s", "1300", "-W", "5", b.IP4().String())
	c.must(err)
	c.pcapOff(n, 60*time.Second)
	c.must(slow.cmd.Process.Kill())

	for line, say := range map[string]string{
		"--port nosuch":         `--port "nosuch" is neither a port nor an uplink of node node1: give a device or an endpoint of "picot show ports"`,
		"--network nosuch":      `--network "nosuch" is not known to node node1`,
		"--reason nosuch":       `--reason "nosuch" is no drop reason: "picot pcap --help" lists them`,
		"--network red --mac x": `--mac: not a MAC address: "x"`,
	} {
		if out := c.pcapRefused(n, strings.Fields(line)...); !strings.Contains(out, say) {
			t.Errorf("%s: %s", line, out)
		}
	}

	// The only port goes.
	gone := c.pcap(n, nil, "-w", filepath.Join(t.TempDir(), "gone.pcapng"), "--port", b.Device)
	c.must(c.DeletePod(c.ctx, b))
	if err := gone.cmd.Wait(); err != nil || !strings.Contains(gone.stderr.String(), "(port "+b.Device+" is gone)") {
		t.Errorf("a port that went: %v: %s", err, gone.stderr)
	}

	// The agent ends, for a newer one's sake and by itself: so does the capture, and
	// it says so.
	replaced := c.pcap(n, nil, "-w", filepath.Join(t.TempDir(), "replaced.pcapng"))
	c.must(n.TakeOver(c.ctx))
	replaced.endsWithTheAgent(t)
	c.pcapOff(n, patience)
	last := c.pcap(n, nil, "-w", filepath.Join(t.TempDir(), "last.pcapng"))
	stop()
	if err := <-pings; err != nil {
		t.Errorf("while captures ended: %v", err)
	}
	c.account()
	c.must(n.Stop(c.ctx))
	last.endsWithTheAgent(t)
}

func (k *pcap) endsWithTheAgent(t *testing.T) {
	t.Helper()
	_ = k.cmd.Wait()
	if s := k.stderr.String(); !strings.Contains(s, "broke the capture off") && !strings.Contains(s, "the agent ends") {
		t.Errorf("the agent's end: %s", s)
	}
}

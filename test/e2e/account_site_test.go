package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
	"picot.dev/picot/xsk/xdp"
)

// site is a cluster of two nodes with running agents, a1 and a2 on the first, b1
// on the second, all in network red, for tests that break something in it. The
// agents make the routes to each other themselves.
type site struct {
	*lab.Lab
	t          *testing.T
	ctx        context.Context
	n1, n2     *lab.Node
	a1, a2, b1 *lab.Pod
	base       map[*lab.Node]lab.Sample // where each node's books begin
}

// patience is for what happens within moments on an idle machine.
const patience = 20 * time.Second

func newSite(t *testing.T, o ...lab.NodeOptions) *site {
	t.Helper()
	s := buildSite(t, o...)
	s.startAll()
	return s
}

// buildSite is newSite with the agents not started.
func buildSite(t *testing.T, o ...lab.NodeOptions) *site {
	t.Helper()
	testnet.RequireRoot(t)
	testnet.RequireTool(t, "ip", "nsenter", "sysctl", "ping", "ethtool")
	s := &site{Lab: newLab(t, lab.Shared), t: t, ctx: within(t, 3*time.Minute), base: map[*lab.Node]lab.Sample{}}
	o = append(o, lab.NodeOptions{}, lab.NodeOptions{})
	s.must(s.AddNetwork("red", 100, []string{"10.0.0.0/24", "fd00:10::/64"}, "mtu: 1446"))
	for i, n := range []**lab.Node{&s.n1, &s.n2} {
		var err error
		*n, err = s.AddNode(o[i])
		s.must(err)
		// What a network manager does: the address outlives a flap.
		_, err = (*n).Run(s.ctx, "sysctl", "-qw", "net.ipv6.conf."+lab.UplinkDevice+".keep_addr_on_down=1")
		s.must(err)
	}
	s.a1, s.a2, s.b1 = s.addPod(s.n1, 1), s.addPod(s.n1, 2), s.addPod(s.n2, 3)
	return s
}

func (s *site) startAll() {
	s.t.Helper()
	for _, n := range s.Nodes() {
		s.must(n.Start(s.ctx))
	}
	s.ready()
}

// ready waits until every endpoint's port is up and every node has its ways.
func (s *site) ready() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	for _, n := range s.Nodes() {
		ports := 0
		for _, p := range s.Pods() {
			if p.Node == n {
				ports++
			}
		}
		s.must(n.WaitReady(ctx, ports))
	}
}

func (s *site) must(err error) {
	s.t.Helper()
	must(s.t, err)
}

// addPod adds pod<number> with the MAC 02:..:<number> and addresses that end so.
func (s *site) addPod(n *lab.Node, number int) *lab.Pod {
	s.t.Helper()
	p, err := s.AddPod(lab.PodOptions{
		Name: fmt.Sprintf("p%d", number), Node: n, Network: "red", MAC: fmt.Sprintf("02:00:00:00:00:%02x", number),
		Addresses: []string{fmt.Sprintf("10.0.0.%d", 10+number), fmt.Sprintf("fd00:10::%d", 10+number)},
	})
	s.must(err)
	_, err = p.Run(s.ctx, "sysctl", "-qw", "net.ipv6.conf.default.keep_addr_on_down=1", "net.ipv6.conf."+lab.PodDevice+".keep_addr_on_down=1")
	s.must(err)
	return p
}

func (s *site) status(n *lab.Node) status.Status {
	s.t.Helper()
	st, err := n.Status(s.ctx)
	s.must(err)
	return st
}

// at waits for a status that satisfies check.
func (s *site) at(n *lab.Node, what string, check func(status.Status) error) status.Status {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	st, err := n.WaitStatus(ctx, check)
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
	return st
}

func port(st status.Status, device string) (status.Port, bool) {
	for _, p := range st.Ports {
		if p.Device == device {
			return p, true
		}
	}
	return status.Port{}, false
}

// netnsOf is the name by which `ip` knows a pod's or node's namespace.
func netnsOf(path string) string { return filepath.Base(path) }

// ip runs `ip` with the words of args in a namespace, which must work.
func (s *site) ip(netns, args string) string {
	s.t.Helper()
	out, err := exec.CommandContext(s.ctx, "ip", append([]string{"-n", netnsOf(netns)}, strings.Fields(args)...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("ip -n %s %s: %v: %s", netnsOf(netns), args, err, out)
	}
	return string(out)
}

// reach wants v4 and v6 echoes between two pods, both ways, ten in a row without
// loss in a while, and from then on.
func (s *site) reach(from, to *lab.Pod) {
	s.t.Helper()
	ended := false
	defer func() {
		if !ended {
			s.explain(from, to)
		}
	}()
	for _, f := range families {
		a := f.of(to).String()
		testnet.Eventually(s.t, patience, from.Name+" reaches "+to.Name+" at "+a, func() error {
			_, err := lab.Echoes(s.ctx, from, 10, "-i", "0.01", "-w", "2", a)
			return err
		})
		before := s.samples(from.Node, to.Node)
		if _, err := lab.Echoes(s.ctx, from, 10, "-i", "0.01", a); err != nil {
			s.t.Errorf("%s to %s, once it works: %v\nwhat counted meanwhile:", from.Name, to.Name, err)
			s.counted(before)
		}
	}
	ended = true
}

// explain logs what there is to know of a way that does not work.
func (s *site) explain(from, to *lab.Pod) {
	s.t.Helper()
	before := s.samples(s.Nodes()...)
	err := inBoth(func(f family) error {
		_, err := lab.Echoes(s.ctx, from, 10, "-i", "0.01", f.of(to).String())
		return err
	})
	s.t.Logf("%s to %s: %v; meanwhile:", from.Name, to.Name, err)
	s.counted(before)
	for _, p := range []*lab.Pod{from, to} {
		for _, what := range []string{"-s address show", "neighbour show", "route show table all"} {
			s.t.Logf("%s, ip %s:\n%s", p.Name, what, s.ip(p.Netns(), what))
		}
	}
	for _, n := range s.Nodes() {
		for _, what := range []string{"status", "fdb", "neigh", "ports"} {
			out, err := n.Run(s.ctx, picot, "show", what, "--run-dir", n.RunDir())
			s.t.Logf("%s, picot show %s: %v\n%s", n.Name, what, err, out)
		}
		s.t.Logf("%s, ip link:\n%s", n.Name, s.ip(n.Netns(), "-d link show"))
	}
}

func (s *site) samples(nodes ...*lab.Node) map[*lab.Node]lab.Sample {
	s.t.Helper()
	all := map[*lab.Node]lab.Sample{}
	for _, n := range nodes {
		var err error
		all[n], err = n.Sample(s.ctx)
		s.must(err)
	}
	return all
}

// counted logs all that nodes and the kernel under them counted since before.
func (s *site) counted(before map[*lab.Node]lab.Sample) {
	s.t.Helper()
	for n, was := range before {
		now, err := n.Sample(s.ctx)
		s.must(err)
		old, flat := s.flat(was), s.flat(now)
		for _, k := range slices.Sorted(maps.Keys(flat)) {
			if old[k] != flat[k] {
				s.t.Logf("%s%s: %v, was %v", n.Name, k, flat[k], old[k])
			}
		}
	}
}

// flat is a sample by the path of each value.
func (s *site) flat(sample lab.Sample) map[string]any {
	s.t.Helper()
	flat := map[string]any{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, v := range v {
				walk(path+"."+k, v)
			}
		case []any:
			for i, v := range v {
				walk(fmt.Sprintf("%s.%d", path, i), v)
			}
		default:
			flat[path] = v
		}
	}
	text, err := json.Marshal(sample)
	s.must(err)
	var tree any
	s.must(json.Unmarshal(text, &tree))
	walk("", tree)
	return flat
}

// reachAll is reach over every way there is, one direction each.
func (s *site) reachAll() {
	s.t.Helper()
	s.reach(s.a1, s.a2)
	s.reach(s.a1, s.b1)
	s.reach(s.b1, s.a2)
}

// cutOff wants that from cannot reach to at all.
func (s *site) cutOff(from, to *lab.Pod) {
	s.t.Helper()
	s.must(inBoth(func(f family) error {
		if out, err := from.Run(s.ctx, "ping", "-q", "-c5", "-i0.05", "-W1", f.of(to).String()); err == nil {
			return fmt.Errorf("%s reaches %s:\n%s", from.Name, to.Name, out)
		}
		return nil
	}))
}

var echoes = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`)

// flood is a ping that runs on and on.
type flood struct {
	s    *site
	name string // its family and way
	cmd  *exec.Cmd
	out  bytes.Buffer
}

// flood starts an echo request a millisecond, whatever comes back, with the
// family's mark as payload.
func (s *site) flood(by family, from, to *lab.Pod, marker string) *flood {
	s.t.Helper()
	f := &flood{s: s, name: by.name + " from " + from.Name + " to " + to.Name}
	f.cmd = from.Command(s.ctx, "ping", "-q", "-i0.001", "-s64", "-p", fmt.Sprintf("%x", by.mark(marker)), by.of(to).String())
	f.cmd.Stdout, f.cmd.Stderr = &f.out, &f.out
	s.must(f.cmd.Start())
	s.t.Cleanup(func() {
		if f.cmd.ProcessState == nil {
			_ = f.cmd.Process.Kill()
			_ = f.cmd.Wait()
		}
	})
	// It sleeps between two requests: by then it has its socket and route.
	testnet.Eventually(s.t, patience, "the flood runs", func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.cmd.Process.Pid))
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		if n, _ := strconv.Atoi(strings.Fields(rest + " 0")[0]); n < 50 {
			return fmt.Errorf("%d sleeps", n)
		}
		return nil
	})
	return f
}

// pause stops it for as long as f takes: what two places count can be compared.
func (f *flood) pause(during func()) {
	f.s.t.Helper()
	f.s.must(f.cmd.Process.Signal(unix.SIGSTOP))
	defer func() { f.s.must(f.cmd.Process.Signal(unix.SIGCONT)) }()
	during()
}

// stop ends it and says how many were sent and answered.
func (f *flood) stop() (sent, answered int) {
	f.s.t.Helper()
	if err := f.cmd.Process.Signal(unix.SIGINT); err != nil {
		f.s.t.Fatalf("flood %s: %v: %s", f.name, err, f.out.String())
	}
	_ = f.cmd.Wait() // its status speaks of losses
	m := echoes.FindStringSubmatch(f.out.String())
	if m == nil {
		f.s.t.Fatalf("flood %s says %q", f.name, f.out.String())
	}
	sent, _ = strconv.Atoi(m[1])
	answered, _ = strconv.Atoi(m[2])
	f.s.t.Logf("flood %s: %d sent, %d answered", f.name, sent, answered)
	return sent, answered
}

// everywhere starts floods of both families over local and remote ways. The end
// wants that each had traffic.
func (s *site) everywhere() (stop func()) {
	s.t.Helper()
	v4, v6 := families[0], families[1]
	all := []*flood{
		s.flood(v4, s.a1, s.a2, "picot"), s.flood(v6, s.a2, s.a1, "picot"),
		s.flood(v4, s.a1, s.b1, "picot"), s.flood(v6, s.b1, s.a2, "picot"),
	}
	return func() {
		s.t.Helper()
		for _, f := range all {
			if sent, answered := f.stop(); answered == 0 {
				s.t.Errorf("flood %s: none of %d was answered: there was no traffic", f.name, sent)
			}
		}
	}
}

// books holds the accounts of every port of every node since they were opened,
// and that no frame of the pool is missing.
func (s *site) books() {
	s.t.Helper()
	for _, n := range s.Nodes() {
		if !n.Running() {
			s.t.Errorf("%s: its agent is gone; its log ends:\n%s", n.Name, tail(n.Log()))
			continue
		}
		if _, err := n.Account(s.ctx, s.base[n]); err != nil {
			s.t.Errorf("accounts: %v\nwhat counted since they were opened:", err)
			s.counted(map[*lab.Node]lab.Sample{n: s.base[n]})
		}
	}
}

// reopen begins a node's books with what was counted while its agent was dead.
func (s *site) reopen(n *lab.Node, dead lab.Sample) {
	s.t.Helper()
	st := s.status(n)
	dead.Status.Frames = st.Frames
	for i := range dead.Status.Ports {
		now, ok := port(st, dead.Status.Ports[i].Device)
		if !ok {
			s.t.Fatalf("no port %s", dead.Status.Ports[i].Device)
		}
		dead.Status.Ports[i].Port = now.Port // a new life numbers anew
	}
	s.base[n] = dead
}

// deadSample is what the kernel has counted on a node without an agent.
func (s *site) deadSample(n *lab.Node) lab.Sample {
	s.t.Helper()
	var out lab.Sample
	var names []string
	for _, p := range s.pins(n) {
		if !p.Alive {
			continue
		}
		names = append(names, p.Name)
		traffic := status.Traffic{XDP: s.pinnedCounters(n, p.Name)}
		if p.Kind == xdp.Uplink {
			out.Status.Uplinks = append(out.Status.Uplinks, status.Uplink{Device: p.Name, Traffic: traffic})
		} else {
			out.Status.Ports = append(out.Status.Ports, status.Port{Device: p.Name, Traffic: traffic})
		}
	}
	var err error
	out.Devices, err = n.Devices(s.ctx, names...)
	s.must(err)
	return out
}

// quiet is deadSample once nothing is counted any more.
func (s *site) quiet(n *lab.Node) lab.Sample {
	s.t.Helper()
	var last, now lab.Sample
	testnet.Eventually(s.t, patience, n.Name+" is quiet", func() error {
		last, now = now, s.deadSample(n)
		if !reflect.DeepEqual(last, now) {
			return fmt.Errorf("counters move: %+v, %+v", last.Devices, now.Devices)
		}
		return nil
	})
	return now
}

func (s *site) pinDir(n *lab.Node) string { return filepath.Join(s.BPFFS(), n.Name) }

// pins are what the node has pinned.
func (s *site) pins(n *lab.Node) []xdp.Pin {
	s.t.Helper()
	pins, err := xdp.List(s.pinDir(n))
	s.must(err)
	return pins
}

// pinNames are the devices with a pin.
func (s *site) pinNames(n *lab.Node) map[string]xdp.Pin {
	names := map[string]xdp.Pin{}
	for _, p := range s.pins(n) {
		names[p.Name] = p
	}
	return names
}

// pinnedCounters reads a pinned program's counters; the order is that of enum
// outcome in xsk/xdp/bpf/picot.c.
func (s *site) pinnedCounters(n *lab.Node, device string) *status.XDP {
	s.t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(s.pinDir(n), device, "counters"), nil)
	s.must(err)
	defer m.Close()
	c := &status.XDP{}
	for i, field := range []*uint64{&c.Redirected, &c.DroppedEmpty, &c.Passed, &c.Errors, &c.Tags} {
		var perCPU []uint64
		s.must(m.Lookup(uint32(i), &perCPU))
		for _, v := range perCPU {
			*field += v
		}
	}
	return c
}

// held is what an agent's process holds of the machine.
type held struct{ fds, rss, threads int }

func (s *site) held(n *lab.Node) held {
	s.t.Helper()
	proc := fmt.Sprintf("/proc/%d/", n.PID())
	entries, err := os.ReadDir(proc + "fd")
	s.must(err)
	text, err := os.ReadFile(proc + "status")
	s.must(err)
	h := held{fds: len(entries)}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		field := strings.Fields(value)
		switch name {
		case "VmRSS":
			h.rss, _ = strconv.Atoi(field[0])
		case "Threads":
			h.threads, _ = strconv.Atoi(field[0])
		}
	}
	return h
}

// holdsNoMore wants that the agent comes back to at most as many descriptors.
func (s *site) holdsNoMore(n *lab.Node, before held) {
	s.t.Helper()
	testnet.Eventually(s.t, patience, n.Name+" has no descriptor more than before", func() error {
		if now := s.held(n); now.fds > before.fds {
			return fmt.Errorf("%d, was %d", now.fds, before.fds)
		}
		return nil
	})
}

func tail(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

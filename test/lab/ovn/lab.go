// Package ovn brings up a node's worth of real OVN for tests: the NB, SB and OVS databases,
// northd, ovn-controller and ovs-vswitchd with the userspace datapath, one default gateway
// router and any number of user-defined networks behind br-ex, pods, and an external host.
//
// Each lab has a run directory and namespaces of its own, so tests may run side by side and
// never meet the machine's own Open vSwitch. The work is done by ovn-lab.sh, which can be used
// by hand as well. A Lab may be used from several goroutines; each method is one command.
package ovn

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed ovn-lab.sh
var script []byte

// Addresses of the lab that ovn-lab.sh fixes.
const (
	NodeMAC       = "06:38:d6:0b:4b:a7" // shared by br-ex and every gateway router on it
	NodeIP4       = "172.18.0.2"
	NodeIP6       = "fd00:18::2"
	ExtMAC        = "06:38:d6:00:00:01"
	ExtIP4        = "172.18.0.1"
	ExtIP6        = "fd00:18::1"
	UplinkMAC     = "06:38:d6:0b:4b:b8" // br-up1
	UplinkNodeIP4 = "172.19.0.2"
	UplinkNodeIP6 = "fd00:19::2"
	UplinkExtIP4  = "172.19.0.1"
	UplinkExtIP6  = "fd00:19::1"
)

// Options say how large a lab to make. The zero value is the default network alone.
type Options struct {
	UDNs      int  // primary user-defined networks on br-ex
	VLAN      int  // gateway VLAN, 0 for none
	Localnets int  // secondary localnets on br-ex
	Uplinks   int  // user-defined networks on a bridge of their own, br-up1
	NoPods    bool // leave out the pods (faster); Pod makes single ones
	Bare      bool // only Open vSwitch, with the patch ports UDNs would have; no OVN, no pods
	Age       int  // mac_binding_age_threshold in seconds, 0 for the script's default
}

// Lab is a running lab.
type Lab struct {
	t    testing.TB
	dir  string
	tag  string
	env  []string
	opts Options
}

// programs are what the lab needs, and the Debian packages they come in.
var programs = map[string]string{
	"ovs-vswitchd": "openvswitch-switch", "ovsdb-server": "openvswitch-switch", "ovs-ofctl": "openvswitch-switch",
	"ovs-appctl": "openvswitch-switch", "ovn-northd": "ovn-central", "ovn-controller": "ovn-host",
	"ip": "iproute2", "ethtool": "ethtool", "ping": "iputils-ping",
}

// require skips a test that a user without rights, or in a hurry, did not mean, and
// fails it where a program is missing.
func require(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the OVN lab makes network namespaces: run as root")
	}
	if testing.Short() {
		t.Skip("the OVN lab takes seconds: not in -short")
	}
	for name, pkg := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("no %s: run scripts/install-deps, or apt-get install %s", name, pkg)
		}
	}
}

// Start brings a lab up and takes it down when the test ends. It skips the test, with the
// reason, where it is not wanted. If the test is killed or times out, a watcher takes it down.
func Start(t testing.TB, o Options) *Lab {
	t.Helper()
	require(t)
	dir, err := os.MkdirTemp("", fmt.Sprintf("ovn-lab-%d-", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ovn-lab.sh"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	l := &Lab{t: t, dir: dir, opts: o}
	l.env = append(os.Environ(),
		"OVN_LAB_DIR="+filepath.Join(dir, "lab"), "OVN_LAB_VLAN="+strconv.Itoa(o.VLAN), "OVN_LAB_LOCALNET="+strconv.Itoa(o.Localnets),
		"OVN_LAB_UPLINK="+strconv.Itoa(o.Uplinks), "OVN_LAB_PODS="+map[bool]string{true: "0", false: "1"}[o.NoPods])
	if o.Age > 0 {
		l.env = append(l.env, "OVN_LAB_AGE="+strconv.Itoa(o.Age))
	}
	reaper := exec.Command(filepath.Join(dir, "ovn-lab.sh"), "reap", strconv.Itoa(os.Getpid()))
	reaper.Env, reaper.SysProcAttr = l.env, &syscall.SysProcAttr{Setpgid: true}
	if err := reaper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.down()
		_ = syscall.Kill(-reaper.Process.Pid, syscall.SIGKILL) // its sleep too
		_ = reaper.Wait()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	l.Script(map[bool]string{true: "bare", false: "up"}[o.Bare], strconv.Itoa(o.UDNs))
	for line := range strings.Lines(l.Script("env")) {
		for _, kv := range strings.Fields(strings.TrimPrefix(line, "export ")) {
			l.env = append(l.env, kv)
			if v, ok := strings.CutPrefix(kv, "OVN_LAB_PODNS="); ok {
				l.tag = strings.TrimSuffix(v, "-pod")
			}
		}
	}
	return l
}

func (l *Lab) down() {
	if l.t.Failed() {
		for _, name := range []string{"ovs-vswitchd", "ovn-controller", "ovn-northd"} {
			if log, err := os.ReadFile(filepath.Join(l.dir, "lab", "log", name+".log")); err == nil {
				l.t.Logf("warnings of %s.log:\n%s", name, warnings(log))
			}
		}
	}
	if out, err := l.run(time.Minute, "down"); err != nil {
		l.t.Errorf("lab down: %v\n%s", err, out)
	}
}

// warnings returns the last lines of a log that are above INFO.
func warnings(log []byte) string {
	var out []string
	for line := range strings.Lines(string(log)) {
		if !strings.Contains(line, "|INFO|") {
			out = append(out, line)
		}
	}
	return strings.Join(out[max(0, len(out)-20):], "")
}

func (l *Lab) run(limit time.Duration, args ...string) (string, error) {
	return l.output(limit, filepath.Join(l.dir, "ovn-lab.sh"), args...)
}

func (l *Lab) output(limit time.Duration, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = l.env
	cmd.WaitDelay = time.Second // the daemons it starts keep its pipes
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	timer := time.AfterFunc(limit, func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
		}
	})
	defer timer.Stop()
	err := cmd.Run()
	return out.String(), err
}

// Script runs ovn-lab.sh and returns what it printed; a failure ends the test.
func (l *Lab) Script(args ...string) string {
	l.t.Helper()
	out, err := l.run(10*time.Minute, args...) // 100 networks on a busy machine
	if err != nil {
		l.t.Fatalf("ovn-lab.sh %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Run runs a program with the lab's environment (OVS_RUNDIR, OVN_NB_DB, ...); a failure ends the test.
func (l *Lab) Run(name string, args ...string) string {
	l.t.Helper()
	out, err := l.Try(name, args...)
	if err != nil {
		l.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// Try is Run for commands that may fail.
func (l *Lab) Try(name string, args ...string) (string, error) {
	return l.output(time.Minute, name, args...)
}

// Dir is the lab's run directory, removed at the end.
func (l *Lab) Dir() string { return l.dir }

// NB, SB and OVS are the endpoints of the databases, as OVSDB clients name them.
func (l *Lab) NB() string  { return "unix:" + l.path("nb.sock") }
func (l *Lab) SB() string  { return "unix:" + l.path("sb.sock") }
func (l *Lab) OVS() string { return "unix:" + l.path("db.sock") }

// Mgmt is the path of a bridge's OpenFlow management socket.
func (l *Lab) Mgmt(bridge string) string { return l.path(bridge + ".mgmt") }

func (l *Lab) path(name string) string { return filepath.Join(l.dir, "lab", "run", name) }

// NodeNS and ExtNS are the network namespaces of the node and of the external host; PodNS
// that of a network's pod. Networks are named as in ovn-lab.sh: "0" the default, "1" and up
// the user-defined ones of br-ex, "u1" and up those of br-up1.
func (l *Lab) NodeNS() string          { return l.tag + "-node" }
func (l *Lab) ExtNS() string           { return l.tag + "-ext" }
func (l *Lab) PodNS(net string) string { return l.tag + "-pod" + net }

// VSCtl runs ovs-vsctl and returns its trimmed output.
func (l *Lab) VSCtl(args ...string) string {
	l.t.Helper()
	return strings.TrimSpace(l.Run("ovs-vsctl", append([]string{"--db=" + l.OVS(), "--timeout=30"}, args...)...))
}

// Ping reports whether every one of count pings from a network's pod to dst was answered.
func (l *Lab) Ping(net, dst string, count int) bool {
	out, err := l.Try("ip", "netns", "exec", l.PodNS(net), "ping", "-c", strconv.Itoa(count), "-i", "0.2", "-W", "2", dst)
	return err == nil && strings.Contains(out, " 0% packet loss")
}

// Pod makes the pod of one network in a lab brought up without pods.
func (l *Lab) Pod(net string) {
	l.t.Helper()
	l.Script("pod", net)
}

// Trace follows a packet through a bridge and returns how many table look-ups it took
// (ovs-vswitchd refuses more than 4,096 resubmits) and the trace itself.
func (l *Lab) Trace(bridge, packet string) (resubmits int, text string) {
	l.t.Helper()
	text = l.Run("ovs-appctl", "-t", l.path("ovs-vswitchd.ctl"), "ofproto/trace", bridge, packet)
	return strings.Count(text, "resubmit("), text
}

// Patches returns the OpenFlow number of every patch port of a bridge, by full name; a port
// that has none yet is 0.
func (l *Lab) Patches(bridge string) map[string]uint32 {
	l.t.Helper()
	on := map[string]bool{}
	for name := range strings.FieldsSeq(l.VSCtl("list-ports", bridge)) {
		on[name] = true
	}
	ports := map[string]uint32{}
	out := l.VSCtl("--format=csv", "--no-headings", "--data=bare", "--columns=name,ofport", "find", "interface", "type=patch")
	for line := range strings.FieldsSeq(out) {
		name, n, _ := strings.Cut(line, ",")
		if v, err := strconv.ParseUint(n, 10, 32); on[name] {
			if err != nil {
				v = 0
			}
			ports[name] = uint32(v)
		}
	}
	return ports
}

// PatchName is the name of a network's patch port on a bridge, built as OVN-Kubernetes builds it.
func PatchName(bridge, net string) string {
	switch {
	case net == "0":
		return "patch-" + bridge + "_node1-to-br-int"
	case strings.HasPrefix(net, "u"):
		return "patch-" + bridge + "_up" + net[1:] + "_node1-to-br-int"
	}
	return "patch-" + bridge + "_net" + net + "_node1-to-br-int"
}

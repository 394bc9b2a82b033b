package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ovs is Open vSwitch of our own, with the userspace datapath and AF_XDP ports.
// Its polling thread never sleeps, so it is stopped while others run.
type ovs struct {
	dir     string
	daemons []*exec.Cmd // last the switch
	log     *os.File
}

// errNoOVS says why this peer is left out.
var errNoOVS = errors.New("OVS netdev-afxdp is not available")

const ovsSchema = "/usr/share/openvswitch/vswitch.ovsschema"

// ovsForwarder starts one in the lane's host namespace.
func ovsForwarder(w wires) (forwarder, error) {
	for _, tool := range []string{"ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: %w", errNoOVS, err)
		}
	}
	o := &ovs{}
	if err := o.start(w); err != nil {
		log := ""
		if o.dir != "" {
			b, _ := os.ReadFile(filepath.Join(o.dir, "log"))
			log = lastWarning(string(b))
		}
		return nil, errors.Join(fmt.Errorf("%w: %w%s", errNoOVS, err, log), o.Close())
	}
	return o, nil
}

// lastWarning picks what the switch complained of.
func lastWarning(log string) string {
	last := ""
	for line := range strings.Lines(log) {
		if strings.Contains(line, "|WARN|") || strings.Contains(line, "|ERR|") {
			last = "; its log: " + strings.TrimSpace(line)
		}
	}
	return last
}

func (o *ovs) start(w wires) (err error) {
	if o.dir, err = os.MkdirTemp("", "picot-bench-ovs-"); err != nil {
		return err
	}
	if o.log, err = os.Create(filepath.Join(o.dir, "log")); err != nil {
		return err
	}
	db, sock := filepath.Join(o.dir, "conf.db"), filepath.Join(o.dir, "db.sock")
	if err := w.host.run("ovsdb-tool", "create", db, ovsSchema); err != nil {
		return err
	}
	if err := o.daemon(w, "ovsdb-server", db, "--remote=punix:"+sock, "--unixctl="+filepath.Join(o.dir, "db.ctl"), "--no-chdir"); err != nil {
		return err
	}
	if err := waitFor(5*time.Second, func() bool { _, err := os.Stat(sock); return err == nil }); err != nil {
		return fmt.Errorf("ovsdb-server: %w", err)
	}
	vsctl := func(args ...string) error {
		return w.host.run("ovs-vsctl", append([]string{"--db=unix:" + sock, "--timeout=10"}, args...)...)
	}
	if err := vsctl("--no-wait", "init", "--", "set", "Open_vSwitch", ".", fmt.Sprintf("other_config:pmd-cpu-mask=%#x", 1<<forwardCPU)); err != nil {
		return err
	}
	if err := o.daemon(w, "ovs-vswitchd", "unix:"+sock, "--unixctl="+filepath.Join(o.dir, "vs.ctl"), "--no-chdir", "-vconsole:info"); err != nil {
		return err
	}
	br := uniqueName(w.number, "ob")
	if err := vsctl("add-br", br, "--", "set", "bridge", br, "datapath_type=netdev", "fail_mode=secure"); err != nil {
		return err
	}
	for i, name := range []string{w.in, w.out} {
		err := vsctl("add-port", br, name, "--", "set", "interface", name, "type=afxdp", "options:n_rxq=1", "options:xdp-mode=native",
			fmt.Sprintf("ofport_request=%d", i+1))
		if err != nil {
			return err
		}
		out, err := exec.Command("ovs-vsctl", "--db=unix:"+sock, "--timeout=10", "get", "interface", name, "error", "ofport").CombinedOutput()
		if err != nil {
			return fmt.Errorf("read interface %s: %w: %s", name, err, out)
		}
		if f := strings.Fields(string(out)); len(f) != 2 || f[0] != "[]" || f[1] != fmt.Sprint(i+1) {
			return fmt.Errorf("interface %s: %s", name, strings.TrimSpace(string(out)))
		}
	}
	return w.host.run("ovs-ofctl", "-OOpenFlow13", "add-flow", "unix:"+filepath.Join(o.dir, br+".mgmt"), "in_port=1,actions=output:2")
}

// daemon starts a process in the namespace; it dies with this one.
func (o *ovs) daemon(w wires, name string, args ...string) error {
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+o.dir, "OVS_LOGDIR="+o.dir, "OVS_DBDIR="+o.dir)
	cmd.Stdout, cmd.Stderr = o.log, o.log
	if err := w.host.do(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	o.daemons = append(o.daemons, cmd)
	return nil
}

func waitFor(within time.Duration, ok func() bool) error {
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s", within)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (o *ovs) signal(s unix.Signal) error {
	return o.daemons[len(o.daemons)-1].Process.Signal(s)
}

// Resume implements forwarder.
func (o *ovs) Resume() error { return o.signal(unix.SIGCONT) }

// Pause implements forwarder.
func (o *ovs) Pause() error { return o.signal(unix.SIGSTOP) }

// Sent implements forwarder.
func (o *ovs) Sent() (uint64, bool, error) { return 0, false, nil }

// Close implements forwarder.
func (o *ovs) Close() error {
	for i := len(o.daemons) - 1; i >= 0; i-- {
		_ = o.daemons[i].Process.Kill() // has ended already
		_ = o.daemons[i].Wait()         // says that it was killed
	}
	var err error
	if o.log != nil {
		err = o.log.Close()
	}
	if o.dir != "" {
		err = errors.Join(err, os.RemoveAll(o.dir))
	}
	return err
}

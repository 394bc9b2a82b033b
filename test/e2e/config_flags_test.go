package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
)

// A setting that cannot be used ends the agent at once, with the flag and the
// mend; an agent that runs already is not disturbed.
func TestBadSettingsAreRefused(t *testing.T) {
	testnet.RequireTool(t, "setpriv")
	s := newSite(t)
	other := t.TempDir()
	good := []string{"agent", "--node-name", "node9", "--uplink", lab.UplinkDevice, "--manifests", s.Manifests(), "--bpffs", s.BPFFS(), "--run-dir", other}
	for _, c := range []struct {
		name  string
		run   []string
		words []string
	}{
		{"no root", append([]string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", picot}, good...),
			[]string{"CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "run it as root"}},
		{"a second agent in one run directory", append(append([]string{picot}, good...), "--run-dir", s.n1.RunDir()),
			[]string{s.n1.RunDir(), "another agent answers there", "--run-dir"}},
		{"a second agent of one node", append(append([]string{picot}, good...), "--node-name", "node1"),
			[]string{"an agent of this node runs", "--node-name or --bpffs"}},
		{"uplink twice", append(append([]string{picot}, good...), "--uplink", lab.UplinkDevice),
			[]string{"--uplink: up0 is given twice"}},
		{"workers", append(append([]string{picot}, good...), "--workers", "99"), []string{"--workers: 99: give 1 to 64"}},
		{"node name", append(append([]string{picot}, good...), "--node-name", "No_de"), []string{`--node-name: "No_de" is no DNS name`}},
		{"log level", append(append([]string{picot}, good...), "--log-level", "loud"), []string{`--log-level "loud": give debug`}},
		{"run directory", append(append([]string{picot}, good...), "--run-dir", picot), []string{"--run-dir: ", "not a directory"}},
		{"unknown flag", append(append([]string{picot}, good...), "--uplinks", "x"), []string{"unknown flag: --uplinks"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(s.ctx, patience)
			defer cancel()
			out, err := s.n1.Run(ctx, c.run[0], c.run[1:]...)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("ended with %v", err)
			}
			if err := holds(out, c.words); err != nil {
				t.Error(err)
			}
		})
	}
	s.reachAll()
	s.books()
}

// Devices whose frames never pass an AF_XDP socket are no uplinks; the mend is
// said. One that comes later is taken when it comes. The good uplink carries all
// the while.
func TestUplinksThatAreNone(t *testing.T) {
	s := buildSite(t, lab.NodeOptions{Args: []string{"--uplink", "vlan0,bond0,bridge0,late0"}})
	ns := s.n1.Netns()
	uplinks := map[string][]string{"late0": {"--uplink late0: ", "no such device", "correct --uplink"}}
	for _, k := range []struct {
		device, add string
		words       []string
	}{
		{"vlan0", "link add link " + lab.UplinkDevice + " name vlan0 type vlan id 5", []string{"--uplink vlan0: ", "VLAN device", "use its parent"}},
		{"bond0", "link add bond0 type bond", []string{"--uplink bond0: ", "bond bond0", "name all of them as uplinks"}},
		{"bridge0", "link add bridge0 type bridge", []string{"--uplink bridge0: ", "bridge device", "use the physical device"}},
	} {
		if out, err := s.n1.Run(s.ctx, "ip", strings.Fields(k.add)...); err != nil {
			t.Logf("not tried here: the kernel makes no %s: %s", k.device, strings.TrimSpace(out))
			continue
		}
		uplinks[k.device] = k.words
	}
	for _, n := range s.Nodes() {
		s.must(n.Start(s.ctx))
	}
	for _, words := range uplinks {
		s.told(s.n1, words...)
	}
	s.reachAll()
	s.ip(ns, "link add late0 type veth peer name latep netns "+netnsOf(s.UnderlayNetns()))
	s.ip(s.UnderlayNetns(), "link set latep master br0 up")
	s.ip(ns, "link set late0 up")
	s.at(s.n1, "the late uplink is taken", func(st status.Status) error {
		for _, u := range st.Uplinks {
			if u.Device == "late0" && u.Queues > 0 && u.Error == "" {
				return nil
			}
		}
		return fmt.Errorf("%+v", st.Uplinks)
	})
	s.mended(s.n1, "--uplink late0")
	s.reachAll()
}

// An agent whose only uplink comes later starts without it.
func TestUplinkMissingAtStart(t *testing.T) {
	s := buildSite(t)
	ns := s.n1.Netns()
	s.ip(ns, "link set "+lab.UplinkDevice+" name hidden")
	for _, n := range s.Nodes() {
		s.must(n.Start(s.ctx))
	}
	s.told(s.n1, "--uplink up0: ", "no such device", "correct --uplink")
	s.reach(s.a1, s.a2)
	s.ip(ns, "link set hidden down")
	s.ip(ns, "link set hidden name "+lab.UplinkDevice)
	s.ip(ns, "link set "+lab.UplinkDevice+" up")
	s.ready()
	s.reachAll()
	s.books()
}

// While the manifest directory cannot be listed, nothing is known to be unwanted:
// a restarted agent touches nothing, says what it waits for, and goes on when the
// directory is there.
func TestManifestDirectoryMissingAtStart(t *testing.T) {
	s := newSite(t)
	s.reachAll()
	before := ids(s.pins(s.n1))
	s.must(s.n1.Kill())
	away := s.Manifests() + "-away"
	s.must(os.Rename(s.Manifests(), away))
	s.must(s.n1.Start(s.ctx))
	s.told(s.n1, s.Manifests()+": ", "create the directory")
	if err := s.shown(s.n1, "waits for", "desired state"); err != nil {
		t.Error(err)
	}
	if after := ids(s.pins(s.n1)); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pins: %v, were %v", after, before)
	}
	if out := s.ip(s.n1.Netns(), "-o link show "+s.a1.Device); !strings.Contains(out, "UP") {
		t.Errorf("the device was touched: %s", out)
	}
	s.must(os.Rename(away, s.Manifests()))
	s.ready()
	s.reachAll()
	if after := ids(s.pins(s.n1)); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pins: %v, were %v", after, before)
	}
}

// A pin that nobody wants any more is swept, but not while a manifest is refused:
// it may be the one that wants it.
func TestSweepWaitsForRefusedManifests(t *testing.T) {
	s := newSite(t)
	s.must(s.n1.Kill())
	good, err := os.ReadFile(filepath.Join(s.Manifests(), "endpoint-p1.yaml"))
	s.must(err)
	s.must(s.WriteManifest("endpoint-p1", "kind: ["))
	s.must(s.a2.RemoveEndpoint())
	s.must(s.n1.Start(s.ctx))
	s.told(s.n1, "endpoint-p1.yaml:")
	s.at(s.n1, "applied", func(st status.Status) error {
		if !st.Ready || st.Applies < 2 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	if pins := s.pinNames(s.n1); len(pins) != 3 {
		t.Errorf("pins: %v", pins)
	}
	s.must(s.WriteManifest("endpoint-p1", string(good)))
	testnet.Eventually(t, patience, "the unwanted pin is swept", func() error {
		if pins := s.pinNames(s.n1); len(pins) != 2 {
			return fmt.Errorf("%v", pins)
		}
		return nil
	})
	if out := s.ip(s.n1.Netns(), "-o link show "+s.a2.Device); strings.Contains(out, "UP,") || strings.Contains(out, ",UP") {
		t.Errorf("its device is up without the program: %s", out)
	}
	s.reach(s.a1, s.b1)
}

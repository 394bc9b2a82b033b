package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/doctor"
	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/testnet"
)

// examine runs picot doctor on a node with its agent's settings and returns what
// warns or fails, by part object/check. Its exit says whether anything fails.
func (c *cluster) examine(n *lab.Node, more ...string) map[string]doctor.Check {
	c.t.Helper()
	args := append([]string{"doctor", "-o", "json"}, n.Args()[1:]...) // its flags are the agent's
	out, err := n.Command(c.ctx, picot, append(args, more...)...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	var r doctor.Report
	if jerr := json.Unmarshal(out, &r); jerr != nil {
		c.t.Fatalf("%v: %s: %v", jerr, out, err)
	}
	if (err != nil) != (r.Failed > 0) {
		c.t.Errorf("%d fail, and it ended with %v", r.Failed, err)
	}
	bad := map[string]doctor.Check{}
	for _, x := range r.Checks {
		if x.Outcome == doctor.Warn || x.Outcome == doctor.Fail {
			bad[x.Part+" "+x.Object+"/"+x.Check] = x
		}
	}
	return bad
}

// well waits until nothing is left to mend.
func (c *cluster) well(n *lab.Node) {
	c.t.Helper()
	testnet.Eventually(c.t, 30*time.Second, "nothing to mend on "+n.Name, func() error {
		if bad := c.examine(n); len(bad) > 0 {
			return fmt.Errorf("%v", bad)
		}
		return nil
	})
}

// Beside a living agent everything is well, frames go on, and what is planted is
// seen by name: an underlay that is too narrow, an agent over there that is dead,
// one here that was killed. What each mend says makes it well again.
func TestDoctorBesideAnAgent(t *testing.T) {
	c := newCluster(t, lab.Routed)
	for i := range 2 {
		n := c.node(lab.NodeOptions{})
		c.pod(n, i+1)
		c.on(c.underlay(), "ethtool -K "+n.RouterIf+" gro on") // else a warning, see docs/decisions/0023
	}
	c.start(1)
	node, peer := c.Nodes()[0], c.Nodes()[1]
	c.well(node)
	c.well(peer)
	for _, a := range c.Pods()[1].Addresses {
		c.ping(c.Pods()[0], 5, "-i", "0.01", a.String())
	}

	c.account()

	// Somewhere on the way it is narrower than at the uplinks.
	c.on(c.underlay(), "ip link set dev "+peer.RouterIf+" mtu 1400")
	bad := c.examine(node)
	if x := bad["locator "+peer.Name+"/packet size"]; x.Outcome != doctor.Fail || !strings.Contains(x.Mend, "on the way there to 1500") || len(bad) != 1 {
		t.Errorf("a narrow underlay: %v", bad)
	}
	c.on(c.underlay(), "ip link set dev "+peer.RouterIf+" mtu 1500")
	c.well(node)

	c.must(peer.Kill())
	bad = c.examine(node)
	if x := bad["locator "+peer.Name+"/echo"]; x.Outcome != doctor.Fail || !strings.Contains(x.Mend, "an agent runs there") {
		t.Errorf("a dead agent over there: %v", bad)
	}
	// On its own node: what it left is there for the next one.
	bad = c.examine(peer)
	if x := bad["agent /leftovers"]; x.Outcome != doctor.Warn || !strings.Contains(x.Found, c.Pods()[1].Device) || !strings.Contains(x.Mend, "start the agent") {
		t.Errorf("a dead agent here: %v", bad)
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(bad)), func(x doctor.Check) bool { return x.Outcome == doctor.Fail }) {
		t.Errorf("a node without an agent fails: %v", bad)
	}
	c.must(peer.Start(c.ctx))
	c.must(peer.WaitReady(c.ctx, 1))
	c.well(node)
	c.well(peer)
}

// A guard that went, and an agent that hangs, are seen by name.
func TestDoctorBesideAHangingAgent(t *testing.T) {
	c := newCluster(t, lab.Routed)
	node := c.node(lab.NodeOptions{})
	c.on(c.underlay(), "ethtool -K "+node.RouterIf+" gro on")
	c.start(0)
	c.well(node)
	// To another node's doctor this agent is a stranger, and has a name.
	bad := c.examine(node, "--node-name", "other", "--run-dir", t.TempDir())
	for _, check := range []string{"xdp program", "af_xdp sockets"} {
		x := bad["device "+lab.UplinkDevice+"/"+check]
		if x.Outcome != doctor.Fail || !strings.Contains(x.Found, fmt.Sprintf("picot[%d]", node.PID())) {
			t.Errorf("%s of another node's agent: %+v", check, x)
		}
	}

	// The agent is stopped for a moment, lest it mends the guard before it is looked at.
	c.on(node, fmt.Sprintf("kill -STOP %d", node.PID()))
	c.on(node, "ip -6 rule del pref 70")
	bad = c.examine(node, "--ping=false")
	c.on(node, fmt.Sprintf("kill -CONT %d", node.PID()))
	if x := bad["locator /guard"]; x.Outcome != doctor.Fail || !strings.Contains(x.Found, "rule 70") {
		t.Errorf("without the guard's first rule: %v", bad)
	}
	if x := bad["agent /answers"]; x.Outcome != doctor.Fail {
		t.Errorf("an agent that is stopped: %v", bad)
	}
	c.well(node)
}

package e2ek8s

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/doctor"
	"picot.dev/picot/internal/lab"
)

// failures runs picot doctor with the node's agent's flags and returns what fails,
// by part object/check.
func (c *cluster) failures(n *lab.Node) map[string]doctor.Check {
	c.t.Helper()
	args := append([]string{"doctor", "-o", "json"}, n.Args()[1:]...)
	out, err := n.Command(within(c.t, time.Minute), picot, args...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	var r doctor.Report
	must(c.t, json.Unmarshal(out, &r))
	failed := map[string]doctor.Check{}
	for _, x := range r.Checks {
		if x.Outcome == doctor.Fail {
			failed[x.Part+" "+x.Object+"/"+x.Check] = x
		}
	}
	if (err != nil) != (len(failed) > 0) {
		c.t.Errorf("%d fail, and it ended with %v", len(failed), err)
	}
	return failed
}

// With the agent's own token and rights the doctor reads what it needs of a real
// server, before any agent runs: locators, and who else claims one. A server that is
// away it names.
func TestDoctorAsksTheServer(t *testing.T) {
	c := newCluster(t)
	c.addRed()
	c.addPod(c.n1, "a")
	well := func() {
		c.eventually(30*time.Second, "nothing to fail", func() error {
			if bad := c.failures(c.n1); len(bad) > 0 {
				return fmt.Errorf("%v", bad)
			}
			return nil
		})
	}
	well()
	must(t, c.WriteManifest("node-third", fmt.Sprintf("apiVersion: picot.dev/v1alpha1\nkind: SRv6Node\nmetadata: {name: third}\nspec: {locator: %q}\n", c.n1.Locator)))
	if x := c.failures(c.n1)["locator node1/own"]; !strings.Contains(x.Found, "third") || !strings.Contains(x.Mend, "locator of its own") {
		t.Errorf("two nodes of one locator: %+v", x)
	}
	must(t, c.RemoveManifest("node-third"))
	well()
	c.way.Cut()
	defer c.way.Restore()
	if x := c.failures(c.n1)["locator node1/own"]; !strings.Contains(x.Mend, "--kubeconfig") {
		t.Errorf("a server that is away: %+v", x)
	}
}

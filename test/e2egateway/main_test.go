// Package e2egateway tests the gateway as it is run: a real agent in the OVN lab. It needs root.
package e2egateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/gateway"
	"picot.dev/picot/internal/control"
	"picot.dev/picot/internal/testnet"
	"picot.dev/picot/test/lab/ovn"
)

const networks = 10

// site is the lab with an agent in the node's namespace.
type site struct {
	*ovn.Lab
	t      *testing.T
	picot  string
	runDir string
	args   []string
	cmd    *exec.Cmd
	log    bytes.Buffer
}

func newSite(t *testing.T) *site {
	t.Helper()
	l := ovn.Start(t, ovn.Options{UDNs: networks})
	l.Script("flows", "gate-off")
	dir := t.TempDir()
	s := &site{Lab: l, t: t, picot: filepath.Join(dir, "picot"), runDir: filepath.Join(dir, "run")}
	if out, err := exec.Command("go", "build", "-o", s.picot, "../../cmd/picot").CombinedOutput(); err != nil {
		t.Fatalf("building picot: %v\n%s", err, out)
	}
	manifests := filepath.Join(dir, "manifests")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(manifests, "all.yaml"), []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{"netns", "exec", l.NodeNS(), s.picot, "agent", "--node-name=node1", "--manifests=" + manifests, "--run-dir=" + s.runDir,
		"--bpffs=" + testnet.BPFFS(t), "--gateway", "--disable-udn-arp-ndp-flood", "--enable-network-segmentation", "--gateway-mode=overlay",
		"--gateway-ovs-db=" + l.OVS(), "--gateway-nb-db=" + l.NB(), "--gateway-sb-db=" + l.SB(), "--gateway-ovs-run-dir=" + filepath.Dir(l.Mgmt("br-ex")),
		"--gateway-sweep=1s", "--allow-generic-xdp", "--takeover=never"}
	return s
}

const objects = `apiVersion: v1
kind: Node
metadata:
  name: node1
  annotations: {k8s.ovn.org/l3-gateway-config: '{"default":{"mode":"shared","mac-address":"` + ovn.NodeMAC + `","ip-addresses":["` + ovn.NodeIP4 + `/16"]}}'}
status: {addresses: [{type: InternalIP, address: ` + ovn.NodeIP4 + `}]}
---
apiVersion: picot.dev/v1alpha1
kind: SRv6Node
metadata: {name: node1}
spec: {locator: "2001:db8:0:1::/64"}
---
apiVersion: picot.dev/v1alpha1
kind: Network
metadata: {name: red}
spec: {id: 100, prefixes: [10.7.0.0/24], mtu: 1400}
---
apiVersion: picot.dev/v1alpha1
kind: NetworkEndpoint
metadata: {name: a}
spec: {network: red, nodeName: node1, mac: "02:00:00:00:00:0a", addresses: [10.7.0.10], segment: 1, interface: l2a}
---
apiVersion: picot.dev/v1alpha1
kind: NetworkEndpoint
metadata: {name: b}
spec: {network: red, nodeName: node1, mac: "02:00:00:00:00:0b", addresses: [10.7.0.11], segment: 1, interface: l2b}
`

// start runs the agent; kill ends it as a crash does.
func (s *site) start() {
	s.t.Helper()
	s.cmd = exec.Command("ip", s.args...) // ip replaces itself by the agent
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// ready waits until data path and gateway are.
func (s *site) ready() {
	s.t.Helper()
	testnet.Eventually(s.t, 60*time.Second, "agent and gateway ready", func() error {
		st, err := control.Status(context.Background(), s.runDir)
		if err == nil && (!st.Ready || len(st.Ports) != 2 || st.GatewayReady == nil || !*st.GatewayReady) {
			err = fmt.Errorf("ready %v, waits %q, problems %q", st.Ready, st.Waiting, st.Problems)
		}
		return err
	})
}

// show is picot show gateway -o json.
func (s *site) show() gateway.Status {
	s.t.Helper()
	var st gateway.Status
	if err := json.Unmarshal([]byte(s.Run(s.picot, "show", "gateway", "-o", "json", "--run-dir", s.runDir)), &st); err != nil {
		s.t.Fatal(err)
	}
	return st
}

// binding gives the MAC a network's router has for an address.
func (s *site) binding(port, ip string) string {
	s.t.Helper()
	return strings.TrimSpace(s.Run("ovn-sbctl", "--bare", "--columns=mac", "find", "MAC_Binding", "logical_port="+port, `ip="`+ip+`"`))
}

// rows are all rows of followers with their identity and time.
func (s *site) rows() string {
	s.t.Helper()
	return s.Run("ovn-sbctl", "--format=csv", "--columns=_uuid,logical_port,ip,mac,timestamp", "list", "MAC_Binding")
}

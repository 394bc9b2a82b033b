package manifests

import (
	"fmt"
	"strings"
	"testing"
)

const foreign = `apiVersion: v1
kind: Node
metadata:
  name: node2
  labels: {a: b}
  annotations:
    k8s.ovn.org/l3-gateway-config: '{"default":{"mode":"shared","mac-address":"06:38:d6:00:00:02","ip-addresses":["172.18.0.3/16"]}}'
spec: {podCIDR: 10.1.0.0/24}
status:
  addresses:
  - {type: InternalIP, address: 172.18.0.3}
  images: [{names: [a], sizeBytes: 3}]
---
apiVersion: k8s.ovn.org/v1alpha1
kind: UplinkState
metadata: {name: fast-node2}
spec: {uplinkName: fast, nodeName: node2}
status: {macAddress: "06:38:d6:00:00:03", ipAddresses: [172.19.0.3/16], ovsBridge: {name: br-up1}}
`

// What the gateway needs of a cluster is read beside our own kinds; the rest of a Node may stand.
func TestForeignKindsForTheGateway(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "nodes.yaml", foreign, "lab.yaml", lab)
	s, errs := Load(dir)
	wantErrors(t, dir, errs)
	if got := fmt.Sprintf("%+v %+v", s.OVNNodes, s.OVNUplinks); !strings.Contains(got, "{Name:node2 InternalIPs:[172.18.0.3] L3Gateway:{") ||
		!strings.Contains(got, "{Name:fast Node:node2 Bridge:br-up1 MAC:06:38:d6:00:00:03 Addresses:[172.19.0.3/16]}") {
		t.Errorf("got %s", got)
	}
	if len(s.Nodes) != 1 || len(s.Endpoints) != 1 {
		t.Errorf("a Node became one of ours, or ours went: %+v", s.State)
	}
}

func TestForeignKindsAreCheckedWhereTheyAreRead(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"172.18.0.3}", "172.18.0}", "nodes.yaml:11 status.addresses[0].address"},
		{`"mode"`, `"made"`, "nodes.yaml:6 k8s.ovn.org/l3-gateway-config"},
		{"apiVersion: v1\n", "apiVersion: picot.dev/v1alpha1\n", "nodes.yaml:1 write v1"},
		{"k8s.ovn.org/v1alpha1", "v1", "nodes.yaml:14 k8s.ovn.org/"},
		{"[172.19.0.3/16]", "[172.19.0.3]", "nodes.yaml:18 status.ipAddresses[0]"},
		{"uplinkName: fast, ", "", "nodes.yaml:17 spec.uplinkName"},
	} {
		r := newReader(t.TempDir())
		write(t, r.dir, "nodes.yaml", foreign)
		if _, errs := r.read(); len(errs) > 0 {
			t.Fatal(errs)
		}
		write(t, r.dir, "nodes.yaml", strings.Replace(foreign, c.old, c.new, 1))
		s, errs := r.read()
		wantErrors(t, r.dir, errs, c.want)
		if len(s.OVNNodes) != 1 || len(s.OVNUplinks) != 1 || s.OVNNodes[0].InternalIPs[0].String() != "172.18.0.3" {
			t.Errorf("%s: the last good state is gone: %+v %+v", c.want, s.OVNNodes, s.OVNUplinks)
		}
	}
}

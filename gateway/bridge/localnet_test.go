package bridge_test

import (
	"fmt"
	"strings"
	"testing"

	"picot.dev/picot/gateway/flows"
	"picot.dev/picot/test/lab/ovn"
)

// A secondary localnet's patch port is an ingress port while OVN keeps it: removed, its four
// flows go; re-created, four come with its new number. Its NO_FLOOD bit is never touched.
func TestLocalnetComesAndGoes(t *testing.T) {
	r := newRig(t, "br-ex", ovn.Options{UDNs: 2, Localnets: 1, NoPods: true})
	r.Script("flows", "rest")
	const lsp, patch = "lnet1_ovn_localnet_port", "patch-lnet1_ovn_localnet_port-to-br-int"
	steering := func(s flows.Set, port uint32) (n int) {
		for _, f := range s {
			if f.Priority == flows.PrioritySteer && flows.Field(f.Match, "in_port") == fmt.Sprint(port) {
				n++
			}
		}
		return n
	}
	in := r.input(true)
	r.apply(in)
	old := in.Ingress[0].OFPort
	if s := r.read(); steering(s.Own, old) != 4 || steering(s.Own, in.Uplink.OFPort) != 4 || s.Ports[old].NoFlood {
		t.Errorf("port %d: NO_FLOOD %v\n%s", old, s.Ports[old].NoFlood, s.Own)
	}

	r.Run("ovn-nbctl", "lsp-del", lsp)
	eventually(t, "the patch port is gone", func() bool {
		r.Run("ovn-nbctl", "--wait=hv", "sync") // shortly after its start ovn-controller removes no port, and later waits for news
		_, ok := r.Patches("br-ex")[patch]
		return !ok
	})
	r.apply(r.input(true))
	if s := r.read(); steering(s.Own, old) != 0 || steering(s.Own, in.Uplink.OFPort) != 4 {
		t.Errorf("after its removal\n%s", s.Own)
	}

	r.Run("ovn-nbctl", "lsp-add", "lnet1_ovn_localnet_switch", lsp, "--", "lsp-set-addresses", lsp, "unknown",
		"--", "lsp-set-type", lsp, "localnet", "--", "lsp-set-options", lsp, "network_name=lnet1")
	eventually(t, "the patch port is back", func() bool { return r.Patches("br-ex")[patch] != 0 })
	in = r.input(true)
	r.apply(in)
	s := r.read()
	if n := steering(s.Own, in.Ingress[0].OFPort); n != 4 {
		t.Errorf("re-created as port %d it has %d steering flows", in.Ingress[0].OFPort, n)
	}
	same(t, "own flows", s.Own, flows.Render(in))
	if _, text := r.Trace("br-ex", arpReply(in.Ingress[0].OFPort)); strings.Count(text, `bridge("br-int")`) != 1 {
		t.Errorf("an ARP reply from it enters br-int %d times", strings.Count(text, `bridge("br-int")`))
	}
}

package e2egateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/control"
	"picot.dev/picot/internal/testnet"
	"picot.dev/picot/test/lab/ovn"
)

func TestAgentRunsTheGateway(t *testing.T) {
	s := newSite(t)
	a, b := testnet.New(t, "a"), testnet.New(t, "b")
	for _, pod := range []struct {
		ns                *testnet.NS
		device, mac, cidr string
	}{{a, "l2a", "02:00:00:00:00:0a", "10.7.0.10/24"}, {b, "l2b", "02:00:00:00:00:0b", "10.7.0.11/24"}} {
		s.Run("ip", "-n", s.NodeNS(), "link", "add", pod.device, "mtu", "1400", "type", "veth", "peer", "name", "eth0", "mtu", "1400",
			"address", pod.mac, "netns", pod.ns.Name)
		pod.ns.Addr(t, "eth0", pod.cidr)
		pod.ns.Up(t, "eth0")
		s.Run("ip", "-n", s.NodeNS(), "link", "set", pod.device, "up")
	}
	s.start()
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	s.ready()

	steering := func() (n int) {
		for line := range strings.Lines(s.Run("ovs-ofctl", "dump-flows", "unix:"+s.Mgmt("br-ex"), "cookie=0x7069636f74000000/0xffffffffff000000")) {
			if strings.Contains(line, "priority=52") {
				n++
			}
		}
		return n
	}
	flows := steering()
	if flows == 0 {
		t.Error("no steering flows on br-ex")
	}
	asked := s.Run(s.picot, "gateway", "flows", "--bridge", "br-ex", "--run-dir", s.runDir)
	if n := strings.Count(asked, "\n"); n < flows {
		t.Errorf("picot gateway flows prints %d flows, %d are installed:\n%s", n, flows, asked)
	}

	if !s.Ping("0", ovn.ExtIP4, 1) {
		t.Fatal("the default network does not reach the external host")
	}
	const source = "rtoe-GR_node1"
	testnet.Eventually(t, 10*time.Second, "the source has the binding", func() error {
		if s.binding(source, ovn.ExtIP4) != ovn.ExtMAC {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	for i := 1; i <= networks; i++ {
		testnet.Eventually(t, 10*time.Second, "follower", func() error {
			if got := s.binding(fmt.Sprintf("rtoe-GR_net%d_node1", i), ovn.ExtIP4); got != ovn.ExtMAC {
				return fmt.Errorf("net%d has %q", i, got)
			}
			return nil
		})
	}
	st := s.show()
	if len(st.Groups) != 1 || len(st.Groups[0].Followers) != networks || st.Groups[0].Source != "default" || st.Groups[0].Bindings == 0 || !st.Gate {
		t.Errorf("picot show gateway: %+v", st)
	}
	if st.MirrorLagMaxMs > 1000 {
		t.Errorf("%.0f ms from the source's binding to the followers'", st.MirrorLagMaxMs)
	}
	t.Logf("mirror lag %.1f ms, at most %.1f ms; %d steering flows", st.MirrorLagMs, st.MirrorLagMaxMs, flows)
	ping := func(when string) {
		t.Helper()
		testnet.Eventually(t, 10*time.Second, "L2 ping "+when, func() error {
			_, err := a.Try("ping", "-c", "1", "-W", "1", "10.7.0.11")
			return err
		})
	}
	ping("at first")

	before := s.rows()
	s.kill()
	gatewayArgs := slices.DeleteFunc(slices.Clone(s.args), func(a string) bool {
		return !strings.HasPrefix(a, "--gateway-") && !strings.HasSuffix(a, "-flood") && !strings.HasSuffix(a, "-segmentation") && !strings.HasPrefix(a, "--node-name")
	})
	if once := s.Run(s.picot, append([]string{"gateway", "flows", "--bridge", "br-ex", "--run-dir", s.runDir}, gatewayArgs...)...); once != asked {
		t.Errorf("without an agent other flows are printed:\n%s\nwith one:\n%s", once, asked)
	}
	s.start()
	s.ready()
	if after := s.rows(); after != before {
		t.Errorf("rows were written again:\n%s\n%s", before, after)
	}
	if n := steering(); n != flows {
		t.Errorf("%d steering flows after the restart, %d before", n, flows)
	}

	// SIGKILL's opposite for a database: it hangs up and does not come back.
	s.Run("sh", "-c", "kill -9 $(cat "+s.SB()[len("unix:"):len(s.SB())-len("sb.sock")]+"ovsdb-sb.pid)")
	testnet.Eventually(t, 30*time.Second, "the dead database is named", func() error {
		st, err := control.Status(context.Background(), s.runDir)
		if err != nil {
			return err
		}
		if !st.Ready {
			return fmt.Errorf("the data path is not ready: %q", st.Waiting)
		}
		if text := strings.Join(st.Problems, "\n"); !strings.Contains(text, "gateway: OVN_Southbound") || *st.GatewayReady {
			return fmt.Errorf("problems %q", st.Problems)
		}
		return nil
	})
	ping("without the southbound database")

	s.kill()
	place := slices.DeleteFunc(slices.Clone(s.args), func(a string) bool {
		return !strings.HasPrefix(a, "--run-dir") && !strings.HasPrefix(a, "--bpffs")
	})
	s.Run("ip", slices.Concat([]string{"netns", "exec", s.NodeNS(), s.picot, "cleanup", "--gateway"}, gatewayArgs, place)...)
	if n := steering(); n != 0 {
		t.Errorf("%d steering flows after picot cleanup --gateway", n)
	}
}

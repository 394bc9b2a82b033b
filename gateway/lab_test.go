package gateway

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/gateway/bridge"
	"picot.dev/picot/gateway/flows"
	"picot.dev/picot/gateway/static"
	"picot.dev/picot/test/lab/ovn"
)

// These tests run the controller in the OVN lab: real northd, ovn-controller, vswitchd, pods and
// an external host. What is somebody else's flow there is put in by the lab's script.

type labRig struct {
	*ovn.Lab
	t    *testing.T
	c    *Controller
	cfg  Config
	stop func()
}

func newLab(t *testing.T, o ovn.Options, foreign string, change ...func(*Config)) *labRig {
	t.Helper()
	l := ovn.Start(t, o)
	l.Script("flows", foreign)
	cfg := Config{Node: "node1", DisableUDNARPNDPFlood: true, NetworkSegmentation: true, IPv4: true, IPv6: true,
		OVS: remote(t, l.OVS()), NB: remote(t, l.NB()), SB: remote(t, l.SB()), RunDir: filepath.Dir(l.Mgmt("br-ex")),
		Sweep: time.Second, VLAN: o.VLAN}
	for _, f := range change {
		f(&cfg)
	}
	return &labRig{Lab: l, t: t, cfg: cfg}
}

func (r *labRig) start(in Inputs) {
	r.t.Helper()
	c, err := New(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	c.SetInputs(in)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	stopped := false
	r.c, r.stop = c, func() {
		if !stopped {
			stopped = true
			cancel()
			<-done
		}
	}
	r.t.Cleanup(r.stop)
	r.until("ready", func() error {
		if !c.Ready() {
			return fmt.Errorf("%v", c.Health())
		}
		return nil
	})
}

func (r *labRig) until(what string, f func() error) {
	r.t.Helper()
	eventually(r.t, what, f)
}

// sb gives "port ip" -> MAC of the SB table.
func (r *labRig) sb() map[string]string {
	r.t.Helper()
	return table(r.Run("ovn-sbctl", "--format=csv", "--no-headings", "--data=bare", "--columns=logical_port,ip,mac", "list", "MAC_Binding"))
}

// nb gives "port ip" -> MAC of the static rows, without the masquerade ones.
func (r *labRig) nb() map[string]string {
	r.t.Helper()
	rows := table(r.Run("ovn-nbctl", "--format=csv", "--no-headings", "--data=bare", "--columns=logical_port,ip,mac", "list", "Static_MAC_Binding"))
	for k := range rows {
		if strings.Contains(k, " 169.254.") || strings.Contains(k, " fd69:") {
			delete(rows, k)
		}
	}
	return rows
}

func table(csv string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(csv) {
		if f := strings.Split(strings.TrimSpace(line), ","); len(f) == 3 {
			out[f[0]+" "+f[1]] = f[2]
		}
	}
	return out
}

func gr(network string) string {
	if network == "0" {
		return "rtoe-GR_node1"
	}
	if u, ok := strings.CutPrefix(network, "u"); ok {
		return "rtoe-GR_up" + u + "_node1"
	}
	return "rtoe-GR_net" + network + "_node1"
}

func (r *labRig) everyFollower(what, ip, mac string, networks ...string) {
	r.t.Helper()
	start := time.Now()
	r.until(what, func() error {
		rows := r.sb()
		for _, n := range networks {
			if rows[gr(n)+" "+ip] != mac {
				return fmt.Errorf("%s has %q for %s, want %s (%v)", gr(n), rows[gr(n)+" "+ip], ip, mac, r.c.Health())
			}
		}
		return nil
	})
	r.t.Logf("%s: seen on %d followers after %v; controller's lag %.1f ms", what, len(networks), time.Since(start).Round(time.Millisecond), r.c.Status().MirrorLagMs)
}

func numbers(n int, prefix string) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(prefix, i+1))
	}
	return out
}

// garp makes the external host announce an address with a MAC.
func (r *labRig) garp(ip, mac string) {
	r.t.Helper()
	r.Run("ip", "-n", r.ExtNS(), "link", "set", "eth0", "address", mac)
	r.Run("ip", "netns", "exec", r.ExtNS(), "arping", "-A", "-c", "1", "-I", "eth0", ip)
}

// forget removes every binding and waits until ovn-controller has forgotten too.
func (r *labRig) forget() {
	r.t.Helper()
	r.Run("ovn-sbctl", "--all", "destroy", "MAC_Binding")
	r.Run("ovn-nbctl", "--wait=hv", "--timeout=30", "sync")
}

const newMAC = "06:38:d6:00:00:99"

// Overlay, beside what a stock ovn-kubernetes renders: every follower gets every binding, buffered
// packets get through, a new MAC reaches all.
func TestLabOverlayMirror(t *testing.T) {
	const n = 10
	r := newLab(t, ovn.Options{UDNs: n, Localnets: 1}, "gate-off", func(c *Config) { c.Mode = flows.Overlay })
	r.start(Inputs{Synced: true})
	udns := numbers(n, "")
	st := r.c.Status()
	if len(st.Groups) != 1 || len(st.Groups[0].Followers) != n || st.Groups[0].Source != "default" || len(st.Groups[0].Ingress) != 2 || st.Static {
		t.Fatalf("%+v", st)
	}
	if st.OVNVersion == "" {
		t.Error("northd's version is not known")
	}

	if !r.Ping("0", ovn.ExtIP4, 1) || !r.Ping("0", ovn.ExtIP6, 1) {
		t.Fatal("the default network does not reach the external host")
	}
	r.everyFollower("IPv4 binding", ovn.ExtIP4, ovn.ExtMAC, udns...)
	r.everyFollower("IPv6 binding", ovn.ExtIP6, ovn.ExtMAC, udns...)
	rows := r.sb()
	for _, u := range udns {
		if _, own := rows[gr(u)+" "+ovn.NodeIP4]; own && r.c.counters.MirrorWrites[0].Load() > 2*n {
			t.Errorf("the node's own address was mirrored to %s", u)
		}
		if !r.Ping(u, ovn.ExtIP4, 2) || !r.Ping(u, ovn.ExtIP6, 2) {
			t.Errorf("network %s loses packets", u)
		}
	}

	t.Run("GARP with a new MAC updates all", func(t *testing.T) {
		r.garp(ovn.ExtIP4, newMAC)
		r.everyFollower("new MAC", ovn.ExtIP4, newMAC, udns...)
		for _, u := range []string{"1", "10"} {
			if !r.Ping(u, ovn.ExtIP4, 2) {
				t.Errorf("network %s loses packets", u)
			}
		}
	})
	t.Run("a buffered packet of a follower gets through", func(t *testing.T) {
		// nobody has the binding: the follower asks, the source learns from the answer, the mirror
		// writes, and ovn-controller sends what it kept
		r.forget()
		if !r.Ping("7", ovn.ExtIP4, 1) {
			t.Error("the first packet of network 7 is lost")
		}
		r.everyFollower("learned from a follower's question", ovn.ExtIP4, newMAC, udns...)
	})
	t.Run("a deleted router's rows go and nobody waits for it", func(t *testing.T) {
		r.Run("ovn-nbctl", "--wait=sb", "lr-del", "GR_net3_node1")
		r.until("net3 is gone", func() error {
			if g := r.c.Status().Groups; len(g) != 1 {
				return fmt.Errorf("%+v", g)
			}
			if rows := r.sb(); rows[gr("3")+" "+ovn.ExtIP4] != "" {
				return fmt.Errorf("still there")
			}
			return nil
		})
	})
	var out strings.Builder
	if err := r.c.Status().Print(&out); err != nil || !strings.Contains(out.String(), "br-ex") {
		t.Error(err, out.String())
	}
	t.Log("\n" + out.String())
}

// Own mode: steering, NO_FLOOD and static rows; UDN deletion with the router first does not wedge
// northd; re-designation on an uplink bridge; vswitchd's flows come back.
func TestLabOwnStaticAndRedesignation(t *testing.T) {
	const n, ups = 4, 3
	r := newLab(t, ovn.Options{UDNs: n, Uplinks: ups}, "rest", func(c *Config) { c.Static, c.CTMark = StaticAlways, labMark })
	n2 := annotated("node2", macA, "172.18.0.77/16", "fd00:18::77/64")
	in := Inputs{Synced: true, Nodes: []static.Node{annotated("node1", ovn.NodeMAC, ovn.NodeIP4+"/16"), n2}}
	in.Uplinks = []static.Uplink{{Name: "fast", Node: "node1", Bridge: "br-up1", MAC: ovn.UplinkMAC, Addresses: prefixes([]string{ovn.UplinkNodeIP4 + "/16"})},
		{Name: "fast", Node: "node2", Bridge: "br-up1", MAC: macB, Addresses: prefixes([]string{"172.19.0.77/16"})}}
	r.start(in)

	want := map[string]string{}
	for _, u := range numbers(n, "") {
		want[gr(u)+" 172.18.0.77"], want[gr(u)+" fd00:18::77"] = macA, macA
	}
	for _, u := range []string{"u2", "u3"} { // u1 is the designated source
		want[gr(u)+" 172.19.0.77"] = macB
	}
	same := func(what string) {
		t.Helper()
		r.until(what, func() error {
			if got := r.nb(); fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("have %v, want %v", got, want)
			}
			return nil
		})
	}
	same("static rows")
	r.Run("ovn-nbctl", "--wait=sb", "--timeout=30", "sync")
	t.Run("a static row beats a dynamic one", func(t *testing.T) {
		// the router learned another MAC for node2's address by itself: both are in br-int, ours above
		dp := strings.TrimSpace(r.Run("ovn-sbctl", "--bare", "--columns=datapath", "find", "Port_Binding", "logical_port="+gr("1")))
		r.Run("ovn-sbctl", "create", "MAC_Binding", "logical_port="+gr("1"), `ip="172.18.0.77"`, `mac="`+macC+`"`, "datapath="+dp, fmt.Sprintf("timestamp=%d", time.Now().UnixMilli()))
		r.until("flows", func() error {
			fixed, learned := 0, 0
			for line := range strings.Lines(r.Run("ovs-ofctl", "dump-flows", "unix:"+r.Mgmt("br-int"), "table=66,reg0=0xac12004d")) {
				if strings.Contains(line, "priority=150") && strings.Contains(line, "mod_dl_dst:"+macA) {
					fixed++
				}
				if strings.Contains(line, "priority=100") && strings.Contains(line, "mod_dl_dst:"+macC) {
					learned++
				}
			}
			if fixed != n || learned != 1 {
				return fmt.Errorf("%d static and %d learned flows for node2", fixed, learned)
			}
			return nil
		})
	})

	t.Run("router deleted first: rows go at once and northd is not wedged", func(t *testing.T) {
		// worse than ovn-kubernetes, which removes its own rows before: all rows stay behind
		if out, err := r.Try("ovn-nbctl", "--wait=sb", "--timeout=20", "lr-del", "GR_net2_node1"); err != nil {
			t.Fatalf("northd is wedged: %v %s", err, out)
		}
		delete(want, gr("2")+" 172.18.0.77")
		delete(want, gr("2")+" fd00:18::77")
		same("rows of the gone router")
		out, err := r.Try("ovn-nbctl", "--wait=sb", "--timeout=20", "sync")
		if err != nil {
			t.Fatalf("northd is wedged: %v %s", err, out)
		}
	})
	t.Run("network deleted: rows go before the router", func(t *testing.T) {
		in.Deleting = []string{"net3"}
		r.c.SetInputs(in)
		delete(want, gr("3")+" 172.18.0.77")
		delete(want, gr("3")+" fd00:18::77")
		same("rows of the network being deleted")
		if out, err := r.Try("ovn-nbctl", "--wait=sb", "--timeout=20", "lr-del", "GR_net3_node1"); err != nil {
			t.Fatalf("northd is wedged: %v %s", err, out)
		}
	})
	t.Run("re-designation switches flows, NO_FLOOD and mirror", func(t *testing.T) {
		if !r.Ping("u1", ovn.UplinkExtIP4, 1) {
			t.Fatal("u1 does not reach its external host")
		}
		r.until("u2 and u3 have the binding", func() error {
			rows := r.sb()
			if rows[gr("u2")+" "+ovn.UplinkExtIP4] == "" || rows[gr("u3")+" "+ovn.UplinkExtIP4] == "" {
				return fmt.Errorf("%v", rows)
			}
			return nil
		})
		in.Deleting = []string{"net3", "up1"}
		r.c.SetInputs(in)
		ports := r.Patches("br-up1")
		u1, u2, u3 := ports[ovn.PatchName("br-up1", "u1")], ports[ovn.PatchName("br-up1", "u2")], ports[ovn.PatchName("br-up1", "u3")]
		r.until("u2 is the source", func() error {
			st, err := bridge.New(bridge.Options{Bridge: "br-up1", Socket: r.Mgmt("br-up1")}).Read(t.Context())
			if err != nil {
				return err
			}
			if !st.Ports[u1].NoFlood || st.Ports[u2].NoFlood || !st.Ports[u3].NoFlood {
				return fmt.Errorf("NO_FLOOD: u1 %v u2 %v u3 %v", st.Ports[u1].NoFlood, st.Ports[u2].NoFlood, st.Ports[u3].NoFlood)
			}
			n := 0
			for _, f := range st.Own {
				if f.Priority == flows.PrioritySteer && strings.Contains(f.Actions, fmt.Sprintf("output:%d,", u2)) {
					n++
				}
			}
			if n != 4 {
				return fmt.Errorf("%d steering flows to u2:\n%s", n, st.Own)
			}
			return nil
		})
		r.forget()
		if !r.Ping("u3", ovn.UplinkExtIP4, 1) {
			t.Error("u3's first packet is lost: the new source does not serve the group")
		}
	})
	t.Run("unchanged input is no transaction", func(t *testing.T) {
		time.Sleep(time.Second)
		a := r.c.nb.Stats().Transactions.Load()
		r.c.SetInputs(in)
		time.Sleep(time.Second)
		if b := r.c.nb.Stats().Transactions.Load(); a != b {
			t.Errorf("%d NB transactions", b-a)
		}
	})
	t.Run("a new process touches nothing that is right", func(t *testing.T) {
		before := r.Run("ovn-nbctl", "--columns=_uuid", "--bare", "list", "Static_MAC_Binding")
		flowsBefore := r.steering()
		r.stop()
		r.start(in)
		time.Sleep(time.Second)
		if after := r.Run("ovn-nbctl", "--columns=_uuid", "--bare", "list", "Static_MAC_Binding"); before != after {
			t.Error("rows were rewritten")
		}
		if n := r.writes(); n != 0 {
			t.Errorf("%d rows written", n)
		}
		if n := r.c.counters.FlowsAdded.Load() + r.c.counters.FlowsDeleted.Load(); n != 0 {
			t.Errorf("%d flows written; steering before:\n%s\nand after:\n%s", n, flowsBefore, r.steering())
		}
	})
}

// steering is the priority-52 flows of both bridges.
func (r *labRig) steering() string {
	var lines []string
	for _, br := range []string{"br-ex", "br-up1"} {
		for _, l := range strings.Split(r.Run("ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "dump-flows", "unix:"+r.Mgmt(br)), "\n") {
			if strings.Contains(l, "priority=52") {
				lines = append(lines, br+l)
			}
		}
	}
	return strings.Join(lines, "\n")
}

// labMark gives the marks ovn-lab.sh uses.
func labMark(network string) uint32 {
	var i uint32
	switch {
	case network == "":
		return 1
	case strings.HasPrefix(network, "up"):
		_, _ = fmt.Sscan(network[2:], &i)
		return 4001 + i
	}
	_, _ = fmt.Sscan(network[3:], &i)
	return 1 + i
}

func (r *labRig) writes() (n uint64) {
	for i := range r.c.counters.StaticWrites {
		n += r.c.counters.StaticWrites[i].Load() + r.c.counters.MirrorWrites[i].Load()
	}
	return n
}

// Databases and the switch are killed and come back: rows, flows and NO_FLOOD converge, and rows
// that were right are not written again.
func TestLabRestarts(t *testing.T) {
	const n = 3
	r := newLab(t, ovn.Options{UDNs: n}, "rest", func(c *Config) { c.Static, c.CTMark, c.Audit = StaticAlways, labMark, 2*time.Second })
	in := Inputs{Synced: true, Nodes: []static.Node{annotated("node1", ovn.NodeMAC, ovn.NodeIP4+"/16"), annotated("node2", macA, "172.18.0.77/16")}}
	r.start(in)
	udns := numbers(n, "")
	if !r.Ping("0", ovn.ExtIP4, 1) {
		t.Fatal("the default network does not reach the external host")
	}
	r.everyFollower("before", ovn.ExtIP4, ovn.ExtMAC, udns...)
	statics := func() error {
		if got := r.nb(); len(got) != n {
			return fmt.Errorf("%v", got)
		}
		return nil
	}
	r.until("static rows", statics)
	writes := r.writes()

	r.Script("restart", "ovsdb-nb")
	r.Script("restart", "ovsdb-sb")
	r.until("new sessions", func() error {
		if r.c.nb.Stats().Sessions.Load() < 2 || r.c.sb.Stats().Sessions.Load() < 2 || !r.c.Ready() {
			return fmt.Errorf("%v", r.c.Health())
		}
		return nil
	})
	r.until("static rows", statics)
	r.everyFollower("after both databases came back", ovn.ExtIP4, ovn.ExtMAC, udns...)
	time.Sleep(2 * time.Second)
	if now := r.writes(); now != writes {
		t.Errorf("%d rows written for a restart that lost nothing", now-writes)
	}

	r.Script("restart", "ovs-vswitchd")
	r.Script("flows", "rest")
	r.until("flows and NO_FLOOD are back", func() error {
		st, err := bridge.New(bridge.Options{Bridge: "br-ex", Socket: r.Mgmt("br-ex")}).Read(t.Context())
		if err != nil {
			return err
		}
		steering := 0
		for _, f := range st.Own {
			if f.Priority == flows.PrioritySteer {
				steering++
			}
		}
		ports := r.Patches("br-ex")
		for _, u := range udns {
			if p := ports[ovn.PatchName("br-ex", u)]; p == 0 || !st.Ports[p].NoFlood {
				return fmt.Errorf("network %s: port %d has no NO_FLOOD", u, p)
			}
		}
		if src := ports[ovn.PatchName("br-ex", "0")]; steering != 4 || st.Ports[src].NoFlood {
			return fmt.Errorf("%d steering flows, NO_FLOOD on the source %v (%v)", steering, st.Ports[src].NoFlood, r.c.Health())
		}
		return nil
	})
}

// At 100 networks, gate on, an external reply costs what it costs at 10, and all have the binding.
func TestLabHundredNetworks(t *testing.T) {
	const n = 100
	r := newLab(t, ovn.Options{UDNs: n, NoPods: true}, "gate-off", func(c *Config) { c.Mode = flows.Overlay })
	phys := r.VSCtl("get", "interface", "phys0", "ofport")
	reply := fmt.Sprintf("in_port=%s,arp,dl_src=%s,dl_dst=%s,arp_op=2,arp_spa=%s,arp_tpa=%s,arp_sha=%s,arp_tha=%s", phys, ovn.ExtMAC, ovn.NodeMAC, ovn.ExtIP4, ovn.NodeIP4, ovn.ExtMAC, ovn.NodeMAC)
	off, _ := r.Trace("br-ex", reply)
	r.start(Inputs{Synced: true})
	on, _ := r.Trace("br-ex", reply)
	t.Logf("resubmits of one ARP reply: gate off %d, gate on %d", off, on)
	if on*10 > off {
		t.Errorf("%d resubmits with the gate on, %d off", on, off)
	}
	// the external host asks for the node's address: the source learns it from the question
	// (arping fails because two answer: the router, and the kernel behind LOCAL)
	if out, _ := r.Try("ip", "netns", "exec", r.ExtNS(), "arping", "-c", "1", "-I", "eth0", ovn.NodeIP4); !strings.Contains(strings.ToLower(out), ovn.NodeMAC) {
		t.Fatal(out)
	}
	r.everyFollower("100 followers", ovn.ExtIP4, ovn.ExtMAC, numbers(n, "")...)
	r.garp(ovn.ExtIP4, newMAC)
	r.everyFollower("100 followers, new MAC", ovn.ExtIP4, newMAC, numbers(n, "")...)
	t.Logf("longest lag %.1f ms", r.c.Status().MirrorLagMaxMs)
}

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/internal/routes"
	"picot.dev/picot/internal/testnet"
	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xdp"
)

func TestMain(m *testing.M) { os.Exit(testnet.Main(m)) }

// node is a node's namespace beside its router's.
type node struct {
	t       *testing.T
	ns, far *testnet.NS
	c       Config
}

const (
	nodeLocator  = "2001:db8:0:1::/64"
	otherLocator = "2001:db8:0:2::/64"
	gateway      = "2001:db8:1::1"
)

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, ns: testnet.New(t, "node"), far: testnet.New(t, "far")}
	testnet.Veth(t, testnet.End{NS: n.ns, Name: "up0", Addrs: []string{"2001:db8:1::2/64"}}, testnet.End{NS: n.far, Name: "r0", Addrs: []string{gateway + "/64"}})
	n.plug()
	n.far.Exec(t, "ethtool", "-K", "r0", "gro", "on") // after it is up: docs/decisions/0023
	n.ns.IP(t, "-6 route add "+otherLocator+" via "+gateway+" dev up0 proto static")
	n.until(n.ns, "ping -c1 -W1 "+gateway)
	n.c = Config{
		Node: "node1", Uplinks: []string{"up0"}, Workloads: []string{"w0"}, Manifests: t.TempDir(), BPFFS: testnet.BPFFS(t), RunDir: t.TempDir(),
		Owner: routes.DefaultOwner(), Function: srv6.DefaultFunction, Workers: 1, MaxPorts: 16,
	}
	n.manifest("{locator: \""+nodeLocator+"\"}", "{locator: \""+otherLocator+"\"}")
	return n
}

// routes gives the node again what goes with its uplink's addresses.
func (n *node) routes() {
	n.t.Helper()
	n.ns.IP(n.t, "-6 addr replace 2001:db8:1::2/64 dev up0 nodad")
	n.ns.IP(n.t, "-6 route replace "+otherLocator+" via "+gateway+" dev up0 proto static")
	n.until(n.ns, "ping -c1 -W1 "+gateway)
}

// plug makes a pod's veth, its host end down as the agent wants it.
func (n *node) plug() {
	n.t.Helper()
	testnet.Veth(n.t, testnet.End{NS: n.ns, Name: "w0", MTU: 1446, Down: true}, testnet.End{NS: n.far, Name: "p0", MTU: 1446})
}

// manifest writes the specs of node1 and node2, and a network with an endpoint here.
func (n *node) manifest(self, other string) {
	n.t.Helper()
	text := `{apiVersion: picot.dev/v1alpha1, kind: Network, metadata: {name: red}, spec: {id: 100, prefixes: [10.0.0.0/24, "fd00:10::/64"], mtu: 1446}}
---
{apiVersion: picot.dev/v1alpha1, kind: NetworkEndpoint, metadata: {name: a, namespace: default}, spec: {network: red, nodeName: node1, mac: "02:00:00:00:00:0a", interface: w0}}
---
{apiVersion: picot.dev/v1alpha1, kind: SRv6Node, metadata: {name: node1}, spec: ` + self + `}
---
{apiVersion: picot.dev/v1alpha1, kind: SRv6Node, metadata: {name: node2}, spec: ` + other + `}
`
	if err := os.WriteFile(filepath.Join(n.c.Manifests, "all.yaml"), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// turned are the checks that are not well, by part object/check.
func (n *node) turned() map[string]Check {
	n.t.Helper()
	out := map[string]Check{}
	n.ns.Run(n.t, func() {
		c := n.c
		c.Uplinks = append([]string(nil), n.c.Uplinks...)
		for _, x := range Judge(&c, read(context.Background(), &c, func(routes.Owner) []Step { return nil })).Checks {
			if x.Outcome != OK && x.Outcome != NotApplicable {
				out[x.Part+" "+x.Object+"/"+x.Check] = x
			}
		}
	})
	return out
}

// follow does what a mend says: the command, which must be in it once the names in
// capitals are filled in.
func (n *node) follow(in *testnet.NS, x Check, command string, names ...string) {
	n.t.Helper()
	if said := strings.NewReplacer(names...).Replace(x.Mend); !strings.Contains(said, command) {
		n.t.Fatalf("the mend %q says nothing of %q", said, command)
	}
	n.until(in, command)
}

// until repeats a command until it succeeds, as an operator would a ping.
func (n *node) until(in *testnet.NS, command string) {
	n.t.Helper()
	testnet.Eventually(n.t, 10*time.Second, command, func() error {
		_, err := in.Try("sh", "-c", command)
		return err
	})
}

// stranger is a program of nobody's.
func stranger(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "stranger", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// foreignXDP puts one on a device, in the mode of these flags of linux/if_link.h.
func foreignXDP(t *testing.T, ns *testnet.NS, device string, flags int) {
	t.Helper()
	p := stranger(t)
	defer p.Close()
	ns.Run(t, func() {
		l, err := netlink.LinkByName(device)
		if err == nil {
			err = netlink.LinkSetXdpFdWithFlags(l, p.FD(), flags)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// foreignLink has a bpf_link put it there.
func foreignLink(t *testing.T, ns *testnet.NS, device string) (l link.Link) {
	t.Helper()
	p := stranger(t)
	defer p.Close()
	ns.Run(t, func() {
		var err error
		if l, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: ns.Link(t, device).Attrs().Index, Flags: link.XDPDriverMode}); err != nil {
			t.Error(err)
		}
	})
	if l == nil {
		t.FailNow()
	}
	return l
}

// Each fault is planted on a real node, turns its check, and is mended by what the
// check says.
func TestPlantedFaultsAndTheirMends(t *testing.T) {
	n := newNode(t)
	if was := n.turned(); len(was) > 0 {
		t.Fatalf("before: %v", was)
	}
	var socket *xsk.Socket
	var held link.Link
	for _, c := range []struct {
		name    string
		plant   func()
		check   string
		outcome Outcome
		mend    func(Check)
	}{
		{"uplink MTU too small", func() { n.ns.IP(t, "link set up0 mtu 1400") }, "mtu up0/uplink", Fail,
			func(x Check) { n.follow(n.ns, x, "ip link set dev up0 mtu 1500") }},
		{"foreign XDP program", func() { foreignXDP(t, n.ns, "up0", unix.XDP_FLAGS_DRV_MODE) }, "device up0/xdp program", Fail,
			func(x Check) { n.follow(n.ns, x, "ip link set dev up0 xdp off") }},
		{"foreign XDP program in generic mode", func() { foreignXDP(t, n.ns, "up0", unix.XDP_FLAGS_SKB_MODE) }, "device up0/xdp program", Fail,
			func(x Check) { n.follow(n.ns, x, "ip link set dev up0 xdpgeneric off") }},
		{"foreign XDP program of a link", func() { held = foreignLink(t, n.ns, "up0") }, "device up0/xdp program", Fail,
			func(x Check) {
				if _, err := n.ns.Try("ip", "link", "set", "dev", "up0", "xdp", "off"); err == nil || strings.Contains(x.Mend, "ip link") || !strings.Contains(x.Mend, "end its owner") {
					t.Errorf("ip link set ... xdp off: %v; said: %+v", err, x)
				}
				held.Close()
			}},
		{"foreign AF_XDP socket", func() { socket = n.hold("up0") }, "device up0/af_xdp sockets", Fail,
			func(Check) { socket.Close() }},
		{"GRO off", func() { n.far.Exec(t, "ethtool", "-K", "r0", "gro", "off") }, "device up0/redirect target", Warn,
			func(x Check) { n.follow(n.far, x, "ethtool -K r0 gro on", "PEER", "r0") }},
		{"no carrier", func() { n.far.Down(t, "r0") }, "device up0/up", Fail,
			func(Check) {
				n.far.Up(t, "r0")
				n.far.Addr(t, "r0", gateway+"/64")
				n.until(n.ns, "ping -c1 -W1 "+gateway)
			}},
		{"uplink down", func() { n.ns.Down(t, "up0") }, "device up0/up", Fail,
			func(x Check) {
				n.follow(n.ns, x, "ip link set dev up0 up")
				n.routes()
			}},
		{"IPv6 off on the uplink", func() { n.ns.Sysctl(t, "net.ipv6.conf.up0.disable_ipv6", "1") }, "device up0/source address", Fail,
			func(x Check) {
				n.follow(n.ns, x, "sysctl -w net.ipv6.conf.up0.disable_ipv6=0")
				n.routes()
			}},
		{"device gone", func() { n.ns.IP(t, "link del w0") }, "device w0/exists", Fail,
			func(Check) { n.plug() }},
		{"port up without picot's program", func() { n.ns.Up(t, "w0") }, "device w0/up", Warn,
			func(x Check) { n.follow(n.ns, x, "ip link set dev w0 down") }},
		{"too few queues", func() { n.ns.IP(t, "link del w0"); n.plugQueues(1, 2) }, "device w0/xdp mode", Fail,
			func(Check) { n.ns.IP(t, "link del w0"); n.plugQueues(2, 2) }},
		{"duplicate locator", func() { n.manifest("{locator: \""+nodeLocator+"\"}", "{locator: \""+nodeLocator+"\"}") }, "locator node1/own", Fail,
			func(Check) { n.manifest("{locator: \""+nodeLocator+"\"}", "{locator: \""+otherLocator+"\"}") }},
		{"no route", func() { n.ns.IP(t, "-6 route del "+otherLocator) }, "locator node2/route", Fail,
			func(x Check) {
				n.follow(n.ns, x, "ip -6 route add "+otherLocator+" via "+gateway+" dev up0", "ROUTER", gateway, "UPLINK", "up0")
			}},
		{"somebody in our table", func() { n.ns.IP(t, "-6 route add 2001:db8:77::/64 dev up0 proto bird table 28777") }, "locator /tables", Fail,
			func(Check) { n.ns.IP(t, "-6 route del 2001:db8:77::/64 table 28777") }},
		{"somebody has our protocol", func() { n.ns.IP(t, "-6 route add 2001:db8:78::/64 dev up0 proto 112") }, "locator /protocol", Fail,
			func(Check) { n.ns.IP(t, "-6 route del 2001:db8:78::/64") }},
		{"a rule before the guard", func() { n.ns.IP(t, "-6 rule add pref 5 lookup 100") }, "locator /rules", Warn,
			func(Check) { n.ns.IP(t, "-6 rule del pref 5") }},
		{"the host in its locator", func() { n.ns.IP(t, "-6 addr add 2001:db8:0:1::5/64 dev up0 nodad") }, "locator node1/host address", Fail,
			func(x Check) { n.follow(n.ns, x, "ip -6 addr del 2001:db8:0:1::5/64 dev up0") }},
		{"seg6 off where a path passes", func() {
			n.ns.IP(t, "-6 addr add 2001:db8:ff::1/128 dev lo")
			n.ns.IP(t, "link set up0 mtu 1540")
			n.manifest("{locator: \""+nodeLocator+"\"}", "{locator: \""+otherLocator+"\", via: [\"2001:db8:ff::1\"]}")
			n.c.Workloads = nil // its MTU is not the matter here
		}, "kernel /seg6", Fail, func(x Check) {
			n.follow(n.ns, x, "sysctl -w net.ipv6.conf.all.seg6_enabled=1")
			n.follow(n.ns, n.turned()["kernel /seg6"], "sysctl -w net.ipv6.conf.up0.seg6_enabled=1")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.plant()
			after := n.turned()
			x, ok := after[c.check]
			if !ok || x.Outcome != c.outcome || x.Mend == "" {
				t.Fatalf("%s is %+v; turned: %v", c.check, x, after)
			}
			for name, y := range after {
				if name != c.check && !follows(c.check, name) {
					t.Errorf("turned besides: %s: %+v", name, y)
				}
			}
			c.mend(x)
			testnet.Eventually(t, 10*time.Second, "mended", func() error {
				if left := n.turned(); len(left) > 0 && !(len(left) == 1 && c.check == "kernel /seg6" && left["locator node2/route"].Check != "") {
					return fmt.Errorf("%v", left)
				}
				return nil
			})
		})
	}
}

// A next hop that nobody asked for is told of. The router's own probe may fill the
// entry again before anybody looks: it is taken out until it is seen to be.
func TestNextHopNotResolvedAndItsMend(t *testing.T) {
	const check = "locator node2/next hop"
	n := newNode(t)
	var after map[string]Check
	testnet.Eventually(t, 10*time.Second, "planted", func() error {
		n.ns.IP(t, "-6 neigh flush dev up0 nud all")
		if after = n.turned(); after[check].Outcome != Warn {
			return fmt.Errorf("turned: %v", after)
		}
		return nil
	})
	if len(after) != 1 {
		t.Errorf("turned besides: %v", after)
	}
	testnet.Eventually(t, 10*time.Second, "mended", func() error {
		n.follow(n.ns, after[check], "ping -c 1 -I up0 "+gateway)
		if left := n.turned(); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}

// Why nothing could be sent to one node is said of that node alone.
func TestEachNodesEchoHasItsOwnError(t *testing.T) {
	n := newNode(t)
	n.ns.IP(t, "-6 route add prohibit 2001:db8:0:4::/64")
	n.ns.IP(t, "-6 addr add 2001:db8:0:5::1/128 dev lo")
	ways := map[string]Way{}
	for name, addr := range map[string]string{"silent": "2001:db8:0:2::1", "unreachable": "2001:db8:0:3::1", "prohibited": "2001:db8:0:4::1", "answers": "2001:db8:0:5::1"} {
		ways[name] = Way{Target: netip.MustParseAddr(addr)}
	}
	n.ns.IP(t, "link set lo up")
	n.ns.Run(t, func() {
		pingAll(t.Context(), 0, ways, func(string, Way) int { return 0 })
	})
	for name, want := range map[string]error{"silent": errSilent, "unreachable": unix.ENETUNREACH, "prohibited": unix.EACCES, "answers": nil} {
		if w := ways[name]; !w.Pinged || !errors.Is(w.PingErr, want) {
			t.Errorf("%s: %v, want %v", name, w.PingErr, want)
		}
	}
}

// follows says that a check turns with another: without carrier there is no route,
// and a node that loses its locator, or sends over its own address, has no way.
func follows(first, second string) bool {
	switch first {
	case "device up0/up", "device up0/source address", "kernel /seg6":
		return strings.HasPrefix(second, "locator node2/") || second == "device up0/source address" || second == "device up0/redirect target"
	case "device up0/xdp program": // in generic mode
		return slices.Contains([]string{"device up0/xdp mode", "device up0/receive merging", "device up0/vlan tags"}, second)
	case "device w0/exists", "mtu up0/uplink":
		return second == "mtu w0/workload"
	}
	return false
}

func (n *node) plugQueues(here, there int) {
	n.t.Helper()
	testnet.Veth(n.t, testnet.End{NS: n.ns, Name: "w0", MTU: 1446, Down: true, Queues: here}, testnet.End{NS: n.far, Name: "p0", MTU: 1446, Queues: there})
}

// hold binds an AF_XDP socket as a stranger would.
func (n *node) hold(device string) (s *xsk.Socket) {
	n.t.Helper()
	mem, err := xsk.NewMemory(xsk.MemoryOptions{ChunksPerShard: 64})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { mem.Close() })
	n.ns.Run(n.t, func() {
		s, err = xsk.Open(mem, mem.Whole(), xsk.Options{IfIndex: n.ns.Link(n.t, device).Attrs().Index, Fill: 64, RX: 64, TX: 64, Completion: 64})
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

// A place that is no bpffs is told, and is one after what the mend says.
func TestNoBPFFSAndItsMend(t *testing.T) {
	testnet.RequireRoot(t)
	dir := t.TempDir()
	check := func() Check {
		h := Host{}
		c := &Config{BPFFS: dir, RunDir: dir}
		h.BPFFS.Mounted, h.BPFFS.Err = xdp.LookBPFFS(dir)
		return placeChecks(c, &Facts{Host: h})[0]
	}
	x := check()
	if x.Outcome == OK || !strings.Contains(x.Mend, "mount -t bpf bpf "+dir) {
		t.Fatalf("%+v", x)
	}
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	if x := check(); x.Outcome != OK {
		t.Errorf("mounted: %+v", x)
	}
}

// What the agent does is done, for real, and nothing of it stays.
func TestSandboxDoesItAllAndLeavesNothing(t *testing.T) {
	testnet.RequireRoot(t)
	t.Setenv("TMPDIR", t.TempDir()) // others try theirs elsewhere
	state := func() string {
		mounts, _ := os.ReadFile("/proc/self/mountinfo")
		links, err := netlink.LinkList()
		if err != nil {
			t.Fatal(err)
		}
		names := ""
		for _, l := range links {
			names += l.Attrs().Name + " "
		}
		dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "picot-doctor-*"))
		return fmt.Sprint(len(mounts) > 0, strings.Contains(string(mounts), "picot-doctor-"), strings.Contains(names, sandboxOurs), len(dirs))
	}
	if before := state(); before != "true false false 0" {
		t.Fatalf("before: %s", before)
	}
	steps := tryKernel(routes.DefaultOwner())
	if len(steps) != len(allSteps) {
		t.Errorf("%d steps, want %d", len(steps), len(allSteps))
	}
	for _, s := range steps {
		if s.Err != nil || s.Unmade || s.Note == "" {
			t.Errorf("%+v", s)
		}
	}
	if after := state(); after != "true false false 0" {
		t.Errorf("after: %s", after)
	}
}

// Without rights nothing is called well that was not tried.
func TestWithoutRightsNothingIsWell(t *testing.T) {
	testnet.RequireRoot(t)
	done := make(chan []Step)
	go onOwnThread(func() {
		dropCapabilities(t)
		done <- inSandbox(routes.DefaultOwner())
	})
	for _, s := range <-done {
		x := stepCheck(about{"kernel", ""}, &Host{}, s)
		if x.Outcome != Warn || !strings.Contains(x.Found, "could not be checked") || !strings.Contains(x.Mend, "root") {
			t.Errorf("%+v", x)
		}
	}
}

// dropCapabilities takes all of them from the calling thread, which ends.
func dropCapabilities(t *testing.T) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		t.Error(err)
	}
}

// What the kernel forbids fails where the capabilities are said to be there, and
// what needs it names it; else it could not be checked.
func TestForbiddenFailsUnlessCapabilitiesAreMissing(t *testing.T) {
	testnet.RequireRoot(t)
	done := make(chan []Step)
	go onOwnThread(func() {
		s := &sandbox{dir: t.TempDir(), owner: routes.DefaultOwner()}
		if err := leaveNamespaces(); err != nil {
			t.Error(err)
		}
		dropCapabilities(t) // as lockdown would, with EPERM for each
		s.run()
		s.close()
		done <- s.steps
	})
	for _, s := range <-done {
		there, missing := stepCheck(about{}, &Host{}, s), stepCheck(about{}, &Host{Capabilities: unix.EPERM}, s)
		first := map[string]string{stepSocket: stepVeth, stepWorkload: stepVeth, stepUplink: stepVeth, stepSlot: stepWorkload, stepFrame: stepSlot, stepManaged: stepVeth}[s.Name]
		switch {
		case first != "" && (there.Outcome != Warn || there.Mend != "mend "+first+" first"):
			t.Errorf("needs %s: %+v", first, there)
		case first == "" && (there.Outcome != Fail || !strings.Contains(there.Mend, "lockdown")):
			t.Errorf("with capabilities: %+v", there)
		case first == "" && (missing.Outcome != Warn || !strings.Contains(missing.Mend, "as root")):
			t.Errorf("without: %+v", missing)
		}
	}
}

// The kernel refuses a program with EACCES, too, and that is no want of rights.
func TestARefusedProgramFails(t *testing.T) {
	testnet.RequireRoot(t)
	_, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Return()}, // R0 was never set
	})
	if !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("the verifier says %v, want EACCES", err)
	}
	for _, h := range []*Host{{}, {Capabilities: errors.New("CAP_BPF missing")}} {
		x := stepCheck(about{"kernel", ""}, h, Step{Name: stepWorkload, Err: fmt.Errorf("attach: %w", err)})
		if x.Outcome != Fail || x.Mend != stepMends[stepWorkload] {
			t.Errorf("%+v", x)
		}
	}
}

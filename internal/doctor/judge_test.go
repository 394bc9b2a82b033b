package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/health"
	"picot.dev/picot/internal/routes"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/xsk/xdp"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// well is a node on which nothing is wrong: two uplinks, a port, an agent.
func well() (*Config, *Facts) {
	o := routes.DefaultOwner()
	c := &Config{Node: "node1", Uplinks: []string{"up0", "up1"}, BPFFS: "/sys/fs/bpf/picot", RunDir: "/run/picot", Owner: o, Workers: 1, MaxPorts: 16, CPUs: []int{1}, HugePages: true}
	f := &Facts{Devices: map[string]Device{}}
	f.Host = Host{
		Release: "6.18.0", Process: Process{PID: 1, LockAny: true, Files: 4096}, NeedFiles: 300, NeedLocked: 1 << 30, NeedMemory: 64 << 20, Available: 1 << 30,
		HugePages: 64, NeedHuge: 20, Seg6All: true, BPFFS: BPFFS{Mounted: true},
	}
	for _, name := range allSteps {
		f.Steps = append(f.Steps, Step{Name: name, Note: "fine"})
	}
	for i, name := range []string{"up0", "up1", "veth-a"} {
		f.Devices[name] = Device{
			Name: name, Exists: true, Index: i + 2, Kind: "veth", Driver: "veth", Up: true, Carrier: true, MTU: 1500, RXQueues: 1, Queues: 1, Seg6: true,
			Addresses: []Address{{Prefix: prefix("fe80::1/64")}},
			XDPKnown:  true, Native: true, Target: true, Tags: true, Features: map[string]bool{"rx-vlan-hw-parse": true},
			Programs: []Program{{ID: 7, Name: "picot_up_tag", Ours: true}}, uplink: i < 2,
		}
	}
	d := f.Devices["veth-a"]
	d.MTU = 1446
	f.Devices["veth-a"] = d
	s := desired.NewState()
	s.Networks["red"] = desired.Network{Name: "red", MTU: 1446, Prefixes: []netip.Prefix{prefix("10.0.0.0/24"), prefix("fd00:10::/64")}}
	s.Nodes["node1"] = desired.Node{Name: "node1", Locator: prefix("2001:db8:0:1::/64")}
	s.Nodes["node2"] = desired.Node{Name: "node2", Locator: prefix("2001:db8:0:2::/64")}
	key := desired.EndpointKey{Namespace: "default", Name: "a"}
	s.Endpoints[key] = desired.Endpoint{EndpointRef: desired.EndpointRef{EndpointKey: key}, Network: "red", Node: "node1", Interface: "veth-a"}
	f.Wanted = &Wanted{State: s}
	f.Routing = Routing{
		Rules: []routes.Rule{
			{Priority: 70, Protocol: o.Protocol, Mark: o.Mark, Not: true, Table: o.GuardTable},
			{Priority: 71, Protocol: o.Protocol, Mark: o.Mark, Table: o.Table},
			{Priority: 72, Protocol: o.Protocol, Mark: o.Mark, Table: unix.RT_TABLE_MAIN},
		},
		Routes: []routes.Route{
			{Table: o.GuardTable, Prefix: prefix("2001:db8:0:1::/64"), Protocol: o.Protocol, Unreachable: true},
			{Table: o.GuardTable, Prefix: prefix("2001:db8:0:2::/64"), Protocol: o.Protocol, Unreachable: true},
			{Table: o.Table, Prefix: prefix("2001:db8:0:1::/64"), Protocol: o.Protocol, Unreachable: true},
		},
		Ways: map[string]Way{"node2": {
			Target: netip.MustParseAddr("2001:db8:0:2:d20::"), Owner: unix.RTPROT_STATIC, Pinged: true, Size: 1500,
			Hops: []Hop{{Device: "up0", Gateway: netip.MustParseAddr("fe80::2"), MAC: "02:00:00:00:00:02", Usable: true}},
		}},
	}
	f.Agent = Agent{Runs: true, PID: 1, Build: "v1", SameBuild: true, Health: []health.Report{{Name: "loop", Live: true, Ready: true}}, Status: status.Status{
		Node: "node1", Ready: true, Locator: "2001:db8:0:1::/64",
		Ports: []status.Port{{Device: "veth-a", Sockets: []status.Socket{{}}}},
		Uplinks: []status.Uplink{
			{Device: "up0", Queues: 1, Sockets: []status.Socket{{}}}, {Device: "up1", Queues: 1, Sockets: []status.Socket{{}}},
		},
	}}
	return c, f
}

func TestAWellNodeHasNothingToMend(t *testing.T) {
	c, f := well()
	r := Judge(c, f)
	for _, x := range r.Checks {
		if x.Outcome == Fail || x.Outcome == Warn || x.Mend != "" {
			t.Errorf("%+v", x)
		}
		if x.Found == "" || x.Part == "" || x.Check == "" {
			t.Errorf("says nothing: %+v", x)
		}
	}
	if r.Failed+r.Warned != 0 || len(r.Checks) < 35 {
		t.Errorf("%d failed, %d warned, of %d checks", r.Failed, r.Warned, len(r.Checks))
	}
}

// onDevice changes one device of the facts.
func onDevice(name string, change func(*Device)) func(*Config, *Facts) {
	return func(_ *Config, f *Facts) {
		d := f.Devices[name]
		change(&d)
		f.Devices[name] = d
	}
}

func way(change func(*Way)) func(*Config, *Facts) {
	return func(_ *Config, f *Facts) {
		w := f.Routing.Ways["node2"]
		change(&w)
		f.Routing.Ways["node2"] = w
	}
}

func failStep(name string, err error) func(*Config, *Facts) {
	return func(_ *Config, f *Facts) {
		for i := range f.Steps {
			if f.Steps[i].Name == name {
				f.Steps[i].Err = err
			}
		}
	}
}

// alone is a node whose agent does not run.
func alone(f *Facts) {
	f.Agent = Agent{Err: errors.New("no agent answers")}
	f.Routing.Rules, f.Routing.Routes = nil, nil
}

// Each fault turns its own check, and none besides it.
func TestEachFaultTurnsItsCheck(t *testing.T) {
	for _, c := range []struct {
		name    string
		plant   func(*Config, *Facts)
		outcome Outcome
		check   string // part object/check
		found   string
		mend    string
	}{
		{"capabilities", func(_ *Config, f *Facts) { f.Host.Capabilities = errors.New("CAP_BPF missing") }, Fail, "kernel /capabilities", "CAP_BPF", "CAP_NET_ADMIN"},
		{"no BTF", func(_ *Config, f *Facts) { f.Host.BTF = errors.New("no file") }, Fail, "kernel /btf", "no file", "CONFIG_DEBUG_INFO_BTF"},
		{"no AF_XDP", failStep(stepSocket, unix.EAFNOSUPPORT), Fail, "kernel /af_xdp socket", "not supported", "CONFIG_XDP_SOCKETS"},
		{"no program", failStep(stepWorkload, fmt.Errorf("load XDP program: %w", unix.EINVAL)), Fail, "kernel /workload program", "invalid argument", "6.8"},
		{"lockdown", failStep(stepWorkload, fmt.Errorf("load XDP program: %w", unix.EPERM)), Fail, "kernel /workload program", "forbidden, with all capabilities", "lockdown"},
		{"no /tmp to try it in", func(_ *Config, f *Facts) { f.Steps[0].Err, f.Steps[0].Unmade = unix.EROFS, true }, Warn, "kernel /bpf pins", "could not be checked: read-only", "mend what the text says"},
		{"a step without what it needs", func(_ *Config, f *Facts) {
			f.Steps[5] = Step{Name: stepSlot, Err: fmt.Errorf("workload program: %w", unix.EPERM), Unmade: true, Needs: stepWorkload}
		}, Warn, "kernel /xskmap", "could not be checked: workload program", "mend workload program first"},
		{"no managed neighbours", failStep(stepManaged, errUnmanaged), Fail, "kernel /managed neighbours", "ignores NTF_EXT_MANAGED", "5.16"},
		{"not root", func(_ *Config, f *Facts) { f.Steps[3].Err, f.Steps[3].Unmade = unix.EPERM, true }, Warn, "kernel /workload program", "could not be checked", "as root"},
		{"no IPv6", func(_ *Config, f *Facts) { f.Host.IPv6 = "net.ipv6.conf.all.disable_ipv6 is 1" }, Fail, "kernel /ipv6", "disable_ipv6", "sysctl -w net.ipv6.conf.all.disable_ipv6=0"},
		{"seg6 off where a path passes", func(_ *Config, f *Facts) {
			f.Wanted.State.Nodes["node2"] = desired.Node{Name: "node2", Locator: prefix("2001:db8:0:2::/64"), Via: []netip.Addr{netip.MustParseAddr("2001:db8:ff::1")}}
			f.Wanted.State.Networks["red"] = desired.Network{Name: "red"}
			d := f.Devices["veth-a"]
			d.MTU = 1400
			f.Devices["veth-a"] = d
			f.Routing.Local, f.Host.Seg6All = []LocalAddress{{prefix("2001:db8:ff::1/128"), "lo"}}, false
		}, Fail, "kernel /seg6", "passes 2001:db8:ff::1", "sysctl -w net.ipv6.conf.all.seg6_enabled=1"},
		{"seg6 off on an uplink with dots", func(c *Config, f *Facts) {
			f.Wanted.State.Nodes["node2"] = desired.Node{Name: "node2", Locator: prefix("2001:db8:0:2::/64"), Via: []netip.Addr{netip.MustParseAddr("2001:db8:ff::1")}}
			delete(f.Wanted.State.Endpoints, desired.EndpointKey{Namespace: "default", Name: "a"})
			f.Routing.Local, f.Routing.Ways, f.Devices = []LocalAddress{{prefix("2001:db8:ff::1/128"), "lo"}}, nil, map[string]Device{"up0.5": f.Devices["up0"]}
			onDevice("up0.5", func(d *Device) { d.Name, d.Seg6 = "up0.5", false })(c, f)
			c.Uplinks, f.Agent.Status.Uplinks[0].Device = []string{"up0.5"}, "up0.5"
		}, Fail, "kernel /seg6", "net.ipv6.conf.up0/5.seg6_enabled is 0", "sysctl -w net.ipv6.conf.up0/5.seg6_enabled=1"},
		{"memlock", func(_ *Config, f *Facts) { f.Host.Process.LockAny, f.Host.Process.Memlock = false, 64<<10 }, Fail, "kernel /memlock", "RLIMIT_MEMLOCK 64 KiB (of the agent, process 1)", "LimitMEMLOCK=infinity"},
		{"open files", func(_ *Config, f *Facts) { f.Host.Process.Files = 256 }, Fail, "kernel /open files", "256 (of the agent, process 1)", "LimitNOFILE=300"},
		{"open files of this shell", func(_ *Config, f *Facts) { f.Host.Process = Process{LockAny: true, Files: 256} }, Fail, "kernel /open files", "256 (of this shell", "LimitNOFILE=300"},
		{"memlock of this shell", func(_ *Config, f *Facts) { f.Host.Process = Process{Files: 4096, Memlock: 64 << 10} }, Fail, "kernel /memlock", "64 KiB (of this shell", "LimitMEMLOCK=infinity"},
		{"memory", func(c *Config, f *Facts) { alone(f); c.HugePages, f.Host.Available = false, 1<<20 }, Fail, "kernel /memory", "1 MiB available", "--max-ports"},
		{"huge pages", func(_ *Config, f *Facts) { alone(f); f.Host.HugePages = 3 }, Warn, "kernel /huge pages", "3 free, 20 needed", "vm.nr_hugepages=20"},
		{"a CPU that is not there", func(_ *Config, f *Facts) { f.Host.CPUs = errors.New("binding a thread to CPU 900") }, Fail, "kernel /cpus", "900", "--cpus"},
		{"no bpffs", func(_ *Config, f *Facts) { f.Host.BPFFS.Mounted = false }, Warn, "place /sys/fs/bpf/picot/bpffs", "no bpffs", "mount -t bpf bpf /sys/fs/bpf"},
		{"a bpffs that would end", func(_ *Config, f *Facts) { f.Host.BPFFS = BPFFS{Err: xdp.ErrMountNamespace} }, Fail, "place /sys/fs/bpf/picot/bpffs", "mount namespace", "process 1"},
		{"run directory", func(_ *Config, f *Facts) { f.Host.RunDir = unix.EROFS }, Fail, "place /run/picot/run directory", "read-only", "--run-dir"},

		{"no such port", onDevice("veth-a", func(d *Device) { *d = Device{Name: d.Name} }), Fail, "device veth-a/exists", "no such device", "spec.interface"},
		{"uplink down", onDevice("up0", func(d *Device) { d.Up = false }), Fail, "device up0/up", "down", "ip link set dev up0 up"},
		{"no carrier", onDevice("up0", func(d *Device) { d.Carrier = false }), Fail, "device up0/up", "no carrier", "other end"},
		{"a VLAN device", onDevice("up0", func(d *Device) {
			d.Uplink = fmt.Errorf("VLAN device up0: %w: use its parent", routes.ErrUplink)
		}), Fail, "device up0/uplink", "VLAN device up0: not usable as an uplink", "use its parent"},
		{"IPv6 off on an uplink", onDevice("up0", func(d *Device) { d.NoIPv6 = true }), Fail, "device up0/source address", "disabled", "sysctl -w net.ipv6.conf.up0.disable_ipv6=0"},
		{"no address", onDevice("up0", func(d *Device) { d.Addresses = nil }), Fail, "device up0/source address", "no IPv6 address", "ip -6 addr add"},
		{"duplicate address", onDevice("up0", func(d *Device) { d.Addresses[0].Failed = true }), Fail, "device up0/source address", "duplicate", "address of its own"},
		{"tentative address", onDevice("up0", func(d *Device) { d.Addresses[0].Tentative = true }), Warn, "device up0/source address", "tentative", "again"},
		{"foreign program", onDevice("up0", func(d *Device) { d.Programs = []Program{{ID: 9, Name: "xdp_fw", By: "held by fw[12]"}} }), Fail, "device up0/xdp program", "XDP program 9 (xdp_fw)", "ip link set dev up0 xdp off"},
		{"foreign program in generic mode", onDevice("up0", func(d *Device) { d.Programs = []Program{{ID: 9, Mode: xdpAttachedSKB}} }), Fail, "device up0/xdp program", "XDP program 9", "ip link set dev up0 xdpgeneric off"},
		{"foreign program of a link", onDevice("up0", func(d *Device) { d.Programs = []Program{{ID: 9, Mode: xdpAttachedSKB, Link: 5}} }), Fail, "device up0/xdp program", "XDP program 9", "end its owner, or remove its link's pin (bpftool -f link show id 5 names it) (an agent"},
		{"generic only", onDevice("up0", func(d *Device) { d.Native, d.Kind, d.Driver, d.Features = false, "", "ancient", map[string]bool{} }), Fail, "device up0/xdp mode", "no native XDP", "--allow-generic-xdp"},
		{"too few veth queues", onDevice("veth-a", func(d *Device) {
			d.Native = false
			d.Kind, d.Features = "veth", map[string]bool{}
		}), Fail, "device veth-a/xdp mode", "more transmit queues", "numrxqueues"},
		{"queues the agent has not", onDevice("up0", func(d *Device) { d.Queues = 4 }), Fail, "device up0/queues", "4 receive queues, the agent has sockets on 1", "ethtool -L up0"},
		{"a port's queues", onDevice("veth-a", func(d *Device) { d.Queues = 2 }), Fail, "device veth-a/queues", "2 receive queues, the agent has sockets on 1", "ethtool -L veth-a rx 1"},
		{"whose program is not told", onDevice("up0", func(d *Device) { d.Programs, d.WhoseErr = []Program{{ID: 9}}, unix.EPERM }), Warn, "device up0/xdp program", "could not be checked", "as root"},
		{"whose program is not told, to root", onDevice("up0", func(d *Device) { d.Programs, d.WhoseErr = []Program{{ID: 9}}, unix.EIO }), Warn, "device up0/xdp program", "input/output error", "mend what the text says"},
		{"LRO", onDevice("up0", func(d *Device) { d.Features["rx-lro"] = true }), Warn, "device up0/receive merging", "rx-lro", "ethtool -K up0 lro off"},
		{"tags not told", onDevice("up0", func(d *Device) { d.Tags, d.Kind = false, "" }), Warn, "device up0/vlan tags", "takes tags out", "ethtool -K up0 rx-vlan-offload off"},
		{"peer without NAPI", onDevice("up0", func(d *Device) { d.Target = false }), Warn, "device up0/redirect target", "GRO off", "ethtool -K PEER gro on"},
		{"no sockets", func(_ *Config, f *Facts) { f.Agent.Status.Uplinks[0].Sockets = nil }, Fail, "device up0/af_xdp sockets", "none", "picot show status"},

		{"uplink MTU too small", func(_ *Config, f *Facts) {
			for _, n := range []string{"up0", "up1"} {
				d := f.Devices[n]
				d.MTU = 1499
				f.Devices[n] = d
			}
			d := f.Devices["veth-a"]
			d.MTU = 1400
			f.Devices["veth-a"] = d
			d = f.Devices["up1"]
			d.Exists = false // one uplink, one check
			f.Devices["up1"] = d
			f.Routing.Ways = nil
		}, Fail, "mtu up0/uplink", "1446 (mtu of network red) + 54 (14 Ethernet + 40 IPv6) = 1500", "ip link set dev up0 mtu 1500"},
		{"uplinks differ", onDevice("up1", func(d *Device) { d.MTU = 9000 }), Warn, "mtu /equal", "up0: 1500; up1: 9000", "mtu 9000"},
		{"pod MTU too large", onDevice("veth-a", func(d *Device) { d.MTU = 1500 }), Warn, "mtu veth-a/workload", "1500 + 54 = 1554", "ip link set dev veth-a mtu 1446"},

		{"duplicate locator", func(_ *Config, f *Facts) {
			f.Wanted.Problems = []Trouble{{Text: "SRv6Node node1: spec.locator: overlaps", Mend: "give each node a locator of its own", Object: desired.Ref{Kind: "SRv6Node", Name: "node2"}, Holder: desired.Ref{Kind: "SRv6Node", Name: "node1"}}}
		}, Fail, "locator node1/own", "overlaps", "locator of its own"},
		{"no node of ours", func(c *Config, f *Facts) { delete(f.Wanted.State.Nodes, "node1") }, Fail, "locator node1/own", "no SRv6Node node1", "add an SRv6Node node1"},
		{"server away", func(_ *Config, f *Facts) { f.Wanted.Err = errors.New("connection refused"); f.Routing.Ways = nil }, Fail, "locator node1/own", "refused", "--kubeconfig"},
		{"host in the locator", func(_ *Config, f *Facts) {
			f.Routing.Local = []LocalAddress{{prefix("::1/128"), "lo"}, {prefix("2001:db8:0:1::5/64"), "eth7"}}
		}, Fail, "locator node1/host address", "2001:db8:0:1::5/64 on eth7", "ip -6 addr del 2001:db8:0:1::5/64 dev eth7,"},
		{"bad object", func(_ *Config, f *Facts) {
			f.Wanted.Problems = []Trouble{{Text: "Network blue: spec.id: bad", Mend: "give another id", Object: desired.Ref{Kind: "Network", Name: "blue"}}}
		}, Warn, "locator Network blue/object", "spec.id", "another id"},
		{"table of another", func(c *Config, f *Facts) {
			f.Routing.Routes = append(f.Routing.Routes, routes.Route{Table: c.Owner.Table, Prefix: prefix("2001:db8::/32"), Protocol: unix.RTPROT_BIRD})
		}, Fail, "locator /tables", "of bird", "--route-table"},
		{"protocol of another", func(c *Config, f *Facts) {
			f.Routing.Routes = append(f.Routing.Routes, routes.Route{Table: unix.RT_TABLE_MAIN, Prefix: prefix("2001:db8::/32"), Protocol: c.Owner.Protocol})
		}, Fail, "locator /protocol", "main table", "--route-protocol"},
		{"a rule before", func(_ *Config, f *Facts) {
			f.Routing.Rules = append(f.Routing.Rules, routes.Rule{Priority: 5, Table: 100})
		}, Warn, "locator /rules", "rule 5 (table 100)", "--rule-priority"},
		{"no guard rule", func(_ *Config, f *Facts) { f.Routing.Rules = f.Routing.Rules[1:] }, Fail, "locator /guard", "rule 70 to table 28778", "ip monitor"},
		{"no guard route", func(_ *Config, f *Facts) { f.Routing.Routes = f.Routing.Routes[1:] }, Fail, "locator /guard", "unreachable 2001:db8:0:1::/64", "--refresh"},
		{"no route", way(func(w *Way) { *w = Way{Err: unix.ENETUNREACH} }), Fail, "locator node2/route", "unreachable", "ip -6 route add 2001:db8:0:2::/64"},
		{"a route elsewhere", way(func(w *Way) { w.Hops[0].Device = "eth9" }), Fail, "locator node2/route", "eth9, which is no uplink; made by a static route", "--uplink"},
		{"next hop silent", way(func(w *Way) { w.Hops[0].Usable = false }), Fail, "locator node2/next hop", "fe80::2 on up0", "ping -c 1 -I up0 fe80::2"},
		{"no echo", way(func(w *Way) { w.PingErr = errSilent }), Fail, "locator node2/echo", "does not answer: silence", "picot doctor on that node"},

		{"echo filtered", way(func(w *Way) { w.PingErr = unix.EPERM }), Fail, "locator node2/echo", "operation not permitted", "filters"},
		{"long packets vanish", way(func(w *Way) { w.SizeErr = errSilent }), Fail, "locator node2/packet size", "1500 bytes are not", "raise the MTU"},
		{"half an ECMP set", way(func(w *Way) {
			w.Hops = append(w.Hops, Hop{Device: "eth9", Gateway: netip.MustParseAddr("fe80::3"), Usable: true})
		}), Warn, "locator node2/ecmp", "fe80::3 dev eth9", "--uplink"},
		{"a lowered path MTU", func(_ *Config, f *Facts) { f.Agent.Status.Nodes = []status.Node{{Node: "node2", PathMTU: 1400}} }, Warn, "mtu node2/path", "1400", "raise the MTU"},
		{"another locator", func(_ *Config, f *Facts) {
			f.Agent.Status.Locator = "2001:db8:0:9::/64"
			f.Routing.Routes = append(f.Routing.Routes, routes.Route{Table: 28777, Prefix: prefix("2001:db8:0:9::/64"), Protocol: 112, Unreachable: true})
		}, Fail, "locator node1/own", "the agent uses 2001:db8:0:9::/64", "--manifests"},
		{"no own unreachable", func(_ *Config, f *Facts) { f.Routing.Routes = f.Routing.Routes[:2] }, Fail, "locator /guard", "unreachable 2001:db8:0:1::/64 in table 28777", "--refresh"},
		{"not ready", func(_ *Config, f *Facts) {
			f.Agent.Status.Ready, f.Agent.Status.Waiting = false, []string{"uplink up0"}
		}, Fail, "agent /ready", "uplink up0", "picot show status"},
		{"another build", func(_ *Config, f *Facts) { f.Agent.SameBuild = false }, Warn, "agent /build", "another build: v1", "takes its place"},
		{"another node", func(_ *Config, f *Facts) { f.Agent.Status.Node = "node7" }, Fail, "agent /node", "node7", "--node-name"},
		{"a problem", func(_ *Config, f *Facts) { f.Agent.Status.Problems = []string{"a collision"} }, Warn, "agent /problem", "a collision", "picot show status"},
		{"a part hangs", func(_ *Config, f *Facts) { f.Agent.Health[0].Live, f.Agent.Health[0].Age = false, time.Minute }, Fail, "agent loop/health", "hangs since 1m0s", "anew"},
		{"a part complains", func(_ *Config, f *Facts) {
			f.Agent.Health[0].Ready, f.Agent.Health[0].Problems = false, []string{"broken"}
		}, Fail, "agent loop/health", "broken", "text"},
		{"leftovers", func(_ *Config, f *Facts) { f.Agent.Leftovers = []string{"pin of workload device x"} }, Warn, "agent /leftovers", "device x", "picot cleanup"},
		{"leftovers not told", func(_ *Config, f *Facts) { f.Agent.LeftErr = unix.EIO }, Warn, "agent /leftovers", "could not be checked: input/output error", "mend what the text says"},
		{"a build that cannot be seen", func(_ *Config, f *Facts) { f.Agent.Build = "" }, Warn, "agent /build", "not to be seen", "PID namespace"},
		{"an agent elsewhere", func(_ *Config, f *Facts) {
			alone(f)
			f.Agent.LeftErr = fmt.Errorf("%w: it holds the pins", ErrElsewhere)
		}, Warn, "agent /runs", "node1 runs, and does not answer at /run/picot", "--run-dir"},
		{"agent silent", func(_ *Config, f *Facts) { f.Agent.Err = errors.New("it takes the question and does not answer") }, Fail, "agent /answers", "does not answer", "anew"},

		{"no agent: uplink held", func(_ *Config, f *Facts) {
			alone(f)
			onDevice("up0", func(d *Device) { d.Held, d.HeldBy = []int{0}, "processes with AF_XDP sockets: x[3]" })(nil, f)
		}, Fail, "device up0/af_xdp sockets", "queue 0; processes with AF_XDP sockets: x[3]", "stop who has them"},
		{"no agent: who has the queues is not told", func(_ *Config, f *Facts) {
			alone(f)
			onDevice("up0", func(d *Device) { d.HeldErr = unix.ENOBUFS })(nil, f)
		}, Warn, "device up0/af_xdp sockets", "no buffer space", "mend what the text says"},
		{"no agent: who has the queues may not be asked", func(_ *Config, f *Facts) {
			alone(f)
			onDevice("up0", func(d *Device) { d.HeldErr = unix.EPERM })(nil, f)
		}, Warn, "device up0/af_xdp sockets", "could not be checked", "as root"},
		{"no agent: next hop not resolved", func(_ *Config, f *Facts) { alone(f); way(func(w *Way) { w.Hops[0].Usable = false })(nil, f) }, Warn, "locator node2/next hop", "not resolved", "ping -c 1"},
		{"no agent: port open to the host", func(_ *Config, f *Facts) {
			alone(f)
			onDevice("veth-a", func(d *Device) { d.Programs = nil })(nil, f)
		}, Warn, "device veth-a/up", "the host hears them", "ip link set dev veth-a down"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, facts := well()
			c.plant(config, facts)
			var turned []string
			for _, x := range Judge(config, facts).Checks {
				if x.Outcome == OK || x.Outcome == NotApplicable {
					continue
				}
				turned = append(turned, fmt.Sprintf("%s: %s: %s: %s => %s", x.Outcome, x.Part+" "+x.Object+"/"+x.Check, x.Object, x.Found, x.Mend))
				if x.Part+" "+x.Object+"/"+x.Check != c.check || x.Outcome != c.outcome || !strings.Contains(x.Found, c.found) || !strings.Contains(x.Mend, c.mend) || x.Mend == "" {
					// another uplink that does not exist belongs to its plant
					if !(x.Check == "exists" && x.Object == "up1") {
						t.Errorf("turned %+v", x)
					}
				}
			}
			if !slices.ContainsFunc(turned, func(s string) bool { return strings.Contains(s, c.check) }) {
				t.Errorf("%s did not turn; only %q", c.check, turned)
			}
		})
	}
}

// Without capabilities what is forbidden is not known; the queues of an agent
// elsewhere are not a stranger's.
func TestWhatCannotBeJudged(t *testing.T) {
	for _, c := range []struct {
		name  string
		plant func(*Config, *Facts)
		check string
		mend  string
	}{
		{"a step", failStep(stepWorkload, fmt.Errorf("load XDP program: %w", unix.EPERM)), "kernel /workload program", "as root"},
		{"leftovers", func(_ *Config, f *Facts) { f.Agent.LeftErr = errors.New("CAP_BPF missing") }, "agent /leftovers", "as root"},
		{"echo", way(func(w *Way) { w.PingErr = unix.EPERM }), "locator node2/echo", "as root"},
		{"sockets", func(_ *Config, f *Facts) {
			alone(f)
			f.Agent.LeftErr = ErrElsewhere
			onDevice("up0", func(d *Device) { d.Held = []int{0} })(nil, f)
		}, "device up0/af_xdp sockets", "--run-dir"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, facts := well()
			facts.Host.Capabilities = errors.New("CAP_BPF missing")
			c.plant(config, facts)
			for _, x := range Judge(config, facts).Checks {
				if x.Part+" "+x.Object+"/"+x.Check == c.check {
					if x.Outcome != Warn || !strings.Contains(x.Mend, c.mend) {
						t.Errorf("%+v", x)
					}
					return
				}
			}
			t.Errorf("no check %s", c.check)
		})
	}
}

// An IPv6 network needs an underlay that carries 1280 within; one of IPv4 alone
// takes what there is. Both families in one network need the larger.
func TestUplinkMTUByFamily(t *testing.T) {
	for _, n := range []struct {
		prefixes []netip.Prefix
		mtu      int
		want     Outcome
	}{
		{[]netip.Prefix{prefix("10.0.0.0/24")}, 1333, OK},
		{[]netip.Prefix{prefix("fd00:10::/64")}, 1333, Fail},
		{[]netip.Prefix{prefix("10.0.0.0/24"), prefix("fd00:10::/64")}, 1333, Fail},
		{[]netip.Prefix{prefix("fd00:10::/64")}, 1334, OK},
		{[]netip.Prefix{prefix("10.0.0.0/24"), prefix("fd00:10::/64")}, 1334, OK},
	} {
		c, f := well()
		f.Wanted.State.Networks["red"] = desired.Network{Name: "red", Prefixes: n.prefixes}
		d := f.Devices["up0"]
		head, text := widest(c, f.Wanted)
		if d.MTU = n.mtu; uplinkMTU(c, f, &d, head, text).Outcome != n.want {
			t.Errorf("%v over %d: %+v", n.prefixes, n.mtu, uplinkMTU(c, f, &d, head, text))
		}
	}
}

// The sum shown is the one that counts: with an SRH on the way it is larger.
func TestOverheadOfAPathWithSIDs(t *testing.T) {
	via := netip.MustParseAddr("2001:db8:ff::1")
	for n, want := range map[int]int{0: 54, 1: 54 + 40, 2: 54 + 56} {
		got, text := overhead(desired.Node{Locator: prefix("2001:db8:0:2::/64"), Via: slices.Repeat([]netip.Addr{via}, n)})
		if got != want {
			t.Errorf("%d SIDs: %d (%s), want %d", n, got, text, want)
		}
	}
}

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func kernelChecks(c *Config, f *Facts) []Check {
	a, h := about{"kernel", ""}, &f.Host
	out := []Check{a.ok("version", "Linux %s", h.Release)}
	if h.Capabilities != nil {
		out = append(out, a.fail("capabilities", "run the agent as root, or give it CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF (CAP_SYS_ADMIN where it mounts the bpffs)", "%v", h.Capabilities))
	} else {
		out = append(out, a.ok("capabilities", "CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF"))
	}
	if h.BTF != nil {
		out = append(out, a.fail("btf", "use a kernel with CONFIG_DEBUG_INFO_BTF=y", "%v: the program that reads VLAN tags cannot be loaded", h.BTF))
	} else {
		out = append(out, a.ok("btf", "the kernel's types are there"))
	}
	for _, s := range f.Steps {
		out = append(out, stepCheck(a, h, s))
	}
	if h.IPv6 != "" {
		out = append(out, a.fail("ipv6", "boot without ipv6.disable=1, and: sysctl -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0", "%s: the underlay is IPv6", h.IPv6))
	} else {
		out = append(out, a.ok("ipv6", "on"))
	}
	out = append(out, seg6Check(a, f), memlockCheck(a, c, h), filesCheck(a, c, h), memoryCheck(a, c, f))
	if !c.HugePages {
		out = append(out, a.none("huge pages", "not asked for"))
	} else if f.Agent.Runs {
		out = append(out, a.none("huge pages", "an agent runs, and has taken what it takes"))
	} else if h.HugePages < h.NeedHuge {
		out = append(out, a.warn("huge pages", fmt.Sprintf("sysctl -w vm.nr_hugepages=%d, or start the agent without --huge-pages", h.NeedHuge),
			"%d free, %d needed: the agent takes normal pages", h.HugePages, h.NeedHuge))
	} else {
		out = append(out, a.ok("huge pages", "%d free, %d needed", h.HugePages, h.NeedHuge))
	}
	switch {
	case len(c.CPUs) == 0:
		out = append(out, a.none("cpus", "workers are not bound"))
	case h.CPUs != nil:
		out = append(out, a.fail("cpus", "name CPUs of /sys/devices/system/cpu/online that the process may use (taskset -p, cpuset) in --cpus", "%v", h.CPUs))
	default:
		out = append(out, a.ok("cpus", "a thread may be bound to each of %v", c.CPUs))
	}
	return out
}

// stepMends are by the step's name.
var stepMends = map[string]string{
	stepBPFFS:    "use a kernel with CONFIG_BPF_SYSCALL=y",
	stepVeth:     "use a kernel with CONFIG_VETH (modprobe veth)",
	stepSocket:   "use a kernel with CONFIG_XDP_SOCKETS=y",
	stepWorkload: "use a kernel >= 6.8 with CONFIG_BPF_JIT=y and CONFIG_DEBUG_INFO_BTF=y",
	stepUplink:   "use a kernel >= 6.8 with CONFIG_BPF_JIT=y and CONFIG_DEBUG_INFO_BTF=y",
	stepSlot:     "use a kernel with CONFIG_XDP_SOCKETS=y",
	stepFrame:    "look at the kernel's log (dmesg): program, map and socket are there, and yet no frame came",
	stepRules:    "use a kernel with CONFIG_IPV6_MULTIPLE_TABLES=y",
	stepManaged:  "use a kernel >= 5.16",
}

// stepCheck: what the kernel forbids says nothing of an agent with more rights, but
// all of one that has no more.
func stepCheck(a about, h *Host, s Step) Check {
	switch {
	case s.Needs != "":
		return a.warn(s.Name, "mend "+s.Needs+" first", unmadeFor, s.Err)
	case s.Unmade, isPermission(s.Err) && h.Capabilities != nil:
		return a.unmade(s.Name, s.Err)
	case isPermission(s.Err):
		return a.fail(s.Name, mendForbidden, "forbidden, with all capabilities that an agent needs: %v", s.Err)
	case s.Err != nil:
		return a.fail(s.Name, stepMends[s.Name], "%v", s.Err)
	}
	return a.ok(s.Name, "%s", s.Note)
}

// seg6Check: picot encapsulates and decapsulates itself. The kernel's own SRv6
// matters only where a path of some node passes an address of this host.
func seg6Check(a about, f *Facts) Check {
	if f.Wanted == nil {
		return a.none("seg6", "picot needs no SRv6 of the kernel's; whether a path (via) passes this host is not known without --manifests or --kubeconfig")
	}
	for _, n := range f.Wanted.State.Nodes {
		for _, via := range n.Via {
			if !slices.ContainsFunc(f.Routing.Local, func(x LocalAddress) bool { return x.Prefix.Addr() == via }) {
				continue
			}
			if !f.Host.Seg6All {
				return a.fail("seg6", "sysctl -w net.ipv6.conf.all.seg6_enabled=1", "the path to node %s passes %s of this host, and the kernel drops what has a segment list: net.ipv6.conf.all.seg6_enabled is 0", n.Name, via)
			}
			for name, d := range f.Devices {
				if d.Exists && !d.Seg6 && uplinkOf(f, name) {
					return a.fail("seg6", "sysctl -w "+deviceKnob(name, "seg6_enabled")+"=1", "the path to node %s passes %s of this host, and %s is 0", n.Name, via, deviceKnob(name, "seg6_enabled"))
				}
			}
			return a.ok("seg6", "the path to node %s passes %s of this host, and the kernel takes segment lists", n.Name, via)
		}
	}
	return a.none("seg6", "picot needs no SRv6 of the kernel's, and no node's path (via) passes this host")
}

// deviceKnob is an IPv6 setting of a device as sysctl(8) spells it: a dot within the
// name is a slash.
func deviceKnob(device, knob string) string {
	return "net.ipv6.conf." + strings.ReplaceAll(device, ".", "/") + "." + knob
}

func uplinkOf(f *Facts, name string) bool { return f.Devices[name].uplink }

func memlockCheck(a about, c *Config, h *Host) Check {
	p := &h.Process
	if p.LockAny {
		return a.ok("memlock", "CAP_IPC_LOCK (%s): no limit for the %s that the sockets of %d ports pin", p.whose(), size(h.NeedLocked), c.MaxPorts)
	}
	if p.Memlock != unix.RLIM_INFINITY && p.Memlock < h.NeedLocked {
		return a.fail("memlock", "give the agent CAP_IPC_LOCK or LimitMEMLOCK=infinity, or fewer --max-ports",
			"RLIMIT_MEMLOCK %s (%s); the sockets of %d ports pin up to %s", size(p.Memlock), p.whose(), c.MaxPorts, size(h.NeedLocked))
	}
	return a.ok("memlock", "RLIMIT_MEMLOCK (%s) suffices for the %s that the sockets of %d ports pin", p.whose(), size(h.NeedLocked), c.MaxPorts)
}

func filesCheck(a about, c *Config, h *Host) Check {
	p := &h.Process
	if p.Files < h.NeedFiles {
		return a.fail("open files", fmt.Sprintf("give the agent LimitNOFILE=%d (a shell: ulimit -n), or fewer --max-ports", h.NeedFiles),
			"RLIMIT_NOFILE %d (%s); %d ports need %d", p.Files, p.whose(), c.MaxPorts, h.NeedFiles)
	}
	return a.ok("open files", "RLIMIT_NOFILE %d (%s); %d ports need %d", p.Files, p.whose(), c.MaxPorts, h.NeedFiles)
}

func memoryCheck(a about, c *Config, f *Facts) Check {
	h := &f.Host
	if f.Agent.Runs {
		return a.none("memory", "an agent runs, and has its own")
	}
	if h.Available < h.NeedMemory && !(c.HugePages && h.HugePages >= h.NeedHuge) {
		return a.fail("memory", "give fewer --max-ports, or the node (the pod's limit, too) more memory",
			"%s available; %d ports take up to %s", size(h.Available), c.MaxPorts, size(h.NeedMemory))
	}
	return a.ok("memory", "%s available; %d ports take up to %s", size(h.Available), c.MaxPorts, size(h.NeedMemory))
}

func size(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

func placeChecks(c *Config, f *Facts) []Check {
	var out []Check
	a := about{"place", c.BPFFS}
	switch b := f.Host.BPFFS; {
	case b.Err != nil && isPermission(b.Err) && f.Host.Capabilities != nil:
		out = append(out, a.unmade("bpffs", b.Err))
	case b.Err != nil:
		out = append(out, a.fail("bpffs", "mount -t bpf bpf "+mountPoint(c.BPFFS)+", in the mount namespace of process 1, or name another place with --bpffs", "%v", b.Err))
	case !b.Mounted:
		out = append(out, a.warn("bpffs", "mount -t bpf bpf "+mountPoint(c.BPFFS), "no bpffs is mounted there: the agent mounts one, if it may (CAP_SYS_ADMIN)"))
	default:
		out = append(out, a.ok("bpffs", "mounted and writable"))
	}
	a = about{"place", c.RunDir}
	if f.Host.RunDir != nil && isPermission(f.Host.RunDir) && f.Host.Capabilities != nil {
		out = append(out, a.unmade("run directory", f.Host.RunDir))
	} else if f.Host.RunDir != nil {
		out = append(out, a.fail("run directory", "make it writable for the agent, or name another with --run-dir", "%v", f.Host.RunDir))
	} else {
		out = append(out, a.ok("run directory", "writable"))
	}
	return out
}

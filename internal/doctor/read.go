package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/internal/routes"
	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xdp"
)

// Read finds the facts out. What cannot be read is in them as an error. Without
// Uplinks the running agent's are taken, and set in c.
func Read(ctx context.Context, c *Config) *Facts { return read(ctx, c, tryKernel) }

func read(ctx context.Context, c *Config, try func(routes.Owner) []Step) *Facts {
	f := &Facts{Devices: map[string]Device{}}
	f.Agent = readAgent(ctx, c)
	if len(c.Uplinks) == 0 {
		for _, u := range f.Agent.Status.Uplinks {
			c.Uplinks = append(c.Uplinks, u.Device)
		}
	}
	f.Steps = try(c.Owner)
	f.Wanted = readWanted(ctx, c)
	for _, name := range c.Uplinks {
		f.Devices[name] = readDevice(c, f, name, true)
	}
	for _, name := range workloads(c, f) {
		if slices.Contains(c.Uplinks, name) {
			continue
		}
		f.Devices[name] = readDevice(c, f, name, false)
	}
	f.Host = readHost(c, f)
	f.Routing = readRouting(ctx, c, f)
	readLeftovers(c, &f.Agent)
	return f
}

// workloads are the devices of the ports: the given ones, else what the agent and
// the endpoints of this node name.
func workloads(c *Config, f *Facts) []string {
	names := slices.Clone(c.Workloads)
	if len(names) == 0 {
		for _, p := range f.Agent.Status.Ports {
			names = append(names, p.Device)
		}
		if f.Wanted != nil {
			for _, e := range f.Wanted.State.Endpoints {
				if e.Node == c.Node && e.Interface != "" {
					names = append(names, e.Interface)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// perPort are the descriptors of a port's queue: socket, link, program, two maps.
const perPort = 5

// otherFiles leaves room for what else an agent has open.
const otherFiles = 128

// perChunk is about what the kernel keeps for each chunk a socket registers.
const perChunk = 128

func readHost(c *Config, f *Facts) Host {
	h := Host{Release: release(), IPv6: noIPv6()}
	if c.Own.Capabilities != nil {
		h.Capabilities = c.Own.Capabilities()
	}
	h.Process = readProcess(f.Agent.PID)
	var queues []int
	total := 0
	for _, u := range c.Uplinks {
		queues = append(queues, max(1, f.Devices[u].RXQueues))
		total += max(1, f.Devices[u].RXQueues)
	}
	o, err := fastpath.Config{Workers: c.Workers, CPUs: c.CPUs, MaxPorts: c.MaxPorts, UplinkQueues: queues, HugePages: c.HugePages, NUMANode: -1}.MemoryOptions()
	if err == nil {
		shard := uint64(o.ChunksPerShard) * xsk.ChunkSize
		whole := uint64(o.Shards) * shard
		h.NeedLocked = uint64(c.MaxPorts)*shard + uint64(total)*whole
		h.NeedMemory = whole + (uint64(c.MaxPorts)*uint64(o.ChunksPerShard)+uint64(total)*whole/xsk.ChunkSize)*perChunk
		h.NeedHuge = (whole + 2<<20 - 1) >> 21
	}
	h.NeedFiles = uint64(c.MaxPorts*perPort + total*perPort + otherFiles)
	h.Available, h.HugePages = memory()
	if c.Own.CPUs != nil && len(c.CPUs) > 0 {
		h.CPUs = c.Own.CPUs(c.CPUs)
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		h.BTF = err
	}
	h.Seg6All = knob("net/ipv6/conf/all/seg6_enabled") == "1"
	h.BPFFS.Mounted, h.BPFFS.Err = xdp.LookBPFFS(c.BPFFS)
	h.RunDir = tryRunDir(c)
	return h
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "of a release that is not told"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// memory reads /proc/meminfo: available bytes, free huge pages of 2 MiB.
func memory() (available, huge uint64) {
	m, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	defer m.Close()
	for s := bufio.NewScanner(m); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) > 1 && fields[0] == "MemAvailable:" {
			n, _ := strconv.ParseUint(fields[1], 10, 64)
			available = n << 10
		}
	}
	text, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	if err == nil {
		huge, _ = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	}
	return available, huge
}

// knob reads a setting of the calling thread's network namespace.
func knob(path string) string {
	text, err := os.ReadFile("/proc/sys/" + path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func noIPv6() string {
	switch knob("net/ipv6/conf/all/disable_ipv6") {
	case "":
		return "the kernel has no IPv6"
	case "1":
		return "net.ipv6.conf.all.disable_ipv6 is 1"
	}
	return ""
}

// tryRunDir has the agent's own probe look at the directory; one that is not there
// yet must be one that can be made.
func tryRunDir(c *Config) error {
	if _, err := os.Stat(c.RunDir); errors.Is(err, fs.ErrNotExist) {
		parent := nearest(c.RunDir)
		if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("%s is not there and cannot be made in %s: %w", c.RunDir, parent, err)
		}
		return nil
	}
	if c.Own.RunDir == nil {
		return unix.Access(c.RunDir, unix.W_OK|unix.X_OK)
	}
	return c.Own.RunDir(c.RunDir)
}

// nearest is path, or the nearest directory above it that is there.
func nearest(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// mountPoint is where a bpffs is mounted for pins in dir.
func mountPoint(dir string) string {
	if dir == "/sys/fs/bpf" || strings.HasPrefix(dir, "/sys/fs/bpf/") {
		return "/sys/fs/bpf"
	}
	return dir
}

package doctor

import (
	"errors"
	"net/netip"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/health"
	"picot.dev/picot/internal/routes"
	"picot.dev/picot/internal/status"
)

// Config is what an operator says of the agent.
type Config struct {
	Node         string
	Uplinks      []string // device names
	Workloads    []string // empty: the running agent's, and those the endpoints name
	Manifests    string   // directory; or
	Kubeconfig   string   // file; or
	InCluster    bool     // the pod's service account; or none: no locators are known
	BPFFS        string
	RunDir       string
	Owner        routes.Owner
	Function     uint16 // of the SIDs
	Workers      int
	CPUs         []int
	MaxPorts     int
	AllowGeneric bool
	HugePages    bool
	Ping         Ping
	Own          Own
}

// Ping says whether echo requests are sent.
type Ping uint8

// The choices: PingAuto pings when an agent runs.
const (
	PingAuto Ping = iota
	PingAlways
	PingNever
)

// Own are the agent's own probes. A nil one is not made.
type Own struct {
	Capabilities func() error
	CPUs         func([]int) error
	RunDir       func(dir string) error
	// Leftovers lists what a cleanup would remove while no agent runs; one that runs
	// is an [ErrElsewhere].
	Leftovers func(say func(string)) error
}

// ErrElsewhere says that an agent of this node runs, whatever the run directory says.
var ErrElsewhere = errors.New("an agent runs, with another run directory")

// PinDir is where the node's pins are.
func (c *Config) PinDir() string { return c.BPFFS + "/" + c.Node }

// Facts is what was found. Errors are facts, too.
type Facts struct {
	Host    Host
	Steps   []Step // of the sandbox
	Devices map[string]Device
	Wanted  *Wanted // nil: no source was given
	Routing Routing
	Agent   Agent
}

// Host is what the node offers.
type Host struct {
	Release      string
	Capabilities error
	Process      Process
	NeedLocked   uint64 // what the agent's sockets pin at most, each registration counted
	NeedMemory   uint64 // frames and the kernel's part for each socket
	NeedFiles    uint64
	Available    uint64 // memory
	HugePages    uint64 // free, of 2 MiB
	NeedHuge     uint64
	CPUs         error
	BTF          error
	IPv6         string // why there is none; empty: there is
	Seg6All      bool
	BPFFS        BPFFS
	RunDir       error
}

// BPFFS is what is at --bpffs.
type BPFFS struct {
	Mounted bool
	Err     error // why the agent could not make its pins there
}

// Step is one thing tried in a namespace of its own.
type Step struct {
	Name string
	Err  error
	// Unmade: it was not tried, for Err.
	Unmade bool
	Needs  string // the step that failed, and without which it was not tried
	Note   string
}

// Device is an interface as the kernel describes it.
type Device struct {
	Name      string
	Exists    bool
	Err       error // of reading it
	Index     int
	Kind      string // veth, ...; empty: physical
	Driver    string
	Up        bool
	Carrier   bool
	MTU       int
	RXQueues  int // it could have
	Queues    int // in use, 0: not known
	Uplink    error
	NoIPv6    bool // disable_ipv6
	Seg6      bool
	Addresses []Address

	XDPKnown bool // the kernel tells of native XDP (since 6.3)
	Native   bool
	ZeroCopy bool
	Target   bool // takes what XDP programs redirect to it
	Tags     bool // tells XDP programs of offloaded VLAN tags
	Features map[string]bool

	Programs []Program
	WhoseErr error // whose they are could not be told
	Generic  bool  // the program on it runs in generic mode
	Held     []int // queues that another AF_XDP socket has
	HeldBy   string
	HeldErr  error // it could not be told

	uplink bool
}

// Address is an IPv6 address of a device.
type Address struct {
	Prefix    netip.Prefix
	Failed    bool // duplicate
	Tentative bool
}

// Program is an XDP program on a device.
type Program struct {
	ID   uint32
	Name string
	Ours bool   // pinned where this node's agent pins
	By   string // who holds it, as far as the kernel says
	Mode uint8  // XDP_ATTACHED_* of linux/if_link.h
	Link uint32 // id of the bpf_link that has it there; 0: none, it was set by netlink
}

// Wanted is what the manifests or the API ask for.
type Wanted struct {
	Err      error // it could not be read at all
	State    desired.State
	Problems []Trouble
}

// Trouble is an object that is not taken as it is.
type Trouble struct {
	Text, Mend string
	Object     desired.Ref
	Holder     desired.Ref
}

// Routing is what of the kernel's IPv6 routing matters.
type Routing struct {
	Err    error
	Rules  []routes.Rule
	Routes []routes.Route // of main and our two tables
	Ways   map[string]Way // by node
	Local  []LocalAddress // of this node
}

// LocalAddress is an IPv6 address of this node, with its length, and where it is.
type LocalAddress struct {
	Prefix netip.Prefix
	Device string
}

// Way is how another node's locator is reached.
type Way struct {
	Target  netip.Addr
	Err     error // no route
	Hops    []Hop
	Owner   uint8 // protocol of the route
	Pinged  bool
	PingErr error
	// Size is of the longest IPv6 packet that was sent there; 0: none.
	Size    int
	SizeErr error
}

// Hop is a next hop.
type Hop struct {
	Device  string
	Gateway netip.Addr
	MAC     string
	Usable  bool
	MTU     int
}

// Agent is what the running agent says.
type Agent struct {
	Runs      bool
	Denied    bool  // whether it does, may not be asked
	Err       error // none answers, or not as it should
	PID       int
	Build     string
	SameBuild bool
	Status    status.Status
	Health    []health.Report
	Leftovers []string // what it does not use, or of an agent that is no more
	LeftErr   error
}

// elsewhere: one runs, and does not answer at the run directory.
func (g *Agent) elsewhere() bool { return !g.Runs && errors.Is(g.LeftErr, ErrElsewhere) }

package lab

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
)

// nodePrefix begins the names of a node's files in the lab's directory.
const nodePrefix = "node-"

// UplinkDevice is every node's uplink.
const UplinkDevice = "up0"

// NodeOptions describe a node.
type NodeOptions struct {
	Name    string   // default: node<N>
	Locator string   // default: 2001:db8:0:<N>::/64
	Workers int      // of the agent; default 1
	Queues  int      // of the uplink, both ends, rx and tx; default 1
	MTU     int      // of the uplink, both ends; default 1500
	Args    []string // more arguments of the agent
	Spec    string   // YAML of more fields of its SRv6Node's spec
	// Kubeconfig of the agent, if the lab has an API server; default: the lab's.
	Kubeconfig string
	// NoAgent makes a plain Linux node, forwarding and with SRv6 enabled, whose
	// locator the others know. Start refuses it.
	NoAgent bool
}

// Node is a node: a namespace with an uplink and, once started, an agent.
type Node struct {
	Name     string
	Locator  netip.Prefix
	Address  netip.Addr // of the uplink
	Router   netip.Addr // Routed: the router's address on this node's link
	RouterIf string     // the uplink's other end, in the underlay namespace

	lab     *Lab
	options NodeOptions
	netns   string
	process *process
}

// AddNode makes a node and joins it to the underlay, with everything the others
// need to reach it. Its agent is not started.
func (l *Lab) AddNode(o NodeOptions) (*Node, error) {
	number := len(l.nodes) + 1
	o.Name = cmp.Or(o.Name, fmt.Sprintf("node%d", number))
	o.Locator = cmp.Or(o.Locator, fmt.Sprintf("2001:db8:0:%x::/64", number))
	o.Queues, o.MTU, o.Workers = max(o.Queues, 1), cmp.Or(o.MTU, 1500), max(o.Workers, 1)
	locator, err := netip.ParsePrefix(o.Locator)
	if err != nil {
		return nil, fmt.Errorf("node %s: locator: %w", o.Name, err)
	}
	n := &Node{
		Name: o.Name, Locator: locator, RouterIf: fmt.Sprintf("r%d", number),
		lab: l, options: o, netns: l.tag + "-" + o.Name,
	}
	l.nodes = append(l.nodes, n)
	l.logf("node %s: netns %s, locator %s", n.Name, n.netns, n.Locator)
	if err := n.build(number); err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Name, err)
	}
	return n, nil
}

func (n *Node) build(number int) error {
	l, o := n.lab, n.options
	if err := l.addNetns(n.netns); err != nil {
		return err
	}
	side := fmt.Sprintf("mtu %d numtxqueues %d numrxqueues %d", o.MTU, o.Queues, o.Queues)
	if err := l.ip(n.netns, fmt.Sprintf("link add %s %s type veth peer name %s netns %s %s",
		UplinkDevice, side, n.RouterIf, l.underlayNS(), side)); err != nil {
		return err
	}
	if o.NoAgent {
		if err := l.sysctl(n.netns, "net.ipv6.conf.all.forwarding=1", "net.ipv6.conf.all.seg6_enabled=1",
			"net.ipv6.conf."+UplinkDevice+".seg6_enabled=1"); err != nil {
			return err
		}
	}
	if l.objects != nil && !o.NoAgent {
		if err := n.relay(cmp.Or(o.Kubeconfig, l.config)); err != nil {
			return err
		}
	}
	spec := []string{fmt.Sprintf("locator: %q", n.Locator)}
	var err error
	if l.underlay == Shared {
		n.Address = netip.MustParseAddr(fmt.Sprintf("2001:db8:f::%x", number))
		spec = append(spec, fmt.Sprintf("nextHop: %q", n.Address))
		err = n.joinBridge()
	} else {
		n.Address = netip.MustParseAddr(fmt.Sprintf("2001:db8:f:%x::1", number))
		n.Router = netip.MustParseAddr(fmt.Sprintf("2001:db8:f:%x::ff", number))
		err = n.joinRouter()
	}
	if err != nil {
		return err
	}
	return l.WriteManifest("node-"+n.Name, object("SRv6Node", n.Name, "", append(spec, lines(o.Spec)...)))
}

func (n *Node) joinBridge() error {
	l := n.lab
	if err := l.ip(l.underlayNS(), fmt.Sprintf("link set %s master br0 up", n.RouterIf)); err != nil {
		return err
	}
	if err := l.ip(n.netns, fmt.Sprintf("addr add %s/64 dev %s nodad", n.Address, UplinkDevice), "link set "+UplinkDevice+" up"); err != nil {
		return err
	}
	// The agents make their own routes; plain nodes need ours.
	for _, m := range l.nodes {
		for _, way := range [][2]*Node{{n, m}, {m, n}} {
			if from, to := way[0], way[1]; from != to && from.options.NoAgent {
				if err := l.ip(from.netns, fmt.Sprintf("route replace %s via %s", to.Locator, to.Address)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (n *Node) joinRouter() error {
	l := n.lab
	if err := l.ip(l.underlayNS(), fmt.Sprintf("addr add %s/64 dev %s nodad", n.Router, n.RouterIf),
		"link set "+n.RouterIf+" up"); err != nil {
		return err
	}
	if err := l.ip(n.netns, fmt.Sprintf("addr add %s/64 dev %s nodad", n.Address, UplinkDevice), "link set "+UplinkDevice+" up",
		// The underlay itself: router and other nodes' links.
		fmt.Sprintf("route add 2001:db8:f::/48 via %s", n.Router)); err != nil {
		return err
	}
	if err := l.ip(l.underlayNS(), fmt.Sprintf("route add %s via %s", n.Locator, n.Address)); err != nil {
		return err
	}
	for _, m := range l.nodes {
		if m == n {
			continue
		}
		if err := l.ip(n.netns, fmt.Sprintf("route replace %s via %s", m.Locator, n.Router)); err != nil {
			return err
		}
		if err := l.ip(m.netns, fmt.Sprintf("route replace %s via %s", n.Locator, m.Router)); err != nil {
			return err
		}
	}
	return nil
}

// Netns is the path of the node's namespace.
func (n *Node) Netns() string { return netnsPath(n.netns) }

// RunDir is the agent's --run-dir.
func (n *Node) RunDir() string { return filepath.Join(n.lab.dir, nodePrefix+n.Name) }

// LogFile is where the agent's log goes, over all its lives.
func (n *Node) LogFile() string { return filepath.Join(n.lab.dir, nodePrefix+n.Name+".log") }

// Command prepares a command in the node's namespace; it ends with ctx and with
// the lab. It executes as the process started: its pid is the command's own.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return n.lab.inNetns(ctx, n.netns, name, args...)
}

// Run runs a command in the node's namespace and returns what it printed.
func (n *Node) Run(ctx context.Context, name string, args ...string) (string, error) {
	return run(n.Command(ctx, name, args...))
}

// DelDevice deletes a device in the node's namespace.
func (n *Node) DelDevice(ctx context.Context, device string) error {
	_, err := n.Run(ctx, "ip", "link", "delete", device)
	return err
}

package lab

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
)

// PodDevice is the device in every pod.
const PodDevice = "eth0"

// EndpointNamespace is the Kubernetes namespace of every pod's endpoint.
const EndpointNamespace = "default"

// PodOptions describe a pod.
type PodOptions struct {
	Name      string
	Node      *Node
	Network   string
	MAC       string   // empty: the kernel draws one, and the endpoint has none
	Addresses []string // of the endpoint and of the pod's device; /24 and /64 unless a length is given
	Segment   int
	MTU       int    // of both ends; default 1446
	Queues    int    // of both ends, rx and tx; default 1
	Interface string // the host's end; default: v-<name>
	Spec      string // YAML of more fields of its NetworkEndpoint's spec
	// NoEndpoint leaves the manifest out: a device nobody knows.
	NoEndpoint bool
	// DAD lets the pod detect duplicates of its IPv6 addresses, as RFC 4862 has it.
	DAD bool
}

// Pod is a pod: a namespace with one device. Offload settings are the kernel's.
type Pod struct {
	Name      string
	Node      *Node
	Device    string // the host's end
	MAC       string
	Addresses []netip.Addr

	lab     *Lab
	options PodOptions
	netns   string
}

// AddPod makes a pod and its endpoint. The host's end is left down, as a CNI
// plugin would: bringing it up is the agent's.
func (l *Lab) AddPod(o PodOptions) (*Pod, error) {
	o.Interface = cmp.Or(o.Interface, "v-"+o.Name)
	o.MTU, o.Queues = cmp.Or(o.MTU, 1446), max(o.Queues, 1)
	p := &Pod{Name: o.Name, Node: o.Node, Device: o.Interface, MAC: o.MAC, lab: l, options: o, netns: l.tag + "-" + o.Name}
	if len(o.Interface) > 15 {
		return nil, fmt.Errorf("pod %s: device name %s is longer than 15: give Interface", o.Name, o.Interface)
	}
	l.pods = append(l.pods, p)
	if err := p.build(); err != nil {
		return nil, fmt.Errorf("pod %s: %w", o.Name, err)
	}
	if o.NoEndpoint {
		return p, nil
	}
	return p, p.WriteEndpoint()
}

func (p *Pod) build() error {
	l, o := p.lab, p.options
	prefixes, err := p.parseAddresses()
	if err != nil {
		return err
	}
	if err := l.addNetns(p.netns); err != nil {
		return err
	}
	if o.DAD {
		if err := l.sysctl(p.netns, "net.ipv6.conf.all.accept_dad=1", "net.ipv6.conf.default.accept_dad=1"); err != nil {
			return err
		}
	}
	mac := ""
	if o.MAC != "" {
		mac = "address " + o.MAC
	}
	side := fmt.Sprintf("mtu %d numtxqueues %d numrxqueues %d", o.MTU, o.Queues, o.Queues)
	if err := l.ip(o.Node.netns, fmt.Sprintf("link add %s %s type veth peer name %s netns %s %s %s",
		o.Interface, side, PodDevice, p.netns, mac, side)); err != nil {
		return err
	}
	var up []string
	for _, a := range prefixes {
		nodad := ""
		if a.Addr().Is6() && !o.DAD {
			nodad = "nodad"
		}
		up = append(up, fmt.Sprintf("addr add %s dev %s %s", a, PodDevice, nodad))
	}
	return l.ip(p.netns, append(up, "link set "+PodDevice+" up")...)
}

func (p *Pod) parseAddresses() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, s := range p.options.Addresses {
		if !strings.Contains(s, "/") {
			if strings.Contains(s, ":") {
				s += "/64"
			} else {
				s += "/24"
			}
		}
		a, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
		p.Addresses = append(p.Addresses, a.Addr())
	}
	return all, nil
}

// WriteEndpoint writes the manifest endpoint-NAME of the pod's NetworkEndpoint.
func (p *Pod) WriteEndpoint() error {
	o := p.options
	spec := []string{"network: " + o.Network, "nodeName: " + o.Node.Name, "interface: " + o.Interface}
	if o.MAC != "" {
		spec = append(spec, fmt.Sprintf("mac: %q", o.MAC))
		var addresses []string
		for _, a := range p.Addresses {
			addresses = append(addresses, a.String())
		}
		spec = append(spec, "addresses: "+flow(addresses))
	}
	if o.Segment != 0 {
		spec = append(spec, fmt.Sprintf("segment: %d", o.Segment))
	}
	return p.lab.WriteManifest("endpoint-"+o.Name, object("NetworkEndpoint", o.Name, EndpointNamespace, append(spec, lines(o.Spec)...)))
}

// RemoveEndpoint removes the pod's manifest; the pod stays.
func (p *Pod) RemoveEndpoint() error { return p.lab.RemoveManifest("endpoint-" + p.Name) }

// DeletePod removes a pod as kubelet would: endpoint, processes, namespace; the
// device goes with it.
func (l *Lab) DeletePod(ctx context.Context, p *Pod) error {
	if err := p.RemoveEndpoint(); err != nil {
		return err
	}
	// The kernel removes a namespace's devices when it comes to it. The name is to
	// be free at once; the test may have deleted the device itself.
	_ = p.DelDevice(ctx)
	if err := removeNetns(ctx, []string{p.netns}); err != nil {
		return err
	}
	l.spaces = slices.DeleteFunc(l.spaces, func(s string) bool { return s == p.netns })
	l.pods = slices.DeleteFunc(l.pods, func(x *Pod) bool { return x == p })
	return nil
}

// DelDevice deletes the pod's device, both ends; endpoint and namespace stay.
func (p *Pod) DelDevice(ctx context.Context) error { return p.Node.DelDevice(ctx, p.Device) }

// Netns is the path of the pod's namespace.
func (p *Pod) Netns() string { return netnsPath(p.netns) }

// IP4 is the pod's first IPv4 address; invalid if it has none.
func (p *Pod) IP4() netip.Addr { return p.first(netip.Addr.Is4) }

// IP6 is the pod's first IPv6 address; invalid if it has none.
func (p *Pod) IP6() netip.Addr { return p.first(netip.Addr.Is6) }

func (p *Pod) first(is func(netip.Addr) bool) netip.Addr {
	if i := slices.IndexFunc(p.Addresses, is); i >= 0 {
		return p.Addresses[i]
	}
	return netip.Addr{}
}

// Command prepares a command in the pod; see [Node.Command].
func (p *Pod) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return p.lab.inNetns(ctx, p.netns, name, args...)
}

// Run runs a command in the pod and returns what it printed, errors included.
func (p *Pod) Run(ctx context.Context, name string, args ...string) (string, error) {
	return run(p.Command(ctx, name, args...))
}

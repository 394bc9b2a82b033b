package flows

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Mode says how picot shares the bridge with other writers of flows.
type Mode uint8

const (
	// Own: picot renders the whole ARP/NDP section. For labs and bridges picot alone manages.
	Own Mode = iota
	// Overlay: another program renders the bridge; picot adds its priority-52 flows and nothing else.
	Overlay
)

// String returns the mode as written in the configuration.
func (m Mode) String() string {
	if m == Overlay {
		return "overlay"
	}
	return "own"
}

// Role says which half of a node this is.
type Role uint8

const (
	// Full: an ordinary node, its host is the bridge's LOCAL port.
	Full Role = iota
	// DPU: the embedded side of a DPU; the host is reached by a representor. IPv4 only.
	DPU
	// DPUHost: the host side of a DPU. It has no bridge, so nothing is rendered.
	DPUHost
)

// PortLocal is the OpenFlow 1.0 number of a bridge's LOCAL port (OFPP_LOCAL).
const PortLocal uint32 = 0xfffe

// portMax is the highest number OpenFlow 1.0 gives an ordinary port (OFPP_MAX is 0xff00).
const portMax uint32 = 0xfeff

// Port is a port of the bridge. OFPort is 0 while the switch has not given it a number
// (the database then shows an empty set or -1).
type Port struct {
	Name   string
	OFPort uint32
}

// Known reports whether the switch has given the port a number.
func (p Port) Known() bool { return (p.OFPort > 0 && p.OFPort <= portMax) || p.OFPort == PortLocal }

// Patch is a gateway router's patch port to br-int.
type Patch struct {
	Port
	// Network is the network's name, for messages.
	Network string
	// Default marks the cluster default network.
	Default bool
	// Source marks the router that resolves neighbours for its group: at most one a bridge.
	Source bool
	// CTMark is the connection mark of the router's traffic; 0 renders no table-1 dispatch.
	CTMark uint32
}

// Input is what is known of one bridge.
type Input struct {
	// Bridge is its name, for messages.
	Bridge string
	// MAC is shared by the bridge and every gateway router behind it.
	MAC net.HardwareAddr
	// VLAN is the gateway's VLAN ID, 0 for none.
	VLAN uint16
	// Gate is disableUDNARPNDPFlood: steer to the source router instead of fanning out.
	Gate bool
	// Segmentation is whether user-defined networks are enabled; the gate needs it.
	Segmentation bool
	IPv4, IPv6   bool
	Mode         Mode
	Role         Role
	// Host is the port that leads to the host. Zero means LOCAL; a DPU sets its representor.
	Host Port
	// Uplink is the bridge's physical port.
	Uplink Port
	// Ingress lists the other ports external frames come in by: the patch ports of secondary
	// localnets. The uplink need not be repeated.
	Ingress []Port
	// Patches lists the gateway routers of this bridge, in any order.
	Patches []Patch
	// NodeIPs are the bridge's own addresses.
	NodeIPs []netip.Addr
}

// Errors of [Input.Validate].
var (
	ErrGateNeedsSegmentation = errors.New("disableUDNARPNDPFlood needs network segmentation: enable it or turn the gate off")
	ErrInvalid               = errors.New("invalid bridge")
)

// Validate refuses what no switch could carry. A port that has no number yet is no error.
func (in *Input) Validate() error {
	if in.Gate && !in.Segmentation {
		return fmt.Errorf("bridge %s: %w", in.Bridge, ErrGateNeedsSegmentation)
	}
	if in.Role == DPUHost {
		return nil
	}
	if len(in.MAC) != 6 || in.MAC[0]&1 != 0 || in.MAC.String() == "00:00:00:00:00:00" {
		return fmt.Errorf("bridge %s: %w: MAC %q is not a unicast Ethernet address", in.Bridge, ErrInvalid, in.MAC)
	}
	if in.VLAN > 4094 {
		return fmt.Errorf("bridge %s: %w: VLAN %d is above 4094", in.Bridge, ErrInvalid, in.VLAN)
	}
	sources := 0
	seen := map[uint32]string{}
	for _, p := range in.Patches {
		if p.Source {
			sources++
		}
		if !p.Known() {
			continue
		}
		if other, dup := seen[p.OFPort]; dup {
			return fmt.Errorf("bridge %s: %w: ports %s and %s have the same number %d", in.Bridge, ErrInvalid, other, p.Name, p.OFPort)
		}
		seen[p.OFPort] = p.Name
	}
	for _, p := range append([]Port{in.Uplink}, in.Ingress...) {
		if router, dup := seen[p.OFPort]; dup && p.Known() {
			return fmt.Errorf("bridge %s: %w: router port %s and ingress port %s have the same number %d", in.Bridge, ErrInvalid, router, p.Name, p.OFPort)
		}
	}
	if sources > 1 {
		return fmt.Errorf("bridge %s: %w: %d source routers, there can be one", in.Bridge, ErrInvalid, sources)
	}
	return nil
}

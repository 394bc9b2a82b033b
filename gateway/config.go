package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"picot.dev/picot/gateway/flows"
	"picot.dev/picot/gateway/ovsdb"
)

// StaticPolicy says when node addresses become NB rows.
type StaticPolicy uint8

const (
	// StaticAuto: static rows from OVN 25.03 on; before, northd's cost is quadratic in them, and
	// node addresses are mirrored like any other.
	StaticAuto StaticPolicy = iota
	// StaticAlways: static rows whatever the version.
	StaticAlways
	// StaticNever: node addresses are always mirrored.
	StaticNever
)

// Config is set once, at start. Zero values take the defaults named here.
type Config struct {
	// Node is the name of this node in OVN's names.
	Node string
	// DisableUDNARPNDPFlood is the gate. It needs NetworkSegmentation.
	DisableUDNARPNDPFlood, NetworkSegmentation bool
	Mode                                       flows.Mode
	Role                                       flows.Role

	OVS, NB, SB ovsdb.Remote
	// LeaderOnly: NB and SB are RAFT clusters, not databases of this node.
	LeaderOnly bool

	RunDir string // where vswitchd keeps <bridge>.mgmt; /var/run/openvswitch
	Ofctl  string // ovs-ofctl from the path

	// PhysicalNetwork is the default network's name in ovn-bridge-mappings; "physnet".
	PhysicalNetwork string
	// HostRepresentor is the DPU's port to its host.
	HostRepresentor string
	// VLAN of the gateway; negative: from the node's l3-gateway-config.
	VLAN       int
	IPv4, IPv6 bool
	// Masquerade are the subnets whose bindings belong to ovn-kubernetes.
	Masquerade []netip.Prefix
	Static     StaticPolicy
	// CTMark gives the connection mark of a network's traffic ("" is the default network), by which
	// own mode hands replies to its router; nil leaves that to who renders the rest of the bridge.
	CTMark func(network string) uint32

	Cooldown     time.Duration // between timestamp refreshes of a row; 150 s
	Sweep        time.Duration // between looks for due refreshes and retries; 10 s
	Audit        time.Duration // between readings of the followers' SB rows; 60 s
	AgeThreshold time.Duration // mac_binding_age_threshold to check against; 300 s
	Batch        int           // operations a transaction; 1000

	Log *slog.Logger // discarded if nil
}

// Defaults of the masquerade subnets: those of clusters without user-defined networks and with.
var defaultMasquerade = []netip.Prefix{
	netip.MustParsePrefix("169.254.169.0/29"), netip.MustParsePrefix("169.254.0.0/17"),
	netip.MustParsePrefix("fd69::/112"),
}

// Errors of Validate.
var (
	ErrSegmentation = flows.ErrGateNeedsSegmentation
	ErrCooldown     = errors.New("cooldown + sweep must be below the age threshold, or followers' bindings expire before they are refreshed")
	ErrConfig       = errors.New("bad gateway configuration")
)

// Validate fills in defaults and refuses what cannot work.
func (c *Config) Validate() error {
	c.defaults()
	if c.DisableUDNARPNDPFlood && !c.NetworkSegmentation {
		return ErrSegmentation
	}
	if c.Role == flows.DPUHost {
		return nil // nothing is opened and nothing installed
	}
	switch {
	case c.Node == "":
		return fmt.Errorf("%w: no node name", ErrConfig)
	case !c.IPv4 && !c.IPv6:
		return fmt.Errorf("%w: neither IPv4 nor IPv6", ErrConfig)
	case len(c.OVS.Endpoints) == 0:
		return fmt.Errorf("%w: no remote of the Open_vSwitch database", ErrConfig)
	case len(c.NB.Endpoints) == 0:
		return fmt.Errorf("%w: no remote of the OVN_Northbound database", ErrConfig)
	case c.DisableUDNARPNDPFlood && len(c.SB.Endpoints) == 0:
		return fmt.Errorf("%w: no remote of the OVN_Southbound database", ErrConfig)
	case c.VLAN > 4094:
		return fmt.Errorf("%w: VLAN %d", ErrConfig, c.VLAN)
	case c.Role == flows.DPU && c.HostRepresentor == "":
		return fmt.Errorf("%w: DPU mode needs the host representor's name", ErrConfig)
	case c.Cooldown+c.Sweep >= c.AgeThreshold:
		return fmt.Errorf("%w (cooldown %v, sweep %v, threshold %v)", ErrCooldown, c.Cooldown, c.Sweep, c.AgeThreshold)
	}
	return nil
}

func (c *Config) defaults() {
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{
		{&c.Cooldown, 150 * time.Second}, {&c.Sweep, 10 * time.Second},
		{&c.Audit, time.Minute}, {&c.AgeThreshold, 300 * time.Second},
	} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	if c.Batch <= 0 {
		c.Batch = 1000
	}
	if c.RunDir == "" {
		c.RunDir = "/var/run/openvswitch"
	}
	if c.PhysicalNetwork == "" {
		c.PhysicalNetwork = "physnet"
	}
	if c.Masquerade == nil {
		c.Masquerade = defaultMasquerade
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

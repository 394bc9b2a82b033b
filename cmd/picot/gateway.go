package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"picot.dev/picot/gateway"
	"picot.dev/picot/gateway/flows"
	"picot.dev/picot/gateway/ovsdb"
	"picot.dev/picot/internal/control"
)

// gatewayFlags are the gateway's settings as they are written on a command line.
type gatewayFlags struct {
	on                 bool
	mode, role, static string
	ovs, nb, sb        string
	files              ovsdb.Files
	masquerade         []string
	c                  gateway.Config
	set                *pflag.FlagSet
}

// The two settings that are named as in ovn-kubernetes.
const (
	flagGate         = "disable-udn-arp-ndp-flood"
	flagSegmentation = "enable-network-segmentation"
)

// addGatewayFlags adds the gateway's flags to a command.
func addGatewayFlags(cmd *cobra.Command) *gatewayFlags {
	g := &gatewayFlags{set: pflag.NewFlagSet("gateway", pflag.ContinueOnError)}
	f := g.set
	f.BoolVar(&g.c.DisableUDNARPNDPFlood, flagGate, false, "the gate: external ARP and NDP visit one gateway router a bridge, the others get copies of what it learns")
	f.BoolVar(&g.c.NetworkSegmentation, flagSegmentation, false, "user-defined networks are in use; the gate needs it")
	f.StringVar(&g.mode, "gateway-mode", "own", "own (render the ARP/NDP flows) or overlay (beside a stock ovn-kubernetes)")
	f.StringVar(&g.role, "gateway-role", "full", "full, dpu or dpu-host")
	f.StringVar(&g.ovs, "gateway-ovs-db", "unix:/var/run/openvswitch/db.sock", "`REMOTE` of the Open_vSwitch database: unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT, several with commas")
	f.StringVar(&g.nb, "gateway-nb-db", "unix:/var/run/ovn/ovnnb_db.sock", "`REMOTE` of the OVN_Northbound database")
	f.StringVar(&g.sb, "gateway-sb-db", "unix:/var/run/ovn/ovnsb_db.sock", "`REMOTE` of the OVN_Southbound database")
	f.StringVar(&g.files.CA, "gateway-ca", "", "PEM `FILE` of the CA that signed the databases' certificates")
	f.StringVar(&g.files.Certificate, "gateway-cert", "", "PEM `FILE` of our certificate for the databases")
	f.StringVar(&g.files.Key, "gateway-key", "", "PEM `FILE` of its key")
	f.StringVar(&g.files.ServerName, "gateway-server-name", "", "name the databases' certificates must carry (default: only their chain is verified)")
	f.BoolVar(&g.c.LeaderOnly, "gateway-leader-only", false, "northbound and southbound are RAFT clusters: talk to the leader")
	f.StringVar(&g.c.RunDir, "gateway-ovs-run-dir", "/var/run/openvswitch", "where ovs-vswitchd keeps its sockets")
	f.StringVar(&g.c.Ofctl, "gateway-ovs-ofctl", "", "the ovs-ofctl program (default: from $PATH)")
	f.StringVar(&g.c.PhysicalNetwork, "gateway-physical-network", "physnet", "the default network's name in ovn-bridge-mappings")
	f.StringVar(&g.c.HostRepresentor, "gateway-host-representor", "", "the DPU's port to its host")
	f.IntVar(&g.c.VLAN, "gateway-vlan", -1, "VLAN of the gateway; negative: as the node's l3-gateway-config says")
	f.BoolVar(&g.c.IPv4, "gateway-ipv4", true, "the cluster has IPv4")
	f.BoolVar(&g.c.IPv6, "gateway-ipv6", true, "the cluster has IPv6")
	f.StringSliceVar(&g.masquerade, "gateway-masquerade", nil, "`PREFIXES` whose bindings are ovn-kubernetes' (default: its own defaults)")
	f.StringVar(&g.static, "gateway-static", "auto", "when node addresses become northbound rows: auto (OVN 25.03 and later), always, never")
	f.DurationVar(&g.c.Cooldown, "gateway-cooldown", 150*time.Second, "between timestamp refreshes of a follower's row")
	f.DurationVar(&g.c.Sweep, "gateway-sweep", 10*time.Second, "between looks for due refreshes and retries")
	f.DurationVar(&g.c.Audit, "gateway-audit", time.Minute, "between readings of the followers' rows")
	f.DurationVar(&g.c.AgeThreshold, "gateway-age-threshold", 300*time.Second, "mac_binding_age_threshold; cooldown + sweep must be below it")
	f.IntVar(&g.c.Batch, "gateway-batch", 1000, "operations a transaction")
	cmd.Flags().AddFlagSet(f)
	return g
}

// addSwitch adds --gateway, for commands that do other things too.
func (g *gatewayFlags) addSwitch(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&g.on, "gateway", false, usage)
}

// errGatewayFlag is wrapped by the errors of config.
var errGatewayFlag = errors.New("bad gateway configuration")

// configIfOn is config, nil without --gateway; then no other flag of the gateway may be given.
func (g *gatewayFlags) configIfOn(node string) (*gateway.Config, error) {
	if g.on {
		return g.config(node)
	}
	var err error
	g.set.VisitAll(func(f *pflag.Flag) {
		if err == nil && f.Changed {
			err = fmt.Errorf("%w: --%s: give --gateway too, or leave it out", errGatewayFlag, f.Name)
		}
	})
	return nil, err
}

// config reads the flags; its errors name all that cannot be used.
func (g *gatewayFlags) config(node string) (*gateway.Config, error) {
	var errs []error
	bad := func(flags, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s: %s", errGatewayFlag, flags, fmt.Sprintf(format, args...)))
	}
	c := g.c
	c.Node = node
	pick(bad, "--gateway-mode", g.mode, &c.Mode, map[string]flows.Mode{"own": flows.Own, "overlay": flows.Overlay})
	pick(bad, "--gateway-role", g.role, &c.Role, map[string]flows.Role{"full": flows.Full, "dpu": flows.DPU, "dpu-host": flows.DPUHost})
	pick(bad, "--gateway-static", g.static, &c.Static, map[string]gateway.StaticPolicy{
		"auto": gateway.StaticAuto, "always": gateway.StaticAlways, "never": gateway.StaticNever})
	for _, db := range []struct {
		flag, text string
		to         *ovsdb.Remote
	}{{"--gateway-ovs-db", g.ovs, &c.OVS}, {"--gateway-nb-db", g.nb, &c.NB}, {"--gateway-sb-db", g.sb, &c.SB}} {
		r, err := ovsdb.ParseRemote(db.text, g.files)
		if err != nil {
			bad(db.flag, "%v", err)
		}
		*db.to = r
	}
	for _, text := range g.masquerade {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			bad("--gateway-masquerade", "%q is no prefix", text)
			continue
		}
		c.Masquerade = append(c.Masquerade, p.Masked())
	}
	for _, d := range []struct {
		flag string
		v    time.Duration
	}{{"--gateway-cooldown", c.Cooldown}, {"--gateway-sweep", c.Sweep}, {"--gateway-audit", c.Audit}, {"--gateway-age-threshold", c.AgeThreshold}} {
		if d.v <= 0 {
			bad(d.flag, "%v: give a time above 0", d.v)
		}
	}
	if c.Batch <= 0 {
		bad("--gateway-batch", "%d: give 1 or more", c.Batch)
	}
	if c.VLAN > 4094 {
		bad("--gateway-vlan", "%d: give 0 to 4094, or a negative number", c.VLAN)
	}
	if !c.IPv4 && !c.IPv6 {
		bad("--gateway-ipv4, --gateway-ipv6", "one of them must be on")
	}
	if c.Role == flows.DPU && c.HostRepresentor == "" {
		bad("--gateway-host-representor", "the role dpu needs it")
	}
	if c.DisableUDNARPNDPFlood && !c.NetworkSegmentation {
		bad("--"+flagGate, "it needs --%s", flagSegmentation)
	}
	if c.Cooldown+c.Sweep >= c.AgeThreshold {
		bad("--gateway-cooldown, --gateway-sweep", "%v", gateway.ErrCooldown)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &c, nil
}

// pick reads a word that stands for a value.
func pick[T any](bad func(flags, format string, args ...any), flag, word string, to *T, words map[string]T) {
	v, ok := words[word]
	if !ok {
		bad(flag, "%q: give %s", word, strings.Join(slices.Sorted(maps.Keys(words)), ", "))
	}
	*to = v
}

func gatewayCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "gateway", Short: "OVN gateway routers on this node"}
	cmd.AddCommand(gatewayFlowsCommand())
	return cmd
}

// explainTimeout bounds what is done without an agent.
const explainTimeout = 30 * time.Second

func gatewayFlowsCommand() *cobra.Command {
	var runDir, bridge, gate, node string
	cmd := &cobra.Command{
		Use:   "flows --bridge BRIDGE",
		Short: "Print the flows of a bridge as they would be installed",
		Long: `Print the flows of a bridge as they would be installed, with the gate as it is
configured or as --gate says. Nothing is installed.

The running agent is asked. If none answers, or --gateway-ovs-db is given, the
databases are read once.`,
		Args: cobra.NoArgs,
	}
	g := addGatewayFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&bridge, "bridge", "", "the bridge, such as br-ex")
	f.StringVar(&gate, "gate", "", "on or off (default: as configured)")
	f.StringVar(&runDir, "run-dir", "/run/picot", "the agent's --run-dir")
	f.StringVar(&node, "node-name", "", "name of this node in OVN (default: the host's name)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if bridge == "" {
			return errors.New("--bridge: name the bridge, such as br-ex")
		}
		if gate != "" && gate != "on" && gate != "off" {
			return fmt.Errorf("--gate %q: give on or off", gate)
		}
		ctx := cmd.Context()
		if !f.Changed("gateway-ovs-db") {
			query := url.Values{"bridge": {bridge}}
			if gate != "" {
				query.Set("gate", gate)
			}
			body, err := control.Get(ctx, runDir, "/gateway/flows?"+query.Encode())
			if err == nil {
				return printLines(cmd.OutOrStdout(), body)
			}
			if !errors.Is(err, control.ErrNoAgent) {
				return err
			}
		}
		name, err := nodeName(node)
		if err != nil {
			return err
		}
		c, err := g.config(name)
		if err != nil {
			return err
		}
		on := c.DisableUDNARPNDPFlood
		if gate != "" {
			on = gate == "on"
		}
		ctx, cancel := context.WithTimeout(ctx, explainTimeout)
		defer cancel()
		set, err := gateway.Explain(ctx, *c, bridge, on)
		if err != nil {
			return err
		}
		_, err = io.WriteString(cmd.OutOrStdout(), set.String())
		return err
	}
	return cmd
}

func printLines(w io.Writer, body []byte) error {
	var lines []string
	if err := json.Unmarshal(body, &lines); err != nil {
		return err
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	return nil
}

// printGateway prints the answer to /gateway; the status lays its own columns out.
func printGateway(w io.Writer, body []byte) error {
	var s gateway.Status
	if err := json.Unmarshal(body, &s); err != nil {
		return err
	}
	return s.Print(w)
}

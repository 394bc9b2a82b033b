package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"picot.dev/picot/gateway"
	"picot.dev/picot/internal/agent"
	"picot.dev/picot/internal/routes"
)

func cleanupCommand() *cobra.Command {
	c := agent.Config{Owner: routes.DefaultOwner()}
	var g *gatewayFlags
	dryRun := false
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything a stopped agent left",
		Long: `Remove everything the agent of this node left in this network namespace, and
nothing else: XDP programs and their pins, routes and rules, the managed flag of
neighbours, the control socket. Workload devices are set down first, so that
nothing of theirs reaches the host. With --gateway also its flows and static MAC
bindings. Give the settings the agent ran with.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verb := "removed"
			if dryRun {
				verb = "would remove"
			}
			name, err := nodeName(c.NodeName)
			if err != nil {
				return err
			}
			gw, err := g.configIfOn(name)
			if err != nil {
				return err
			}
			say := func(what string) { fmt.Fprintln(cmd.OutOrStdout(), verb, what) }
			err = agent.Cleanup(c, dryRun, say)
			if gw == nil || errors.Is(err, agent.ErrRuns) {
				return err
			}
			return errors.Join(err, cleanGateway(cmd.Context(), *gw, dryRun, say))
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list what would be removed")
	placeFlags(cmd, &c)
	g = addGatewayFlags(cmd)
	g.addSwitch(cmd, "also remove the gateway's flows and static rows")
	return cmd
}

// cleanGateway removes the gateway's flows and rows of this node.
func cleanGateway(ctx context.Context, c gateway.Config, dryRun bool, say func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	if !dryRun {
		if err := gateway.Cleanup(ctx, c); err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
	}
	say("gateway flows and static MAC bindings of node " + c.Node)
	return nil
}

// nodeName is the given name, or the host's.
func nodeName(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("--node-name: not given, and the host has no name: %w", err)
	}
	return strings.ToLower(name), nil
}

// placeFlags are the settings that say where an agent's things are.
func placeFlags(cmd *cobra.Command, c *agent.Config) {
	f := cmd.Flags()
	f.StringVar(&c.NodeName, "node-name", "", "name of this node's SRv6Node (default: the host's name)")
	f.StringVar(&c.BPFFS, "bpffs", "/sys/fs/bpf/picot", "directory for pins; the agent mounts a bpffs there if it is in none")
	f.StringVar(&c.RunDir, "run-dir", "/run/picot", "directory of the control socket")
	f.Uint32Var(&c.Owner.Mark, "mark", c.Owner.Mark, "fwmark of picot's own route look-ups")
	f.IntVar(&c.Owner.Table, "route-table", c.Owner.Table, "routing table for locator routes")
	f.IntVar(&c.Owner.GuardTable, "guard-table", c.Owner.GuardTable, "routing table that keeps others out of locators")
	f.Uint8Var(&c.Owner.Protocol, "route-protocol", c.Owner.Protocol, "routing protocol number our routes and rules carry")
	f.IntVar(&c.Owner.Priority, "rule-priority", c.Owner.Priority, "priority of the first of three ip rules")
}

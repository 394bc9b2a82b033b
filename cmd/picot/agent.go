package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/internal/agent"
	"picot.dev/picot/internal/routes"
)

func agentCommand() *cobra.Command {
	var c agent.Config
	c.Owner = routes.DefaultOwner()
	level := "info"
	var g *gatewayFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run this node's agent until SIGTERM",
		Long: `Run this node's agent, in the network namespace it is started in, until SIGTERM.

At its end the XDP programs stay attached with empty slots: the workload ports
are closed until an agent comes back. "picot cleanup" removes everything.`,
		Args: agentTakesNone,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var l slog.Level
			err := l.UnmarshalText([]byte(level))
			if err != nil {
				return fmt.Errorf("--log-level %q: give debug, info, warn or error", level)
			}
			c.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l}))
			if c.Gateway, err = g.configIfOn(c.NodeName); err != nil {
				return err
			}
			if c.Manifests != "" && !cmd.Flags().Changed("sweep-grace") {
				c.SweepGrace = 0 // a directory is never stale
			}
			c.InSync = collectEarly
			if err = agent.MakeRoom(c.Workers, c.CPUs); err != nil {
				return err
			}
			a, err := agent.New(c)
			if err != nil {
				return err
			}
			return a.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	placeFlags(cmd, &c)
	g = addGatewayFlags(cmd)
	g.addSwitch(cmd, "keep the neighbour bindings of this node's OVN gateway routers; see docs/gateway.md")
	f.StringSliceVar(&c.Uplinks, "uplink", nil, "devices toward the other nodes, `DEV[,DEV]`")
	f.StringVar(&c.Manifests, "manifests", "", "directory of the manifests that say what to carry")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the API server that says what to carry")
	f.BoolVar(&c.InCluster, "in-cluster", false, "ask the API server of the cluster this pod runs in")
	f.IntVar(&c.Workers, "workers", 1, "worker threads")
	f.IntSliceVar(&c.CPUs, "cpus", nil, "CPUs to bind the workers to, one each; the other threads keep off them (default: not bound)")
	f.IntVar(&c.MaxPorts, "max-ports", 256, "most workload ports; sizes the memory: 0.7 MiB each")
	f.StringVar(&c.MetricsAddr, "metrics-addr", "", "`ADDR:PORT` to serve Prometheus metrics on (default: none)")
	f.Uint16Var(&c.Function, "sid-function", srv6.DefaultFunction, "function part of this node's and the others' SIDs")
	f.BoolVar(&c.FixedSource, "fixed-source", false, "one outer source address, for underlays that filter sources")
	f.BoolVar(&c.AllowGeneric, "allow-generic-xdp", false, "run in generic mode where a device has no native XDP")
	f.BoolVar(&c.HugePages, "huge-pages", false, "take the frames' memory from huge pages if there are any")
	f.Uint32Var(&c.Limits.AnswerRate, "answer-rate", 1000, "ARP and ND answers a second and port")
	f.Uint32Var(&c.Limits.AnswerBurst, "answer-burst", 1000, "burst of answer-rate")
	f.Uint32Var(&c.Limits.ErrorRate, "icmp-error-rate", 100, "ICMP errors a second and port")
	f.Uint32Var(&c.Limits.ErrorBurst, "icmp-error-burst", 50, "burst of icmp-error-rate")
	learnFlags(f, &c.Learning)
	f.DurationVar(&c.Leases.Interval, "lease-interval", 10*time.Second, "between renewals of this node's Lease, the sign that its agent lives")
	f.DurationVar(&c.Leases.Stale, "lease-stale", 40*time.Second, "a node whose Lease is not renewed for this long is not alive: it is neither answered for nor defended")
	f.DurationVar(&c.Leases.Forget, "lease-forget", time.Hour, "... and for this long, its learned bindings are deleted")
	f.DurationVar(&c.Leases.Election, "election-lease", 15*time.Second, "how long the agent that judges for all is believed without a renewal")
	f.StringVar((*string)(&c.Takeover), "takeover", string(agent.TakeoverAuto), "take a living agent's place without losing a frame: auto (if it is of another build), always, never")
	f.DurationVar(&c.Refresh, "refresh", 30*time.Second, "mean time between looks at the kernel for what somebody took away: pins, slots, routes")
	f.DurationVar(&c.SweepGrace, "sweep-grace", time.Minute, "how long after the API server's first list a device that no endpoint names keeps its program: the list may be stale (default with --manifests: 0s)")
	f.Lookup("takeover").NoOptDefVal = string(agent.TakeoverAlways)
	f.StringVar(&level, "log-level", level, "debug, info, warn or error")
	return cmd
}

// agentTakesNone refuses arguments; one after --takeover was meant as its value.
func agentTakesNone(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.Flags().Changed("takeover"):
		return fmt.Errorf("%q is no argument of picot agent: write --takeover=auto, --takeover=always or --takeover=never, with the =; a bare --takeover means always", args[0])
	}
	return fmt.Errorf("%q: picot agent takes flags only, see picot agent --help", args[0])
}

// garbageMost is how much garbage, in percent of what lives, is left until the
// next collection: see docs/decisions/0058-garbage.md.
const garbageMost = 30

// listsAreGone is when nothing of the first lists is under way any more.
const listsAreGone = 20 * time.Second

// collectEarly has garbage collected early from now on, unless GOGC says when, and
// gives back once what the lists took.
func collectEarly() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbageMost)
	}
	time.Sleep(listsAreGone)
	debug.FreeOSMemory()
}

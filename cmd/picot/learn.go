package main

import (
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"picot.dev/picot/internal/agent"
	"picot.dev/picot/internal/control"
	"picot.dev/picot/learning"
)

// learnFlags adds the times and limits of learning.
func learnFlags(f *pflag.FlagSet, l *agent.Learning) {
	d := learning.Options{}.WithDefaults()
	for _, t := range []struct {
		name string
		v    *time.Duration
		is   time.Duration
		what string
	}{
		{"report", &l.ReReport, d.ReReport, "how often the data path repeats a claim it still sees"},
		{"short", &l.ShortSlot, 0, "the same for announcements and for claims that have not come true (default: 1s, at most learn-report)"},
		{"refresh", &l.Refresh, d.Refresh, "between two writes of a binding's lastObserved"},
		{"probe", &l.Probe, d.Probe, "silence after which a host is asked whether it lives"},
		{"probe-every", &l.ProbeEvery, 0, "between two such questions (default: a quarter of the time from learn-probe to learn-expiry)"},
		{"probe-quiet", &l.ProbeQuiet, d.ProbeQuiet, "no question from 0.0.0.0 after an ARP probe of that station"},
		{"expiry", &l.Expiry, d.Expiry, "silence after which a binding is deleted"},
		{"ask-timeout", &l.AskTimeout, d.AskTimeout, "for the data path to say when it last saw a claim, before a delete"},
		{"backoff-min", &l.BackoffMin, d.BackoffMin, "before the first repetition of a failed write"},
		{"backoff", &l.BackoffMax, d.BackoffMax, "the worst backoff of writes"},
		{"skew", &l.ClockSkew, d.ClockSkew, "of the nodes' clocks, as a margin"},
		{"move-window", &l.MoveWindow, d.MoveWindow, "in which moves are counted"},
		{"freeze", &l.Freeze, d.Freeze, "how long a binding that moved too often stays where it is"},
	} {
		f.DurationVar(t.v, "learn-"+t.name, t.is, t.what)
	}
	f.IntVar(&l.MaxMoves, "learn-moves", d.MaxMoves, "moves in learn-move-window; one more freezes the binding")
	f.Float64Var(&l.RefreshBudget, "learn-refresh-budget", d.RefreshBudget, "writes of lastObserved a second in the whole cluster")
	f.IntVar(&l.MaxMACs, "learn-macs", d.MaxMACs, "learned MACs behind one port")
	f.IntVar(&l.MaxAddresses, "learn-addresses", d.MaxAddresses, "learned addresses of one MAC")
	f.IntVar(&l.Observations, "learn-observations", 1000, "claims a second a port may report")
}

func fdbCommand() *cobra.Command {
	var runDir string
	cmd := &cobra.Command{Use: "fdb", Short: "Act on bindings", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.PersistentFlags().StringVar(&runDir, "run-dir", "/run/picot", "the agent's --run-dir")
	cmd.AddCommand(&cobra.Command{
		Use:   "clear NETWORK MAC|ADDRESS",
		Short: "Let a frozen binding of this node move again",
		Long: `Let a learned binding that this node manages move again, and count its moves anew.

A binding that moved more than five times within three minutes is frozen where it
is for nine: two stations have one address, or there is a loop.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{"network": {args[0]}, "key": {args[1]}}
			if _, err := control.Post(cmd.Context(), runDir, "/fdb/clear?"+query.Encode()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s may move again\n", args[0], args[1])
			return err
		},
	})
	return cmd
}

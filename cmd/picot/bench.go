package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"picot.dev/picot/bench"
)

// errGoalsMissed makes "picot bench --strict" fail.
var errGoalsMissed = errors.New("goals missed")

func benchCommand() *cobra.Command {
	c := bench.Config{Progress: func(s string) { fmt.Fprintln(os.Stderr, s) }}
	var list, asJSON, strict bool
	var out string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure picot beside its peers on this machine",
		Long: `Measure picot beside its peers on this machine, in network namespaces of its own.

Needs root and two CPUs, and a machine with nothing else to do. docs/benchmarks.md
says what each benchmark means.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				for _, b := range bench.List() {
					fmt.Fprintf(cmd.OutOrStdout(), "%-10s %s\n", b.Name, b.About)
				}
				return nil
			}
			var err error
			if c.Binary, err = os.Executable(); err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			report, err := bench.Run(cmd.Context(), c)
			if report != nil {
				if asJSON {
					e := json.NewEncoder(cmd.OutOrStdout())
					e.SetIndent("", "  ")
					err = errors.Join(err, e.Encode(report))
				} else {
					err = errors.Join(err, report.WriteText(cmd.OutOrStdout()))
				}
			}
			if err == nil && out != "" {
				err = report.WriteDir(out)
			}
			if err == nil && strict && report.Missed() > 0 {
				err = fmt.Errorf("%d %w", report.Missed(), errGoalsMissed)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.Only, "only", nil, "benchmarks to run, `NAME[,NAME]` (default: all)")
	f.IntVar(&c.Pairs, "pairs", 9, "pairs of runs a comparison takes")
	f.DurationVar(&c.Duration, "duration", 500*time.Millisecond, "duration of one run")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	f.BoolVar(&list, "list", false, "list the benchmarks")
	f.BoolVar(&strict, "strict", false, "fail if a goal is missed")
	f.StringVar(&out, "out", "", "also write the report and a plot per comparison into `DIR`")
	return cmd
}

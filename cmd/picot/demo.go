package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"picot.dev/picot/internal/demo"
	"picot.dev/picot/internal/lab"
)

// errDemo is the exit status of a demo whose checks did not all hold; they have
// been told already.
var errDemo = errors.New("not every check held")

func demoCommand() *cobra.Command {
	var keep, down, asJSON, verbose bool
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show it on this machine: two nodes, eight pods, two networks",
		Long: `Show it on this machine: two nodes with a router between them, two pods on each
in network red and two in network blue with the very same MACs and addresses, all
in network namespaces; two real agents; then pings, TCP and what must not arrive.

Everything is taken down at the end, also after Ctrl-C and after a failure.
The exit status says whether every check held. Needs root.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return fmt.Errorf("demo %w: run it as root", lab.ErrNotRoot)
			}
			if down {
				return demo.Down(cmd.Context(), cmd.OutOrStdout())
			}
			return runDemo(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), kubeconfig, keep, asJSON, verbose)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&keep, "keep", false, "leave the cluster up and say how to look inside")
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of an API server of this machine with picot's CRDs: the objects come from there (default: from manifests)")
	f.BoolVar(&down, "down", false, "take the clusters down that --keep left up")
	f.BoolVar(&asJSON, "json", false, "print one JSON object, and nothing else, on stdout")
	f.BoolVarP(&verbose, "verbose", "v", false, "say on stderr what is made")
	cmd.MarkFlagsMutuallyExclusive("down", "keep")
	// A kept lab outlives this process, which carries the way to the server.
	cmd.MarkFlagsMutuallyExclusive("keep", "kubeconfig")
	cmd.MarkFlagsMutuallyExclusive("down", "kubeconfig")
	cmd.MarkFlagsMutuallyExclusive("down", "json")
	return cmd
}

func runDemo(ctx context.Context, out, errOut io.Writer, kubeconfig string, keep, asJSON, verbose bool) error {
	o := demo.Options{Keep: keep, Kubeconfig: kubeconfig}
	if verbose {
		o.Log = errOut
	}
	hints := errOut
	if !asJSON {
		hints = out
		o.Tell = func(c demo.Check) { tell(out, c) }
		fmt.Fprintln(out, "two nodes, a router between them, eight pods in two networks, two agents")
	}
	r, kept, err := demo.Run(ctx, o)
	if err != nil {
		r.OK = false
		r.Checks = append(r.Checks, demo.Check{Name: "cluster", Detail: err.Error()})
	}
	if asJSON {
		if jerr := json.NewEncoder(out).Encode(r); jerr != nil {
			return errors.Join(err, jerr)
		}
	}
	if kept != nil {
		self, serr := os.Executable()
		if serr != nil {
			self = "picot"
		}
		fmt.Fprintln(hints)
		kept.Hints(hints, self)
	}
	if err == nil && !r.OK {
		err = errDemo
	}
	return err
}

// tell prints a row of the table: the rows come as the checks end.
func tell(w io.Writer, c demo.Check) {
	state := "ok"
	if !c.OK {
		state = "FAILED"
	}
	const width = 96
	for i, line := range wrap(c.Detail, width) {
		if i == 0 {
			fmt.Fprintf(w, "%-6s  %-24s  %s\n", state, c.Name, line)
		} else {
			fmt.Fprintf(w, "%-6s  %-24s  %s\n", "", "", line)
		}
	}
}

func wrap(s string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(s) {
		last := &lines[len(lines)-1]
		if *last != "" && len(*last)+1+len(word) > width {
			lines = append(lines, word)
		} else if *last == "" {
			*last = word
		} else {
			*last += " " + word
		}
	}
	return lines
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/internal/agent"
	"picot.dev/picot/internal/doctor"
	"picot.dev/picot/internal/routes"
)

func doctorCommand() *cobra.Command {
	place := agent.Config{Owner: routes.DefaultOwner()}
	var c doctor.Config
	output, ping, quiet := "table", false, false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything an agent of this node depends on",
		Long: `Check everything an agent of this node depends on, before or beside it, and say
how to mend what is wrong: kernel, limits, bpffs, devices, offloads, MTU, locators,
routes, next hops, and the running agent. Give the agent's flags; those that say nothing of
what is checked are ignored. It changes nothing.

The exit status is 0 if nothing fails, 1 otherwise; a warning is no failure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := completeDoctor(&c, place, output); err != nil {
				return err
			}
			if cmd.Flags().Changed("ping") {
				c.Ping = doctor.PingNever
				if ping {
					c.Ping = doctor.PingAlways
				}
			}
			facts := doctor.Read(cmd.Context(), &c)
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			report := doctor.Judge(&c, facts)
			if err := printReport(cmd.OutOrStdout(), report, output, quiet); err != nil {
				return err
			}
			if report.Failed > 0 {
				return fmt.Errorf("doctor: %d of %d checks fail", report.Failed, len(report.Checks))
			}
			return nil
		},
	}
	placeFlags(cmd, &place)
	f := cmd.Flags()
	f.StringSliceVar(&c.Uplinks, "uplink", nil, "the agent's uplinks, `DEV[,DEV]` (default: those of the running agent)")
	f.StringSliceVar(&c.Workloads, "workload", nil, "workload devices, `DEV[,DEV]` (default: the running agent's ports and what this node's endpoints name)")
	f.StringVar(&c.Manifests, "manifests", "", "the agent's directory of manifests, for locators, networks and other nodes")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "the same from the API server of this kubeconfig `FILE`")
	f.BoolVar(&c.InCluster, "in-cluster", false, "the same from the API server of the cluster this pod runs in")
	f.IntVar(&c.Workers, "workers", 1, "the agent's worker threads")
	f.IntSliceVar(&c.CPUs, "cpus", nil, "the CPUs its workers are bound to")
	f.IntVar(&c.MaxPorts, "max-ports", 256, "the agent's most workload ports")
	f.Uint16Var(&c.Function, "sid-function", srv6.DefaultFunction, "function part of the SIDs")
	f.BoolVar(&c.AllowGeneric, "allow-generic-xdp", false, "the agent may run in generic mode")
	f.BoolVar(&c.HugePages, "huge-pages", false, "the agent takes huge pages")
	f.BoolVar(&ping, "ping", false, "send ICMPv6 echo requests to a SID of every other node (default: if an agent runs here)")
	f.BoolVarP(&quiet, "quiet", "q", false, "show only what warns or fails")
	f.StringVarP(&output, "output", "o", output, "table, json or yaml")
	ignoreOthersOf(agentCommand(), f)
	return cmd
}

// ignoreOthersOf has f take, and ignore, the flags of a command that it lacks: a
// command line can be copied. Help does not show them.
func ignoreOthersOf(cmd *cobra.Command, f *pflag.FlagSet) {
	cmd.Flags().VisitAll(func(other *pflag.Flag) {
		if f.Lookup(other.Name) == nil {
			other.Hidden = true
			f.AddFlag(other)
		}
	})
}

var doctorNodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// completeDoctor refuses what nothing could be checked with.
func completeDoctor(c *doctor.Config, place agent.Config, output string) (err error) {
	if c.Node, err = nodeName(place.NodeName); err != nil {
		return err
	}
	c.BPFFS, c.RunDir, c.Owner = place.BPFFS, place.RunDir, place.Owner
	sources := 0
	for _, given := range []bool{c.Manifests != "", c.Kubeconfig != "", c.InCluster} {
		if given {
			sources++
		}
	}
	switch {
	case !slices.Contains([]string{"table", "json", "yaml"}, output):
		return fmt.Errorf("--output %q: give table, json or yaml", output)
	case len(c.Node) > 253 || !doctorNodeName.MatchString(c.Node):
		return fmt.Errorf("--node-name: %q is no DNS name: give the name of the SRv6Node object", c.Node)
	case sources > 1:
		return fmt.Errorf("--manifests, --kubeconfig, --in-cluster: %d of them given: give the agent's one", sources)
	case c.Workers < 1 || c.Workers > 64:
		return fmt.Errorf("--workers: %d: give 1 to 64", c.Workers)
	case len(c.CPUs) > 0 && len(c.CPUs) != c.Workers:
		return fmt.Errorf("--cpus: %d CPUs for %d workers: name one for each", len(c.CPUs), c.Workers)
	case c.MaxPorts < 1 || c.MaxPorts > 16384:
		return fmt.Errorf("--max-ports: %d: give 1 to 16384", c.MaxPorts)
	case c.Function == 0:
		return errors.New("--sid-function: 0 is no function of a SID: give 1 to 65535")
	}
	for flag, names := range map[string][]string{"--uplink": c.Uplinks, "--workload": c.Workloads} {
		for i, n := range names {
			if n == "" || len(n) > 15 || strings.ContainsAny(n, "/ ") {
				return fmt.Errorf("%s: %q is no device name", flag, n)
			}
			if slices.Contains(names[:i], n) {
				return fmt.Errorf("%s: %s is given twice", flag, n)
			}
		}
	}
	for _, n := range c.Workloads {
		if slices.Contains(c.Uplinks, n) {
			return fmt.Errorf("--workload: %s is an uplink, too", n)
		}
	}
	if c.BPFFS, err = filepath.Abs(c.BPFFS); err != nil {
		return fmt.Errorf("--bpffs: %w", err)
	}
	for flag, path := range map[string]string{"--manifests": c.Manifests, "--kubeconfig": c.Kubeconfig} {
		if path != "" {
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("%s: %w", flag, err)
			}
		}
	}
	place.NodeName, place.BPFFS = c.Node, c.BPFFS
	c.Own = doctor.Own{
		Capabilities: agent.CheckCapabilities, CPUs: agent.TryCPUs, RunDir: agent.TryRunDir,
		Leftovers: func(say func(string)) error {
			err := agent.Cleanup(place, true, say)
			if errors.Is(err, agent.ErrRuns) {
				return fmt.Errorf("%w: %w", doctor.ErrElsewhere, err)
			}
			return err
		},
	}
	return nil
}

func printReport(out io.Writer, r doctor.Report, output string, quiet bool) error {
	if quiet {
		r.Checks = slices.DeleteFunc(slices.Clone(r.Checks), func(c doctor.Check) bool {
			return c.Outcome == doctor.OK || c.Outcome == doctor.NotApplicable
		})
	}
	if output == "table" {
		return printChecks(out, r)
	}
	body, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if output == "yaml" {
		if body, err = yaml.JSONToYAML(body); err != nil {
			return err
		}
	} else {
		body = append(body, '\n')
	}
	_, err = out.Write(body)
	return err
}

// printChecks prints a line a check, and below it the mend.
func printChecks(out io.Writer, r doctor.Report) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "OUTCOME\tPART\tOBJECT\tCHECK\tFOUND")
	for _, c := range alike(r.Checks) {
		object := c.Object
		if object == "" {
			object = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", c.Outcome, c.Part, object, c.Check, oneLine(c.Found))
		if c.Mend != "" {
			fmt.Fprintf(w, "\t\t\t\t=> %s\n", oneLine(c.Mend))
		}
	}
	fmt.Fprintf(w, "\n%s: %d fail, %d warn\n", r.Node, r.Failed, r.Warned)
	return w.Flush()
}

// alike puts what is well with several objects on the first one's line.
func alike(checks []doctor.Check) []doctor.Check {
	var out []doctor.Check
	first, more := map[doctor.Check]int{}, map[int]int{}
	for _, c := range checks {
		key := c
		key.Object = ""
		if at, ok := first[key]; ok && c.Mend == "" && c.Object != "" {
			more[at]++
			continue
		}
		if c.Object != "" {
			first[key] = len(out)
		}
		out = append(out, c)
	}
	for at, n := range more {
		out[at].Object += fmt.Sprintf(" and %d more", n)
	}
	return out
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"picot.dev/picot/internal/control"
	"picot.dev/picot/internal/status"
)

// views are what "picot show" can print: where it comes from, and as a table.
var views = []struct {
	name, short, path string
	print             func(w io.Writer, body []byte) error
}{
	{"ports", "workload ports and uplinks with their counters", "/status", printPorts},
	{"fdb", "where each MAC is, as the data path has it", "/fdb", printFDB},
	{"neigh", "which MAC each address has, as the data path has it", "/neighbors", printNeighbors},
	{"drops", "dropped frames by port and reason", "/status", printDrops},
	{"workers", "worker threads and where the frames are", "/status", printWorkers},
	{"nodes", "other nodes and the ways to them", "/status", printNodes},
	{"moves", "learned bindings that changed hands, the newest first", "/moves", printMoves},
	{"gateway", "gateway routers, their bindings and databases", "/gateway", printGateway},
	{"status", "whether the agent is ready, and what is wrong", "/status", printStatus},
}

func showCommand() *cobra.Command {
	var runDir, output string
	cmd := &cobra.Command{Use: "show", Short: "Ask the running agent", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.PersistentFlags().StringVar(&runDir, "run-dir", "/run/picot", "the agent's --run-dir")
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains([]string{"table", "json", "yaml"}, output) {
			return fmt.Errorf("--output %q: give table, json or yaml", output)
		}
		return nil
	}
	cmd.PersistentFlags().StringVarP(&output, "output", "o", "table", "table, json or yaml")
	for _, v := range views {
		cmd.AddCommand(&cobra.Command{
			Use: v.name, Short: "Show " + v.short, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				body, err := control.Get(cmd.Context(), runDir, v.path)
				if err != nil {
					return err
				}
				switch output {
				case "json":
					_, err = cmd.OutOrStdout().Write(body)
					return err
				case "yaml":
					if body, err = yaml.JSONToYAML(body); err != nil {
						return err
					}
					_, err = cmd.OutOrStdout().Write(body)
					return err
				}
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
				return errors.Join(v.print(w, body), w.Flush())
			},
		})
	}
	return cmd
}

func printPorts(w io.Writer, body []byte) error {
	var s status.Status
	if err := json.Unmarshal(body, &s); err != nil {
		return err
	}
	fmt.Fprintln(w, "PORT\tDEVICE\tENDPOINT\tNETWORK\tMAC\tUP\tMTU\tWORKER\tRX\tTX\tLOCAL\tREMOTE\tANSWERED\tDROPPED\tERROR")
	for _, p := range s.Ports {
		t := p.Traffic
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%t\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", p.Port, p.Device, p.Endpoint, p.Network,
			p.MAC, p.Up, p.MTU, p.Worker, t.RX, t.TX, t.Local, t.Remote, t.Answered, t.Dropped, p.Error)
	}
	for _, u := range s.Uplinks {
		t := u.Traffic
		fmt.Fprintf(w, "uplink\t%s\t-\t-\t-\t%t\t%d\t-\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", u.Device, u.Up, u.MTU,
			t.RX, t.TX, t.Local, t.Remote, t.Answered, t.Dropped, u.Error)
	}
	return nil
}

func printFDB(w io.Writer, body []byte) error {
	var s []status.FDBEntry
	if err := json.Unmarshal(body, &s); err != nil {
		return err
	}
	fmt.Fprintln(w, "NETWORK\tMAC\tKIND\tWHERE\tSEGMENT\tSTATIC")
	for _, e := range s {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%t\n", e.Network, e.MAC, e.Kind, e.Where, e.Segment, e.Static)
	}
	return nil
}

func printNeighbors(w io.Writer, body []byte) error {
	var s []status.Neighbor
	if err := json.Unmarshal(body, &s); err != nil {
		return err
	}
	fmt.Fprintln(w, "NETWORK\tADDRESS\tMAC\tROUTER\tSTATIC\tGATEWAY")
	for _, e := range s {
		fmt.Fprintf(w, "%s\t%s\t%s\t%t\t%t\t%t\n", e.Network, e.IP, e.MAC, e.Router, e.Static, e.Gateway)
	}
	return nil
}

func printMoves(w io.Writer, body []byte) error {
	var s []status.Move
	if err := json.Unmarshal(body, &s); err != nil {
		return err
	}
	fmt.Fprintln(w, "TIME\tNETWORK\tKEY\tFROM\tTO\tMOVES\tFROZEN UNTIL")
	at := func(node, endpoint string) string {
		if endpoint == "" {
			return node
		}
		return node + ":" + endpoint
	}
	for _, m := range s {
		frozen := "-"
		if m.FrozenUntil != nil {
			frozen = m.FrozenUntil.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", m.Time.Format("2006-01-02T15:04:05.000Z07:00"), m.Network, m.Key,
			at(m.FromNode, m.FromEndpoint), at(m.Node, m.Endpoint), m.Moves, frozen)
	}
	return nil
}

func printDrops(w io.Writer, body []byte) error {
	var s status.Status
	if err := json.Unmarshal(body, &s); err != nil {
		return err
	}
	fmt.Fprintln(w, "DEVICE\tREASON\tFRAMES")
	row := func(device string, t status.Traffic) {
		reasons := make([]string, 0, len(t.Drops))
		for r := range t.Drops {
			reasons = append(reasons, r)
		}
		slices.Sort(reasons)
		for _, r := range reasons {
			fmt.Fprintf(w, "%s\t%s\t%d\n", device, r, t.Drops[r])
		}
		for _, k := range []struct {
			name string
			n    uint64
		}{
			{"kernel: tx busy", t.TXBusy}, {"kernel: rx_dropped", t.Socket.RXDropped},
			{"kernel: rx ring full", t.Socket.RingFull}, {"kernel: fill ring empty", t.Socket.FillEmpty},
		} {
			if k.n > 0 {
				fmt.Fprintf(w, "%s\t%s\t%d\n", device, k.name, k.n)
			}
		}
		if t.XDP != nil && t.XDP.DroppedEmpty+t.XDP.Errors > 0 {
			fmt.Fprintf(w, "%s\txdp: closed\t%d\n", device, t.XDP.DroppedEmpty+t.XDP.Errors)
		}
	}
	for _, p := range s.Ports {
		row(p.Device, p.Traffic)
	}
	for _, u := range s.Uplinks {
		row(u.Device, u.Traffic)
	}
	return nil
}

func printWorkers(w io.Writer, body []byte) error {
	var s status.Status
	if err := json.Unmarshal(body, &s); err != nil {
		return err
	}
	fmt.Fprintln(w, "WORKER\tROUNDS\tSOCKETS")
	for _, k := range s.Workers {
		fmt.Fprintf(w, "%d\t%d\t%d\n", k.Worker, k.Rounds, k.Sockets)
	}
	f := s.Frames
	fmt.Fprintf(w, "\nFRAMES\tFREE\tFILL\tBATCH\tTX\tHANDOFF\n%d\t%d\t%d\t%d\t%d\t%d\n", f.Total, f.Free, f.Fill, f.Batch, f.TX, f.Handoff)
	return nil
}

func printNodes(w io.Writer, body []byte) error {
	var s status.Status
	if err := json.Unmarshal(body, &s); err != nil {
		return err
	}
	fmt.Fprintln(w, "NODE\tLOCATOR\tALIVE\tNEXT HOPS\tPATH MTU\tERROR")
	for _, n := range s.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%t\t%s\t%d\t%s\n", n.Node, n.Locator, n.Alive, strings.Join(n.NextHops, ", "), n.PathMTU, n.Error)
	}
	return nil
}

func printStatus(w io.Writer, body []byte) error {
	var s status.Status
	if err := json.Unmarshal(body, &s); err != nil {
		return err
	}
	fmt.Fprintf(w, "node\t%s\nlocator\t%s\nready\t%t\nsnapshot\t%d\nfdb\t%d\nneighbors\t%d\n",
		s.Node, s.Locator, s.Ready, s.Snapshot, s.FDBSize, s.Neighbors)
	if s.GatewayReady != nil {
		fmt.Fprintf(w, "gateway ready\t%t\n", *s.GatewayReady)
	}
	for _, x := range s.Waiting {
		fmt.Fprintf(w, "waits for\t%s\n", x)
	}
	for _, x := range s.Problems {
		fmt.Fprintf(w, "problem\t%s\n", x)
	}
	return nil
}

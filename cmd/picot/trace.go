package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"picot.dev/picot/internal/control"
	"picot.dev/picot/internal/trace"
)

func traceCommand() *cobra.Command {
	var (
		r                    trace.Request
		runDir, output, file string
		number               int
	)
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Say what would happen to a frame, without sending it",
		Long: `Say what would become of a frame, and why, by the code that the workers run and
the tables they have at this moment. Nothing is sent, learned, counted or used up.`,
		Example: `  picot trace --in veth-a --dst 10.0.0.11                    # a ping
  picot trace --in default/pod-a --arp-for 10.0.0.11
  picot trace --in veth-a --nd-for fd00:10::b --src ::       # duplicate address detection
  picot trace --in veth-a --dst fd00:10::b --proto tcp --dport 443 --size 1500
  picot trace --in veth-a --read capture.pcapng --number 17
  picot trace --in eth0 --from-node node2 --network red --src 10.0.0.13 --dst 10.0.0.10`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"table", "json", "yaml"}, output) {
				return fmt.Errorf("--output %q: give table, json or yaml", output)
			}
			if file == "" && cmd.Flags().Changed("number") {
				return errors.New("--number without --read: name the capture")
			}
			if file != "" {
				if r.Frame != "" {
					return errors.New("--read beside --frame: give one of them")
				}
				frame, err := readFrame(cmd.InOrStdin(), file, number)
				if err != nil {
					return err
				}
				r.Frame = hex.EncodeToString(frame)
			}
			if err := r.Check(); err != nil {
				return err
			}
			body, err := control.Get(cmd.Context(), runDir, "/trace?"+r.Query())
			if err != nil {
				return err
			}
			return writeTrace(cmd.OutOrStdout(), output, body)
		},
	}
	f := cmd.Flags()
	for _, x := range r.Fields() {
		f.StringVar(x.Text, x.Name, "", x.Usage)
	}
	f.StringVar(&file, "read", "", "the frame from a pcap or pcapng `file`; - is the standard input")
	f.IntVar(&number, "number", 1, "which frame of --read, from 1")
	f.StringVar(&runDir, "run-dir", "/run/picot", "the agent's --run-dir")
	f.StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return cmd
}

// readFrame reads a frame from a capture file.
func readFrame(stdin io.Reader, file string, number int) ([]byte, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("--read: %w", err)
		}
		defer f.Close()
		in = f
	}
	frame, err := trace.ReadCapture(in, number)
	if err != nil {
		return nil, fmt.Errorf("--read %s: %w", file, err)
	}
	return frame, nil
}

func writeTrace(w io.Writer, output string, body []byte) (err error) {
	switch output {
	case "yaml":
		if body, err = yaml.JSONToYAML(body); err != nil {
			return err
		}
		fallthrough
	case "json":
		_, err = w.Write(body)
		return err
	}
	var result trace.Result
	if err := json.Unmarshal(body, &result); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	trace.Print(t, &result)
	return t.Flush()
}

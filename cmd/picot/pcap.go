package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/internal/capture"
	"picot.dev/picot/internal/control"
	"picot.dev/picot/internal/status"
)

// stopWithin is how long an interrupted capture may take to its end.
const stopWithin = 5 * time.Second

func pcapCommand() *cobra.Command {
	var runDir, file string
	r := capture.Request{ID: rand.Text()}
	cmd := &cobra.Command{
		Use:   "pcap",
		Short: "Capture frames of the running agent, each with what became of it",
		Long: `Write the frames that come to this node's ports and uplinks as pcapng, each as it
came in, with a comment that says what became of it:

  verdict=dropped reason=spoofed_ip port=v-a endpoint=default/a network=red

What picot sends itself (answers, ICMP errors, probes) is not shown: its cause is.
Filters together must all hold. One capture runs at a time; it ends when its
reader does, and never holds up a frame: what it cannot keep up with is counted as
missed.

  picot pcap | wireshark -k -i -
  picot pcap --dropped --port v-a --duration 10s -w drops.pcapng

Drop reasons: ` + strings.Join(capture.Reasons(), ", "),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := noneEmpty(cmd); err != nil {
				return err
			}
			if err := r.Check(); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if file == "" && isTerminal(out) {
				return errors.New("standard output is a terminal: pipe it, as in \"picot pcap | wireshark -k -i -\", or give -w FILE")
			}
			return runCapture(cmd.Context(), r, runDir, file, out, cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&runDir, "run-dir", "/run/picot", "the agent's --run-dir")
	f.StringVarP(&file, "write", "w", "", "file to write, - for standard output (default: standard output, if it is no terminal)")
	f.StringVar(&r.Port, "port", "", "frames from or to a port, by device or endpoint (NAMESPACE/NAME), or an uplink")
	f.StringVar(&r.Network, "network", "", "frames of a network")
	f.StringSliceVar(&r.Reasons, "reason", nil, "frames dropped for one of these reasons")
	f.BoolVar(&r.Dropped, "dropped", false, "dropped frames")
	f.StringVar(&r.MAC, "mac", "", "frames from or to a MAC; of an uplink's frames the inner one")
	f.StringVar(&r.IP, "ip", "", "packets from or to an address, and ARP and ND about it; of an uplink's frames the inner one")
	f.Uint64Var(&r.Count, "count", 0, "end after so many frames (default: never)")
	f.DurationVar(&r.Duration, "duration", 0, "end after this time (default: never)")
	f.IntVar(&r.Snaplen, "snaplen", fastpath.DefaultSnaplen, fmt.Sprintf("bytes kept of each frame; with --mac or --ip at least %d", capture.LeastSnaplen))
	return cmd
}

// noneEmpty refuses a flag given without a value: a script's variable that is not set
// would ask for everything.
func noneEmpty(cmd *cobra.Command) error {
	for _, name := range []string{"write", "port", "network", "reason", "mac", "ip"} {
		if f := cmd.Flag(name); f.Changed && strings.Trim(f.Value.String(), "[]") == "" {
			return fmt.Errorf("--%s is given, but empty: give a value, or leave it out", name)
		}
	}
	return nil
}

// runCapture writes a capture until it ends. An interrupt ends it in order, with
// its statistics.
func runCapture(ctx context.Context, r capture.Request, runDir, file string, out, say io.Writer) (err error) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var begun atomic.Bool
	interrupted := context.AfterFunc(ctx, func() {
		_, err := control.Post(work, runDir, "/capture/stop?id="+r.ID)
		if err != nil && !begun.Load() {
			cancel(errors.New("interrupted before the capture began"))
			return
		}
		select {
		case <-work.Done():
		case <-time.After(stopWithin):
			cancel(errors.New("the capture's last frames are not taken: its end is missing"))
		}
	})
	defer interrupted()
	res, err := control.Stream(work, runDir, "/capture?"+r.Query().Encode())
	if err != nil {
		return err
	}
	begun.Store(true)
	defer res.Body.Close()
	if file != "" && file != "-" {
		f, err := os.Create(file)
		if err != nil {
			return fmt.Errorf("-w: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	}
	if f, ok := out.(*os.File); ok {
		go untilHangUp(work, f, cancel)
	}
	copied := make(chan error, 1)
	go func() { copied <- copyCapture(out, res) }()
	select {
	case err = <-copied:
	case <-work.Done(): // a write may wait for ever
		err = context.Cause(work)
	}
	if err != nil {
		return cmp.Or(context.Cause(work), err)
	}
	if res.Trailer.Get(status.CaptureEnd) == "" {
		return fmt.Errorf("agent at %s broke the capture off: it has ended, or its frames were not taken for too long", control.Socket(runDir))
	}
	_, err = fmt.Fprintf(say, "%s frames captured, %s missed (%s)\n", res.Trailer.Get(status.CaptureFrames), res.Trailer.Get(status.CaptureMissed), res.Trailer.Get(status.CaptureEnd))
	return err
}

// copyCapture is an error if out is at fault; a capture that breaks off shows in its
// missing trailer.
func copyCapture(out io.Writer, res *http.Response) error {
	b := make([]byte, 64<<10)
	for {
		n, err := res.Body.Read(b)
		if n > 0 {
			if _, werr := out.Write(b[:n]); werr != nil {
				return werr
			}
		}
		if err != nil {
			return nil
		}
	}
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// untilHangUp ends the work when nobody reads the pipe f any more: without frames
// no write would tell.
func untilHangUp(ctx context.Context, f *os.File, cancel context.CancelCauseFunc) {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	for ctx.Err() == nil {
		_, _ = unix.Poll(fds, 100) // ms
		if fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			cancel(errors.New("nobody reads standard output any more"))
			return
		}
	}
}

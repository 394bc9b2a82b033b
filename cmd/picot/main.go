// Command picot carries Kubernetes L2 networks between nodes without ever
// flooding a frame. "picot help" lists what it can do.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := 0
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "picot:", err)
		code = 1
	}
	stop()
	os.Exit(code)
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:           "picot",
		Short:         "Kubernetes L2 networks over AF_XDP and SRv6, without flooding",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.AddCommand(agentCommand(), benchCommand(), cleanupCommand(), demoCommand(), doctorCommand(), fdbCommand(), gatewayCommand(), pcapCommand(), showCommand(), traceCommand())
	return c
}

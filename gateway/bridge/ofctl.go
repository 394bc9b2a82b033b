package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"picot.dev/picot/gateway/flows"
)

// target is the bridge's management socket as ovs-ofctl names it.
func (d *Driver) target() string { return "unix:" + d.opt.Socket }

// dump reads the whole flow table. Without names a port is its number, whatever it is called.
func (d *Driver) dump(ctx context.Context) (flows.Set, error) {
	out, err := d.ofctl(ctx, "", "-O", "OpenFlow13", "--no-names", "--no-stats", "dump-flows", d.target())
	if err != nil {
		return nil, err
	}
	s, err := flows.ParseSet(out)
	if err != nil {
		return nil, fmt.Errorf("bridge %s: read flows: %w", d.opt.Bridge, err)
	}
	return s, nil
}

// bundle installs lines as one atomic bundle: a line the switch or ovs-ofctl refuses rejects all.
func (d *Driver) bundle(ctx context.Context, lines string) error {
	_, err := d.ofctl(ctx, lines, "-O", "OpenFlow13", "--bundle", "add-flows", d.target(), "-")
	return err
}

// ofctl runs ovs-ofctl and returns what it printed.
func (d *Driver) ofctl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.opt.Ofctl, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	return "", d.fault(ctx, err, msg.String())
}

// fault turns a failed run of ovs-ofctl into an error that says what to mend.
func (d *Driver) fault(ctx context.Context, err error, msg string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("bridge %s: %w: no answer in time: %w", d.opt.Bridge, ErrUnreachable, context.Cause(ctx))
	}
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("bridge %s: install openvswitch-switch: %w", d.opt.Bridge, err)
	}
	msg = strings.Join(strings.Fields(msg), " ")
	for _, s := range []string{"failed to connect", "Connection refused", "No such file", "Connection reset", "End of file", "Broken pipe"} {
		if strings.Contains(msg, s) {
			return fmt.Errorf("bridge %s: %w: is ovs-vswitchd running and does the bridge exist? %s", d.opt.Bridge, ErrUnreachable, msg)
		}
	}
	return fmt.Errorf("bridge %s: %w: %s (%w)", d.opt.Bridge, ErrRejected, msg, err)
}

package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"picot.dev/picot/internal/control"
	"picot.dev/picot/internal/status"
)

// process is one life of an agent.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; after done
}

// Start starts the node's agent. ctx only bounds the start: the agent runs until
// Stop, Kill or the lab's end.
func (n *Node) Start(ctx context.Context) error {
	if n.options.NoAgent {
		return fmt.Errorf("node %s is a plain one: it has no agent", n.Name)
	}
	if n.Running() {
		return fmt.Errorf("node %s: its agent runs already", n.Name)
	}
	return n.launch(ctx)
}

// TakeOver starts a second agent that takes the running one's place, and waits
// for that one's end.
func (n *Node) TakeOver(ctx context.Context) error {
	old := n.process
	if !n.Running() {
		return fmt.Errorf("node %s: its agent does not run", n.Name)
	}
	if err := n.launch(ctx, "--takeover"); err != nil {
		return err
	}
	select {
	case <-old.done:
		if old.err != nil {
			return fmt.Errorf("node %s: the older agent: %w", n.Name, old.err)
		}
		return nil
	case <-n.process.done:
		young := n.process
		n.process = old
		return fmt.Errorf("node %s: the newer agent ended first: %w", n.Name, young.err)
	case <-ctx.Done():
		_ = n.process.cmd.Process.Kill()
		<-n.process.done
		n.process = old
		return fmt.Errorf("node %s: no takeover: %w", n.Name, ctx.Err())
	}
}

// launch starts an agent, whatever runs.
func (n *Node) launch(ctx context.Context, more ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	log, err := os.OpenFile(n.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("node %s: log: %w", n.Name, err)
	}
	defer log.Close()
	args := []string{"--net=" + n.Netns(), "--", n.lab.picot}
	cmd := exec.Command("nsenter", slices.Concat(args, n.Args(), more)...)
	cmd.Stdout, cmd.Stderr = log, log
	// A process group of its own: Ctrl-C at a terminal is for the lab's owner,
	// who ends agents in order, or keeps them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("node %s: start the agent: %w", n.Name, err)
	}
	n.lab.logf("node %s: agent runs as process %d", n.Name, cmd.Process.Pid)
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	n.process = p
	return nil
}

// Args are the agent's arguments.
func (n *Node) Args() []string {
	from := []string{"--manifests", n.lab.Manifests()}
	if n.lab.objects != nil {
		from = []string{"--kubeconfig", cmp.Or(n.options.Kubeconfig, n.lab.config)}
	}
	return slices.Concat([]string{"agent", "--node-name", n.Name, "--uplink", UplinkDevice,
		"--bpffs", n.lab.BPFFS(), "--run-dir", n.RunDir(),
		"--workers", fmt.Sprint(n.options.Workers)}, from, n.options.Args)
}

// PID is the agent's process id, 0 if it does not run.
func (n *Node) PID() int {
	if !n.Running() {
		return 0
	}
	return n.process.cmd.Process.Pid
}

// Running says whether the agent's process lives.
func (n *Node) Running() bool {
	if n.process == nil {
		return false
	}
	select {
	case <-n.process.done:
		return false
	default:
		return true
	}
}

// Stop sends SIGTERM and waits for the end. The error is the agent's exit status
// if that was not 0; an agent that is still there at ctx's end is killed.
func (n *Node) Stop(ctx context.Context) error { return n.signal(ctx, syscall.SIGTERM) }

// Kill sends SIGKILL and waits for the end.
func (n *Node) Kill() error {
	err := n.signal(context.Background(), syscall.SIGKILL)
	var exit *exec.ExitError
	if errors.As(err, &exit) && !exit.Exited() {
		return nil
	}
	return err
}

func (n *Node) signal(ctx context.Context, s syscall.Signal) error {
	if !n.Running() {
		return fmt.Errorf("node %s: its agent does not run", n.Name)
	}
	p := n.process
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("node %s: %v to the agent: %w", n.Name, s, err)
	}
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("node %s: agent: %w", n.Name, p.err)
		}
		return nil
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("node %s: the agent did not end by %v: %w", n.Name, s, ctx.Err())
	}
}

// Log is what the agent has written, over all its lives.
func (n *Node) Log() string {
	b, err := os.ReadFile(n.LogFile())
	if err != nil {
		return ""
	}
	return string(b)
}

// Status asks the agent over its control socket.
func (n *Node) Status(ctx context.Context) (status.Status, error) {
	return control.Status(ctx, n.RunDir())
}

// readyTimeout is for callers whose context has no deadline.
const readyTimeout = 30 * time.Second

// WaitReady waits until the agent is ready, has that many workload ports up
// without an error, its uplink attached and a way to every other node.
func (n *Node) WaitReady(ctx context.Context, ports int) error {
	_, err := n.WaitStatus(ctx, func(s status.Status) error { return ready(s, ports) })
	return err
}

func ready(s status.Status, ports int) error {
	if !s.Ready {
		return fmt.Errorf("not ready: %s", strings.Join(s.Waiting, "; "))
	}
	for _, u := range s.Uplinks {
		if u.Queues == 0 || !u.Up {
			return fmt.Errorf("uplink %s: up %t, %d queues in use: %s", u.Device, u.Up, u.Queues, u.Error)
		}
	}
	for _, x := range s.Nodes {
		if len(x.NextHops) == 0 {
			return fmt.Errorf("no way to node %s: %s", x.Node, x.Error)
		}
	}
	good := 0
	var bad []string
	for _, p := range s.Ports {
		if p.Up && p.Error == "" && len(p.Sockets) > 0 {
			good++
		} else {
			bad = append(bad, fmt.Sprintf("%s (up %t, %d sockets) %s", p.Device, p.Up, len(p.Sockets), p.Error))
		}
	}
	if good < ports {
		return fmt.Errorf("%d of %d ports are up; not: %s", good, ports, strings.Join(bad, "; "))
	}
	return nil
}

// WaitStatus asks for the status until check takes it, and returns that one. It
// gives up at ctx's end (after 30 s if that has none), or when the agent's
// process ended, with check's last error and the end of the log.
func (n *Node) WaitStatus(ctx context.Context, check func(status.Status) error) (status.Status, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, readyTimeout)
		defer cancel()
	}
	var last error
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		s, err := n.Status(ctx)
		if err == nil {
			err = check(s)
		}
		if err == nil {
			return s, nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if !n.Running() {
			return s, fmt.Errorf("node %s: the agent does not run (%w); its log ends:\n%s", n.Name, last, tail(n.Log(), 10))
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("node %s: %w: %w; its log ends:\n%s", n.Name, ctx.Err(), last, tail(n.Log(), 10))
		case <-time.After(pause):
		}
	}
}

func tail(s string, n int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}

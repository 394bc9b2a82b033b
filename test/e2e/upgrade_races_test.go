package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"picot.dev/picot/internal/testnet"
)

// said waits until node 1's log has text, after what it had at from.
func (s *site) said(from int, text string) {
	s.t.Helper()
	testnet.Eventually(s.t, patience, "the log says "+text, func() error {
		if !strings.Contains(s.n1.Log()[from:], text) {
			return errNone
		}
		return nil
	})
}

// answered waits until pings of both families come back, from this node's other
// pod and from the other node.
func (s *site) answered(when string) {
	s.t.Helper()
	for _, to := range []fmt.Stringer{s.a2.IP4(), s.a2.IP6(), s.b1.IP4(), s.b1.IP6()} {
		testnet.Eventually(s.t, patience, fmt.Sprintf("%s: %s answers", when, to), func() error {
			_, err := s.a1.Run(s.ctx, "ping", "-q", "-c1", "-W1", to.String())
			return err
		})
	}
}

// stopAgent stops an agent, until SIGCONT, with every thread, if it lives.
func (s *site) stopAgent(pid int) {
	s.t.Helper()
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	testnet.Eventually(s.t, patience, "the agent stands still", func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, path := range threads {
			text, err := os.ReadFile(path)
			if err == nil && !strings.Contains(string(text), ") T ") {
				return fmt.Errorf("%s: %s", path, text)
			}
		}
		return err
	})
}

// What happens to one agent while another prepares to take its place ends with
// one of them forwarding, unaided: never with none, never with a live one that
// had to go for nothing.
func TestUpgradeRaces(t *testing.T) {
	s := newSite(t)
	s.answered("at first")
	before := ids(s.pins(s.n1))
	_, no := s.greet(greeting{Format: format, Node: s.n1.Name, Always: true})
	m := geometryPattern.FindStringSubmatch(no)
	if m == nil {
		t.Fatalf("no geometry: %q", no)
	}
	hello := greeting{Format: format, Node: s.n1.Name, Geometry: m[1], Always: true}

	// One that greets and never goes on keeps no other one waiting. When that has
	// the place, it learns it, and does not displace it.
	idle, no := s.greet(hello)
	if no != "" {
		t.Fatalf("refused: %s", no)
	}
	idle.skip()
	from := len(s.n1.Log())
	s.must(s.n1.TakeOver(s.ctx))
	s.ready()
	s.must(idle.conn.SetDeadline(time.Now().Add(patience)))
	if _, err := idle.conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("who came second is told: %v", err)
	}
	if log := s.n1.Log()[from:]; strings.Contains(log, "cold start") || !strings.Contains(log, "took over") {
		t.Errorf("beside one that waits:\n%s", log)
	}
	s.answered("after a takeover beside one that waits")

	// A question that lay there while the agent stood still is from nobody.
	from = len(s.n1.Log())
	s.stopAgent(s.n1.PID())
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(s.n1.RunDir(), "takeover.sock"), Net: "unix"})
	s.must(err)
	(&pretender{t, conn}).say(struct {
		Leave bool
		Node  string
	}{true, s.n1.Name})
	s.must(conn.Close())
	s.must(syscall.Kill(s.n1.PID(), syscall.SIGCONT))
	s.said(from, "who asked is gone")
	if !s.n1.Running() {
		t.Fatal("it left for nobody")
	}
	s.answered("after a question of nobody")
	s.books()

	// The older one dies while a newer one prepares.
	from = len(s.n1.Log())
	old, tookOver := s.n1.PID(), make(chan error, 1)
	go func() { tookOver <- s.n1.TakeOver(s.ctx) }()
	s.said(from, "a newer agent prepares")
	_ = syscall.Kill(old, syscall.SIGKILL)
	<-tookOver // it may have been faster
	s.ready()
	s.answered("after the older one's death")

	// Another program at the socket keeps none from starting.
	s.must(s.n1.Kill())
	path := filepath.Join(s.n1.RunDir(), "takeover.sock")
	s.must(os.Remove(path))
	l, err := net.Listen("unix", path)
	s.must(err)
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_, _ = io.WriteString(conn, "\x00\x00\x00\x02no agent")
			_ = conn.Close()
		}
	}()
	s.must(s.n1.Start(s.ctx))
	s.ready()
	s.answered("beside another program")

	// A run directory that takes no socket is found out before the older one goes.
	dir := s.n1.RunDir()
	s.must(syscall.Mount(dir, dir, "", syscall.MS_BIND, ""))
	defer func() { s.must(syscall.Unmount(dir, syscall.MNT_DETACH)) }()
	s.must(syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
	args := slices.Concat([]string{"--net=" + s.n1.Netns(), "--", picot}, s.n1.Args(), []string{"--takeover"})
	out, err := exec.CommandContext(s.ctx, "nsenter", args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--run-dir: ") || !s.n1.Running() {
		t.Errorf("run directory read-only: %v: %s", err, out)
	}
	s.answered("after a newer one that could not")

	if after := ids(s.pins(s.n1)); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("link and program IDs: %v, were %v", after, before)
	}
}

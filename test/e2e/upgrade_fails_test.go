package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/testnet"
)

// A newer agent that does not fit the living one has it leave, and starts cold:
// the pins keep the ports closed in between, and the programs stay the same.
func TestUpgradeThatDoesNotFitIsAColdStart(t *testing.T) {
	s := newSite(t)
	s.reachAll()
	before := ids(s.pins(s.n1))
	args := s.n1.Args()
	args[slices.Index(args, "--workers")+1] = "2"
	var log bytes.Buffer
	next := exec.Command("nsenter", slices.Concat([]string{"--net=" + s.n1.Netns(), "--", picot}, args, []string{"--takeover"})...)
	next.Stdout, next.Stderr = &log, &log
	s.must(next.Start())
	ended := make(chan error, 1)
	go func() { ended <- next.Wait() }()
	testnet.Eventually(t, patience, "the older agent leaves", func() error {
		if s.n1.Running() {
			return errNone
		}
		return nil
	})
	for _, to := range []*lab.Pod{s.a2, s.b1} {
		testnet.Eventually(t, patience, "the newer one forwards to "+to.Name, func() error {
			return pingBoth(s.ctx, s.a1, to, "-c1", "-W1")
		})
	}
	if after := ids(s.pins(s.n1)); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("link and program IDs: %v, were %v", after, before)
	}
	s.must(next.Process.Signal(syscall.SIGTERM))
	if err := <-ended; err != nil || !strings.Contains(log.String(), "no takeover: cold start") || !strings.Contains(log.String(), "geometry") {
		t.Errorf("the newer agent: %v\n%s", err, log.String())
	}
	s.must(s.n1.Start(s.ctx))
	s.ready()
	s.reachAll()
}

// pretender is a newer agent that stops in the middle of its upgrade.
type pretender struct {
	t    *testing.T
	conn *net.UnixConn
}

func (p *pretender) say(v any) {
	p.t.Helper()
	var b bytes.Buffer
	b.Write(make([]byte, 4))
	must(p.t, gob.NewEncoder(&b).Encode(v))
	binary.BigEndian.PutUint32(b.Bytes(), uint32(b.Len()-4))
	_, err := p.conn.Write(b.Bytes())
	must(p.t, err)
}

func (p *pretender) hear(v any) {
	p.t.Helper()
	var head [4]byte
	_, err := io.ReadFull(p.conn, head[:])
	must(p.t, err)
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err = io.ReadFull(p.conn, body)
	must(p.t, err)
	must(p.t, gob.NewDecoder(bytes.NewReader(body)).Decode(v))
}

// skip reads the byte that carries descriptors; the kernel closes them.
func (p *pretender) skip() {
	p.t.Helper()
	_, err := io.ReadFull(p.conn, make([]byte, 1))
	must(p.t, err)
}

// descriptors reads that byte and keeps them.
func (p *pretender) descriptors() (fds []int) {
	p.t.Helper()
	oob := make([]byte, unix.CmsgSpace(4*250))
	n, oobn, _, _, err := p.conn.ReadMsgUnix(make([]byte, 1), oob)
	must(p.t, err)
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	must(p.t, err)
	if n != 1 || len(messages) != 1 {
		p.t.Fatalf("%d bytes with %d messages of descriptors", n, len(messages))
	}
	fds, err = unix.ParseUnixRights(&messages[0])
	must(p.t, err)
	p.t.Cleanup(func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	})
	return fds
}

// format is agent.takeoverFormat.
const format = 3

type greeting struct {
	Format         int
	Node, Geometry string
	Always         bool
}

// greet says hello and returns why that is refused.
func (s *site) greet(g greeting) (*pretender, string) {
	s.t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(s.n1.RunDir(), "takeover.sock"), Net: "unix"})
	s.must(err)
	s.t.Cleanup(func() { _ = conn.Close() })
	s.must(conn.SetDeadline(time.Now().Add(patience)))
	p := &pretender{s.t, conn}
	p.say(g)
	var o struct{ Refused string }
	p.hear(&o)
	return p, o.Refused
}

var geometryPattern = regexp.MustCompile(`this agent has (.*)$`)

// An upgrade that breaks off at any step leaves the older agent forwarding: of
// another version, before the sockets went over, with them, and when its workers
// stood still already.
func TestUpgradeThatBreaksOffChangesNothing(t *testing.T) {
	s := newSite(t)
	s.reachAll()
	before := ids(s.pins(s.n1))
	if _, no := s.greet(greeting{Format: format + 1, Node: s.n1.Name}); !strings.Contains(no, "takeover format") {
		t.Errorf("another format: %q", no)
	}
	_, no := s.greet(greeting{Format: format, Node: s.n1.Name, Always: true})
	m := geometryPattern.FindStringSubmatch(no)
	if m == nil {
		t.Fatalf("no geometry: %q", no)
	}
	for _, steps := range []int{0, 1, 2} {
		p, no := s.greet(greeting{Format: format, Node: s.n1.Name, Geometry: m[1], Always: true})
		if no != "" {
			t.Fatalf("refused: %s", no)
		}
		p.skip()
		var fds []int
		if steps > 0 {
			var ready struct{ Ports []struct{ Device string } }
			p.say("prepare")
			p.hear(&ready)
			fds = p.descriptors()
			if len(ready.Ports) != 2 {
				t.Errorf("ports: %+v", ready)
			}
		}
		if steps > 1 {
			p.say("go")
			written := []unix.PollFd{{Fd: int32(fds[len(fds)-1]), Events: unix.POLLIN}}
			testnet.Eventually(t, patience, "the workers stand still", func() error {
				if n, err := unix.Poll(written, 1000); n != 1 {
					return fmt.Errorf("%d ready: %w", n, err)
				}
				return nil
			})
		}
		s.must(p.conn.Close())
		s.reachAll()
	}
	if after := ids(s.pins(s.n1)); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("link and program IDs: %v, were %v", after, before)
	}
	s.must(s.n1.TakeOver(s.ctx)) // and a real one still works
	s.ready()
	s.reachAll()
	s.books()
}

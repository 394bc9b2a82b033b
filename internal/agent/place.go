package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/xsk"
)

// How a process that starts comes to its node's place: nobody has it, an older
// agent gives it away, or has to leave it. Whether an agent lives at all the
// pins' lock says, not who answers at a socket.

const (
	// greetFor bounds the answer to a hello. The older one's loop may be busy with
	// another newer one meanwhile.
	greetFor = prepareFor + freezeFor + 3*time.Second
	// greetings bounds how many agents are greeted that end before they answer.
	greetings = 5
	// endsWithin is how long a process may take to end after it let go of its
	// sockets, for the kernel frees what it has one by one, and the lock last.
	endsWithin = 3 * time.Second
)

// findPlace returns the older agent that is ready to give its place away, or the
// pins' lock for a cold start. If the two do not fit, the older one has left.
func findPlace(c *Config, engine fastpath.Config) (older *takeover, pins *os.File, err error) {
	if c.Takeover != TakeoverNever {
		build := sync.OnceValue(buildID) // of 60 ms: only where somebody answers
		for range greetings {
			if older, err = requestTakeover(c, engine, build); !broken(err) {
				break
			}
			// It ended, or gave its place to another one: whoever has it now is asked.
			time.Sleep(lookForOlder)
		}
	}
	switch {
	case older != nil:
		return older, nil, nil
	case errors.Is(err, errOtherNode):
		return nil, nil, fmt.Errorf("--run-dir %s: %w", c.RunDir, err)
	case errors.Is(err, errSameBuild): // most likely a second start by mistake
		pins, err = lockPins(c, 0)
	case err != nil:
		c.Log.Warn("no takeover: cold start", "error", err)
		instance := ""
		var no *refusal
		if errors.As(err, &no) {
			instance = no.instance
		}
		pins, err = clearWay(c, instance)
	default:
		pins, err = lockPins(c, endsWithin)
	}
	return nil, pins, err
}

// clearWay locks the pins; first the agent that has them, if there is one, is
// asked to leave.
func clearWay(c *Config, instance string) (*os.File, error) {
	pins, err := lockPins(c, 0)
	if !errors.Is(err, ErrRuns) {
		return pins, err
	}
	asked := askToLeave(c, instance)
	pins, err = lockPins(c, endsWithin)
	if err != nil {
		err = errors.Join(asked, err)
	}
	return pins, err
}

// requestTakeover asks the agent at the run directory's socket for its place.
// It returns nil if none lives there; an error if one does and the two do not
// fit, or if it does not answer in time.
func requestTakeover(c *Config, engine fastpath.Config, build func() string) (*takeover, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.takeoverPath(), Net: "unix"})
	if err != nil {
		return nil, nil // nobody there
	}
	t := &takeover{conn: conn}
	err = t.greet(c, engine, build)
	if err == nil {
		return t, nil
	}
	return nil, errors.Join(err, conn.Close())
}

// errSameBuild: the living agent is no older one.
var errSameBuild = errors.New("the agent that runs is of the same build")

// errOtherNode: the agent at this run directory is another node's, and none to
// succeed.
var errOtherNode = errors.New("another agent answers there")

// refusal is an older agent's no.
type refusal struct{ why, instance string }

func (r *refusal) Error() string { return "the older agent refuses: " + r.why }

// buildID identifies this program: an upgrade is one to another build.
func buildID() string {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (t *takeover) greet(c *Config, engine fastpath.Config, build func() string) error {
	if err := t.conn.SetDeadline(time.Now().Add(greetFor)); err != nil {
		return err
	}
	err := sendMessage(t.conn, hello{
		Format: takeoverFormat, Node: c.NodeName, Geometry: engine.Geometry(), Build: build(), Always: c.Takeover == TakeoverAlways,
	})
	if err == nil {
		err = receiveMessage(t.conn, &t.offer)
	}
	if err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	if t.offer.SameBuild {
		return errSameBuild
	}
	if t.offer.OtherNode {
		return fmt.Errorf("%w: %s: stop it, or give another --run-dir", errOtherNode, t.offer.Refused)
	}
	if t.offer.Refused != "" {
		return &refusal{why: t.offer.Refused, instance: t.offer.Instance}
	}
	fds, err := receiveFDs(t.conn, 2)
	if err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	o, err := engine.MemoryOptions()
	if err == nil {
		t.mem, err = xsk.MemoryFromFD(fds[0], o)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("memory: %w", err), unix.Close(fds[0]), unix.Close(fds[1]))
	}
	t.pins = os.NewFile(uintptr(fds[1]), "pins")
	t.touched = make(chan struct{})
	go func(mem *xsk.Memory) {
		defer close(t.touched)
		_ = mem.Populate() // else a page's first frame waits for it
		mem.Touch(mem.Whole(), nil)
	}(t.mem)
	return t.conn.SetDeadline(time.Time{})
}

// askToLeave has an older agent end, and waits until it has. Only the one of that
// instance does, if one is given: another may have its place by now.
func askToLeave(c *Config, instance string) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.takeoverPath(), Net: "unix"})
	if err != nil {
		return nil
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		return err
	}
	if err := sendMessage(conn, hello{Leave: true, Node: c.NodeName, Instance: instance}); err != nil {
		return fmt.Errorf("asking the older agent to leave: %w", err)
	}
	n, err := conn.Read(make([]byte, 1))
	switch {
	case n > 0:
		return errors.New("the older agent does not leave: it says something else")
	case !broken(err):
		return fmt.Errorf("the older agent does not leave: %w", err)
	}
	return nil
}

// broken says that the other side of a conversation is no more.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// hungUp is broken without a word said or heard.
func hungUp(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		gone = n == 0 && err == nil || err != nil && broken(err)
	})
	return gone || err != nil
}

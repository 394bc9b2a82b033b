package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/internal/device/devicetest"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/routes/routestest"
)

// pair are the two ends of a conversation.
func pair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return ends[0], ends[1]
}

// A newer agent whose sources are away displaces nobody, however long it takes,
// and says so now and then; it stops waiting when they come, or when the older
// one ends.
func TestNewerAgentWaitsForItsSources(t *testing.T) {
	for _, older := range []string{"goes on", "ends"} {
		inWorld(t, func(w *world) {
			a, err := assembleOn(platform{devices: w.devices, routes: w.routes, close: func() {}}, w.config, []int{1}, packet.HashKey{1, 2})
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := pair(t)
			a.older = &takeover{conn: ours}
			ended := make(chan error, 1)
			go func() { ended <- a.awaitSources(context.Background()) }()
			a.links <- w.links
			w.pass(time.Hour)
			if n := w.log.count(); n < 10 || n > 30 {
				t.Errorf("%d lines of log in an hour", n)
			}
			select {
			case err := <-ended:
				t.Fatalf("it waits no more: %v", err)
			default:
			}
			if older == "ends" {
				if err := theirs.Close(); err != nil {
					t.Fatal(err)
				}
				w.pass(time.Second)
				if err := <-ended; !errors.Is(err, errOlderEnded) {
					t.Errorf("the older one ended: %v", err)
				}
				return
			}
			a.desired <- update{delta: all(good()), open: true}
			if err := <-ended; err != nil {
				t.Errorf("in sync: %v", err)
			}
		})
	}
}

// An agent leaves for who means it and still waits, for nobody else.
func TestWhoMayHaveAnAgentLeave(t *testing.T) {
	for name, c := range map[string]struct {
		hello   hello
		hangsUp bool
		leaves  bool
	}{
		"of another node":         {hello: hello{Node: "node2"}},
		"means another agent":     {hello: hello{Node: "node1", Instance: "another"}},
		"gone by now":             {hello: hello{Node: "node1"}, hangsUp: true},
		"waits":                   {hello: hello{Node: "node1"}, leaves: true},
		"waits, means this agent": {hello: hello{Node: "node1", Instance: "this"}, leaves: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.started()
				w.agent.instance = "this"
				ours, theirs := pair(t)
				if c.hangsUp {
					if err := theirs.Close(); err != nil {
						t.Fatal(err)
					}
				}
				err := w.agent.leave(context.Background(), ours, c.hello, func() bool { return true })
				synctest.Wait()
				if why, ended := w.ended(); ended != c.leaves || ended && !errors.Is(why, errHandedOver) || (err == nil) != c.leaves {
					t.Errorf("ended %t (%v), told %v", ended, why, err)
				}
			})
		})
	}
}

func placeConfig(t *testing.T) *Config {
	t.Helper()
	c := &Config{NodeName: "node1", RunDir: t.TempDir(), BPFFS: t.TempDir(), Log: slog.New(slog.DiscardHandler), Takeover: TakeoverAlways}
	if err := os.Mkdir(c.pinDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	return c
}

// Whether an agent lives the pins' lock says. A process that ends is waited for,
// and a directory that a cleanup removed meanwhile is made again.
func TestLockOfThePins(t *testing.T) {
	c := placeConfig(t)
	held, err := lockPins(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockPins(c, 0); !errors.Is(err, ErrRuns) {
		t.Errorf("beside a living one: %v", err)
	}
	ending := held
	time.AfterFunc(50*time.Millisecond, func() { _ = ending.Close() })
	held, err = lockPins(c, time.Minute)
	if err != nil {
		t.Fatalf("after it ended: %v", err)
	}
	if err := os.Remove(c.pinDir()); err != nil {
		t.Fatal(err)
	}
	next, err := lockPins(c, 0)
	if err != nil {
		t.Fatalf("after a cleanup: %v", err)
	}
	if _, err := lockPins(c, 0); !errors.Is(err, ErrRuns) {
		t.Errorf("beside it: %v", err)
	}
	if err := errors.Join(held.Close(), next.Close()); err != nil {
		t.Error(err)
	}
}

// What answers at the takeover socket and is no agent keeps none from starting,
// and lets none start beside a living one.
func TestStrangersAtTheTakeoverSocket(t *testing.T) {
	for name, answer := range map[string]string{
		"hangs up": "", "garbage": "garbage in, garbage out", "a huge message": "\x04\x00\x00\x00x", "an empty message": "\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			c := placeConfig(t)
			l, err := net.Listen("unix", c.takeoverPath())
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Write([]byte(answer))
					_ = conn.Close()
				}
			}()
			older, pins, err := findPlace(c, fastpath.Config{Workers: 1, MaxPorts: 1})
			if older != nil || pins == nil || err != nil {
				t.Fatalf("nobody lives: %v, %v, %v", older, pins, err)
			}
			defer pins.Close()
			if name != "garbage" {
				return // one wait for a living one is enough
			}
			if _, err := clearWay(c, ""); !errors.Is(err, ErrRuns) {
				t.Errorf("somebody lives: %v", err)
			}
		})
	}
}

// A run directory that takes no checkpoint is said once, not at every try; what a
// process left that died while it wrote is removed by the next one that writes.
func TestCheckpointThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	log := &logLines{}
	c, s := newCheckpoint(&Config{RunDir: dir, NodeName: "node1", Log: slog.New(slog.NewTextHandler(log, nil))}), good()
	for i := range 5 {
		c.say(t, &s, manyEntries(i, i+1))
	}
	if n := log.count(); n != 1 {
		t.Errorf("said %d times: %q", n, log.text)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(dir, strings.Replace(halfPattern, "*", "123", 1))
	if err := os.WriteFile(half, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.say(t, &s, manyEntries(5, 6))
	c.close()
	if n := log.count(); n != 2 {
		t.Errorf("said %d times: %q", n, log.text)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a checkpoint: %v", err)
	}
	if got := mustLoad(t, dir); len(got.FDB) != len(s.FDB) {
		t.Errorf("%d entries, want %d", len(got.FDB), len(s.FDB))
	}

	c = newCheckpoint(&Config{RunDir: filepath.Join(dir, "none"), NodeName: "node1", Log: slog.New(slog.DiscardHandler)})
	c.note(manyEntries(0, 1), &s)
	now := time.Now()
	c.sync(now, s)
	err := <-c.writing
	c.writing <- err
	if next := c.sync(now, s); next.Sub(now) != checkpointRetry {
		t.Errorf("the next try comes after %v", next.Sub(now))
	}
}

// A newer agent that found a socket whose device had just gone asks the older one
// again, which then is the one it takes over from; if there is none any more it
// says so.
func TestTakeoverBeginsAnew(t *testing.T) {
	c := placeConfig(t)
	c.Manifests, c.MaxPorts = t.TempDir(), 16
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	assemble := func() *Agent {
		a, err := assembleOn(platform{devices: devicetest.New(), routes: routestest.New(), close: func() {}}, *c, nil, packet.HashKey{1, 2})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a, b := assemble(), assemble()
	engine, err := fastpath.New(a.engineConfig())
	if err != nil {
		t.Fatal(err)
	}
	a.setEngine(engine)
	if a.pins, err = lockPins(c, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.loop(ctx) }()
	stop, err := a.serveTakeover(ctx)
	if err != nil {
		t.Fatal(err)
	}

	first, _, err := findPlace(c, b.engineConfig())
	if err != nil || first == nil {
		t.Fatalf("no older agent: %v", err)
	}
	b.older, b.pins = first, first.pins
	again, err := b.askAgain(unix.EBUSY)
	if err != nil {
		t.Fatal(err)
	}
	if again == first || !first.closed || again.offer.Instance != a.instance || b.older != again || b.pins != again.pins || again.mem == nil {
		t.Errorf("first %+v, then %+v", first, again)
	}

	cancel()
	stop()
	if err := errors.Join(<-ended, engine.Stop(), a.pins.Close()); err != nil {
		t.Error(err)
	}
	if _, err := b.askAgain(unix.EBUSY); !errors.Is(err, errOlderEnded) || !again.closed {
		t.Errorf("the older one ended: %v", err)
	}
	pins, err := lockPins(c, 0) // nothing of it is held any more
	if err != nil {
		t.Fatal(err)
	}
	_ = pins.Close()
}

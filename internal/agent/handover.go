package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
)

// A planned upgrade loses no frame: the new process takes memory, sockets and
// the frames' places from the old one.
//
//	new                                 old
//	 hello ───────────────────────────►  format, node and geometry fit?
//	 ◄────────────────────────── offer   with memory and the pins' lock
//	 sources in sync, tables compiled,
//	 programs taken over
//	 go ──────────────────────────────►  workers stop at a safe point
//	 ◄────────────── state and sockets
//	 workers start
//	 done ────────────────────────────►  ends
//
// The kernel receives into the rings all the while. Until done, the old one
// goes on if anything fails.

// takeoverFormat changes with what is said between the two.
const takeoverFormat = 1

type hello struct {
	Format   int
	Node     string
	Geometry string
	Build    string
	Always   bool // even from the same build
	// Leave asks the old process to end, for a cold start in its place.
	Leave bool
}

type offer struct {
	Refused string // why not; "": the rest counts
	// SameBuild: refused because nothing asks for an upgrade to the same build.
	SameBuild bool
	// OtherNode: refused because the asker is no successor but a stranger.
	OtherNode bool
	HashKey   packet.HashKey
	Ports     []offeredPort
	Uplinks   []offeredUplink
}

type offeredPort struct {
	Endpoint desired.EndpointKey
	Device   string
	IfIndex  int
	ID       table.PortID
	Worker   int
}

type offeredUplink struct {
	Device  string
	IfIndex int
}

// frozen is the state at the safe point.
type frozen struct {
	Handover fastpath.Handover
	Ports    []offeredPort
	Uplinks  []offeredUplink
}

// freezeFor bounds how long the old process stands still for the new one.
const freezeFor = 2 * time.Second

// errHandedOver ends the loop of an agent whose sockets another one has.
var errHandedOver = errors.New("handed over")

func (c *Config) takeoverPath() string { return filepath.Join(c.RunDir, "takeover.sock") }

// serveTakeover lets a newer process take this one's place.
func (a *Agent) serveTakeover(ctx context.Context) (stop func(), err error) {
	path := a.config.takeoverPath()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("takeover socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("takeover socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("takeover socket: %w", err), l.Close())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			if err := a.handOver(ctx, conn); err != nil {
				a.log.Warn("takeover did not happen", "error", err)
				_ = conn.Close()
			}
		}
	}()
	return func() {
		_ = l.Close()
		<-done
	}, nil
}

// handOver is one conversation with a newer process. On success the connection
// stays open until this one has let go of everything.
func (a *Agent) handOver(ctx context.Context, conn *net.UnixConn) error {
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	var h hello
	if err := receiveMessage(conn, &h); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	if h.Leave {
		if h.Node != a.config.NodeName {
			return fmt.Errorf("node %s asks this agent, of %s, to leave", h.Node, a.config.NodeName)
		}
		a.log.Info("asked to leave for a newer agent's cold start")
		return a.ask(ctx, func() { a.successor = conn })
	}
	var o offer
	if err := a.ask(ctx, func() { o = a.offer(h) }); err != nil {
		return err
	}
	if err := sendMessage(conn, o); err != nil || o.Refused != "" {
		return errors.Join(err, errors.New(o.Refused))
	}
	if err := sendFDs(conn, []int{a.engine.Memory().FD(), int(a.pins.Fd())}); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	a.log.Info("a newer agent prepares to take over")
	// It waits for its sources now; that takes what it takes.
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	end := context.AfterFunc(ctx, func() { _ = conn.Close() })
	var start string
	err := receiveMessage(conn, &start)
	end()
	if err != nil {
		return fmt.Errorf("the newer agent gave up: %w", err)
	}
	asked := a.ask(ctx, func() { err = a.freeze(conn) })
	return errors.Join(asked, err)
}

func (a *Agent) offer(h hello) offer {
	switch {
	case h.Node != a.config.NodeName:
		return offer{OtherNode: true, Refused: fmt.Sprintf("node %s, this agent is %s", h.Node, a.config.NodeName)}
	case h.Format != takeoverFormat:
		return offer{Refused: fmt.Sprintf("takeover format %d, this agent has %d", h.Format, takeoverFormat)}
	case h.Build == buildID() && !h.Always:
		return offer{Refused: "same build", SameBuild: true}
	case h.Geometry != a.engine.Geometry():
		return offer{Refused: fmt.Sprintf("geometry %s, this agent has %s", h.Geometry, a.engine.Geometry())}
	}
	o := offer{HashKey: a.tables.hashKey}
	o.Ports, o.Uplinks = a.inventory()
	return o
}

// inventory lists what has sockets.
func (a *Agent) inventory() (ports []offeredPort, ups []offeredUplink) {
	for device, p := range a.ports.attached {
		if p.sockets {
			ports = append(ports, offeredPort{Endpoint: p.key, Device: device, IfIndex: p.link.Index, ID: p.entry.ID, Worker: p.entry.Worker})
		}
	}
	for _, u := range a.ups.all {
		index := 0
		if u.program != nil {
			index = u.link.Index
		}
		ups = append(ups, offeredUplink{Device: u.name, IfIndex: index})
	}
	return ports, ups
}

// freeze gives the frames away, in the loop's goroutine. If the newer process
// does not say in time that it has them, this one goes on.
func (a *Agent) freeze(conn *net.UnixConn) error {
	if err := conn.SetDeadline(time.Now().Add(freezeFor)); err != nil {
		return err
	}
	began := time.Now()
	f := frozen{}
	f.Ports, f.Uplinks = a.inventory()
	h, fds, resume := a.engine.Freeze()
	f.Handover = *h
	err := sendMessage(conn, f)
	if err == nil {
		err = sendFDs(conn, fds)
	}
	var done string
	if err == nil {
		err = receiveMessage(conn, &done)
	}
	if err != nil {
		resume()
		return fmt.Errorf("after %v of standing still, going on: %w", time.Since(began), err)
	}
	a.handedOver = true
	a.log.Info("handed over", "sockets", len(fds), "stoodStill", time.Since(began).String())
	a.successor = conn // ends the loop; closed once everything is let go of
	return nil
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
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
//	 prepare ─────────────────────────►  its loop stands still from here on
//	 ◄────────────────────────── ready   with the sockets and a page for the state
//	 rings mapped, threads started
//	 go ──────────────────────────────►  workers stop at a safe point
//	 the first worker waits
//	 ◄───────────────────────────────    the state is in the page
//	 token taken, workers run
//	 done ────────────────────────────►  ends
//
// Only from go to done does nobody forward, and then nothing is done that could
// have been done before. The kernel receives into the rings all the while. Until
// the token is taken, the old one goes on if anything fails.

// takeoverFormat changes with what is said between the two.
const takeoverFormat = 3

type hello struct {
	Format   int
	Node     string
	Geometry string
	Build    string
	Always   bool // even from the same build
	// Leave asks the old process to end, for a cold start in its place; only the
	// one of that Instance, if that is given.
	Leave    bool
	Instance string
}

type offer struct {
	Refused string // why not; "": the rest counts
	// SameBuild: refused because nothing asks for an upgrade to the same build.
	SameBuild bool
	// OtherNode: refused because the asker is no successor but a stranger.
	OtherNode bool
	Instance  string // names the old process
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

// ready is what stays the same until the safe point. The descriptors of its
// sockets follow, then the three of the page for the state.
type ready struct {
	Handover fastpath.Handover
	Ports    []offeredPort
	Uplinks  []offeredUplink
}

const (
	// prepareFor bounds how long the old process's loop stands still for the new
	// one's preparations. Its workers forward.
	prepareFor = 10 * time.Second
	// freezeFor bounds how long its workers do.
	freezeFor = 2 * time.Second
)

// errHandedOver ends the loop of an agent whose sockets another one has.
var errHandedOver = errors.New("handed over")

func (c *Config) takeoverPath() string { return filepath.Join(c.RunDir, "takeover.sock") }

// serveTakeover lets a newer process take this one's place.
func (a *Agent) serveTakeover(ctx context.Context) (stop func(), err error) {
	path := a.config.takeoverPath()
	l, err := a.listen(path)
	if err != nil {
		return nil, fmt.Errorf("takeover socket: %w", err)
	}
	var conversations sync.WaitGroup
	conversations.Go(func() {
		for {
			conn, err := l.AcceptUnix()
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil: // no descriptors left, for one: it may pass
				a.log.Warn("takeover socket", "error", err)
				select {
				case <-ctx.Done():
				case <-time.After(acceptAgain):
				}
				continue
			}
			conversations.Go(func() {
				if err := a.handOver(ctx, conn); err != nil {
					a.log.Warn("takeover did not happen", "error", err)
					_ = conn.Close()
				}
			})
		}
	})
	return func() {
		a.release(l, path)
		conversations.Wait()
	}, nil
}

// startsFor is how long the workers stay awake for a newer process's start, which
// takes CPU time. What it may wait for after that takes none.
const startsFor = 30 * time.Second

// acceptAgain is the pause after a connection that could not be accepted.
const acceptAgain = time.Second

// handOver is one conversation with a newer process, beside others: one that
// waits for its sources keeps nobody else waiting, and the first that is prepared
// has the frames. On success the connection stays open until this one has let go
// of everything.
func (a *Agent) handOver(ctx context.Context, conn *net.UnixConn) error {
	end := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer end()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	var h hello
	if err := receiveMessage(conn, &h); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	if h.Leave {
		return a.leave(ctx, conn, h, end)
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
	a.engine.StayAwake(startsFor)
	// It waits for its sources now; that takes what it takes.
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	var prepare string
	if err := receiveMessage(conn, &prepare); err != nil {
		return fmt.Errorf("the newer agent gave up: %w", err)
	}
	end()
	a.engine.StayAwake(prepareFor + freezeFor)
	var err error
	asked := a.ask(ctx, func() { err = a.giveAway(conn) })
	return errors.Join(asked, err)
}

// leave ends this agent for a cold start in its place, if who asks means this one
// and still waits: a question may have lain there for long.
func (a *Agent) leave(ctx context.Context, conn *net.UnixConn, h hello, end func() bool) error {
	switch {
	case h.Node != a.config.NodeName:
		return fmt.Errorf("node %s asks this agent, of %s, to leave", h.Node, a.config.NodeName)
	case h.Instance != "" && h.Instance != a.instance:
		return errors.New("asked to leave, but another agent is meant, whose place this one has")
	}
	end()
	late := false
	if err := a.ask(ctx, func() {
		if late = hungUp(conn); !late {
			a.successor = conn
		}
	}); err != nil {
		return err
	}
	if late {
		return errors.New("asked to leave, but who asked is gone")
	}
	a.log.Info("asked to leave for a newer agent's cold start")
	return nil
}

func (a *Agent) offer(h hello) offer {
	o := offer{Instance: a.instance, HashKey: a.tables.hashKey}
	switch {
	case h.Node != a.config.NodeName:
		o.OtherNode, o.Refused = true, fmt.Sprintf("node %s, this agent is %s", h.Node, a.config.NodeName)
	case h.Format != takeoverFormat:
		o.Refused = fmt.Sprintf("takeover format %d, this agent has %d", h.Format, takeoverFormat)
	case !h.Always && h.Build == buildID():
		o.SameBuild, o.Refused = true, "same build"
	case h.Geometry != a.engine.Geometry():
		o.Refused = fmt.Sprintf("geometry %s, this agent has %s", h.Geometry, a.engine.Geometry())
	}
	if o.Refused != "" {
		return o
	}
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

// giveAway has the newer process prepare, and then gives it the frames, all in
// the loop's goroutine: no socket comes or goes in between. If the newer one does
// not say in time that it has them, this one goes on.
func (a *Agent) giveAway(conn *net.UnixConn) (err error) {
	if err := conn.SetDeadline(time.Now().Add(prepareFor)); err != nil {
		return err
	}
	h, fds := a.engine.Offer()
	page, err := newStatePage(h)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, page.close()) }()
	r := ready{Handover: *h}
	r.Ports, r.Uplinks = a.inventory()
	if err := sendMessage(conn, r); err != nil {
		return err
	}
	if err := sendFDs(conn, append(fds, page.fds[:]...)); err != nil {
		return fmt.Errorf("sockets: %w", err)
	}
	var start string
	if err := receiveMessage(conn, &start); err != nil {
		return fmt.Errorf("the newer agent does not get ready: %w", err)
	}
	return a.freeze(conn, page, len(fds))
}

func (a *Agent) freeze(conn *net.UnixConn, page *statePage, sockets int) error {
	if err := conn.SetDeadline(time.Now().Add(freezeFor)); err != nil {
		return err
	}
	since := time.Now()
	resume := a.engine.Freeze(page.data, page.tell)
	var done string
	if err := receiveMessage(conn, &done); err != nil && page.take() {
		resume()
		return fmt.Errorf("after %v of standing still, going on: %w", time.Since(since), err)
	}
	a.handedOver = true
	a.log.Info("handed over", "sockets", sockets, "stoodStill", time.Since(since).String())
	a.successor = conn // ends the loop; closed once everything is let go of
	return nil
}

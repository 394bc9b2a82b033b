package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/linkmon"
	"picot.dev/picot/xsk"
)

// takeover is the new process's side: what an older agent offered.
type takeover struct {
	conn  *net.UnixConn
	offer offer
	mem   *xsk.Memory
	// touched is closed once every page of mem is mapped here, which is done
	// while the older agent forwards and the sources come in.
	touched chan struct{}
	pins    *os.File
	closed  bool
}

// memory is the older agent's, all there, and the caller's from now on.
func (t *takeover) memory() *xsk.Memory {
	<-t.touched
	mem := t.mem
	t.mem = nil
	return mem
}

// close gives back everything an offer brought, once.
func (t *takeover) close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	err := errors.Join(t.conn.Close(), t.pins.Close())
	if t.mem != nil {
		err = errors.Join(err, t.memory().Close())
	}
	return err
}

// errOlderEnded: the older agent, or its side of the conversation, is no more.
var errOlderEnded = errors.New("the older agent is gone, or does not want to any more")

const (
	// sayWaiting is how often a newer agent says that its sources are not in sync.
	sayWaiting = 2 * time.Minute
	// lookForOlder is how often it looks whether the older one is still there.
	lookForOlder = 100 * time.Millisecond
)

// settleFor is how long after a takeover the workers stay awake: this process
// starts the rest of itself then, and the older one ends.
const settleFor = 5 * time.Second

// awaitSources waits until everything was listed once. There is no limit: what
// keeps the sources away is no reason to end an agent that forwards. If that one
// ends, though, nobody forwards.
func (a *Agent) awaitSources(ctx context.Context) error {
	look := time.NewTicker(lookForOlder)
	defer look.Stop()
	say := time.NewTicker(sayWaiting)
	defer say.Stop()
	for !a.linksIn || !a.desiredIn {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-a.failed:
			return err
		case e := <-a.links:
			a.ports.onLinks(e)
			a.linksIn = true
		case u := <-a.desired:
			a.onDesired(u)
		case <-look.C:
			if hungUp(a.older.conn) {
				return errOlderEnded
			}
		case <-say.C:
			a.log.Warn("no takeover yet: the sources are not in sync; the older agent goes on", "waiting", a.waiting())
		}
	}
	return nil
}

// takeOver waits for the sources, prepares everything the older agent has, and
// goes on with its sockets. When it returns nil the workers run.
func (a *Agent) takeOver(ctx context.Context) error {
	t := a.older
	if err := a.awaitSources(ctx); err != nil {
		return err
	}
	a.inherit(t.offer.Ports, t.offer.Uplinks)
	a.nodes.sync(time.Now())
	<-t.touched // not while the older one's loop stands still
	r, err := a.takeSockets(t)
	for tries := 1; errors.Is(err, unix.EBUSY) && tries < prepareTries; tries++ {
		if t, err = a.askAgain(err); err == nil {
			r, err = a.takeSockets(t)
		}
	}
	if err != nil {
		return err
	}
	a.dropStrangers(r.Ports)
	// The older one lets go of its control socket and of the API, then of this
	// connection.
	if err := t.conn.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		return err
	}
	if _, err := t.conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		a.log.Warn("the older agent lingers", "error", err)
	}
	return t.conn.Close()
}

// prepareTries bounds how often a newer agent prepares. A socket whose device goes
// between the offer and the mapping of its rings has none any more (EBUSY,
// net/xdp/xsk.c), and the older agent, unharmed, has to let go of it first.
const prepareTries = 5

// askAgain begins anew with the older agent.
func (a *Agent) askAgain(cause error) (*takeover, error) {
	a.log.Warn("takeover begins anew: a device went meanwhile", "error", cause)
	err := a.older.close()
	a.pins = nil
	if err != nil {
		return nil, errors.Join(cause, err)
	}
	time.Sleep(lookForOlder)
	t, err := requestTakeover(&a.config, a.engineConfig(), buildID)
	if err != nil || t == nil {
		return nil, errors.Join(errOlderEnded, err)
	}
	a.older, a.pins = t, t.pins
	a.inherit(t.offer.Ports, t.offer.Uplinks)
	<-t.touched
	return t, nil
}

// takeSockets goes on with the older agent's sockets. When it returns nil the
// workers run, and the older one is about to end.
func (a *Agent) takeSockets(t *takeover) (*ready, error) {
	if err := t.conn.SetDeadline(time.Now().Add(prepareFor)); err != nil {
		return nil, err
	}
	r, page, err := a.prepare(t)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := page.close(); err != nil {
			a.log.Warn("takeover's page", "error", err)
		}
	}()
	if a.changedSince(t.offer, r) {
		a.inherit(r.Ports, r.Uplinks)
	}
	s := a.tables.Snapshot()
	a.tables.last, a.tables.dirty, a.published = s, false, s.Version
	a.engine.Publish(s)
	runtime.GC() // not while nobody forwards
	pause, err := a.goOn(t, r, page)
	if err != nil {
		err = errors.Join(err, a.engine.Abandon())
		a.engine = nil
		return nil, err
	}
	a.log.Info("took over", "sockets", len(r.Handover.Sockets), "pause", pause.String())
	return r, nil
}

// prepare makes the data path on the older agent's sockets, while that one works.
func (a *Agent) prepare(t *takeover) (*ready, *statePage, error) {
	if err := sendMessage(t.conn, "prepare"); err != nil {
		return nil, nil, err
	}
	r := &ready{}
	if err := receiveMessage(t.conn, r); err != nil {
		return nil, nil, fmt.Errorf("what it has: %w", err)
	}
	sockets := len(r.Handover.Sockets)
	fds, err := receiveFDs(t.conn, sockets+pageFDs)
	if err != nil {
		return nil, nil, fmt.Errorf("sockets: %w", err)
	}
	page, err := openStatePage(&r.Handover, [pageFDs]int(fds[sockets:]))
	engine, perr := fastpath.Prepare(a.engineConfig(), &r.Handover, t.memory(), fds[:sockets]) // which owns it, whatever comes
	if perr == nil && err != nil {
		perr = engine.Abandon()
	} else if perr != nil && err == nil {
		err = page.close()
	}
	if err := errors.Join(err, perr); err != nil {
		return nil, nil, err
	}
	a.setEngine(engine)
	return r, page, nil
}

// goOn is the moment in which nobody forwards. It returns how long that was.
func (a *Agent) goOn(t *takeover, r *ready, page *statePage) (time.Duration, error) {
	if err := t.conn.SetDeadline(time.Now().Add(freezeFor)); err != nil {
		return 0, err
	}
	a.engine.StayAwake(freezeFor + settleFor)
	pause, err := a.engine.Adopt(&r.Handover, page.data,
		func() error {
			if err := sendMessage(t.conn, "go"); err != nil {
				return err
			}
			return page.await(t.conn, freezeFor)
		},
		func() error {
			if !page.take() {
				return errors.New("too late: the older agent goes on")
			}
			return nil
		})
	if err != nil {
		return 0, err
	}
	if err := sendMessage(t.conn, "done"); err != nil {
		a.log.Warn("the older agent is gone before it was told", "error", err)
	}
	return pause, nil
}

func (a *Agent) changedSince(o offer, f *ready) bool {
	if len(o.Ports) != len(f.Ports) {
		return true
	}
	had := map[offeredPort]bool{}
	for _, p := range o.Ports {
		had[p] = true
	}
	for _, p := range f.Ports {
		if !had[p] {
			return true
		}
	}
	return false
}

// inherit makes the older agent's ports and uplinks ours, as far as they are
// still wanted and there: programs taken over, table entries under the same
// IDs. What cannot be inherited is attached anew later.
func (a *Agent) inherit(ports []offeredPort, ups []offeredUplink) {
	want := a.ports.wanted()
	offered := map[string]bool{}
	for _, o := range ports {
		e, ok := want[o.Device]
		l, there := a.ports.links[o.Device]
		if !ok || !there || l.Index != o.IfIndex || e.EndpointKey != o.Endpoint {
			continue
		}
		offered[o.Device] = true
		if a.ports.attached[o.Device] != nil {
			continue
		}
		if err := a.ports.inherit(o, e, l); err != nil {
			a.log.Warn("port is attached anew", "device", o.Device, "error", err)
			delete(offered, o.Device)
		}
	}
	for device, p := range a.ports.attached {
		if !offered[device] {
			p.sockets = false // it went in the meantime: opened anew
			a.ports.dirty = true
		}
	}
	self, known := a.tables.state.Nodes[a.config.NodeName]
	for i, o := range ups {
		l, there := a.ports.links[o.Device]
		if i >= len(a.ups.all) || a.ups.all[i].name != o.Device || !there || l.Index != o.IfIndex || !known {
			continue
		}
		if a.ups.all[i].program != nil {
			continue
		}
		nl, err := netlink.LinkByIndex(l.Index)
		if err == nil {
			err = a.ups.takeProgram(a.ups.all[i], l, &self, nl.Attrs().NumRxQueues)
		}
		if err != nil {
			a.log.Warn("uplink is attached anew", "device", o.Device, "error", err)
		}
	}
}

// inherit takes one port's program over and puts it into the tables.
func (p *ports) inherit(o offeredPort, e desired.Endpoint, l linkmon.Link) error {
	nl, err := netlink.LinkByIndex(l.Index)
	if err != nil {
		return err
	}
	program, err := p.program(l, max(1, nl.Attrs().NumRxQueues))
	if err != nil {
		return err
	}
	if !program.Reused() {
		return errors.Join(errors.New("its program was not the older agent's"), program.Close())
	}
	a := &port{key: e.EndpointKey, link: l, program: program, sockets: true}
	a.entry.ID, a.entry.Worker = o.ID, o.Worker
	p.attached[l.Name] = a
	return p.ensure(e, l)
}

// dropStrangers closes sockets that came along and belong to no port of ours.
func (a *Agent) dropStrangers(ports []offeredPort) {
	for _, o := range ports {
		if p := a.ports.attached[o.Device]; p != nil && p.sockets && p.entry.ID == o.ID {
			p.check = true // the slots of an older build's map may have become others
			continue
		}
		if err := a.engine.RemovePort(o.ID.Index()); err != nil {
			a.log.Warn("left-over sockets", "device", o.Device, "error", err)
		}
	}
	a.ports.dirty, a.ups.dirty, a.nodes.dirty = true, true, true
}

// coldInstead drops what was prepared of a takeover that failed, has the older
// agent leave if it still lives, and makes everything anew.
func (a *Agent) coldInstead(cause error) error {
	a.log.Warn("no takeover: cold start", "error", cause)
	t := a.older
	a.older = nil
	errs := []error{t.close()}
	for device, p := range a.ports.attached {
		a.tables.portDown(p.key)
		errs = append(errs, p.program.Close())
		delete(a.ports.attached, device)
	}
	for _, u := range a.ups.all {
		if u.program != nil {
			errs = append(errs, u.program.Close())
			u.program, u.link = nil, linkmon.Link{}
		}
	}
	if err := errors.Join(errs...); err != nil {
		a.log.Warn("dropping the prepared takeover", "error", err)
	}
	var err error
	if a.pins, err = clearWay(&a.config, t.offer.Instance); err != nil {
		return err
	}
	if a.kube != nil && !a.desiredIn {
		a.restore() // as the older one left it
	}
	engine, err := fastpath.New(a.engineConfig())
	if err != nil {
		return err
	}
	a.setEngine(engine)
	a.ports.dirty, a.ups.dirty, a.nodes.dirty, a.tables.dirty = true, true, true, true
	return a.startEngine()
}

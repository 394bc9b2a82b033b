package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/device"
	"picot.dev/picot/internal/linkmon"
	"picot.dev/picot/xsk/xdp"
)

// One port: how it is made, looked after and taken away.

// ensure attaches a device if it is not, looks whether all is still there if it
// is time, and updates its table entry.
func (p *ports) ensure(e desired.Endpoint, l linkmon.Link) error {
	a := p.attached[l.Name]
	if a == nil {
		a = &port{key: e.EndpointKey, link: l}
		p.attached[l.Name] = a
	}
	if !a.sockets {
		err := p.attach(a, e, l)
		a.foreign = a.program == nil && errors.Is(err, xdp.ErrForeignProgram)
		if err != nil {
			return errors.Join(err, p.shut(a, l))
		}
	} else if a.check {
		if err := p.keep(a); err != nil {
			return err
		}
	}
	a.check, a.link = false, l
	entry := a.entry
	entry.Name, entry.MAC, entry.Addresses = l.Name, e.MAC, e.Addresses
	entry.Segment, entry.MTU, entry.Down = table.Segment(e.Segment), l.MTU, !l.Up
	entry.Security = security(e.PortSecurity)
	entry.Network = p.tables.ids[e.Network]
	if !samePort(entry, a.entry) {
		a.entry = entry
		p.tables.portUp(e.EndpointKey, entry)
	}
	return nil
}

func samePort(a, b table.Port) bool {
	same := slices.Equal(a.Addresses, b.Addresses)
	a.Addresses, b.Addresses = nil, nil
	return same && a.ID == b.ID && a.Name == b.Name && a.Network == b.Network && a.MAC == b.MAC &&
		a.Segment == b.Segment && a.Security == b.Security && a.MTU == b.MTU && a.Worker == b.Worker && a.Down == b.Down
}

func security(s desired.PortSecurity) table.PortSecurity {
	switch s {
	case desired.SecurityMAC:
		return table.SecurityMAC
	case desired.SecurityMACIP:
		return table.SecurityMACIP
	}
	return table.SecurityOff
}

// attach makes a device a port. The order keeps it closed at every step: the
// program with empty slots first, then sockets whose fill rings have frames,
// then their slots. The device is brought up by raise.
func (p *ports) attach(a *port, e desired.Endpoint, l linkmon.Link) error {
	d, err := p.kernel.Query(l.Index)
	if err != nil {
		return err
	}
	if err := p.kernel.Silence(l.Index); err != nil {
		return err
	}
	if a.program == nil {
		if a.program, err = p.program(l, d.Queues); err != nil {
			return err
		}
	}
	if p.retry[l.Name] != nil { // something failed before: do not trust what is there
		if err := p.intact(a); err != nil {
			return err
		}
	}
	at, err := p.sockets.Place()
	if err != nil {
		return err
	}
	id := a.entry.ID
	if id == 0 {
		if id, err = p.tables.NewPortID(); err != nil {
			return err
		}
		if id.Index() > p.config.MaxPorts {
			return fmt.Errorf("%w (now %d)", fastpath.ErrFull, p.config.MaxPorts)
		}
	}
	// The ID is reserved by being in the tables: a port that is not there must
	// have no socket, or the next one would get its index. ensure fills it in.
	network, ok := p.tables.ids[e.Network]
	if !ok {
		return fmt.Errorf("network %s is not in the tables: mend it first", e.Network)
	}
	entry := table.Port{ID: id, Worker: at.Worker, Network: network, Down: true}
	if err := p.tables.SetPort(entry); err != nil {
		return err
	}
	a.entry, p.tables.dirty = entry, true
	if err := p.openSockets(a, l, d.Queues, at); err != nil {
		return errors.Join(err, p.sockets.ClosePort(a.entry.ID.Index()))
	}
	a.sockets, a.raise = true, true
	p.log.Info("port attached", "device", l.Name, "endpoint", e.EndpointKey.String(), "network", e.Network,
		"port", a.entry.ID.Index(), "worker", at.Worker, "mode", a.program.Mode().String(), "reused", a.program.Reused())
	return nil
}

func (p *ports) openSockets(a *port, l linkmon.Link, queues int, at fastpath.Place) error {
	for q := range queues {
		fd, err := p.sockets.OpenPort(a.entry.ID.Index(), q, l.Index, at)
		if errors.Is(err, device.ErrNoQueue) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := a.program.SetSocket(q, fd); err != nil {
			return err
		}
	}
	return nil
}

// program puts the workload program on a device, or takes a pinned one over.
func (p *ports) program(l linkmon.Link, queues int) (device.Program, error) {
	return attachProgram(p.kernel, xdp.AttachOptions{
		IfIndex: l.Index, Kind: xdp.Workload, Queues: queues,
		PinDir: p.config.pinDir(), Name: l.Name, AllowGeneric: p.config.AllowGeneric, Cache: p.cache,
	})
}

// attachProgram attaches; what an earlier process left that cannot be exchanged,
// of another XDP mode or another build, makes way. Its removal sets a workload
// device down first.
func attachProgram(k device.Kernel, o xdp.AttachOptions) (device.Program, error) {
	program, err := k.Attach(o)
	if !errors.Is(err, xdp.ErrMode) && !errors.Is(err, xdp.ErrExchange) {
		return program, err
	}
	pins, perr := k.Pins(o.PinDir)
	err = errors.Join(err, perr)
	for _, pin := range pins {
		if pin.Name == o.Name && !pin.Stray {
			if rerr := k.RemovePin(pin); rerr != nil {
				return nil, errors.Join(err, fmt.Errorf("removing its program: %w", rerr))
			}
			return k.Attach(o)
		}
	}
	return nil, err
}

// keep mends what somebody took away of a port: pins, program, slots. What cannot
// be mended and leaves the program on the device leaves the port closed.
func (p *ports) keep(a *port) error {
	err := p.intact(a)
	if a.lost {
		return err
	}
	var mended []string
	errs := []error{err, p.kernel.Silence(a.link.Index)}
	for q, fd := range p.sockets.PortSockets(a.entry.ID.Index()) {
		filled, err := a.program.KeepSocket(q, fd)
		errs = append(errs, err)
		if filled && err == nil {
			mended = append(mended, fmt.Sprintf("slot %d", q))
		}
	}
	p.repairs += mendedNow(p.log, a.link.Name, mended)
	return errors.Join(errs...)
}

// intact mends the program and its pins. A port whose frames may not meet the
// program is open: it is set down at once, and made anew.
func (p *ports) intact(a *port) error {
	mended, err := a.program.Keep()
	p.repairs += mendedNow(p.log, a.link.Name, mended)
	if errors.Is(err, xdp.ErrLost) || errors.Is(err, xdp.ErrUnsure) {
		a.lost = true
		return errors.Join(err, noDevice(p.kernel.Down(a.link.Index)))
	}
	return err
}

// shut sets a device down that could not be made a port, and that no program of
// ours closes. If not even that can be done it is open, and closing it goes on
// like that of a port that must go.
func (p *ports) shut(a *port, l linkmon.Link) error {
	if a.program != nil || a.foreign {
		return nil
	}
	d, err := p.kernel.Query(l.Index)
	if err == nil && !d.Up || errors.Is(err, xdp.ErrNoDevice) {
		return nil
	}
	err = noDevice(p.kernel.Down(l.Index))
	a.lost = err != nil
	return err
}

// noDevice is err, unless that only says that there is no device: none is closed.
func noDevice(err error) error {
	if errors.Is(err, xdp.ErrNoDevice) {
		return nil
	}
	return err
}

// raise brings attached devices up, once the workers have tables with their
// ports: the first frame already has its place. It returns when to be called
// again.
func (p *ports) raise(now time.Time) (next time.Time) {
	for name, a := range p.attached {
		if !a.raise || !a.sockets || !a.closing.IsZero() {
			continue
		}
		if b := p.retry[name]; b != nil && now.Before(b.due) {
			continue // sync returned its time
		}
		d, err := p.kernel.Query(a.link.Index)
		if err == nil && !d.Up {
			err = p.kernel.Up(a.link.Index)
		}
		if err != nil {
			p.fail(now, name, fmt.Errorf("%s: interface %s: %w", p.where(a.key), name, err))
			if due := p.retry[name].due; next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		a.raise = false
		delete(p.retry, name)
	}
	return next
}

// leaving is how a port goes.
type leaving uint8

const (
	forGood leaving = iota // device down, program gone
	rebuilt                // it comes back at once: the pinned program stays
	kept                   // closed, but its program and device stay: its endpoint may only not be listed yet
	gone                   // there is no device any more
)

func how(wanted, deviceThere bool, a *port, keep bool) leaving {
	switch {
	case !deviceThere:
		return gone
	case a.lost:
		return forGood
	case wanted && a.broken:
		return rebuilt
	case !wanted && keep:
		return kept
	}
	return forGood
}

// staysClosed says whether a port's pins hold its program on the device without
// us, after a last look.
func (p *ports) staysClosed(a *port) bool {
	if a.program == nil {
		return false
	}
	_, err := a.program.Keep()
	return err == nil
}

// letGo closes a port's program at the agent's end: a device that its pins would
// not keep closed is set down first.
func (p *ports) letGo(name string, a *port) error {
	if a.program == nil {
		return nil
	}
	var err error
	if !p.staysClosed(a) {
		down := p.kernel.Down(a.link.Index)
		if down == nil {
			p.log.Error("its pins do not keep it closed: set down", "device", name)
		} else if noDevice(down) != nil {
			err = fmt.Errorf("NetworkEndpoint %s: interface %s stays open at our end: set it down: %w", a.key, name, down)
		}
	}
	err = errors.Join(err, a.program.Close())
	a.program = nil
	return err
}

// detach takes a port away: out of the tables, its device down, its sockets
// closed, which empties the slots, and the program last. A step that fails stops
// only what would open the port without it; the next try begins anew.
func (p *ports) detach(a *port, l leaving) error {
	p.tables.portDown(a.key)
	if a.entry.ID != 0 {
		p.tables.DeletePort(a.entry.ID)
		p.tables.dirty = true
	}
	if (l == rebuilt || l == kept) && !p.staysClosed(a) {
		l = forGood
	}
	var down, err error
	if l == forGood && !a.foreign {
		down = noDevice(p.kernel.Down(a.link.Index))
	}
	if a.sockets {
		if err = p.sockets.ClosePort(a.entry.ID.Index()); err == nil {
			a.sockets = false
		}
	}
	if err := errors.Join(down, err); err != nil {
		return err
	}
	if a.program != nil {
		if l == rebuilt || l == kept {
			err = a.program.Close()
		} else {
			err = a.program.Detach()
		}
		// Failed or not, the handle is spent. What is left is pinned, and swept.
		a.program = nil
		if p.leftover = p.leftover || l == kept || err != nil; err != nil {
			p.log.Error("program not removed", "device", a.link.Name, "error", err)
		}
	}
	if a.entry.ID != 0 { // else it was none yet
		p.log.Info("port detached", "device", a.link.Name, "endpoint", a.key.String(), "kept", l == kept)
	}
	return nil
}

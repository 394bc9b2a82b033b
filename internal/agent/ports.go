package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf/btf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/linkmon"
	"picot.dev/picot/internal/manifests"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xdp"
)

// port is a workload port that is attached, or half of it after a failure.
type port struct {
	key     desired.EndpointKey
	link    linkmon.Link
	program *xdp.Program
	entry   table.Port // ID 0: not in the tables
	sockets bool       // the engine has sockets for it
	broken  bool       // its sockets must be made anew
	raise   bool       // its device is still to be brought up
}

// ports attaches the devices of this node's endpoints. Desired are the
// endpoints that name a device which exists; actual is what is attached.
type ports struct {
	types  *btf.Cache // of the kernel, for all programs
	config *Config
	engine *fastpath.Engine
	tables *tables
	log    *slog.Logger

	links    map[string]linkmon.Link        // by name
	attached map[string]*port               // by device name
	retry    map[string]*backoff            // by device name
	missing  map[string]desired.EndpointKey // device -> endpoint that waits for it
	places   map[desired.Ref]manifests.Position
	dirty    bool
}

// backoff spaces the tries of what failed.
type backoff struct {
	err  error
	wait time.Duration
	due  time.Time
}

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

func (b *backoff) failed(now time.Time, err error) {
	b.err = err
	b.wait = min(max(firstRetry, 2*b.wait), lastRetry)
	b.due = now.Add(b.wait)
}

// onLinks takes link events in: memory only.
func (p *ports) onLinks(events []linkmon.Event) {
	for _, e := range events {
		if e.Old.Name != "" && e.Old.Name != e.Link.Name || e.Kind == linkmon.Removed {
			delete(p.links, cmp.Or(e.Old.Name, e.Link.Name))
		}
		if e.Kind != linkmon.Removed {
			p.links[e.Link.Name] = e.Link
		}
		if b := p.retry[e.Link.Name]; b != nil {
			b.due = time.Time{} // something changed: try at once
		}
	}
	p.dirty = true
}

// wanted are this node's endpoints by device.
func (p *ports) wanted() map[string]desired.Endpoint {
	w := map[string]desired.Endpoint{}
	for _, e := range p.tables.state.Endpoints {
		if e.Node == p.config.NodeName && e.Interface != "" {
			w[e.Interface] = e
		}
	}
	return w
}

// sync brings the ports in line: first what goes, since a device's successor
// needs its name, then what comes. It returns when to be called again.
func (p *ports) sync(now time.Time) (next time.Time) {
	p.dirty = false
	want := p.wanted()
	for name, a := range p.attached {
		e, ok := want[name]
		l, there := p.links[name]
		same := there && l.Index == a.link.Index
		if ok && same && e.EndpointKey == a.key && !a.broken {
			continue
		}
		if err := p.detach(a, same); err != nil {
			p.fail(now, name, err)
			continue
		}
		delete(p.attached, name)
	}
	missing := p.missing
	p.missing = map[string]desired.EndpointKey{}
	for name, e := range want {
		l, ok := p.links[name]
		if !ok {
			p.missing[name] = e.EndpointKey
			if missing[name] != e.EndpointKey {
				p.log.Warn("port not ready", "device", name, "error", p.missingError(name))
			}
			continue
		}
		if b := p.retry[name]; b != nil && now.Before(b.due) {
			continue
		}
		if err := p.ensure(e, l); err != nil {
			p.fail(now, name, fmt.Errorf("%s: interface %s: %w", p.where(e.EndpointKey), name, err))
			continue
		}
		delete(p.retry, name)
	}
	for name, b := range p.retry {
		if _, ok := want[name]; !ok && p.attached[name] == nil {
			delete(p.retry, name)
			continue
		}
		if next.IsZero() || b.due.Before(next) {
			next = b.due
		}
	}
	return next
}

// where names an endpoint and the place it was read from.
func (p *ports) where(key desired.EndpointKey) string {
	ref := desired.Ref{Kind: v1alpha1.KindNetworkEndpoint, Namespace: key.Namespace, Name: key.Name}
	if at, ok := p.places[ref]; ok {
		return at.String() + ": " + ref.String()
	}
	return ref.String()
}

// missingError says which device an endpoint waits for.
func (p *ports) missingError(device string) error {
	return fmt.Errorf("%s: spec.interface: there is no device %s: waiting for it; if it will not come, name another",
		p.where(p.missing[device]), device)
}

// has says whether a port index is an attached port's.
func (p *ports) has(index int) bool {
	for _, a := range p.attached {
		if a.entry.ID.Index() == index && a.sockets {
			return true
		}
	}
	return false
}

func (p *ports) fail(now time.Time, name string, err error) {
	b := p.retry[name]
	if b == nil {
		b = &backoff{}
		p.retry[name] = b
	}
	if b.err == nil || b.err.Error() != err.Error() {
		p.log.Error("port not ready", "device", name, "error", err)
	}
	b.failed(now, err)
}

// ensure attaches a device if it is not, and updates its table entry.
func (p *ports) ensure(e desired.Endpoint, l linkmon.Link) error {
	a := p.attached[l.Name]
	if a == nil {
		a = &port{key: e.EndpointKey, link: l}
		p.attached[l.Name] = a
	}
	if !a.sockets {
		if err := p.attach(a, e, l); err != nil {
			return err
		}
	}
	a.link = l
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
	nl, err := netlink.LinkByIndex(l.Index)
	if err != nil {
		return fmt.Errorf("looking it up: %w", err)
	}
	if err := silence(nl); err != nil {
		return err
	}
	queues := max(1, nl.Attrs().NumRxQueues)
	if a.program == nil {
		if a.program, err = p.program(l, queues); err != nil {
			return err
		}
	}
	at, err := p.engine.Place()
	if err != nil {
		return err
	}
	if a.entry.ID == 0 {
		id, err := p.tables.NewPortID()
		if err != nil {
			return err
		}
		if id.Index() > p.config.MaxPorts {
			return fmt.Errorf("%w (now %d)", fastpath.ErrFull, p.config.MaxPorts)
		}
		a.entry = table.Port{ID: id, Worker: at.Worker}
		// Reserved by being there; ensure fills it in.
		p.tables.note("port of NetworkEndpoint "+e.EndpointKey.String(), p.tables.SetPort(a.entry))
	}
	a.sockets = true
	for q := range queues {
		s, err := p.open(l, q, at)
		if q > 0 && errors.Is(err, unix.EINVAL) {
			break // the device has fewer queues in use than it could have
		}
		if err != nil {
			return errors.Join(err, p.closeSockets(a))
		}
		fd := s.FD()
		if err := p.engine.AddPort(a.entry.ID.Index(), q, at, s); err != nil {
			return errors.Join(err, s.Close(), p.closeSockets(a))
		}
		if err := a.program.SetSocket(q, fd); err != nil {
			return errors.Join(err, p.closeSockets(a))
		}
	}
	a.raise = true
	p.log.Info("port attached", "device", l.Name, "endpoint", e.EndpointKey.String(), "network", e.Network,
		"port", a.entry.ID.Index(), "worker", at.Worker, "mode", a.program.Mode().String(), "reused", a.program.Reused())
	return nil
}

// raise brings attached devices up, once the workers have tables with their
// ports: the first frame already has its place. It returns when to be called
// again.
func (p *ports) raise(now time.Time) (next time.Time) {
	for name, a := range p.attached {
		if !a.raise || !a.sockets {
			continue
		}
		nl, err := netlink.LinkByIndex(a.link.Index)
		if err == nil {
			err = netlink.LinkSetUp(nl)
		}
		if err != nil {
			p.fail(now, name, fmt.Errorf("NetworkEndpoint %s: interface %s: setting it up: %w", a.key, name, err))
			next = now.Add(firstRetry)
			continue
		}
		a.raise = false
		delete(p.retry, name)
	}
	return next
}

// program puts the workload program on a device, or takes a pinned one over.
func (p *ports) program(l linkmon.Link, queues int) (*xdp.Program, error) {
	return xdp.Attach(xdp.AttachOptions{
		IfIndex: l.Index, Kind: xdp.Workload, Queues: queues,
		PinDir: p.config.pinDir(), Name: l.Name, AllowGeneric: p.config.AllowGeneric, Types: p.types,
	})
}

func (p *ports) open(l linkmon.Link, queue int, at fastpath.Place) (*xsk.Socket, error) {
	mem := p.engine.Memory()
	return xsk.Open(mem, mem.Shard(at.Shard), xsk.Options{
		IfIndex: l.Index, Queue: queue, Fill: 1024, RX: 1024, TX: 512, Completion: 1024,
		TXBudget: 256, MultiBuffer: true, NeedWakeup: true, ZeroCopy: xsk.ZeroCopyPrefer,
	})
}

func (p *ports) closeSockets(a *port) error {
	a.sockets = false
	err := p.engine.RemovePort(a.entry.ID.Index())
	if errors.Is(err, fastpath.ErrUnknown) {
		return nil
	}
	return err
}

// detach takes a port away: out of the tables, its device down, its slots and
// sockets closed, and the program last.
func (p *ports) detach(a *port, deviceThere bool) error {
	p.tables.portDown(a.key)
	if a.entry.ID != 0 {
		p.tables.DeletePort(a.entry.ID)
	}
	if deviceThere && !a.broken {
		if nl, err := netlink.LinkByIndex(a.link.Index); err == nil {
			if err := netlink.LinkSetDown(nl); err != nil {
				return fmt.Errorf("setting %s down: %w", a.link.Name, err)
			}
		}
	}
	var err error
	if a.sockets {
		err = p.closeSockets(a)
	}
	if a.program != nil {
		if a.broken && deviceThere {
			err = errors.Join(err, a.program.Close())
		} else {
			err = errors.Join(err, a.program.Detach())
		}
		a.program = nil
	}
	p.log.Info("port detached", "device", a.link.Name, "endpoint", a.key.String())
	return err
}

// silence keeps the host from speaking into the network over its own end: no
// address, no IPv6, and every frame taken whatever its destination.
func silence(l netlink.Link) error {
	name := l.Attrs().Name
	knob := filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
	if err := os.WriteFile(knob, []byte("1"), 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("keeping the host's IPv6 off it: %w", err)
	}
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing its addresses: %w", err)
	}
	for _, a := range addrs {
		if err := netlink.AddrDel(l, &a); err != nil {
			return fmt.Errorf("taking the host's address %s off it: %w", a.IPNet, err)
		}
	}
	if err := netlink.SetPromiscOn(l); err != nil {
		return fmt.Errorf("making it take every frame: %w", err)
	}
	return nil
}

// sweep removes pins of devices no endpoint names, and, of devices that live,
// only with all: those are set down first. It returns how many it left. Only once
// the sources are in sync.
func (p *ports) sweep(all bool) (left int, err error) {
	pins, err := xdp.List(p.config.pinDir())
	if err != nil {
		return 0, err
	}
	want := p.wanted()
	var errs []error
	for _, pin := range pins {
		if _, ok := want[pin.Name]; ok || pin.Kind == xdp.Uplink && slices.Contains(p.config.Uplinks, pin.Name) {
			continue
		}
		if pin.Alive && !all {
			left++
			continue
		}
		if err := removePin(pin); err != nil {
			errs = append(errs, fmt.Errorf("pin of %s: %w", pin.Name, err))
			continue
		}
		p.log.Info("left-over pin removed", "device", pin.Name)
	}
	return left, errors.Join(errs...)
}

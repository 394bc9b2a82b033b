package fastpath

import (
	"fmt"
	"sync/atomic"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/spsc"
	"picot.dev/picot/learning"
)

// observe.go is what a frame from a workload port tells learning:
//
//	own MAC and own address ──────────────────────── nothing: they are the endpoint's
//	else ─ evidence ─ Quiet ─────────────────────── nothing: told a moment ago
//	                    └─ here? ─ Due ─ ring ─ Arm ─ told; ring full: the next frame tells
//
// What picot makes itself never passes here, nor does a frame from an uplink.

// observations is the capacity of a worker's ring to the learning core, of 40
// bytes each: what all its ports may report in some seconds.
const observations = 4096

// observing is a walk's part of learning. Its owner is the walk's.
type observing struct {
	ports []observer // by port index
	ring  *spsc.Ring[learning.Observation]
	// told says that the ring has something new since the worker last rang.
	told bool

	// Written by the owner, read from anywhere.
	count, full atomic.Uint64
}

// observer is one port's. Of another port's ID it is not there.
type observer struct {
	id         table.PortID
	suppressor *learning.Suppressor
}

func newObserving(ports int) (*observing, error) {
	ring, err := spsc.New[learning.Observation](observations)
	return &observing{ports: make([]observer, ports), ring: ring}, err
}

// observe is about a frame that is neither ARP, RARP nor ND. The network of p
// learns.
func (w *Walk) observe(s *table.Snapshot, p *table.Port, b []byte, l *packet.Layout, src uint64) {
	if w.learn == nil || p.Security == table.SecurityMACIP {
		return // it has just been found to be the endpoint's own
	}
	if src == p.MAC.Uint64() && owns(p, l) {
		return
	}
	class, ip, _ := arpnd.FrameEvidence(b, l)
	w.claim(s, p, src, ip, class, 0, b)
}

// owns says that the frame claims no address beside the endpoint's own.
func owns(p *table.Port, l *packet.Layout) bool { return l.L3Len == 0 || isOwn(p, l.Source) }

func isOwn(p *table.Port, ip packet.IP) bool {
	for i := range p.IPs {
		if p.IPs[i] == ip {
			return true
		}
	}
	return false
}

// observeMessage is about the ARP, RARP or ND message in w.message.
func (w *Walk) observeMessage(s *table.Snapshot, p *table.Port, b []byte) {
	m := &w.message
	if w.learn == nil || p.Security == table.SecurityMACIP {
		return
	}
	class, ip, _ := arpnd.Evidence(m)
	var flags learning.Flags
	switch {
	case m.Op == arpnd.ARPRequest && m.Probe:
		flags = learning.ARPProbe
	case m.Op == arpnd.RARP, m.Announcement && (m.Op == arpnd.ARPRequest || m.Op == arpnd.ARPReply):
		flags = learning.Announce
	case m.Op == arpnd.NA:
		flags = learning.Announce | learning.Advert
		if m.Router {
			flags |= learning.AdvertRouter
		}
	}
	w.claim(s, p, m.EtherSrc.Uint64(), ip, class, flags, b)
}

// claim reports that a MAC, and an address if it is not zero, is at p: so says the
// frame b, parsed in w.layout.
func (w *Walk) claim(s *table.Snapshot, p *table.Port, mac uint64, ip packet.IP, class arpnd.Class, flags learning.Flags, b []byte) {
	if class == arpnd.None {
		return
	}
	i := p.ID.Index()
	if i >= len(w.learn.ports) {
		return
	}
	o := &w.learn.ports[i]
	if o.suppressor == nil || o.id != p.ID {
		return
	}
	network := &s.Networks[p.Net]
	in := ip
	if !network.Contains(ip) {
		in = packet.IP{} // a router's MAC would have a slot for the whole world
	}
	if mac == p.MAC.Uint64() && flags&learning.ARPProbe == 0 && (in == packet.IP{} || isOwn(p, in)) {
		return // the endpoint's own are no news
	}
	if o.suppressor.Quiet(mac, in, class, flags, s.Version, w.Now) {
		return
	}
	if !o.suppressor.Due(here(s, p, mac, in), s.Version, w.Now) {
		return
	}
	if !w.learn.ring.Push(learning.Observation{
		IP: ip, Time: w.Now, Port: p.ID, MAC: packet.MACFromUint64(mac), Class: class, Flags: flags, Tags: packet.TagsOf(b, &w.layout),
	}) {
		w.learn.full.Store(w.learn.full.Load() + 1)
		return
	}
	o.suppressor.Arm(w.Now)
	w.learn.count.Store(w.learn.count.Load() + 1)
	w.learn.told = true
}

// here says that in the snapshot the MAC is on p and the address, if there is
// one, is bound to that MAC.
func here(s *table.Snapshot, p *table.Port, mac uint64, ip packet.IP) bool {
	t := s.FDB(p.Net, mac)
	if t.Kind() != table.KindLocal || t.Index() != p.ID.Index() {
		return false
	}
	if ip == (packet.IP{}) {
		return true
	}
	n, ok := s.Neighbor(p.Net, ip)
	return ok && n.MAC48() == mac
}

// Observe begins to report what a port's frames claim. It may be called again:
// with other options it begins anew, with the same it does nothing. It ends when
// the port's sockets go. What a port that is not observed claims is reported to
// nobody.
func (e *Engine) Observe(id table.PortID, o learning.SuppressorOptions) error {
	if had, ok := e.observed[id]; ok && had == o {
		return nil
	}
	s, err := learning.NewSuppressor(o)
	if err != nil {
		return fmt.Errorf("port %d: %w", id.Index(), err)
	}
	w := e.workerOf(id.Index())
	if w == nil {
		return fmt.Errorf("port %d: %w", id.Index(), ErrUnknown)
	}
	e.on(w, func() { w.walk.learn.ports[id.Index()] = observer{id, s} })
	e.observed[id] = o
	return nil
}

// unobserve is for a port whose sockets went.
func (e *Engine) unobserve(port int) {
	for id := range e.observed {
		if id.Index() == port {
			delete(e.observed, id)
		}
	}
}

// workerOf is the worker that owns a workload port's sockets, nil for none.
func (e *Engine) workerOf(port int) *worker {
	for _, s := range e.slots {
		if s != nil && s.sock.port == port && s.sock.uplink < 0 {
			return s.worker
		}
	}
	return nil
}

// Sighting is a question for when a claim was last seen at a port, and its
// answer. A zero IP asks for the MAC with any address.
type Sighting struct {
	Port table.PortID
	MAC  packet.MAC
	IP   packet.IP

	At int64 // by the clock of Observation.Time
	OK bool  // false: the port's worker remembers no such claim
}

// sightingsAtOnce bounds how long a worker is kept from its frames.
const sightingsAtOnce = 32

// LastSeen answers questions in place. Each is a look at a whole suppression
// table.
func (e *Engine) LastSeen(questions []Sighting) {
	byWorker := map[*worker][]*Sighting{}
	for i := range questions {
		q := &questions[i]
		q.At, q.OK = 0, false
		if w := e.workerOf(q.Port.Index()); w != nil {
			byWorker[w] = append(byWorker[w], q)
		}
	}
	for w, list := range byWorker {
		for len(list) > 0 {
			some := list[:min(len(list), sightingsAtOnce)]
			list = list[len(some):]
			e.on(w, func() {
				for _, q := range some {
					if o := &w.walk.learn.ports[q.Port.Index()]; o.id == q.Port && o.suppressor != nil {
						q.At, q.OK = o.suppressor.LastSeen(q.MAC.Uint64(), q.IP)
					}
				}
			})
		}
	}
}

// Limited is how many frames' claims were not reported because their port had
// used up its observations, by port.
func (e *Engine) Limited() map[table.PortID]uint64 {
	all := map[table.PortID]uint64{}
	for _, w := range e.workers {
		e.on(w, func() {
			for _, o := range w.walk.learn.ports {
				if o.suppressor != nil && o.suppressor.Limited() > 0 {
					all[o.id] = o.suppressor.Limited()
				}
			}
		})
	}
	return all
}

// Counts are how many observations the workers reported, and how many times a
// ring was full. Any goroutine.
func (o Observations) Counts() (reported, full uint64) {
	for _, w := range o.engine.workers {
		reported += w.walk.learn.count.Load()
		full += w.walk.learn.full.Load()
	}
	return reported, full
}

// Observations is the reader's end of the workers' rings.
type Observations struct {
	engine *Engine
}

// Observations returns the reader's end. There is one reader: one goroutine.
func (e *Engine) Observations() Observations { return Observations{e} }

// Drain gives f up to most waiting observations, whose Time is by the engine's
// clock, and returns how many.
func (o Observations) Drain(most int, f func(learning.Observation)) int {
	n := 0
	for _, w := range o.engine.workers {
		for n < most {
			v, ok := w.walk.learn.ring.Pop()
			if !ok {
				break
			}
			f(v)
			n++
		}
	}
	return n
}

// Wait returns a channel that gets a token once there is something to drain.
// Call it again after every token, before the next look.
func (o Observations) Wait() <-chan struct{} {
	o.engine.listening.Store(true)
	return o.engine.something
}

// Now is the engine's clock: monotonic nanoseconds.
func (o Observations) Now() int64 { return o.engine.clock() }

// ringReader wakes the reader if it waits, once for all that was told since.
func (w *worker) ringReader() {
	w.walk.learn.told = false
	if w.eng.listening.Load() && w.eng.listening.Swap(false) {
		select {
		case w.eng.something <- struct{}{}:
		default:
		}
	}
}

package learning

import (
	"net/netip"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// Now is the time on both clocks. All waiting goes by Mono, which only this node
// has; Wall is only written for others to read.
type Now struct {
	Mono int64 // ns, never steps
	Wall int64 // Unix microseconds, may step
}

// Network is what learning needs to know of one.
type Network struct {
	Name       string
	Prefixes   []netip.Prefix
	LinkLocal  bool // fe80::/10 belongs to the network
	Gateway    []packet.IP
	GatewayMAC packet.MAC
	Learning   bool
	// Limits of one port; 0: those of the Options.
	MaxMACs, MaxAddresses int
}

func (n *Network) contains(ip packet.IP) bool {
	a := ip.Addr()
	for _, p := range n.Prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return n.LinkLocal && ip.IsLinkLocal6()
}

func (n *Network) isGateway(ip packet.IP) bool {
	for _, g := range n.Gateway {
		if g == ip {
			return true
		}
	}
	return false
}

func (n *Network) gateway4() bool {
	for _, g := range n.Gateway {
		if g.Is4() {
			return true
		}
	}
	return false
}

// Endpoint is an endpoint of this node and what it claims statically.
type Endpoint struct {
	EndpointRef
	Network   string
	MAC       packet.MAC  // zero: claims nothing
	Addresses []packet.IP // those of the network's that are its to claim
	Segment   uint32
}

// Port is an attached device. One ID is one attachment.
type Port struct {
	ID       table.PortID
	Endpoint EndpointKey
	Up       bool
}

// Core is the decision core of one node. See the package comment. Make one with
// NewCore; it belongs to one goroutine.
type Core struct {
	opt  Options
	node string
	open bool
	now  Now
	next int64 // when the entry being decided wants to be looked at again

	networks  map[string]*Network
	endpoints map[EndpointKey]*Endpoint
	ports     map[table.PortID]*port
	portOf    map[EndpointKey]*port // also of those that went, down, until the endpoint goes

	entries map[Key]*entry
	claims  map[Key][]EndpointKey            // of our endpoints, in the order they came
	refused map[Key]map[EndpointKey]bool     // those that do not stand, told once
	dead    map[string]bool                  // nodes that are not alive
	held    map[EndpointKey]map[*entry]bool  // bindings of this node, by endpoint
	bound   map[Key]map[packet.IP]bool       // FDB key -> learned Neighbors with this MAC
	wanted  map[table.PortID]map[*entry]bool // entries with evidence from a port, not yet stored
	timers  timers
	refresh []*entry // in the order they became due
	budget  budget
	idle    *part // of all entries this node has nothing to do with: never written

	seq     uint64
	out     Intents
	stats   Stats
	history history
}

// port is a Port and what its limits count.
type port struct {
	Port
	macs      int                  // learned, stored or wanted
	addresses map[packet.MAC]int   // likewise, by MAC
	said      [numEventKinds]int   // the limit an Event told of; 0: none yet
	saidRate  int64                // when EventRateLimit was last told
	probing   map[packet.MAC]int64 // until when our probes would be taken for a conflict
	allQuiet  int64                // the same for every MAC, when there are too many
}

// entry is one key the cluster, an endpoint or a port has something to say on.
// Nearly all are other nodes': of those it is all there is, and they share one
// part, Core.idle. Who writes a field of the part gets it from Core.part.
type entry struct {
	key       Key
	have      bool // b is what the cluster has
	forgotten bool
	b         Binding
	since     int64 // mono: when b came to name this node and MAC
	*part
}

// part is what this node has to do with a key. The zero value is nothing.
type part struct {
	landed Version // of our last stored write, while the cache may be behind it
	dead   string  // UID of the life we deleted, while the cache may be behind

	seen   int64       // mono: last frame on the port that holds or wants the key
	tags   packet.Tags // of that frame
	want   want        // evidence that is not true yet
	router Router      // as last heard from the holder here
	thaw   int64       // mono: frozen before

	flight  Write // under way if Seq is not 0
	before  Binding
	fails   int
	retryAt int64

	written, writtenSeen int64 // mono: last write of lastObserved, and what it said
	queued               bool
	asked, answered      int64
	probed               int64
	release              bool

	charged    table.PortID
	chargedMAC packet.MAC
	taken      string // UID of our endpoint that last held the key statically

	wake  int64
	place int
}

// want is a claim made by a frame.
type want struct {
	class  arpnd.Class // None: no claim
	port   table.PortID
	at     int64
	mac    packet.MAC // of a Neighbor
	router Router
	tags   packet.Tags
}

// Stats count observations by what became of them, and the writes.
type Stats struct {
	Observations   uint64
	NoPort         uint64 // the port is down, gone, or of no endpoint
	Off            uint64 // the network does not learn, or is not known
	Gateway        uint64 // claims of the network's own gateway
	Static         uint64 // claims of what somebody holds statically
	Frozen         uint64 // claims of what moved too often
	Weak           uint64 // weak claims of what somebody else holds
	MACLimit       uint64
	AddressLimit   uint64
	OutOfPrefix    uint64 // MAC learned, address not
	Stale          uint64 // claims given up because they could not be written in time
	Writes         [numOps]uint64
	Conflicts      uint64
	Failures       uint64
	Probes         uint64
	RefreshesQueue int // waiting for the budget now
	Entries        int
}

// NewCore returns the core of the named node. Its gate is shut.
func NewCore(node string, o Options) (*Core, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Core{
		opt: o.WithDefaults(), node: node,
		networks: map[string]*Network{}, endpoints: map[EndpointKey]*Endpoint{},
		ports: map[table.PortID]*port{}, portOf: map[EndpointKey]*port{},
		entries: map[Key]*entry{}, claims: map[Key][]EndpointKey{},
		refused: map[Key]map[EndpointKey]bool{}, idle: &part{},
		dead: map[string]bool{}, held: map[EndpointKey]map[*entry]bool{}, bound: map[Key]map[packet.IP]bool{},
		wanted: map[table.PortID]map[*entry]bool{},
	}
	c.SetNodes(1)
	return c, nil
}

// Take returns what is to be done since the last call.
func (c *Core) Take() Intents {
	out := c.out
	c.out = Intents{}
	return out
}

// Stats returns the counts so far.
func (c *Core) Stats() Stats {
	s := c.stats
	s.RefreshesQueue, s.Entries = len(c.refresh), len(c.entries)
	return s
}

// SetNodes tells how many nodes share the refresh budget.
func (c *Core) SetNodes(n int) { c.budget.share(c.opt.RefreshBudget, n) }

// NodeAlive tells whether another node is alive, as the cluster judges it. Of a
// node nothing was told of it is. A dead node's bindings are frozen no more.
func (c *Core) NodeAlive(name string, alive bool, now Now) {
	c.now = now
	if alive || name == c.node {
		delete(c.dead, name)
		return
	}
	if !c.dead[name] {
		c.dead[name] = true
		c.reconcileAll("")
	}
}

// Gate opens or shuts the core. While it is shut evidence is remembered but
// nothing is written, probed or asked, and nothing expires. It may open once
// networks, endpoints, ports and bindings each were told in full.
func (c *Core) Gate(open bool, now Now) {
	c.now = now
	if c.open == open {
		return
	}
	c.open = open
	c.reconcileAll("")
	c.drain()
}

// Tick does what has become due. Call it at Next, or later.
func (c *Core) Tick(now Now) {
	c.now = now
	for e := c.timers.due(now.Mono); e != nil; e = c.timers.due(now.Mono) {
		c.reconcile(e)
	}
	c.drain()
}

// Next is when Tick has something to do, 0 for never.
func (c *Core) Next() int64 {
	var next int64
	if len(c.timers) > 0 {
		next = c.timers[0].wake
	}
	if len(c.refresh) > 0 && c.open {
		if at := max(c.budget.next, 1); next == 0 || at < next {
			next = at
		}
	}
	return next
}

// Release lets a binding of this node move again and counts its moves anew. ok
// is false if the binding is not this node's: holder says whose, "" nobody's.
func (c *Core) Release(k Key, now Now) (holder string, ok bool) {
	c.now = now
	e := c.entries[k]
	if e == nil || !e.have {
		return "", false
	}
	if e.b.Node != c.node || e.b.Static {
		return e.b.Node, false
	}
	c.part(e).release = true
	c.reconcile(e)
	c.drain()
	return e.b.Node, true
}

// LastSeen answers an Ask; ok is false if the data plane knows no such claim.
func (c *Core) LastSeen(k Key, at int64, ok bool, now Now) {
	c.now = now
	e := c.entries[k]
	if e == nil || e.asked == 0 {
		return
	}
	e.asked, e.answered = 0, now.Mono
	if ok && min(at, now.Mono) > e.seen {
		e.seen = min(at, now.Mono)
	}
	c.reconcile(e)
	c.drain()
}

// ObservationsDropped tells that a port's Suppressor refused more claims for the
// sake of its limit. It makes an Event, at most one in ten minutes.
func (c *Core) ObservationsDropped(id table.PortID, limit int, now Now) {
	p := c.ports[id]
	if p == nil {
		return
	}
	if p.said[EventRateLimit] != 0 && now.Mono-p.saidRate < 600*second {
		return
	}
	p.said[EventRateLimit], p.saidRate = max(limit, 1), now.Mono
	c.event(Event{Kind: EventRateLimit, Endpoint: c.ref(p.Endpoint), Limit: limit})
}

// Holds returns the cluster's binding as the core knows it.
func (c *Core) Holds(k Key) (Binding, bool) {
	e := c.entries[k]
	if e == nil || !e.have {
		return Binding{}, false
	}
	return e.b, true
}

func (c *Core) entry(k Key) *entry {
	e := c.entries[k]
	if e == nil {
		e = &entry{key: k, part: c.idle}
		c.entries[k] = e
	}
	return e
}

// part is e's own part, to be written.
func (c *Core) part(e *entry) *part {
	if e.part == c.idle {
		e.part = &part{}
	}
	return e.part
}

// settle gives back a part in which nothing is left.
func (c *Core) settle(e *entry) {
	if e.part != c.idle && *e.part == (part{}) {
		e.part = c.idle
	}
}

func (c *Core) event(e Event) { c.out.Events = append(c.out.Events, e) }

func (c *Core) ref(k EndpointKey) EndpointRef {
	if ep := c.endpoints[k]; ep != nil {
		return ep.EndpointRef
	}
	return EndpointRef{EndpointKey: k}
}

func contains[T comparable](s []T, v T) bool {
	for _, x := range s {
		if x == v {
			return true
		}
	}
	return false
}

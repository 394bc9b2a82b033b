package mirror

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"picot.dev/picot/internal/packet"
)

// Row is a MAC_Binding row as the database has it.
type Row struct {
	UUID, Port, IP, MAC, Datapath string
	Timestamp                     int64 // ms since 1970
}

// Group is a source port and the ports that follow it.
type Group struct {
	Source    string
	Followers []string
}

// Input is what Plan looks at besides what the Mirror remembers.
type Input struct {
	Now    time.Time
	Groups []Group
	// Sources are the rows of the source ports; rows of other ports are ignored.
	Sources []Row
	// Datapath gives the datapath of a logical port, "" while it has no Port_Binding.
	Datapath func(port string) string
	// Skip tells addresses that are not mirrored: node and masquerade IPs, a family switched off.
	Skip func(netip.Addr) bool
}

// Kind is what an Op does.
type Kind uint8

// Kinds of Op, which are also the reasons for a write.
const (
	Insert  Kind = iota // the follower has no row
	Change              // another MAC, or a datapath that was made anew
	Refresh             // the timestamp only
)

// String gives the reason as metrics and logs name it.
func (k Kind) String() string { return [...]string{"insert", "change", "refresh"}[k] }

// Op is one row to write.
type Op struct {
	Kind      Kind
	Port      string
	IP        netip.Addr
	MAC       string
	Datapath  string // Insert and Change
	Timestamp int64
	UUID      string // Change and Refresh
}

// Result is what became of an Op.
type Result struct {
	UUID  string // of the inserted row
	Count int    // rows an update hit
	Err   error  // refused, even alone
}

// Totals describes the last Plan.
type Totals struct {
	Bindings  int // source bindings that are mirrored
	Desired   int // rows followers should have
	Waiting   int // rows whose follower has no Port_Binding yet
	Skipped   int // source rows that are not mirrored: skipped or malformed
	Retrying  int // rows the database refused
	Followers int
}

// retry delays of a row the database refuses.
const (
	retryMin = time.Second
	retryMax = time.Minute
)

type row struct {
	uuid, mac, datapath string
	timestamp           int64
}

type key struct {
	port string
	ip   netip.Addr
}

type failure struct {
	again time.Time
	wait  time.Duration
}

// Mirror is the memory of one SB database. The zero value is not usable; call New.
type Mirror struct {
	cooldown time.Duration
	rows     map[string]map[netip.Addr]row
	failed   map[key]failure
	sources  map[key]string // UUIDs of the source rows at the last Appeared; nil before the first
	totals   Totals
}

// New makes a Mirror that moves timestamps at most once a cooldown.
func New(cooldown time.Duration) *Mirror {
	return &Mirror{cooldown: cooldown, rows: map[string]map[netip.Addr]row{}, failed: map[key]failure{}}
}

// Reset forgets everything: a new Session begins.
func (m *Mirror) Reset() {
	clear(m.rows)
	clear(m.failed)
	m.sources = nil
}

// Appeared gives the addresses whose source row is another than at the last call: learned, or
// deleted and learned again. Followers' rows may have aged out since they were written, which
// nobody told; so their rows for these addresses are to be read before Plan (LoadAddresses). The
// first call after Reset gives none: Load has just read all.
func (m *Mirror) Appeared(in Input) []netip.Addr {
	next := make(map[key]string, len(in.Sources))
	var out []netip.Addr
	for _, r := range in.Sources {
		ip, ok := parseIP(r.IP)
		if !ok {
			continue
		}
		k := key{r.Port, ip}
		next[k] = r.UUID
		if m.sources != nil && m.sources[k] != r.UUID && !in.Skip(ip) {
			out = append(out, ip)
		}
	}
	m.sources = next
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// LoadAddresses replaces what is remembered of some addresses, on every known port, by rows.
func (m *Mirror) LoadAddresses(ips []netip.Addr, rows []Row) {
	for _, mine := range m.rows {
		for _, ip := range ips {
			delete(mine, ip)
		}
	}
	m.add(rows)
}

// Known tells whether Load has covered a port since the last Reset.
func (m *Mirror) Known(port string) bool { _, ok := m.rows[port]; return ok }

// Load replaces what is remembered of ports by rows, which may hold other ports' rows too. Other
// ports are forgotten only by Reset and Retain.
func (m *Mirror) Load(ports []string, rows []Row) {
	for _, p := range ports {
		m.rows[p] = map[netip.Addr]row{}
	}
	m.add(rows)
}

// add remembers rows of known ports.
func (m *Mirror) add(rows []Row) {
	for _, r := range rows {
		mine, ok := m.rows[r.Port]
		if !ok {
			continue
		}
		ip, ok := parseIP(r.IP)
		if !ok {
			continue
		}
		// the index is over text, so an address may be there twice: the usual spelling counts
		if _, twice := mine[ip]; twice && r.IP != ip.String() {
			continue
		}
		mine[ip] = row{uuid: r.UUID, mac: normal(r.MAC), datapath: r.Datapath, timestamp: r.Timestamp}
		delete(m.failed, key{r.Port, ip})
	}
}

// Retain forgets every port not in ports.
func (m *Mirror) Retain(ports map[string]bool) {
	for p := range m.rows {
		if !ports[p] {
			delete(m.rows, p)
		}
	}
	for k := range m.failed {
		if !ports[k.port] {
			delete(m.failed, k)
		}
	}
}

// Totals describes the last Plan.
func (m *Mirror) Totals() Totals { return m.totals }

type binding struct {
	ip        netip.Addr
	mac       string
	timestamp int64
}

// Plan gives what is to be written, in the order of groups, addresses and followers, so that all
// followers of one changed binding stand together. Followers that Load has not covered are left
// out. The same input twice, with every Op done in between, gives nothing.
func (m *Mirror) Plan(in Input) []Op {
	now := max(in.Now.UnixMilli(), 1)
	bySource, skipped := m.bindings(in)
	m.totals = Totals{Retrying: len(m.failed), Skipped: skipped}
	var ops []Op
	for _, g := range in.Groups {
		bs := bySource[g.Source]
		m.totals.Bindings += len(bs)
		m.totals.Followers += len(g.Followers)
		m.totals.Desired += len(bs) * len(g.Followers)
		if len(bs) == 0 {
			continue
		}
		first := len(ops)
		for _, f := range g.Followers {
			path := in.Datapath(f)
			mine, known := m.rows[f]
			if path == "" {
				m.totals.Waiting += len(bs)
			}
			if path == "" || !known {
				continue
			}
			for _, b := range bs {
				if op, ok := m.row(in.Now, now, b, f, path, mine); ok {
					ops = append(ops, op)
				}
			}
		}
		// followers were visited one by one, which is kind to the cache; stable keeps their order
		slices.SortStableFunc(ops[first:], func(a, b Op) int { return a.IP.Compare(b.IP) })
	}
	return ops
}

// row decides about one binding on one follower.
func (m *Mirror) row(at time.Time, now int64, b binding, port, datapath string, mine map[netip.Addr]row) (Op, bool) {
	if len(m.failed) > 0 {
		if f, ok := m.failed[key{port, b.ip}]; ok && at.Before(f.again) {
			return Op{}, false
		}
	}
	op := Op{Port: port, IP: b.ip, MAC: b.mac, Timestamp: now}
	have, ok := mine[b.ip]
	if !ok {
		op.Kind, op.Datapath = Insert, datapath
		return op, true
	}
	op.UUID, op.Timestamp = have.uuid, max(now, have.timestamp)
	switch {
	case have.mac != b.mac || have.datapath != datapath:
		op.Kind, op.Datapath = Change, datapath
		return op, true
	case b.timestamp > have.timestamp && now-have.timestamp >= m.cooldown.Milliseconds():
		op.Kind = Refresh
		return op, true
	}
	return Op{}, false
}

// bindings gives the mirrored rows of each source, by address, and how many rows are not mirrored.
func (m *Mirror) bindings(in Input) (_ map[string][]binding, skipped int) {
	out := make(map[string][]binding, len(in.Groups))
	for _, g := range in.Groups {
		out[g.Source] = nil
	}
	for _, r := range in.Sources {
		bs, ok := out[r.Port]
		if !ok {
			continue
		}
		ip, okIP := parseIP(r.IP)
		mac, err := packet.ParseMAC(r.MAC)
		if !okIP || err != nil || mac.IsGroup() || mac.IsZero() || in.Skip(ip) {
			skipped++
			continue
		}
		out[r.Port] = append(bs, binding{ip, mac.String(), r.Timestamp})
	}
	for src, bs := range out {
		slices.SortFunc(bs, func(a, b binding) int {
			return cmp.Or(a.ip.Compare(b.ip), cmp.Compare(b.timestamp, a.timestamp))
		})
		// one address in two spellings: the newer row counts
		out[src] = slices.CompactFunc(bs, func(a, b binding) bool { return a.ip == b.ip })
	}
	return out, skipped
}

// Done records what became of an Op of the last Plan. An update that hit no row makes the next
// Plan insert; a refused Op is planned again after a growing delay.
func (m *Mirror) Done(at time.Time, op Op, r Result) {
	k := key{op.Port, op.IP}
	mine, known := m.rows[op.Port]
	switch {
	case !known:
		return
	case r.Err != nil:
		f := m.failed[k]
		f.wait = min(max(2*f.wait, retryMin), retryMax)
		f.again = at.Add(f.wait)
		m.failed[k] = f
		return
	case op.Kind == Insert:
		mine[op.IP] = row{uuid: r.UUID, mac: op.MAC, datapath: op.Datapath, timestamp: op.Timestamp}
	case r.Count == 0:
		delete(mine, op.IP)
	default:
		have := mine[op.IP]
		have.mac, have.timestamp = op.MAC, op.Timestamp
		if op.Kind == Change {
			have.datapath = op.Datapath
		}
		mine[op.IP] = have
	}
	delete(m.failed, k)
}

// GroupTotals describes one group.
type GroupTotals struct {
	Bindings int // source bindings that are mirrored
	Lacking  int // rows followers should have and do not have with the right MAC, as far as is known
}

// GroupTotals counts each group of in, by source port.
func (m *Mirror) GroupTotals(in Input) map[string]GroupTotals {
	bySource, _ := m.bindings(in)
	out := make(map[string]GroupTotals, len(in.Groups))
	for _, g := range in.Groups {
		t := GroupTotals{Bindings: len(bySource[g.Source])}
		for _, f := range g.Followers {
			mine := m.rows[f]
			for _, b := range bySource[g.Source] {
				if have, ok := mine[b.ip]; !ok || have.mac != b.mac {
					t.Lacking++
				}
			}
		}
		out[g.Source] = t
	}
	return out
}

// parseIP takes plain addresses only: no zone, no IPv4 inside IPv6, nothing unspecified or group.
func parseIP(s string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(s)
	ok := err == nil && ip.Zone() == "" && !ip.Is4In6() && !ip.IsUnspecified() && !ip.IsMulticast()
	return ip, ok
}

// normal gives the usual spelling of a MAC, or the text itself if it is none.
func normal(s string) string {
	if mac, err := packet.ParseMAC(s); err == nil {
		return mac.String()
	}
	return s
}

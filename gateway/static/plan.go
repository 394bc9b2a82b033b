package static

import (
	"cmp"
	"net/netip"
	"slices"

	"picot.dev/picot/internal/packet"
)

// Row is a Static_MAC_Binding row as the database has it.
type Row struct {
	UUID, Port, IP, MAC string
	Override            bool
}

// Role says what Plan may do with the rows of a port.
type Role uint8

// Roles of a port.
const (
	Follower Role = iota + 1
	// Source is a designated source: rows are corrected or removed, never added.
	Source
	// Empty carries no row: the default network's router, a network that is being deleted.
	Empty
	// Gone is a router port that was seen and is no more: masquerade rows go too.
	Gone
	// Leftover is a router port that is not there and never was seen: a former life's rows go.
	Leftover
)

// Port is a logical router port whose rows are ours to decide.
type Port struct {
	Name string
	Role Role
	// Networks are the router port's own prefixes, by which an address is on-link.
	Networks []netip.Prefix
	// Addresses are the candidates, each address once.
	Addresses []Address
}

// Input is what Plan looks at. Rows of ports not named are untouched.
type Input struct {
	Ports      []Port
	Rows       []Row
	Masquerade []netip.Prefix
	IPv4, IPv6 bool
}

// Kind is what an Op does.
type Kind uint8

// Kinds of Op, in the order Plan gives them.
const (
	Delete Kind = iota
	Update
	Insert
)

// String gives the reason as metrics and logs name it.
func (k Kind) String() string { return [...]string{"delete", "update", "insert"}[k] }

// Op is one row to write. Every row has override_dynamic_mac.
type Op struct {
	Kind Kind
	Port string
	IP   string
	MAC  string
	UUID string // Delete and Update
}

// Plan gives what is to be written: deletes (of ports that are gone first), updates, inserts; each
// by port and address. Nothing, if all is as it should be.
func Plan(in Input) []Op {
	byPort := make(map[string][]Row, len(in.Ports))
	for _, p := range in.Ports {
		byPort[p.Name] = nil
	}
	for _, r := range in.Rows {
		if rs, ours := byPort[r.Port]; ours {
			byPort[r.Port] = append(rs, r)
		}
	}
	var gone, deletes, updates, inserts []Op
	var w wanted
	for _, p := range in.Ports {
		w.fit(in, p)
		d, u, i := port(in, p, &w, byPort[p.Name])
		if p.Role == Gone || p.Role == Leftover {
			gone = append(gone, d...)
			continue
		}
		deletes, updates, inserts = append(deletes, d...), append(updates, u...), append(inserts, i...)
	}
	for _, part := range [][]Op{gone, deletes, updates, inserts} {
		slices.SortFunc(part, func(a, b Op) int {
			return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.IP, b.IP), cmp.Compare(a.UUID, b.UUID))
		})
	}
	return slices.Concat(gone, deletes, updates, inserts)
}

// wanted is the rows one port may have. Neighbouring ports mostly want the same, so it is kept
// from port to port while it fits.
type wanted struct {
	valid     bool
	addresses []Address // as it was built from
	networks  []netip.Prefix
	list      []Op           // Insert, without a port
	byText    map[string]int // index into list, by the usual spelling
	seen      []bool         // scratch of port
}

// fit makes w the rows of p.
func (w *wanted) fit(in Input, p Port) {
	var addresses []Address
	var networks []netip.Prefix
	if p.Role == Follower || p.Role == Source {
		addresses = p.Addresses
		for _, n := range p.Networks {
			if !n.IsSingleIP() { // host prefixes are the masquerade addresses
				networks = append(networks, n)
			}
		}
	}
	same := w.valid && len(addresses) == len(w.addresses) && (len(addresses) == 0 || &addresses[0] == &w.addresses[0]) && slices.Equal(networks, w.networks)
	if !same {
		*w = wanted{valid: true, addresses: addresses, networks: networks, byText: make(map[string]int, len(addresses))}
		for _, a := range addresses {
			if a.IP.Is4() && !in.IPv4 || a.IP.Is6() && !in.IPv6 || masquerade(in, a.IP) || !onLink(networks, a.IP) {
				continue
			}
			mac, err := packet.ParseMAC(a.MAC)
			if err != nil {
				continue
			}
			op := Op{Kind: Insert, IP: a.IP.String(), MAC: mac.String()}
			w.byText[op.IP] = len(w.list)
			w.list = append(w.list, op)
		}
		w.seen = make([]bool, len(w.list))
	}
	clear(w.seen)
}

// port decides about one port.
func port(in Input, p Port, w *wanted, rows []Row) (deletes, updates, inserts []Op) {
	remove := func(r Row) { deletes = append(deletes, Op{Kind: Delete, Port: p.Name, IP: r.IP, UUID: r.UUID}) }
	keep := func(r Row, i int) {
		if w.seen[i] {
			remove(r)
			return
		}
		w.seen[i] = true
		if r.MAC != w.list[i].MAC || !r.Override {
			updates = append(updates, Op{Kind: Update, Port: p.Name, IP: r.IP, MAC: w.list[i].MAC, UUID: r.UUID})
		}
	}
	var rest []Row
	for _, r := range rows {
		if i, ok := w.byText[r.IP]; ok {
			keep(r, i)
			continue
		}
		rest = append(rest, r)
	}
	// what is not spelled as we spell it comes second: of two rows for one address ours stays
	for _, r := range rest {
		ip, err := netip.ParseAddr(r.IP)
		if err == nil && p.Role != Gone && masquerade(in, ip) {
			continue
		}
		if i, ok := w.byText[ip.String()]; ok && err == nil {
			keep(r, i)
			continue
		}
		remove(r)
	}
	if p.Role == Follower {
		for i, op := range w.list {
			if !w.seen[i] {
				op.Port = p.Name
				inserts = append(inserts, op)
			}
		}
	}
	return deletes, updates, inserts
}

// onLink: inside one of the port's subnets.
func onLink(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

func masquerade(in Input, ip netip.Addr) bool {
	ip = plain(ip)
	return slices.ContainsFunc(in.Masquerade, func(m netip.Prefix) bool { return m.Contains(ip) })
}

// Wanted counts the rows each follower of in should have.
func Wanted(in Input) map[string]int {
	out := map[string]int{}
	var w wanted
	for _, p := range in.Ports {
		if p.Role == Follower {
			w.fit(in, p)
			out[p.Name] = len(w.list)
		}
	}
	return out
}

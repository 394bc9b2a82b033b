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

type have struct {
	row Row
	ip  netip.Addr
	ok  bool // ip is an address
}

// Plan gives what is to be written: deletes (of ports that are gone first), updates, inserts; each
// by port and address. Nothing, if all is as it should be.
func Plan(in Input) []Op {
	byPort := make(map[string][]have, len(in.Ports))
	for _, p := range in.Ports {
		byPort[p.Name] = nil
	}
	for _, r := range in.Rows {
		hs, ours := byPort[r.Port]
		if !ours {
			continue
		}
		ip, err := netip.ParseAddr(r.IP)
		byPort[r.Port] = append(hs, have{r, ip, err == nil})
	}
	var gone, deletes, updates, inserts []Op
	for _, p := range in.Ports {
		d, u, i := port(in, p, byPort[p.Name])
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

// port decides about one port.
func port(in Input, p Port, rows []have) (deletes, updates, inserts []Op) {
	want := desired(in, p)
	seen := make(map[netip.Addr]bool, len(want))
	// the usual spelling first: of two rows for one address it is the one that stays
	slices.SortFunc(rows, func(a, b have) int { return cmp.Compare(canonical(b), canonical(a)) })
	for _, h := range rows {
		if p.Role != Gone && h.ok && masquerade(in, h.ip) {
			continue
		}
		mac, wanted := want[h.ip]
		if !h.ok || !wanted || seen[h.ip] {
			deletes = append(deletes, Op{Kind: Delete, Port: p.Name, IP: h.row.IP, UUID: h.row.UUID})
			continue
		}
		seen[h.ip] = true
		if h.row.MAC != mac || !h.row.Override {
			updates = append(updates, Op{Kind: Update, Port: p.Name, IP: h.row.IP, MAC: mac, UUID: h.row.UUID})
		}
	}
	if p.Role != Follower {
		return deletes, updates, nil
	}
	for ip, mac := range want {
		if !seen[ip] {
			inserts = append(inserts, Op{Kind: Insert, Port: p.Name, IP: ip.String(), MAC: mac})
		}
	}
	return deletes, updates, inserts
}

// desired gives the rows a port may have.
func desired(in Input, p Port) map[netip.Addr]string {
	if p.Role != Follower && p.Role != Source {
		return nil
	}
	want := make(map[netip.Addr]string, len(p.Addresses))
	for _, a := range p.Addresses {
		if a.IP.Is4() && !in.IPv4 || a.IP.Is6() && !in.IPv6 || masquerade(in, a.IP) || !onLink(p.Networks, a.IP) {
			continue
		}
		if mac, err := packet.ParseMAC(a.MAC); err == nil {
			want[a.IP] = mac.String()
		}
	}
	return want
}

// onLink: inside one of the port's subnets. Host prefixes are the masquerade addresses.
func onLink(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return !n.IsSingleIP() && n.Contains(ip) })
}

func masquerade(in Input, ip netip.Addr) bool {
	ip = plain(ip)
	return slices.ContainsFunc(in.Masquerade, func(m netip.Prefix) bool { return m.Contains(ip) })
}

func canonical(h have) int {
	if h.ok && h.row.IP == h.ip.String() {
		return 1
	}
	return 0
}

// Wanted counts the rows each follower of in should have.
func Wanted(in Input) map[string]int {
	out := map[string]int{}
	for _, p := range in.Ports {
		if p.Role == Follower {
			out[p.Name] = len(desired(in, p))
		}
	}
	return out
}

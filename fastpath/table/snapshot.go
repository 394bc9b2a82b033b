package table

import (
	"iter"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/internal/packet"
)

// NetworkView is a network as the data path sees it.
type NetworkView struct {
	Network
	Known     bool // false: the place is empty, or the network is named but not (any more) there
	prefixes  []prefix
	isolation *isolation
}

// prefix is a netip.Prefix ready for comparison.
type prefix struct {
	ip, mask packet.IP
	is4      bool // else ::/0 would hold every IPv4 address, mapped as they are
}

// Contains reports that ip belongs to the network: it is in one of its prefixes,
// or link-local where those belong.
func (v *NetworkView) Contains(ip packet.IP) bool {
	for i := range v.prefixes {
		p := &v.prefixes[i]
		if (ip.Hi^p.ip.Hi)&p.mask.Hi == 0 && (ip.Lo^p.ip.Lo)&p.mask.Lo == 0 && ip.Is4() == p.is4 {
			return true
		}
	}
	return v.LinkLocal && ip.IsLinkLocal6()
}

// Isolated reports that the network has segment rules.
func (v *NetworkView) Isolated() bool { return v.isolation != nil }

// NodeView is a node as the data path sees it.
type NodeView struct {
	Node
	Known bool // false: the place is empty, or entries name a node that is not (any more) there
}

// Snapshot is one state of everything. Immutable, the slices included.
type Snapshot struct {
	Version  uint64
	Self     srv6.Locator
	Function uint16
	HashKey  packet.HashKey
	Ports    []Port        // by PortID.Index; ID 0: none
	Networks []NetworkView // by NetIndex
	Nodes    []NodeView    // by NodeIndex

	seed      seed
	fdb       index[uint64]
	neighbor4 index[uint64]
	neighbor6 index[key6]
	ids       index[uint64]
	sources   []sourceTable
}

// key6 is an IPv6 neighbour's key.
type key6 struct{ hi, lo, net uint64 }

// seed makes the hashes of one Builder unpredictable to those whose MACs and
// addresses fill the tables.
type seed struct{ a, b uint64 }

func (s *seed) hash1(k uint64) uint64 { return mix(k^s.a, s.b) }
func (s *seed) hash6(k key6) uint64 {
	return mix(mix(k.hi^s.a, k.lo^s.b)^k.net, s.b)
}

// FDBKey is the key of a MAC, as a 48-bit number, in a network.
func FDBKey(net NetIndex, mac uint64) uint64 { return uint64(net)<<48 | mac&(1<<48-1) }

// FDB returns where a MAC, as a 48-bit number, is; KindNone if that is not known.
func (s *Snapshot) FDB(net NetIndex, mac uint64) Target {
	k := FDBKey(net, mac)
	return Target(get(&s.fdb, s.seed.hash1(k), k))
}

// Batch is the most keys one FDBBatch looks up.
const Batch = 64

// FDBBatch looks up keys[:n], made by [FDBKey], into out[:n]. It first touches
// every key's line, so that the processor overlaps the cache misses that a
// table larger than its caches costs.
func (s *Snapshot) FDBBatch(keys *[Batch]uint64, n int, out *[Batch]Target) {
	n = min(n, Batch)
	var at [Batch]*line[uint64]
	shift, dir := s.fdb.shift&63, s.fdb.dir
	for i := range n {
		h := s.seed.hash1(keys[i])
		lines := dir[h>>shift]
		at[i] = &lines[h&(uint64(len(lines))-1)]
		out[i] = Target(at[i][0].val)
	}
	for i := range n {
		v := find(at[i], keys[i])
		if v == 0 && at[i][lineSlots-1].val != 0 {
			v = get(&s.fdb, s.seed.hash1(keys[i]), keys[i])
		}
		out[i] = Target(v)
	}
}

// Neighbor returns the owner of an address in a network.
func (s *Snapshot) Neighbor(net NetIndex, ip packet.IP) (Neighbor, bool) {
	var v uint64
	if ip.Is4() {
		k := uint64(net)<<32 | uint64(ip.V4())
		v = get(&s.neighbor4, s.seed.hash1(k), k)
	} else {
		k := key6{ip.Hi, ip.Lo, uint64(net)}
		v = get6(&s.neighbor6, s.seed.hash6(k), k)
	}
	return Neighbor(v), v != 0
}

// NetworkByID finds a network by its ID on the wire.
func (s *Snapshot) NetworkByID(id NetworkID) (NetIndex, bool) {
	v := get(&s.ids, s.seed.hash1(uint64(id)), uint64(id))
	return NetIndex(v), v != 0
}

// NodeBySource finds the node whose locator contains an address with these top
// 64 bits. Our own locator is no node's.
func (s *Snapshot) NodeBySource(hi uint64) (NodeIndex, bool) {
	for i := range s.sources {
		if n := s.sources[i].get(hi); n != 0 {
			return n, true
		}
	}
	return 0, false
}

// Allows reports that segment from may send to segment to in the network. Where
// it has rules, a segment that is not known (0) is allowed nothing.
func (v *NetworkView) Allows(from, to Segment) bool {
	return v.isolation == nil || v.isolation.allows(from, to)
}

// Allowed is Allows of a network by its index; one that is not known allows
// nothing.
func (s *Snapshot) Allowed(net NetIndex, from, to Segment) bool {
	return int(net) < len(s.Networks) && s.Networks[net].Known && s.Networks[net].Allows(from, to)
}

// AllFDB iterates over the FDB in no order.
func (s *Snapshot) AllFDB() iter.Seq2[FDBPlace, Target] {
	return func(yield func(FDBPlace, Target) bool) {
		s.fdb.each(func(k, v uint64) bool {
			p := FDBPlace{NetIndex(k >> 48), packet.MACFromUint64(k)}
			return !s.Networks[p.Net].Known || yield(p, Target(v))
		})
	}
}

// FDBPlace and NeighborPlace are keys, as the iterators give them.
type (
	FDBPlace struct {
		Net NetIndex
		MAC packet.MAC
	}
	NeighborPlace struct {
		Net NetIndex
		IP  packet.IP
	}
)

// AllNeighbors iterates over the neighbours in no order.
func (s *Snapshot) AllNeighbors() iter.Seq2[NeighborPlace, Neighbor] {
	return func(yield func(NeighborPlace, Neighbor) bool) {
		more := true
		emit := func(p NeighborPlace, v uint64) bool {
			if s.Networks[p.Net].Known {
				more = yield(p, Neighbor(v))
			}
			return more
		}
		s.neighbor4.each(func(k, v uint64) bool {
			return emit(NeighborPlace{NetIndex(k >> 32), packet.IPFrom4(uint32(k))}, v)
		})
		if !more {
			return
		}
		s.neighbor6.each(func(k key6, v uint64) bool {
			return emit(NeighborPlace{NetIndex(k.net), packet.IP{Hi: k.hi, Lo: k.lo}}, v)
		})
	}
}

package table

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/internal/packet"
)

// model is the slow, obvious Builder: it stores what was set and derives
// everything anew on each look.
type model struct {
	networks  map[NetworkID]Network
	ports     map[PortID]Port
	nodes     map[string]Node
	fdb       map[NetworkID]map[packet.MAC]FDBEntry
	neighbors map[NetworkID]map[netip.Addr]NeighborEntry
}

func newModel() *model {
	return &model{map[NetworkID]Network{}, map[PortID]Port{}, map[string]Node{},
		map[NetworkID]map[packet.MAC]FDBEntry{}, map[NetworkID]map[netip.Addr]NeighborEntry{}}
}

// view is the state as text by key, free of indexes, so that two histories compare.
func (m *model) view() map[string]string {
	v := map[string]string{}
	for id, n := range m.networks {
		v[fmt.Sprint("network ", id)] = n.Name
		for mac, e := range m.fdb[id] {
			key := fmt.Sprint("fdb ", id, " ", mac)
			switch {
			case mac == n.Gateway.MAC:
			case e.Node != "":
				_, known := m.nodes[e.Node]
				v[key] = fmt.Sprint("node ", e.Node, known, e.Segment, e.Static)
			default:
				if p, ok := m.ports[e.Port]; ok && p.Network == id {
					v[key] = fmt.Sprint("port ", uint32(e.Port), e.Segment, e.Static)
				}
			}
		}
		if !n.Gateway.MAC.IsZero() {
			v[fmt.Sprint("fdb ", id, " ", n.Gateway.MAC)] = "gateway"
		}
		for ip, e := range m.neighbors[id] {
			v[fmt.Sprint("neighbor ", id, " ", ip)] = fmt.Sprint(e.MAC, e.Router, e.RouterKnown, e.Static, e.Duplicate, false)
		}
		for _, ip := range n.Gateway.Addresses {
			v[fmt.Sprint("neighbor ", id, " ", ip)] = fmt.Sprint(n.Gateway.MAC, true, true, true, false, true)
		}
	}
	for id, p := range m.ports {
		_, known := m.networks[p.Network]
		v[fmt.Sprint("port ", uint32(id))] = fmt.Sprint(p.Name, p.Network, known, p.MTU)
	}
	for name, n := range m.nodes {
		v["node "+name] = fmt.Sprint(n.Locator, n.Alive, n.PathMTU)
	}
	return v
}

func viewOf(s *Snapshot) map[string]string {
	v := map[string]string{}
	for i, n := range s.Networks {
		if n.Known {
			v[fmt.Sprint("network ", n.ID)] = n.Name
			if at, ok := s.NetworkByID(n.ID); !ok || int(at) != i {
				v["fault "+n.Name] = fmt.Sprint("NetworkByID says ", at, ok)
			}
		}
	}
	for k, t := range s.AllFDB() {
		key := fmt.Sprint("fdb ", s.Networks[k.Net].ID, " ", k.MAC)
		switch t.Kind() {
		case KindRemote:
			n := s.Nodes[t.Index()]
			v[key] = fmt.Sprint("node ", n.Name, n.Known, t.Segment(), t.Static())
		case KindLocal:
			v[key] = fmt.Sprint("port ", uint32(s.Ports[t.Index()].ID), t.Segment(), t.Static())
		default:
			v[key] = t.Kind().String()
		}
		if s.FDB(k.Net, k.MAC.Uint64()) != t {
			v["fault "+key] = "FDB says otherwise"
		}
	}
	for k, n := range s.AllNeighbors() {
		key := fmt.Sprint("neighbor ", s.Networks[k.Net].ID, " ", k.IP)
		v[key] = fmt.Sprint(n.MAC(), n.Router(), n.RouterKnown(), n.Static(), n.Duplicate(), n.Gateway())
		if got, ok := s.Neighbor(k.Net, k.IP); !ok || got != n {
			v["fault "+key] = "Neighbor says otherwise"
		}
	}
	for i, p := range s.Ports {
		if p.ID != 0 {
			net, known := s.NetworkByID(p.Network)
			v[fmt.Sprint("port ", uint32(p.ID))] = fmt.Sprint(p.Name, p.Network, known, p.MTU)
			if p.Net != net || p.ID.Index() != i {
				v["fault "+p.Name] = fmt.Sprint("port at ", i, " in ", p.Net)
			}
		}
	}
	for i, n := range s.Nodes {
		if n.Known {
			v["node "+n.Name] = fmt.Sprint(n.Locator, n.Alive, n.PathMTU)
			if at, ok := s.NodeBySource(n.Locator.Hi); !ok || int(at) != i {
				v["fault "+n.Name] = fmt.Sprint("NodeBySource says ", at, ok)
			}
		}
	}
	return v
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: got %q, want %q", k, got[k], v)
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s: got %q, want nothing", k, v)
		}
	}
	t.FailNow()
}

var (
	testNodes = []string{"n1", "n2", "n3", "n4"}
	testBits  = []string{"2001:db8:1::/48", "2001:db8:2:8::/61", "2001:db8:3:2::/63", "2001:db8:4:1::/64"}
)

func testNode(i int) Node {
	l, err := srv6.LocatorFrom(netip.MustParsePrefix(testBits[i]))
	if err != nil {
		panic(err)
	}
	return Node{Name: testNodes[i], Locator: l, Alive: true}
}

func testMAC(i int) packet.MAC { return packet.MACFromUint64(0x02_00_00_00_00_00 + uint64(i)) }

func testIP(i int) netip.Addr {
	if i%2 == 0 {
		return packet.IPFrom4(0x0a000000 + uint32(i)).Addr()
	}
	return packet.IP{Hi: 0xfd00_0010 << 32, Lo: uint64(i)}.Addr()
}

// step makes one random change to both and compares the answers.
func step(t *testing.T, rng *rand.Rand, b *Builder, m *model) {
	t.Helper()
	id := NetworkID(1 + rng.IntN(4))
	port := NewPortID(1+rng.IntN(5), 1)
	mac := testMAC(1 + rng.IntN(40))
	var err error
	switch rng.IntN(16) {
	case 0:
		n := Network{ID: id, Name: fmt.Sprint("net", id), MTU: rng.IntN(9000)}
		if rng.IntN(2) == 0 {
			n.Gateway = Gateway{MAC: testMAC(100), Addresses: []netip.Addr{testIP(1), testIP(2)}}
		}
		err = b.SetNetwork(n)
		m.networks[id] = n
	case 1:
		b.DeleteNetwork(id)
		delete(m.networks, id)
	case 2, 3:
		p := Port{ID: port, Name: fmt.Sprint("veth", port), Network: id, MTU: rng.IntN(9000)}
		err = b.SetPort(p)
		m.ports[port] = p
	case 4:
		b.DeletePort(port)
		delete(m.ports, port)
	case 5, 6:
		n := testNode(rng.IntN(4))
		n.Alive, n.PathMTU = rng.IntN(2) == 0, rng.IntN(9000)
		err = b.SetNode(n)
		m.nodes[n.Name] = n
	case 7:
		name := testNodes[rng.IntN(4)]
		b.DeleteNode(name)
		delete(m.nodes, name)
	case 8, 9, 10, 11:
		e := FDBEntry{MAC: mac, Segment: Segment(rng.IntN(9)), Static: rng.IntN(3) == 0}
		if rng.IntN(2) == 0 {
			e.Port = port
		} else {
			e.Node = testNodes[rng.IntN(4)]
		}
		if m.fdb[id] == nil {
			m.fdb[id] = map[packet.MAC]FDBEntry{}
		}
		held, ok := m.fdb[id][mac]
		refuse := ok && held.Static && (held.Port != e.Port || held.Node != e.Node)
		err = b.SetFDB(id, e)
		if conflict := (*MACConflictError)(nil); refuse != errors.As(err, &conflict) {
			t.Fatalf("%+v over %+v: %v", e, held, err)
		}
		if refuse {
			err = nil
		} else {
			m.fdb[id][mac] = e
		}
	case 12, 13:
		b.DeleteFDB(id, mac)
		delete(m.fdb[id], mac)
	case 14:
		e := NeighborEntry{IP: testIP(1 + rng.IntN(40)), MAC: mac, Router: rng.IntN(2) == 0, Duplicate: rng.IntN(2) == 0, Static: rng.IntN(2) == 0}
		if m.neighbors[id] == nil {
			m.neighbors[id] = map[netip.Addr]NeighborEntry{}
		}
		err = b.SetNeighbor(id, e)
		m.neighbors[id][e.IP] = e
	case 15:
		ip := testIP(1 + rng.IntN(40))
		b.DeleteNeighbor(id, ip)
		delete(m.neighbors[id], ip)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Random changes, each snapshot compared with the model, and old snapshots
// compared with what they were.
func TestRandomAgainstModel(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b, m := NewBuilder(), newModel()
		type kept struct {
			s    *Snapshot
			want map[string]string
		}
		var old []kept
		for i := range 1500 {
			step(t, rng, b, m)
			if rng.IntN(5) != 0 {
				continue
			}
			s := b.Snapshot()
			want := m.view()
			compare(t, viewOf(s), want)
			if i%50 == 0 {
				old = append(old, kept{s, want})
			}
			if rng.IntN(10) == 0 {
				b.Release(s.Version)
			}
		}
		for _, k := range old {
			compare(t, viewOf(k.s), k.want)
		}
	}
}

// The same state in any order of arrival gives the same snapshot.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	var want map[string]string
	for seed := range uint64(200) {
		b := NewBuilder()
		var sets []func() error
		for id := NetworkID(1); id <= 3; id++ {
			sets = append(sets, func() error {
				return b.SetNetwork(Network{ID: id, Name: fmt.Sprint("net", id), Gateway: Gateway{MAC: testMAC(100), Addresses: []netip.Addr{testIP(1)}}})
			})
			for i := 1; i <= 20; i++ {
				e := FDBEntry{MAC: testMAC(i), Segment: Segment(i), Static: i%2 == 0}
				if i%3 == 0 {
					e.Port = NewPortID(1+i%5, 1)
				} else {
					e.Node = testNodes[i%4]
				}
				sets = append(sets, func() error { return b.SetFDB(id, e) },
					func() error { return b.SetNeighbor(id, NeighborEntry{IP: testIP(i), MAC: e.MAC}) })
			}
		}
		for i := 1; i <= 5; i++ {
			sets = append(sets, func() error {
				return b.SetPort(Port{ID: NewPortID(i, 1), Name: fmt.Sprint("veth", i), Network: NetworkID(1 + i%3)})
			})
		}
		for i := range testNodes {
			sets = append(sets, func() error { return b.SetNode(testNode(i)) })
		}
		rng := rand.New(rand.NewPCG(seed, 2))
		rng.Shuffle(len(sets), func(i, j int) { sets[i], sets[j] = sets[j], sets[i] })
		for _, set := range sets {
			if err := set(); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(20) == 0 {
				b.Snapshot()
			}
		}
		got := viewOf(b.Snapshot())
		if want == nil {
			want = got
		}
		compare(t, got, want)
	}
	if len(want) < 60 {
		t.Errorf("only %d things compared", len(want))
	}
}

// The dictionary alone, large enough to split and shrink many times.
func TestDictionaryAgainstMap(t *testing.T) {
	s := seed{rand.Uint64(), rand.Uint64() | 1}
	weak := func(k uint64) uint64 { return s.hash1(k) &^ 0xff0 } // many collisions
	for name, hash := range map[string]func(uint64) uint64{"good hash": s.hash1, "weak hash": weak} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 6))
			d, m := newDictionary(hash), map[uint64]uint64{}
			var old index[uint64]
			var was map[uint64]uint64
			for i := range 60000 {
				k := uint64(1 + rng.IntN(8000))
				if rng.IntN(3) == 0 || i > 50000 {
					d.remove(k)
					delete(m, k)
				} else {
					v := rng.Uint64() | 1
					d.set(k, v)
					m[k] = v
				}
				if i == 30000 {
					old, was = d.publish(), maps.Clone(m)
				}
				if d.count != len(m) {
					t.Fatalf("%d entries, want %d", d.count, len(m))
				}
			}
			check := func(x index[uint64], m map[uint64]uint64) {
				t.Helper()
				for k := uint64(1); k <= 8000; k++ {
					if got := get(&x, hash(k), k); got != m[k] {
						t.Fatalf("key %d: got %d, want %d", k, got, m[k])
					}
				}
				n := 0
				x.each(func(k, v uint64) bool { n++; return m[k] == v })
				if n != len(m) {
					t.Fatalf("each gave %d entries, want %d", n, len(m))
				}
			}
			check(old, was)
			check(d.publish(), m)
		})
	}
}

// Stations of several prefixes that share the interface identifier are told apart.
func TestNeighborsWithOneInterfaceIdentifier(t *testing.T) {
	b := NewBuilder()
	if err := b.SetNetwork(Network{ID: 9, Name: "net"}); err != nil {
		t.Fatal(err)
	}
	ip := func(i int) netip.Addr { return netip.AddrFrom16([16]byte{0xfd, 5: byte(i >> 8), 6: byte(i), 15: 1}) }
	for i := 1; i < 2000; i += 2 {
		if err := b.SetNeighbor(9, NeighborEntry{IP: ip(i), MAC: testMAC(i)}); err != nil {
			t.Fatal(err)
		}
	}
	s := b.Snapshot()
	net, _ := s.NetworkByID(9)
	for i := range 2000 {
		n, ok := s.Neighbor(net, packet.IPFromAddr(ip(i)))
		if ok != (i%2 == 1) || ok && n.MAC() != testMAC(i) {
			t.Fatalf("%s: got %s, %t", ip(i), n.MAC(), ok)
		}
	}
}

func TestFDBBatchSaysWhatFDBSays(t *testing.T) {
	b := NewBuilder()
	if err := b.SetNetwork(Network{ID: 9, Name: "net"}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 5000; i += 2 {
		if err := b.SetFDB(9, FDBEntry{MAC: testMAC(i), Node: "n1"}); err != nil {
			t.Fatal(err)
		}
	}
	s := b.Snapshot()
	net, _ := s.NetworkByID(9)
	var keys [Batch]uint64
	var out [Batch]Target
	for base := 0; base < 5000; base += Batch {
		for _, n := range []int{1, 17, Batch} {
			for i := range out {
				keys[i], out[i] = FDBKey(net, testMAC(base+i).Uint64()), 99
			}
			s.FDBBatch(&keys, n, &out)
			for i := range n {
				if want := s.FDB(net, testMAC(base+i).Uint64()); out[i] != want || (want != 0) != ((base+i)%2 == 1 && base+i < 5000) {
					t.Fatalf("MAC %d: got %x, want %x", base+i, out[i], want)
				}
			}
			if n < Batch && !slices.Equal(out[n:], slices.Repeat([]Target{99}, Batch-n)) {
				t.Fatal("wrote beyond n")
			}
		}
	}
}

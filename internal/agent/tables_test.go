package agent

import (
	"net/netip"
	"testing"

	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
)

// TestNetworkChangesItsID: a network's entries go with it from one ID to another
// and back, or away and back; meanwhile its port was made anew. What was kept
// under the ID before must not hold the MAC against its owner.
func TestNetworkChangesItsID(t *testing.T) {
	red := func(id uint32) desired.Delta {
		return desired.Delta{Networks: map[string]*desired.Network{"red": {Name: "red", ID: id, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}}}}
	}
	away := desired.Delta{Networks: map[string]*desired.Network{"red": nil}}
	for name, tt := range map[string]struct{ out, back desired.Delta }{
		"another ID": {red(101), red(100)},
		"away":       {away, red(100)},
	} {
		t.Run(name, func(t *testing.T) {
			mac := packet.MAC{2, 0, 0, 0, 0, 1}
			key := desired.EndpointKey{Namespace: "default", Name: "p"}
			owner := desired.Owner{Static: true, Node: "n", Endpoint: desired.EndpointRef{EndpointKey: key}}
			ips := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
			d := red(100)
			d.Endpoints = map[desired.EndpointKey]*desired.Endpoint{key: {EndpointRef: owner.Endpoint, Node: "n", Network: "red", MAC: mac, Addresses: ips}}
			d.FDB = map[desired.FDBKey]*desired.FDBEntry{{Network: "red", MAC: mac}: {FDBKey: desired.FDBKey{Network: "red", MAC: mac}, Owner: owner}}
			d.Neighbors = map[desired.NeighborKey]*desired.Neighbor{}
			for _, ip := range ips {
				k := desired.NeighborKey{Network: "red", IP: ip}
				d.Neighbors[k] = &desired.Neighbor{NeighborKey: k, Owner: owner, MAC: mac}
			}
			ts := newTables("n", 0xd200, packet.HashKey{})
			ts.apply(d)
			plug := func() {
				id, err := ts.NewPortID()
				if err != nil {
					t.Fatal(err)
				}
				ts.portUp(key, table.Port{ID: id, Name: "v", MAC: mac, Network: 100})
			}
			plug()
			ts.apply(tt.out)
			ts.portDown(key)
			ts.Snapshot()
			plug()
			ts.apply(tt.back)
			for object, err := range ts.failures {
				t.Errorf("%s: %v", object, err)
			}
			s := ts.Snapshot()
			net, ok := s.NetworkByID(100)
			if !ok {
				t.Fatal("the network is not there")
			}
			if at := s.FDB(net, mac.Uint64()); at.Kind() != table.KindLocal || s.Ports[at.Index()].Name != "v" {
				t.Errorf("the MAC is at %v", at)
			}
			for _, ip := range ips {
				if n, ok := s.Neighbor(net, packet.IPFromAddr(ip)); !ok || n.MAC48() != mac.Uint64() {
					t.Errorf("%s is not known", ip)
				}
			}
			// Nothing is left under an ID the network had.
			ts.apply(desired.Diff(ts.state, desired.NewState()))
			ts.portDown(key)
			ts.apply(red(100))
			s = ts.Snapshot()
			for p := range s.AllFDB() {
				t.Errorf("left over: %+v", p)
			}
			for p := range s.AllNeighbors() {
				t.Errorf("left over: %+v", p)
			}
		})
	}
}

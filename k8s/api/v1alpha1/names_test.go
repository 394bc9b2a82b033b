package v1alpha1

import (
	"math/rand/v2"
	"net/netip"
	"regexp"
	"testing"
)

func TestBindingNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{FDBName("red", [6]byte{2, 0, 0, 0, 0, 1}), "red.02-00-00-00-00-01"},
		{FDBName("a-b", [6]byte{0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54}), "a-b.fe-dc-ba-98-76-54"},
		{NeighborName("red", netip.MustParseAddr("10.0.0.5")), "red.10.0.0.5"},
		{NeighborName("red", netip.MustParseAddr("fd00::5")), "red.fd00-0000-0000-0000-0000-0000-0000-0005"},
		{NeighborName("red", netip.MustParseAddr("fe80::ff:fe00:1")), "red.fe80-0000-0000-0000-0000-00ff-fe00-0001"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

// TestNamesAreInjective draws keys that are close to each other, so that a lossy
// name would meet itself.
func TestNamesAreInjective(t *testing.T) {
	subdomain := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	r := rand.New(rand.NewPCG(1, 2))
	networks := []string{"a", "a-0", "a-0-0", "0", "10", "10-0", "aa"}
	seen := map[string]any{}
	check := func(name string, key any) {
		t.Helper()
		if !subdomain.MatchString(name) {
			t.Fatalf("%q is not a DNS subdomain", name)
		}
		if old, ok := seen[name]; ok && old != key {
			t.Fatalf("%q is the name of %v and of %v", name, old, key)
		}
		seen[name] = key
	}
	type fdb struct {
		network string
		mac     [6]byte
	}
	type neigh struct {
		network string
		ip      netip.Addr
	}
	for range 20000 {
		n := networks[r.IntN(len(networks))]
		var mac [6]byte
		var ip6 [16]byte
		for range 3 {
			mac[r.IntN(6)] = byte(r.IntN(18))
			ip6[r.IntN(16)] = byte(r.IntN(18))
		}
		ip6[0] = 0xfd
		check(FDBName(n, mac), fdb{n, mac})
		a := netip.AddrFrom16(ip6)
		check(NeighborName(n, a), neigh{n, a})
		a = netip.AddrFrom4([4]byte{10, byte(r.IntN(18)), byte(r.IntN(2)), byte(r.IntN(200))})
		check(NeighborName(n, a), neigh{n, a})
	}
	if len(seen) < 10000 {
		t.Fatalf("only %d keys drawn", len(seen))
	}
}

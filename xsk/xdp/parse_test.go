package xdp

import (
	"net/netip"
	"strings"
	"testing"
)

func TestLocatorWords(t *testing.T) {
	for _, tc := range []struct {
		locator, in, out string
	}{
		{"2001:db8::/32", "2001:db8:1::", "2001:db9::"},
		{"2001:db8:0:2::/63", "2001:db8:0:3::", "2001:db8:0:4::"},
		{"2001:db8:0:1::/64", "2001:db8:0:1::", "2001:db8::"},
		{"2001:db8:0:1:2::3/64", "2001:db8:0:1::", "2001:db8:0:2::"}, // host bits set
	} {
		prefix, mask := locatorWords(netip.MustParsePrefix(tc.locator))
		word := func(s string) uint64 {
			w, _ := locatorWords(netip.PrefixFrom(netip.MustParseAddr(s), 64))
			return w
		}
		if word(tc.in)&mask != prefix || word(tc.out)&mask == prefix {
			t.Errorf("%s: %s in %v, %s in %v", tc.locator, tc.in, word(tc.in)&mask == prefix, tc.out, word(tc.out)&mask == prefix)
		}
	}
}

func FuzzPinName(f *testing.F) {
	for _, s := range []string{"eth0", "eth0.100", "a%2eb", "%", "..", ".", "%252e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		dir, err := pinDirName(name)
		if err != nil {
			return
		}
		if strings.ContainsAny(dir, "./") || pinUnescape.Replace(dir) != name {
			t.Errorf("%q -> %q -> %q", name, dir, pinUnescape.Replace(dir))
		}
	})
}

func FuzzLinkPayload(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xed, 0xff, 0xff, 0xff})
	f.Add(append([]byte{40, 0, 0, 0, 16, 0}, make([]byte, 34)...))
	f.Fuzz(func(t *testing.T, message []byte) {
		payload, err := linkPayload(message)
		if err == nil {
			parseDevice(payload)
		}
	})
}

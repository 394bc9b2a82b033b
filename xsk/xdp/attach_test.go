package xdp

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"picot.dev/picot/internal/testnet"
)

func TestWorkloadEmptySlotDrops(t *testing.T) {
	w := newWire(t, 1500, 1)
	w.send(t, frame("before"))
	testnet.Eventually(t, patience, "frame without a program reaches the stack", func() error {
		if w.stackSaw(t, "before") == 0 {
			return fmt.Errorf("none yet")
		}
		return nil
	})

	p := w.attach(t, w.options(Workload))
	if p.Mode() != Native || !p.ReadsTags() || p.Reused() {
		t.Errorf("mode %v, reads tags %v, reused %v; want native, true, false", p.Mode(), p.ReadsTags(), p.Reused())
	}
	w.send(t, repeat(frame("closed"), 100)...)
	wantCounters(t, p, Counters{DroppedEmpty: 100})
	if n := w.stackSaw(t, "closed"); n != 0 {
		t.Errorf("%d frames of the workload port reached the stack", n)
	}
}

func TestWorkloadJumboFramesEnterTheProgram(t *testing.T) {
	w := newWire(t, 9000, 1)
	p := w.attach(t, w.options(Workload))
	w.send(t, append(frame("jumbo"), make([]byte, 8900)...))
	wantCounters(t, p, Counters{DroppedEmpty: 1})
	if n := w.stackSaw(t, "jumbo"); n != 0 {
		t.Errorf("%d jumbo frames reached the stack", n)
	}
}

func TestUplinkTakesOnlyTheLocator(t *testing.T) {
	for _, tc := range []struct{ locator, first, last, before, after string }{
		{"2001:db8::/32", "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db7:ffff:ffff::1", "2001:db9::"},
		{"2001:db8:10::/44", "2001:db8:10::", "2001:db8:1f:ffff::1", "2001:db8:f:ffff::1", "2001:db8:20::"},
		{"2001:db8:0:8::/61", "2001:db8:0:8::1", "2001:db8:0:f::1", "2001:db8:0:7::1", "2001:db8:0:10::1"},
		{"2001:db8:0:2::/63", "2001:db8:0:2::1", "2001:db8:0:3::1", "2001:db8:0:1::1", "2001:db8:0:4::1"},
		{"2001:db8:0:1::/64", "2001:db8:0:1::", "2001:db8:0:1:ffff:ffff:ffff:ffff", "2001:db8::1", "2001:db8:0:2::"},
	} {
		t.Run(tc.locator, func(t *testing.T) {
			w := newWire(t, 1500, 1)
			o := w.options(Uplink)
			o.Locator = netip.MustParsePrefix(tc.locator)
			p := w.attach(t, o)
			w.send(t,
				ipv6Frame(netip.MustParseAddr(tc.first), "inside"),
				ipv6Frame(netip.MustParseAddr(tc.last), "inside"),
				ipv6Frame(netip.MustParseAddr(tc.before), "outside"),
				ipv6Frame(netip.MustParseAddr(tc.after), "outside"))
			wantCounters(t, p, Counters{DroppedEmpty: 2, Passed: 2})
			if n := w.stackSaw(t, "inside"); n != 0 {
				t.Errorf("%d frames to the locator reached the stack", n)
			}
		})
	}
}

func TestUplinkPassesTheHostsOwnTraffic(t *testing.T) {
	w := newWire(t, 1500, 1)
	o := w.options(Uplink)
	o.Locator = netip.MustParsePrefix("2001:db8:0:1::/64")
	p := w.attach(t, o)
	inside := ipv6Frame(netip.MustParseAddr("2001:db8:0:1::1"), "host")
	ipv4 := append([]byte{}, inside...)
	ipv4[12], ipv4[13] = 0x08, 0x00
	passed := [][]byte{
		frame("host"),
		ipv4,
		inside[:14+39],                // an IPv6 header one byte short
		tagged(inside, 0x8100, 5),     // a VLAN of the host
		tagged(inside, 0x88a8, 0x105), // a provider VLAN
	}
	w.send(t, passed...)
	wantCounters(t, p, Counters{Passed: 5})

	stop := w.pushOffloaded(t, 0x8100, 5) // the same VLAN, tag beside the frame
	w.send(t, inside)
	stop()
	wantCounters(t, p, Counters{Passed: 6})
	seen := 0
	testnet.Eventually(t, patience, "passed frames at the stack", func() error {
		if seen += w.stackSaw(t, "host"); seen != 5 { // the short one has no mark
			return fmt.Errorf("%d of 5", seen)
		}
		return nil
	})
	w.send(t, inside)
	wantCounters(t, p, Counters{Passed: 6, DroppedEmpty: 1})
	if n := w.stackSaw(t, "host"); n != 0 {
		t.Errorf("%d frames to the locator reached the stack", n)
	}
}

func TestDriverWithoutMetadataGetsThePlainProgram(t *testing.T) {
	ns := testnet.New(t, "ifb")
	ns.IP(t, "link add d0 type ifb") // its driver has no metadata functions
	o := AttachOptions{IfIndex: ns.Link(t, "d0").Attrs().Index, Queues: 1, Name: "d0"}
	ns.Run(t, func() {
		objs, err := load(&o, Native, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer objs.close()
		if objs.tags {
			t.Error("got the program that reads tags from the driver")
		}
	})
}

func TestGenericOnlyWhenAllowed(t *testing.T) {
	ns, dir := testnet.New(t, "ifb"), testnet.BPFFS(t)
	ns.IP(t, "link add d0 type ifb") // its driver has no XDP
	o := AttachOptions{IfIndex: ns.Link(t, "d0").Attrs().Index, Queues: 1, PinDir: dir, Name: "d0"}
	ns.Run(t, func() {
		if _, err := Attach(o); err == nil || !strings.Contains(err.Error(), "d0") || !strings.Contains(err.Error(), "allow generic") {
			t.Fatalf("attach without leave for generic mode: %v", err)
		}
		if pins, err := List(dir); err != nil || len(pins) != 0 {
			t.Errorf("a failed attach left pins %+v, %v", pins, err)
		}
		o.AllowGeneric = true
		p, err := Attach(o)
		if err != nil {
			t.Fatal(err)
		}
		if p.Mode() != Generic {
			t.Errorf("mode %v, want generic", p.Mode())
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		// A fresh process that allows it keeps the fallback.
		if p, err = Attach(o); err != nil {
			t.Fatal(err)
		}
		if p.Mode() != Generic || !p.Reused() {
			t.Errorf("mode %v, reused %v; want generic, true", p.Mode(), p.Reused())
		}
		if err := p.Detach(); err != nil {
			t.Error(err)
		}
	})
}

func TestGenericModeRedirectsAndDrops(t *testing.T) {
	w := newWire(t, 1500, 1)
	o := w.options(Workload)
	o.Mode = Generic
	p := w.attach(t, o)
	w.send(t, repeat(frame("generic"), 10)...)
	wantCounters(t, p, Counters{DroppedEmpty: 10})
	if n := w.stackSaw(t, "generic"); n != 0 {
		t.Errorf("%d frames reached the stack", n)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := AttachOptions{IfIndex: 1, Kind: Uplink, Queues: 1, PinDir: "/nowhere", Name: "x", Locator: netip.MustParsePrefix("2001:db8::/64")}
	for name, spoil := range map[string]func(*AttachOptions){
		"ifindex":         func(o *AttachOptions) { o.IfIndex = 0 },
		"kind":            func(o *AttachOptions) { o.Kind = 9 },
		"queues":          func(o *AttachOptions) { o.Queues = 0 },
		"pin directory":   func(o *AttachOptions) { o.PinDir = "" },
		"pin name":        func(o *AttachOptions) { o.Name = "a/b" },
		"no locator":      func(o *AttachOptions) { o.Locator = netip.Prefix{} },
		"IPv4 locator":    func(o *AttachOptions) { o.Locator = netip.MustParsePrefix("10.0.0.0/32") },
		"short locator":   func(o *AttachOptions) { o.Locator = netip.MustParsePrefix("2001:db8::/31") },
		"long locator":    func(o *AttachOptions) { o.Locator = netip.MustParsePrefix("2001:db8::/65") },
		"unknown mode":    func(o *AttachOptions) { o.Mode = 7 },
		"too many queues": func(o *AttachOptions) { o.Queues = 1 << 20 },
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			spoil(&o)
			if _, err := Attach(o); err == nil {
				t.Errorf("accepted %+v", o)
			}
		})
	}
	if err := good.validate(); err != nil {
		t.Errorf("the good options: %v", err)
	}
}

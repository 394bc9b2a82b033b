package capture

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

func TestRequestTravels(t *testing.T) {
	for _, r := range []Request{
		{Snaplen: fastpath.DefaultSnaplen},
		{
			ID: "x&y", Port: "default/a", Network: "red", Reasons: []string{"runt", "spoofed_ip"}, Dropped: true, MAC: "02:00:00:00:00:0a",
			IP: "fd00::a", Snaplen: LeastSnaplen, Count: 7, Duration: 90 * time.Second,
		},
	} {
		q, err := url.ParseQuery(r.Query().Encode())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseQuery(q); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v, %v, want %+v", got, err, r)
		}
	}
}

func TestWrongRequestsAreNamed(t *testing.T) {
	for query, say := range map[string]string{
		"reason=nosuch":   `--reason "nosuch" is no drop reason`,
		"reason=none":     `--reason "none" is no drop reason`,
		"mac=02:00":       "--mac: not a MAC address",
		"ip=10.0.0.0/24":  `--ip "10.0.0.0/24": give an address`,
		"ip=fe80::1%25lo": "give an address",
		"snaplen=-1":      "--snaplen -1: give 1 to 65536 bytes",
		"snaplen=70000":   "give 1 to 65536 bytes",
		"snaplen=x":       `--snaplen "x" is none`,
		"count=-1":        `--count "-1" is none`,
		"duration=-1s":    "--duration -1s: give a time",
		"dropped=perhaps": `--dropped "perhaps" is none`,
		// Taken for no wish they would show everything.
		"prot=v-a":                         `parameter "prot" is none: there are id, port,`,
		"port=v-a&port=v-b":                `parameter "port", 2 times: once is enough`,
		"ip=10.0.0.1&ip=10.0.0.1":          `parameter "ip", 2 times`,
		"port=":                            "--port is given, but empty: give a value, or leave it out",
		"dropped=":                         "--dropped is given, but empty",
		"reason=runt&reason=":              "--reason is given, but empty",
		"ip=fd00::a&snaplen=511":           "--snaplen 511 with --mac or --ip: give at least 512 bytes",
		"mac=02:00:00:00:00:0a&snaplen=64": "--snaplen 64 with --mac or --ip",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseQuery(q); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v, want %q", query, err, say)
		}
	}
}

func FuzzParseQuery(f *testing.F) {
	f.Add("reason=runt&reason=spoofed_ip&snaplen=512&ip=fd00::a&mac=02:00:00:00:00:0a&count=1&duration=1s&dropped=1")
	f.Fuzz(func(t *testing.T, s string) {
		q, err := url.ParseQuery(s)
		if err != nil {
			return
		}
		r, err := ParseQuery(q)
		if err != nil {
			return
		}
		if again, err := ParseQuery(r.Query()); err != nil || !reflect.DeepEqual(again.Options(), r.Options()) {
			t.Fatalf("%+v, then %+v, %v", r, again, err)
		}
	})
}

// frame is Ethernet from 02:..:0a to 02:..:0b with the tags and what follows.
func frame(tags []byte, etherType uint16, rest ...byte) []byte {
	b := append([]byte{2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa}, tags...)
	return append(append(b, byte(etherType>>8), byte(etherType)), rest...)
}

func ipv4(src, dst string) []byte {
	b := make([]byte, 20)
	b[0] = 0x45
	copy(b[12:], netip.MustParseAddr(src).AsSlice())
	copy(b[16:], netip.MustParseAddr(dst).AsSlice())
	return b
}

func ipv6(src, dst string, next byte, rest ...byte) []byte {
	b := make([]byte, 40)
	b[0], b[6] = 0x60, next
	copy(b[8:], netip.MustParseAddr(src).AsSlice())
	copy(b[24:], netip.MustParseAddr(dst).AsSlice())
	return append(b, rest...)
}

func TestAddressesOfFrames(t *testing.T) {
	arp := append([]byte{0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 0xa, 10, 0, 0, 10}, 0, 0, 0, 0, 0, 0, 10, 0, 0, 11)
	target := netip.MustParseAddr("fd00::b").AsSlice()
	ns := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, target...)
	frames := map[string][]byte{
		"v4":     frame(nil, 0x0800, ipv4("10.0.0.10", "10.0.0.11")...),
		"tagged": frame([]byte{0x88, 0xa8, 0, 5, 0x81, 0, 0, 7}, 0x0800, ipv4("10.0.0.10", "10.0.0.11")...),
		"v6":     frame(nil, 0x86dd, ipv6("fd00::a", "fd00::b", 17)...),
		"arp":    frame(nil, 0x0806, arp...),
		"ns":     frame(nil, 0x86dd, ipv6("fd00::a", "ff02::1:ff00:b", 58, ns...)...),
		"runt":   {2, 0, 0},
		"cut":    frame([]byte{0x81, 0, 0}, 0x08),
		"echo":   frame(nil, 0x86dd, ipv6("fd00::a", "fd00::c", 58, append([]byte{128, 0, 0, 0, 0, 0, 0, 0}, target...)...)...),
	}
	for _, x := range []struct {
		r    Request
		want string
	}{
		{Request{}, "v4 tagged v6 arp ns runt cut echo"},
		{Request{MAC: "02:00:00:00:00:0A"}, "v4 tagged v6 arp ns cut echo"},
		{Request{MAC: "02:00:00:00:00:0b"}, "v4 tagged v6 arp ns cut echo"},
		{Request{MAC: "02:00:00:00:00:0c"}, ""},
		{Request{IP: "10.0.0.11"}, "v4 tagged arp"},
		{Request{IP: "::ffff:10.0.0.10"}, "v4 tagged arp"},
		{Request{IP: "fd00::b"}, "v6 ns"},
		{Request{IP: "fd00::a", MAC: "02:00:00:00:00:0c"}, ""},
		{Request{IP: "::"}, ""},
	} {
		a, err := x.r.addresses()
		if err != nil {
			t.Fatal(err)
		}
		for name, b := range frames {
			want := strings.Contains(" "+x.want+" ", " "+name+" ")
			if got := a.match(b); got != want {
				t.Errorf("%+v: %s is %t, want %t", x.r, name, got, want)
			}
		}
	}
}

// FuzzAddresses: no beginning of a frame makes it look beyond its end.
func FuzzAddresses(f *testing.F) {
	f.Add(frame(nil, 0x86dd, ipv6("fd00::a", "fd00::b", 58, 135)...))
	a, err := Request{IP: "::", MAC: "02:00:00:00:00:0a"}.addresses()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(_ *testing.T, b []byte) { a.match(b) })
}

// named is a node with port v-a of endpoint default/a in network red, uplink up0,
// and node2.
type named struct {
	*table.Builder
	a table.PortID
}

func (n named) Endpoint(id table.PortID) string {
	if id == n.a {
		return "default/a"
	}
	return ""
}
func (n named) Uplink(int) string { return "up0" }

func newNamed(t *testing.T) named {
	t.Helper()
	n := named{Builder: table.NewBuilder()}
	self, err := srv6.LocatorFrom(netip.MustParsePrefix("2001:db8:0:1::/64"))
	other, err2 := srv6.LocatorFrom(netip.MustParsePrefix("2001:db8:0:2::/64"))
	n.SetSelf(self, srv6.DefaultFunction, packet.HashKey{1, 2})
	id, err3 := n.NewPortID()
	n.a = id
	if err := errors.Join(err, err2, err3, n.SetNetwork(table.Network{ID: 100, Name: "red"}),
		n.SetNode(table.Node{Name: "node2", Locator: other, Alive: true}),
		n.SetPort(table.Port{ID: id, Name: "v-a", Network: 100, MAC: packet.MAC{2, 0, 0, 0, 0, 1}}),
	); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFileIsWhole holds, by another reader, that a file has an interface for each
// device, each frame with its comment, and how many were missed.
func TestFileIsWhole(t *testing.T) {
	n := newNamed(t)
	a, up := fastpath.PortDevice(n.a), fastpath.UplinkDevice(0)
	gone := fastpath.PortDevice(table.NewPortID(9, 3))
	sid := packet.IPFromAddr(netip.MustParseAddr("2001:db8:0:2:d20:0:6400:7"))
	frames := []struct {
		fastpath.Captured
		device, comment string
	}{
		{fastpath.Captured{From: a, To: up, Network: 100, Verdict: fastpath.Remote, SID: sid}, "v-a",
			"verdict=remote port=v-a endpoint=default/a network=red to=up0 node=node2 sid=2001:db8:0:2:d20:0:6400:7"},
		{fastpath.Captured{From: up, To: a, Network: 100, Verdict: fastpath.Local}, "up0", "verdict=local port=up0 network=red to=v-a to-endpoint=default/a"},
		{fastpath.Captured{From: a, Network: 100, Reason: fastpath.ReasonTooBig, Reply: true}, "v-a",
			"verdict=dropped reason=too_big port=v-a endpoint=default/a network=red icmp-error=sent"},
		{fastpath.Captured{From: up, Reason: fastpath.ReasonOuterSource}, "up0", "verdict=dropped reason=outer_source_unknown port=up0"},
		{fastpath.Captured{From: gone, Network: 300, Reason: fastpath.ReasonNetwork}, "#9", "verdict=dropped reason=network_unknown port=#9 network=300"},
	}
	var file bytes.Buffer
	w, err := NewWriter(&file, Request{Snaplen: 64}, n, "node1", up)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1_700_000_000, 123)
	for i := range frames {
		c := &frames[i].Captured
		c.Time, c.Data, c.Len = start.Add(time.Duration(i)).UnixNano(), bytes.Repeat([]byte{byte(i)}, 20+i), 100
		if err := w.Write(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(func(f func(bool, int, uint64)) { f(false, n.a.Index(), 5); f(true, 0, 6); f(false, 77, 7) }); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := r.SectionInfo(); s.Application != "picot pcap" || !strings.Contains(s.Comment, "node1") {
		t.Errorf("section %+v", s)
	}
	for i, f := range frames {
		data, info, o, err := r.ReadPacketDataWithOptions()
		if err != nil {
			t.Fatal(err)
		}
		device, err := r.Interface(info.InterfaceIndex)
		if err != nil || device.Name != f.device || device.SnapLength != 64 {
			t.Errorf("frame %d: interface %+v, %v, want %s", i, device, err, f.device)
		}
		if len(o.Comments) != 1 || o.Comments[0] != f.comment {
			t.Errorf("frame %d: %q, want %q", i, o.Comments, f.comment)
		}
		if !bytes.Equal(data, f.Data) || info.Length != 100 || !info.Timestamp.Equal(start.Add(time.Duration(i))) {
			t.Errorf("frame %d: %x %+v", i, data, info)
		}
	}
	if _, _, err := r.ReadPacketData(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v", err)
	}
	for i, want := range []struct{ received, dropped uint64 }{{2 + 6, 6}, {2 + 5, 5}, {1, 0}} {
		d, err := r.Interface(i)
		if err != nil || d.Statistics.PacketsReceived != want.received || d.Statistics.PacketsDropped != want.dropped {
			t.Errorf("interface %d: %+v, %v, want %+v", i, d.Statistics, err, want)
		}
	}
}

// TestLeastSnaplenHoldsTheAddresses: the target of a tagged Neighbor Solicitation behind
// the longest segment list is found in as much of it as a request must keep, and one
// frame whose inner one is not there at all is not taken for wanted.
func TestLeastSnaplenHoldsTheAddresses(t *testing.T) {
	via := make([]netip.Addr, srv6.MaxVia)
	for i := range via {
		via[i] = netip.MustParseAddr("2001:db8:9::1")
	}
	n := newNamed(t)
	self, err := srv6.LocatorFrom(netip.MustParsePrefix("2001:db8:0:1::/64"))
	e, err2 := srv6.NewEncap(srv6.EncapConfig{
		SrcMAC: packet.MAC{2, 1}, DstMAC: packet.MAC{2, 2}, Source: self, Dest: self, Function: srv6.DefaultFunction, Via: via,
	})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	target := netip.MustParseAddr("fd00::b").AsSlice()
	ns := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, target...)
	inner := frame([]byte{0x88, 0xa8, 0, 5, 0x81, 0, 0, 7}, 0x86dd, ipv6("fd00::a", "ff02::1:ff00:b", 58, ns...)...)
	b := append(make([]byte, e.Overhead(), 2*LeastSnaplen), inner...)
	e.Push(b, len(inner), 100, 0, 1, 0)
	b = b[:LeastSnaplen] // padded, as a longer one is cut
	r := Request{IP: "fd00::b", MAC: "02:00:00:00:00:0a", Snaplen: LeastSnaplen}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(io.Discard, r, n, "node1", fastpath.UplinkDevice(0))
	if err != nil {
		t.Fatal(err)
	}
	for i, inner := range []int{e.Overhead(), LeastSnaplen + 1} {
		c := fastpath.Captured{From: fastpath.UplinkDevice(0), Data: b, Len: 1000, Inner: inner}
		if err := w.Write(&c); err != nil || w.Frames() != 1 {
			t.Errorf("frame %d: %v, %d frames in the file", i, err, w.Frames())
		}
	}
}

// TestShortSnaplenShowsOpenedFrames: of frames from an uplink no inner byte is kept,
// and nobody asks for its addresses.
func TestShortSnaplenShowsOpenedFrames(t *testing.T) {
	w, err := NewWriter(io.Discard, Request{Snaplen: 50}, newNamed(t), "node1", fastpath.UplinkDevice(0))
	if err != nil {
		t.Fatal(err)
	}
	c := fastpath.Captured{From: fastpath.UplinkDevice(0), Data: make([]byte, 50), Len: 100, Inner: srv6.BaseOverhead, Verdict: fastpath.Local}
	if err := w.Write(&c); err != nil || w.Frames() != 1 {
		t.Errorf("%v, %d frames in the file", err, w.Frames())
	}
}

// late are names that are known after some questions.
type late struct {
	named
	questions *int
}

func (l late) Endpoint(id table.PortID) string {
	if *l.questions++; *l.questions <= 2 {
		return ""
	}
	return l.named.Endpoint(id)
}

// TestEndpointsAreAskedForUntilKnown: what a port is called may be known only after
// its first frames; then they say so, and nobody is asked again.
func TestEndpointsAreAskedForUntilKnown(t *testing.T) {
	var file bytes.Buffer
	questions := 0
	n := late{newNamed(t), &questions}
	up, a := fastpath.UplinkDevice(0), fastpath.PortDevice(n.a)
	w, err := NewWriter(&file, Request{Snaplen: 64}, n, "node1", up)
	if err != nil {
		t.Fatal(err)
	}
	const frames = 6
	for i := range frames {
		c := fastpath.Captured{From: a, To: up, Verdict: fastpath.Remote, Data: make([]byte, 20), Len: 20}
		if i%2 == 1 {
			c.From, c.To, c.Verdict = up, a, fastpath.Local
		}
		if err := w.Write(&c); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range frames {
		_, _, o, err := r.ReadPacketDataWithOptions()
		if err != nil {
			t.Fatal(err)
		}
		if known := i >= 2; strings.Contains(o.Comments[0], "endpoint=default/a") != known {
			t.Errorf("frame %d: %q", i, o.Comments)
		}
	}
	if questions != 3 {
		t.Errorf("asked %d times", questions)
	}
}

// TestCountEndsTheFile: what comes after the last frame wanted is left out, and what
// no address asks for is not counted.
func TestCountEndsTheFile(t *testing.T) {
	n := newNamed(t)
	var file bytes.Buffer
	w, err := NewWriter(&file, Request{Snaplen: LeastSnaplen, Count: 2, IP: "10.0.0.11"}, n, "node1", fastpath.PortDevice(n.a))
	if err != nil {
		t.Fatal(err)
	}
	wanted, other := frame(nil, 0x0800, ipv4("10.0.0.10", "10.0.0.11")...), frame(nil, 0x0800, ipv4("10.0.0.10", "10.0.0.12")...)
	outer := append(make([]byte, 54), wanted...)
	for i, c := range []fastpath.Captured{{Data: other}, {Data: wanted}, {Data: outer}, {Data: outer, Inner: 54}, {Data: wanted}, {Data: wanted[:3], Inner: 54}} {
		c.From, c.Len = fastpath.PortDevice(n.a), len(c.Data)
		if err := w.Write(&c); err != nil {
			t.Fatal(err)
		}
		if full := i >= 3; w.Full() != full || w.Frames() != []uint64{0, 1, 1, 2, 2, 2}[i] {
			t.Errorf("after frame %d: full %t, %d frames", i, w.Full(), w.Frames())
		}
	}
}

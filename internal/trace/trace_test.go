package trace

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath"
	"picot.dev/picot/internal/packet"
)

var update = flag.Bool("update", false, "write the golden files anew")

// cases are requests of both families, and what the walk must say of them.
func cases() []traceCase {
	return []traceCase{
		{"local", Request{In: "va", Dst: "10.0.0.11"}, "local", ""},
		{"local6", Request{In: "va", Dst: "fd00:10::b"}, "local", ""},
		{"remote", Request{In: "default/a", Dst: "10.0.0.13", Dport: "443", Proto: "tcp"}, "remote", ""},
		{"remote6", Request{In: "va", Dst: "fd00:10::d", Sport: "5"}, "remote", ""},
		{"unknown", Request{In: "va", Dst: "10.0.0.99", DstMAC: "02:00:00:00:00:99"}, "dropped", "unknown_unicast"},
		{"unknown6", Request{In: "va", Dst: "fd00:10::99", DstMAC: "02:00:00:00:00:99"}, "dropped", "unknown_unicast"},
		{"mac-only", Request{In: "va", DstMAC: "02:00:00:00:00:0b"}, "local", ""},
		{"spoofed-mac", Request{In: "vc", Dst: "10.0.0.12", SrcMAC: "02:00:00:00:00:77"}, "dropped", "spoofed_mac"},
		{"spoofed-ip", Request{In: "vc", Dst: "10.0.0.12", Src: "10.0.0.66"}, "dropped", "spoofed_ip"},
		{"spoofed-ip6", Request{In: "vc", Dst: "fd00:10::c", Src: "fd00:10::66"}, "dropped", "spoofed_ip"},
		{"source-mac", Request{In: "va", DstMAC: "02:00:00:00:00:0b", SrcMAC: "03:00:00:00:00:01"}, "dropped", "source_mac"},
		{"arp", Request{In: "va", ARPFor: "10.0.0.13"}, "answered", ""},
		{"nd", Request{In: "va", NDFor: "fd00:10::d"}, "answered", ""},
		{"arp-probe", Request{In: "va", ARPFor: "10.0.0.13", Src: "0.0.0.0"}, "answered", ""},
		{"dad", Request{In: "va", NDFor: "fd00:10::d", Src: "::"}, "answered", ""},
		{"arp-unknown", Request{In: "va", ARPFor: "10.0.0.99"}, "dropped", "silent_unknown"},
		{"nd-unknown", Request{In: "va", NDFor: "fd00:10::99"}, "dropped", "silent_unknown"},
		{"arp-own", Request{In: "va", ARPFor: "10.0.0.10", Src: "0.0.0.0"}, "dropped", "silent_own_port"},
		{"nd-own", Request{In: "va", NDFor: "fd00:10::a", Src: "::"}, "dropped", "silent_own_port"},
		{"arp-announcement", Request{In: "va", ARPFor: "10.0.0.10"}, "dropped", "group_arp_other"},
		{"arp-gateway", Request{In: "va", ARPFor: "10.0.0.1"}, "answered", ""},
		{"nd-gateway", Request{In: "va", NDFor: "fd00:10::1"}, "answered", ""},
		{"arp-unicast", Request{In: "va", ARPFor: "10.0.0.13", DstMAC: "02:00:00:00:00:0d"}, "remote", ""},
		{"nd-unicast", Request{In: "va", NDFor: "fd00:10::d", DstMAC: "02:00:00:00:00:0d"}, "remote", ""},
		{"broadcast", Request{In: "va", Dst: "255.255.255.255", Dport: "67"}, "dropped", "group_dhcp"},
		{"multicast", Request{In: "va", Dst: "224.0.0.251", Dport: "5353"}, "dropped", "group_mdns"},
		{"multicast6", Request{In: "va", Dst: "ff02::fb", Dport: "5353", Src: "fe80::1"}, "dropped", "group_mdns"},
		{"isolated", Request{In: "va", Dst: "10.0.0.14"}, "dropped", "segment_denied"},
		{"isolated6", Request{In: "va", Dst: "fd00:10::e"}, "dropped", "segment_denied"},
		{"unresolved", Request{In: "va", Dst: "10.0.0.15"}, "dropped", "node_unresolved"},
		{"too-big", Request{In: "va", Dst: "10.0.0.13", Size: "1447"}, "dropped", "too_big"},
		{"too-big6", Request{In: "va", Dst: "fd00:10::d", Size: "1447"}, "dropped", "too_big"},
		{"just-fits", Request{In: "va", Dst: "10.0.0.13", Size: "1446"}, "remote", ""},
		{"gateway-routes", Request{In: "va", Dst: "10.0.0.13", DstMAC: "02:00:00:00:00:fe"}, "remote", ""},
		{"gateway-no-neighbor", Request{In: "va", Dst: "10.9.9.9"}, "dropped", "gateway_no_neighbor"},
		{"gateway-echo6", Request{In: "va", Dst: "fd00:10::1"}, "answered", ""},
		{"from-node", Request{In: "up0", FromNode: "node2", Network: "red", Src: "10.0.0.13", Dst: "10.0.0.10"}, "local", ""},
		{"from-node6", Request{In: "up0", FromNode: "node2", Network: "100", SrcMAC: "02:00:00:00:00:0d", Dst: "fd00:10::a"}, "local", ""},
		{"from-node-segment", Request{In: "up0", FromNode: "node2", Network: "red", Src: "10.0.0.13", Dst: "10.0.0.10", Segment: "0"}, "dropped", "segment_denied"},
		{"from-node-elsewhere", Request{In: "up0", FromNode: "node2", Network: "red", Src: "10.0.0.13", Dst: "10.0.0.14"}, "dropped", "not_local"},
		{"from-node-network", Request{In: "up0", FromNode: "node2", Network: "999", SrcMAC: "02:00:00:00:00:0d", DstMAC: "02:00:00:00:00:0a"}, "dropped", "outer_network_unknown"},
		{"kernels", Request{In: "up0", Frame: "02000000000102000000000208004500"}, "passed", ""},
		{"claims", Request{In: "va", Dst: "10.0.0.11", Src: "10.0.0.77", SrcMAC: "02:00:00:00:00:77"}, "local", ""},
		{"claims6", Request{In: "va", Dst: "fd00:10::b", Src: "fd00:10::77", SrcMAC: "02:00:00:00:00:77"}, "local", ""},
		{"longer-than-the-port", Request{In: "va", Dst: "10.0.0.11", Size: "1505"}, "dropped", "too_big"},
		{"runt", Request{In: "va", Frame: "0200"}, "dropped", "runt"},
	}
}

type traceCase struct {
	name            string
	request         Request
	verdict, reason string
}

// TestRun holds the verdicts, and that a query carries a request whole, against the
// golden files of what is printed.
func TestRun(t *testing.T) {
	n := testNode(t)
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			got, err := Run(n, c.request)
			must(t, err)
			if got.Verdict != c.verdict || got.Reason != c.reason {
				t.Errorf("%s %s, want %s %s", got.Verdict, got.Reason, c.verdict, c.reason)
			}
			if got.Meaning == "" || got.Reason != "" && got.Look == "" {
				t.Errorf("says too little: %+v", got)
			}
			var out bytes.Buffer
			w := tabwriter.NewWriter(&out, 0, 4, 2, ' ', 0)
			Print(w, got)
			must(t, w.Flush())
			golden(t, c.name, out.Bytes())
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
}

// TestMadeFramesAreWellFormed: no case is malformed by accident, and the frame given
// as hex comes to the same verdict.
func TestMadeFramesAreWellFormed(t *testing.T) {
	n := testNode(t)
	for _, c := range cases() {
		if c.request.Frame != "" {
			continue
		}
		made, err := Run(n, c.request)
		must(t, err)
		b, err := hex.DecodeString(made.Frame.Hex)
		must(t, err)
		var l packet.Layout
		if !packet.Parse(b, &l) {
			t.Errorf("%s: %x does not parse", c.name, b)
		}
		if sum := packet.CompleteChecksum(bytes.Clone(b), &l); sum == packet.ChecksumCompleted {
			t.Errorf("%s: the checksum was not complete", c.name)
		}
		again, err := Run(n, Request{In: c.request.In, Frame: made.Frame.Hex})
		must(t, err)
		if !reflect.DeepEqual(again, made) {
			t.Errorf("%s: as hex: %+v\nas fields: %+v", c.name, again, made)
		}
	}
}

func TestSizeIsTheIPPackets(t *testing.T) {
	n := testNode(t)
	for _, dst := range []string{"10.0.0.11", "fd00:10::b"} {
		for _, proto := range []string{"icmp", "udp", "tcp"} {
			got, err := Run(n, Request{In: "va", Dst: dst, Proto: proto, Size: "200"})
			must(t, err)
			if got.Frame.Length != 214 || got.Verdict != "local" {
				t.Errorf("%s %s: %d bytes, %s", dst, proto, got.Frame.Length, got.Verdict)
			}
		}
	}
}

// TestOutIsWhatLeaves: the outer headers, the answer's MTU, the answer.
func TestOutIsWhatLeaves(t *testing.T) {
	n := testNode(t)
	run := func(r Request) *Result {
		t.Helper()
		got, err := Run(n, r)
		must(t, err)
		if got.Out == nil {
			t.Fatalf("%+v: nothing leaves: %s %s", r, got.Verdict, got.Reason)
		}
		return got
	}
	o := run(Request{In: "va", Dst: "10.0.0.13"}).Out
	if o.Device != "up0" || o.Node != "node2" || o.MTU != 1500 || o.Outer.SID != "2001:db8:0:2:d20:0:6400:7" ||
		!strings.HasPrefix(o.Outer.Source, "2001:db8:0:1::") || o.Outer.NextHop != "02:00:00:00:01:02" || o.Outer.Length != 40+14+28 {
		t.Errorf("%+v %+v", o, o.Outer)
	}
	for dst, says := range map[string]string{"10.0.0.13": "ICMP fragmentation needed, MTU 1446", "fd00:10::d": "ICMPv6 Packet Too Big, MTU 1446"} {
		if o := run(Request{In: "va", Dst: dst, Size: "1447"}).Out; o.Device != "va" || !strings.Contains(o.Frame.Text, says) {
			t.Errorf("%+v, want %q", o, says)
		}
	}
	for says, r := range map[string]Request{
		"ARP reply: 10.0.0.13 is at 02:00:00:00:00:0d":                {In: "va", ARPFor: "10.0.0.13"},
		"Neighbor Advertisement: fd00:10::d is at 02:00:00:00:00:0d ": {In: "va", NDFor: "fd00:10::d"},
	} {
		if o := run(r).Out; o.Device != "va" || !strings.Contains(o.Frame.Text, says) {
			t.Errorf("%+v, want %q", o, says)
		}
	}
}

// TestFromNodePassesVia: another node's packet comes with the SRH that this node's via
// has it put there, all of it passed, and is taken; sources are fixed where they are.
func TestFromNodePassesVia(t *testing.T) {
	n := testNode(t)
	n.Via = []netip.Addr{netip.MustParseAddr("2001:db8:9::1"), netip.MustParseAddr("2001:db8:8::1")}
	n.FixedSource = true
	for _, f := range []struct{ name, src, dst string }{{"v4", "10.0.0.13", "10.0.0.10"}, {"v6", "fd00:10::d", "fd00:10::a"}} {
		got, err := Run(n, Request{In: "up0", FromNode: "node2", Network: "red", Src: f.src, Dst: f.dst})
		must(t, err)
		b, err := hex.DecodeString(got.Frame.Hex)
		must(t, err)
		ip := packet.IPv6(b[packet.EthernetLen:])
		srh := packet.SRH(ip[packet.IPv6Len:])
		if ip.NextHeader() != packet.ProtoRouting || !srh.Valid() || srh.SegmentsLeft() != 0 || srh.LastEntry() != len(n.Via) {
			t.Fatalf("%s: no SRH of %d segments with none left: %x", f.name, len(n.Via)+1, b)
		}
		self := netip.MustParseAddr("2001:db8:0:1:d20:0:6400:7")
		for i, want := range []netip.Addr{self, n.Via[1], n.Via[0]} {
			if sid := srh.Segment(i).Addr(); sid != want {
				t.Errorf("%s: segment %d is %s, want %s", f.name, i, sid, want)
			}
		}
		if d, s := ip.Destination().Addr(), ip.Source().Addr(); d != self || s != netip.MustParseAddr("2001:db8:0:2::1") {
			t.Errorf("%s: from %s to %s", f.name, s, d)
		}
		if got.Verdict != "local" || got.Out == nil || got.Out.Device != "va" || !slices.ContainsFunc(got.Notes, func(s string) bool { return strings.Contains(s, "spec.via of node1") }) {
			t.Errorf("%s: %+v", f.name, got)
		}
	}
}

func TestEveryReasonIsExplained(t *testing.T) {
	for r := fastpath.ReasonNone + 1; r < fastpath.NumReasons; r++ {
		if s := sentenceOf(r); s.means == "" || s.look == "" {
			t.Errorf("%s: %+v", r, s)
		}
	}
	for m := arpnd.OK + 1; int(m) < arpnd.NumMalformed; m++ {
		if malformed[m] == "" {
			t.Errorf("malformed %s is not explained", m)
		}
	}
}

// TestWrongRequestsNameThePlaceAndTheMend, each with one error.
func TestWrongRequestsNameThePlaceAndTheMend(t *testing.T) {
	n := testNode(t)
	for _, c := range []struct {
		request Request
		say     []string
	}{
		{Request{Dst: "10.0.0.11"}, []string{"--in", "name the device"}},
		{Request{In: "va"}, []string{"no frame", "--arp-for"}},
		{Request{In: "nowhere", Dst: "10.0.0.11"}, []string{`--in "nowhere"`, "va vb vc", "up0"}},
		{Request{In: "vx", Dst: "10.0.0.11"}, []string{"--in vx", "there is no device vx"}},
		{Request{In: "va", Frame: "02zz"}, []string{"--frame", "character 3", `'z'`}},
		{Request{In: "va", Frame: "020"}, []string{"--frame", "3 hex digits"}},
		{Request{In: "va", Frame: "::"}, []string{"--frame", "no hex digits"}},
		{Request{In: "va", Frame: "0200", Dst: "10.0.0.11"}, []string{"--dst", "one or the other"}},
		{Request{In: "va", DstMAC: "02:00"}, []string{`--dst-mac "02:00"`, "six pairs"}},
		{Request{In: "va", DstMAC: "02:00:00:00:00:0b", SrcMAC: "x"}, []string{`--src-mac "x"`, "six pairs"}},
		{Request{In: "va", Dst: "10.0.0"}, []string{`--dst "10.0.0"`, "not an address"}},
		{Request{In: "va", Dst: "fe80::1%eth0"}, []string{`--dst "fe80::1%eth0"`, "not an address"}},
		{Request{In: "va", ARPFor: "fd00::1"}, []string{"--arp-for", "use --nd-for"}},
		{Request{In: "va", NDFor: "10.0.0.1"}, []string{"--nd-for", "use --arp-for"}},
		{Request{In: "va", ARPFor: "10.0.0.1", NDFor: "fd00::1"}, []string{"give one of them"}},
		{Request{In: "va", ARPFor: "10.0.0.1", Size: "100"}, []string{"--size beside --arp-for"}},
		{Request{In: "va", Src: "10.0.0.1", DstMAC: "02:00:00:00:00:0b"}, []string{"--src without --dst"}},
		{Request{In: "va", Src: "10.0.0.1", Dst: "fd00:10::b"}, []string{"two families"}},
		{Request{In: "va", Dst: "10.0.0.11", Proto: "gre"}, []string{`--proto "gre"`, "udp, tcp or icmp"}},
		{Request{In: "va", Dst: "10.0.0.11", Proto: "icmp", Dport: "1"}, []string{"--dport with --proto icmp"}},
		{Request{In: "va", Dst: "10.0.0.11", Dport: "65536"}, []string{`--dport "65536"`, "0 to 65535"}},
		{Request{In: "va", Dst: "10.0.0.11", Size: "27"}, []string{"--size 27", "28 to 65535"}},
		{Request{In: "va", Dst: "10.0.0.99"}, []string{"--dst 10.0.0.99", "give --dst-mac", "--arp-for 10.0.0.99"}},
		{Request{In: "va", Dst: "fd00:10::99"}, []string{"--dst fd00:10::99", "give --dst-mac", "--nd-for fd00:10::99"}},
		{Request{In: "va", Dst: "10.0.0.11", Network: "red"}, []string{"--network without --from-node"}},
		{Request{In: "va", Dst: "10.0.0.11", FromNode: "node2", Network: "red"}, []string{"--from-node with --in va", "up0"}},
		{Request{In: "up0", Dst: "10.0.0.11"}, []string{"--in up0 is an uplink", "--from-node"}},
		{Request{In: "up0", Dst: "10.0.0.11", FromNode: "node2"}, []string{"--from-node without --network"}},
		{Request{In: "up0", Dst: "10.0.0.11", Src: "10.0.0.13", FromNode: "node9", Network: "red"}, []string{`--from-node "node9"`, "node2 node3"}},
		{Request{In: "up0", Dst: "10.0.0.11", Src: "10.0.0.13", FromNode: "node2", Network: "green"}, []string{`--network "green"`, "an ID"}},
		{Request{In: "up0", Dst: "10.0.0.11", FromNode: "node2", Network: "red"}, []string{"no --src-mac", "node2"}},
		{Request{In: "up0", Dst: "10.0.0.11", Src: "10.0.0.13", FromNode: "node2", Network: "red", Segment: "16777216"}, []string{`--segment "16777216"`}},
	} {
		_, err := Run(n, c.request)
		if !errors.Is(err, ErrRequest) {
			t.Errorf("%+v: %v, want ErrRequest", c.request, err)
			continue
		}
		for _, s := range c.say {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%+v: %q does not say %q", c.request, err, s)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: more than one error: %q", c.request, err)
		}
	}
}

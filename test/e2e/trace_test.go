package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/control"
	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
	"picot.dev/picot/internal/trace"
)

// tracing is two nodes in isolated network red: a of segment 7, b of 7 and s, with
// port security mac+ip, on the first, c of 7 and x of 66, to whom 7 may not send, on
// the second. The pods may send more than the underlay takes.
type tracing struct {
	*lab.Lab
	t             *testing.T
	n1, n2        *lab.Node
	a, b, s, c, x *lab.Pod
}

func newTracing(t *testing.T) *tracing {
	t.Helper()
	d := &tracing{Lab: newLab(t, lab.Routed), t: t}
	must(t, d.AddNetwork("red", 100, []string{"10.0.0.0/24", "fd00:10::/64"},
		"gateway: {mac: \"02:00:00:00:00:fe\", addresses: [10.0.0.1, \"fd00:10::1\"]}\nisolation: {default: allow, rules: [{from: [7], to: [66]}]}"))
	var err error
	for i, n := range []**lab.Node{&d.n1, &d.n2} {
		*n, err = d.AddNode(lab.NodeOptions{Name: fmt.Sprintf("node%d", i+1)})
		must(t, err)
	}
	for i, p := range []struct {
		at      **lab.Pod
		node    *lab.Node
		segment int
		spec    string
	}{{&d.a, d.n1, 7, ""}, {&d.b, d.n1, 7, ""}, {&d.s, d.n1, 7, "portSecurity: mac+ip"}, {&d.c, d.n2, 7, ""}, {&d.x, d.n2, 66, ""}} {
		*p.at, err = d.AddPod(lab.PodOptions{
			Name: string(rune('a' + i)), Node: p.node, Network: "red", Segment: p.segment, Spec: p.spec, MTU: 1500,
			MAC: fmt.Sprintf("02:00:00:00:00:1%d", i), Addresses: []string{fmt.Sprintf("10.0.0.1%d", i), fmt.Sprintf("fd00:10::1%d", i)},
		})
		must(t, err)
	}
	for _, n := range []*lab.Node{d.n1, d.n2} {
		must(t, n.Start(within(t, 20*time.Second)))
	}
	must(t, d.n1.WaitReady(within(t, 20*time.Second), 3))
	must(t, d.n2.WaitReady(within(t, 20*time.Second), 2))
	return d
}

// in is d for a subtest.
func (d *tracing) in(t *testing.T) *tracing {
	one := *d
	one.t = t
	return &one
}

// picot runs "picot trace" on the first node.
func (d *tracing) picot(args ...string) (string, error) {
	args = append([]string{"trace", "--run-dir", d.n1.RunDir()}, args...)
	return d.n1.Run(within(d.t, 30*time.Second), picot, args...)
}

// trace asks the first node's agent as "picot trace" does, in much less time.
func (d *tracing) trace(args ...string) (r trace.Result) {
	d.t.Helper()
	query := url.Values{}
	for i := 0; i < len(args); i += 2 {
		query.Set(strings.TrimPrefix(args[i], "--"), args[i+1])
	}
	request, err := trace.ParseQuery(query)
	must(d.t, err)
	body, err := control.Get(within(d.t, 10*time.Second), d.n1.RunDir(), "/trace?"+request.Query())
	must(d.t, err)
	must(d.t, json.Unmarshal(body, &r))
	return r
}

// traffic is what a device of the first node counted.
func (d *tracing) traffic(device string) status.Traffic {
	d.t.Helper()
	s, err := d.n1.Status(within(d.t, 10*time.Second))
	must(d.t, err)
	for _, p := range s.Ports {
		if p.Device == device {
			return p.Traffic
		}
	}
	for _, u := range s.Uplinks {
		if u.Device == device {
			return u.Traffic
		}
	}
	d.t.Fatalf("no device %s", device)
	return status.Traffic{}
}

// cell is the counter a verdict belongs to.
func cell(t status.Traffic, r trace.Result) uint64 {
	switch r.Verdict {
	case "local":
		return t.Local
	case "remote":
		return t.Remote
	case "answered":
		return t.Answered
	case "passed":
		return t.XDP.Passed
	}
	return t.Drops[r.Reason]
}

// TestTraceComesTrue: what a trace says of a frame becomes of it when it is sent, by
// the counters of a real agent; what it says would leave, leaves; and that it was
// asked is counted nowhere.
func TestTraceComesTrue(t *testing.T) {
	d := newTracing(t)
	type row struct {
		want string // verdict and reason
		in   *lab.Pod
		args string
	}
	rows := []row{
		{"dropped unknown_unicast", d.a, "--dst 10.0.0.99 --dst-mac 02:00:00:00:99:99"},
		{"dropped unknown_unicast", d.a, "--dst fd00:10::99 --dst-mac 02:00:00:00:99:99"},
		{"dropped spoofed_mac", d.s, "--dst 10.0.0.11 --src-mac 02:00:00:00:77:77"},
		{"dropped spoofed_ip", d.s, "--dst 10.0.0.11 --src 10.0.0.66"},
		{"dropped spoofed_ip", d.s, "--dst fd00:10::11 --src fd00:10::66"},
		{"dropped source_mac", d.a, "--dst 10.0.0.11 --src-mac 03:00:00:00:00:01"},
		{"dropped silent_unknown", d.a, "--arp-for 10.0.0.99"},
		{"dropped silent_unknown", d.a, "--nd-for fd00:10::99"},
		{"dropped silent_own_port", d.a, "--arp-for 10.0.0.10 --src 0.0.0.0"},
		{"dropped silent_own_port", d.a, "--nd-for fd00:10::10 --src ::"},
		{"dropped group_mdns", d.a, "--dst 224.0.0.251 --dport 5353"},
		{"dropped group_mdns", d.a, "--dst ff02::fb --dport 5353"},
		{"dropped segment_denied", d.a, "--dst 10.0.0.14"},
		{"dropped segment_denied", d.a, "--dst fd00:10::14"},
		{"dropped too_big", d.a, "--dst 10.0.0.13 --size 1500"},
		{"dropped too_big", d.a, "--dst fd00:10::13 --size 1500"},
		{"dropped gateway_no_neighbor", d.a, "--dst 192.0.2.1"},
		{"answered", d.a, "--arp-for 10.0.0.13"},
		{"answered", d.a, "--nd-for fd00:10::13"},
		{"answered", d.a, "--nd-for fd00:10::13 --src ::"},
		{"answered", d.a, "--dst fd00:10::1"},
		{"local", d.a, "--dst 10.0.0.11 --dport 9"},
		{"local", d.a, "--dst fd00:10::11 --dport 9"},
		{"remote", d.a, "--dst 10.0.0.13 --dport 9 --size 1446"},
		{"remote", d.a, "--dst fd00:10::13 --proto tcp"},
		{"local", nil, "--from-node node2 --network red --src 10.0.0.13 --dst 10.0.0.10 --dport 9"},
		{"local", nil, "--from-node node2 --network red --src fd00:10::13 --dst fd00:10::10 --dport 9"},
		{"dropped segment_denied", nil, "--from-node node2 --network red --src 10.0.0.13 --dst 10.0.0.10 --segment 0"},
		{"dropped segment_denied", nil, "--from-node node2 --network red --src fd00:10::13 --dst fd00:10::10 --segment 0"},
		{"dropped outer_network_unknown", nil, "--from-node node2 --network 4711 --src-mac 02:00:00:00:00:13 --dst-mac 02:00:00:00:00:10"},
		{"dropped not_local", nil, "--from-node node2 --network red --src 10.0.0.13 --dst 10.0.0.14"},
		{"passed", nil, "--frame " + hex.EncodeToString(elsewhere(t, d))},
	}
	captures := map[string]*capture{}
	for _, p := range []*lab.Pod{d.a, d.b, d.s} {
		captures[p.Device] = startCapture(t, p.Netns(), lab.PodDevice)
	}
	wire := startCapture(t, d.UnderlayNetns(), d.n1.RouterIf)
	// The traces first, all of them, on books that stand still: a station says little
	// on its own, so a few tries find it silent.
	results := make([]trace.Result, len(rows))
	testnet.Eventually(t, patience, "the books stand still while frames are traced", func() error {
		before := d.books()
		for i, r := range rows {
			in := lab.UplinkDevice
			if r.in != nil {
				in = r.in.Device
			}
			results[i] = d.trace(append(strings.Fields(r.args), "--in", in)...)
		}
		if after := d.books(); !reflect.DeepEqual(before, after) {
			return fmt.Errorf("they were %+v and are %+v", before, after)
		}
		return nil
	})
	for i, r := range rows {
		t.Run(fmt.Sprintf("%02d %s", i, r.want), func(t *testing.T) {
			d, got := d.in(t), results[i]
			if v := strings.TrimSpace(got.Verdict + " " + got.Reason); v != r.want {
				t.Fatalf("%s: traced %q, want %q", r.args, v, r.want)
			}
			frame, err := hex.DecodeString(got.Frame.Hex)
			must(t, err)
			netns, from := d.UnderlayNetns(), d.n1.RouterIf
			if r.in != nil {
				netns, from = r.in.Netns(), lab.PodDevice
			} else {
				d.addressed(frame)
			}
			before := d.traffic(got.In.Device)
			testnet.Eventually(t, patience, "it comes true: "+r.args, func() error {
				sendRaw(t, netns, from, frame)
				now := d.traffic(got.In.Device)
				if n := cell(now, got) - cell(before, got); n == 0 {
					return fmt.Errorf("%s was not counted: %+v, before %+v", r.want, now, before)
				}
				return leaves(got, captures, wire)
			})
		})
	}
	t.Run("captures and errors", d.capturesAndErrors)
	t.Run("captured by picot", d.capturedByPicot)
}

// books are the first node's, but for what goes on by itself.
func (d *tracing) books() any {
	d.t.Helper()
	s, err := d.n1.Status(within(d.t, 10*time.Second))
	must(d.t, err)
	s.Workers, s.Applies = nil, 0
	return s
}

// leaves looks for what a trace said would leave.
func leaves(got trace.Result, captures map[string]*capture, wire *capture) error {
	if got.Out == nil {
		return nil
	}
	want, err := hex.DecodeString(got.Out.Frame.Hex)
	if err != nil {
		return err
	}
	c := captures[got.Out.Device]
	if got.Out.Device == lab.UplinkDevice {
		c = wire
	}
	if c == nil || len(c.all(func(f captured) bool { return !f.outgoing && bytes.Equal(f.data, want) })) == 0 {
		return fmt.Errorf("%s did not get %s", got.Out.Device, got.Out.Frame.Text)
	}
	return nil
}

// addressed gives a frame from the underlay the Ethernet addresses of the node's link.
func (d *tracing) addressed(frame []byte) {
	d.t.Helper()
	must(d.t, d.n1.Do(func() error {
		i, err := net.InterfaceByName(lab.UplinkDevice)
		if err == nil {
			copy(frame, i.HardwareAddr)
		}
		return err
	}))
}

// elsewhere is an IPv6 packet to the node's link: no SID.
func elsewhere(t *testing.T, d *tracing) []byte {
	t.Helper()
	f := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64}, d.n1.Router.AsSlice()...)
	f = append(append(f, d.n1.Address.AsSlice()...), 0, 9, 0, 9, 0, 8, 0, 0)
	return binary.BigEndian.AppendUint16(f[:len(f)-2], 1)
}

// capturesAndErrors: a frame of a capture is traced as it came; and what is wrong is
// said by one error.
func (d *tracing) capturesAndErrors(t *testing.T) {
	d = d.in(t)
	frame, err := hex.DecodeString(d.trace("--in", lab.UplinkDevice, "--from-node", "node2", "--network", "red", "--src", "10.0.0.13", "--dst", "10.0.0.10").Frame.Hex)
	must(t, err)
	file := filepath.Join(t.TempDir(), "one.pcap")
	head := []byte{0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0}
	record := binary.LittleEndian.AppendUint32(make([]byte, 8), uint32(len(frame)))
	record = binary.LittleEndian.AppendUint32(record, uint32(len(frame)))
	must(t, os.WriteFile(file, append(append(head, record...), frame...), 0o600))
	var got trace.Result
	out, err := d.picot("--in", lab.UplinkDevice, "--read", file, "-o", "json")
	must(t, err)
	must(t, json.Unmarshal([]byte(out), &got))
	if got.Verdict != "local" || got.Out.Device != d.a.Device {
		t.Errorf("%+v", got)
	}
	if out, err = d.picot("--in", lab.UplinkDevice, "--read", file, "-o", "yaml"); err != nil || !strings.Contains(out, "\nverdict: local\n") {
		t.Errorf("yaml: %v\n%s", err, out)
	}
	for args, say := range map[string]string{
		"--in up0 --read " + file + " --number 2": "it has no frame 2: it ends after 1",
		"--in nowhere --dst 10.0.0.10":            "node node1 has no such device or endpoint",
		"--in up0 --frame 0g":                     "no hex digit",
		"--in default/a --dst 10.0.0.77":          "give --dst-mac, or trace the question, --arp-for 10.0.0.77",
	} {
		out, err := d.picot(strings.Fields(args)...)
		if err == nil || !strings.Contains(out+err.Error(), say) {
			t.Errorf("%s: %v\n%s\nwant %q", args, err, out, say)
		}
	}
	out, err = d.picot("--in", "default/a", "--dst", "10.0.0.13", "--size", "1500")
	if err != nil || !strings.Contains(out, "dropped too_big") || !strings.Contains(out, "ICMP fragmentation needed, MTU 1446") {
		t.Errorf("%v\n%s", err, out)
	}
}

// capturedByPicot: a frame that "picot pcap" shows as dropped is traced to the same end.
func (d *tracing) capturedByPicot(t *testing.T) {
	d = d.in(t)
	file := filepath.Join(t.TempDir(), "drops.pcapng")
	want := d.trace("--in", d.a.Device, "--dst", "fd00:10::99", "--dst-mac", "02:00:00:00:99:99")
	frame, err := hex.DecodeString(want.Frame.Hex)
	must(t, err)
	pcap := d.n1.Command(within(t, 60*time.Second), picot, "pcap", "--run-dir", d.n1.RunDir(), "--port", d.a.Device,
		"--reason", want.Reason, "--count", "1", "-w", file)
	must(t, pcap.Start())
	ended := make(chan error, 1)
	go func() { ended <- pcap.Wait() }()
	testnet.Eventually(t, patience, "a frame is captured", func() error {
		sendRaw(t, d.a.Netns(), lab.PodDevice, frame)
		select {
		case err := <-ended:
			must(t, err)
			return nil
		case <-time.After(50 * time.Millisecond):
			return errNone
		}
	})
	var got trace.Result
	out, err := d.picot("--in", d.a.Device, "--read", file, "-o", "json")
	must(t, err)
	must(t, json.Unmarshal([]byte(out), &got))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("traced %+v\nwant %+v", got, want)
	}
}

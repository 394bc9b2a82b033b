package flows

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// pick returns the flows of one table and priority.
func pick(s Set, table uint8, priority uint16) Set {
	return slices.DeleteFunc(slices.Clone(s), func(f Flow) bool { return f.Table != table || f.Priority != priority })
}

// The gate-off set, written out by hand from what a stock ovn-kubernetes renders for the
// default network (port 4) and two user-defined ones (9, 10), uplink 1; its unsorted patch
// order, spaces and "output:NORMAL" are spelled canonically by Parse.
const stock = `
priority=12, table=0, arp, arp_op=1, arp_tpa=172.18.0.2, actions=output:4,NORMAL
priority=12, table=0, icmp6, icmpv6_type=135, nd_target=fd00:18::2, actions=output:4,NORMAL
priority=11, table=0, in_port=1, dl_dst=ff:ff:ff:ff:ff:ff, arp actions=output:4,output:9,output:10,NORMAL
priority=11, table=0, in_port=1, dl_dst=33:33:00:00:00:01, icmp6, icmpv6_type=136 actions=output:4,output:9,output:10,NORMAL
priority=10, table=0, dl_dst=06:38:d6:0b:4b:a7 actions=output:4,output:9,output:10,NORMAL
priority=10, table=0, in_port=4, dl_src=06:38:d6:0b:4b:a7 actions=output:NORMAL
priority=10, table=0, in_port=9, dl_src=06:38:d6:0b:4b:a7 actions=output:NORMAL
priority=10, table=0, in_port=10, dl_src=06:38:d6:0b:4b:a7 actions=output:NORMAL
priority=9, table=0, in_port=4 actions=drop
priority=9, table=0, in_port=9 actions=drop
priority=9, table=0, in_port=10 actions=drop
priority=50, ip, dl_dst=06:38:d6:0b:4b:a7, actions=ct(zone=64000, nat, table=1)
priority=50, ipv6, dl_dst=06:38:d6:0b:4b:a7, actions=ct(zone=64000, nat, table=1)
priority=0, table=0, actions=NORMAL
priority=100, table=1, ip, ct_state=+trk+est, ct_mark=0x1, actions=output:4
priority=100, table=1, ip, ct_state=+trk+rel, ct_mark=0x1, actions=output:4
priority=100, table=1, ipv6, ct_state=+trk+est, ct_mark=0x1, actions=output:4
priority=100, table=1, ipv6, ct_state=+trk+rel, ct_mark=0x1, actions=output:4
priority=100, table=1, ip, ct_state=+trk+est, ct_mark=0x3, actions=output:9
priority=100, table=1, ip, ct_state=+trk+rel, ct_mark=0x3, actions=output:9
priority=100, table=1, ipv6, ct_state=+trk+est, ct_mark=0x3, actions=output:9
priority=100, table=1, ipv6, ct_state=+trk+rel, ct_mark=0x3, actions=output:9
priority=100, table=1, ip, ct_state=+trk+est, ct_mark=0x4, actions=output:10
priority=100, table=1, ip, ct_state=+trk+rel, ct_mark=0x4, actions=output:10
priority=100, table=1, ipv6, ct_state=+trk+est, ct_mark=0x4, actions=output:10
priority=100, table=1, ipv6, ct_state=+trk+rel, ct_mark=0x4, actions=output:10
priority=14, table=1,icmp6,icmpv6_type=134 actions=output:9,output:10,FLOOD
priority=14, table=1,icmp6,icmpv6_type=136 actions=output:9,output:10,FLOOD
priority=13, table=1, in_port=1, udp, tp_dst=3784, actions=output:4,output:LOCAL
priority=13, table=1, in_port=1, udp6, tp_dst=3784, actions=output:4,output:LOCAL
priority=10, table=1, dl_dst=06:38:d6:0b:4b:a7, actions=output:LOCAL
priority=0, table=1, actions=output:NORMAL
`

func TestGateOffIsTodaysSetExactly(t *testing.T) {
	want, err := ParseSet(stock)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		want[i].Cookie = Cookie
	}
	want.Sort()
	if got := Render(brEx(2)); got.String() != want.String() {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Gate on takes away the fan-out, adds the steering, and leaves every other flow as it was.
func TestGateOnChangesOnlyFanoutAndSteering(t *testing.T) {
	off, on := Render(brEx(2)), Render(brEx(2, gate))
	fanout := func(f Flow) bool {
		return f.Table == 0 && (f.Priority == 12 || f.Priority == 11 || f.Priority == 10 && strings.HasPrefix(f.Match, "dl_dst=")) ||
			f.Table == 1 && f.Priority == 14
	}
	if n := len(slices.DeleteFunc(slices.Clone(off), func(f Flow) bool { return !fanout(f) })); n != 7 {
		t.Errorf("gate off has %d fan-out flows, want 7", n)
	}
	rest := slices.DeleteFunc(slices.Clone(on), func(f Flow) bool { return f.Priority == PrioritySteer })
	if want := slices.DeleteFunc(slices.Clone(off), fanout); rest.String() != want.String() {
		t.Errorf("besides the steering flows, gate on has\n%swant\n%s", rest, want)
	}
}

func TestFourSteeringFlowsPerIngressPort(t *testing.T) {
	for ports := range 4 {
		in := brEx(3, gate, func(in *Input) {
			for i := range ports {
				in.Ingress = append(in.Ingress, Port{fmt.Sprintf("patch-lnet%d_ovn_localnet_port-to-br-int", i), uint32(40 - i)})
			}
		})
		s := pick(Render(in), 0, PrioritySteer)
		if len(s) != 4*(ports+1) {
			t.Errorf("%d localnets: %d steering flows, want %d", ports, len(s), 4*(ports+1))
		}
		for _, f := range s {
			if f.Actions != "output:4,NORMAL" || Field(f.Match, "dl_dst") != "06:38:d6:0b:4b:a7" {
				t.Errorf("unexpected steering flow %s", f)
			}
		}
	}
}

func TestFamilySwitchedOffDropsItsFlows(t *testing.T) {
	v6words := []string{"icmp6", "ipv6", "udp6", "nd_target", "33:33"}
	for name, in := range goldens {
		in.IPv6 = false
		for _, f := range Render(in) {
			for _, w := range v6words {
				if strings.Contains(f.Match, w) {
					t.Errorf("%s without IPv6: %s", name, f)
				}
			}
		}
		in.IPv4, in.IPv6 = false, true
		for _, f := range Render(in) {
			if fields := strings.Split(f.Match, ","); slices.Contains(fields, "arp") || slices.Contains(fields, "ip") || slices.Contains(fields, "udp") {
				t.Errorf("%s without IPv4: %s", name, f)
			}
		}
	}
}

func TestVLANAddsOnlyItsMatch(t *testing.T) {
	for _, mode := range []func(*Input){gate, overlay} {
		plain := pick(Render(brEx(2, gate, mode, localnet)), 0, PrioritySteer)
		tagged := pick(Render(brEx(2, gate, mode, localnet, vlan)), 0, PrioritySteer)
		if len(plain) == 0 || len(plain) != len(tagged) {
			t.Fatalf("%d and %d steering flows", len(plain), len(tagged))
		}
		for i, f := range tagged {
			f.Match = strings.Replace(f.Match, "dl_vlan=100,", "", 1)
			if f != plain[i] {
				t.Errorf("with a VLAN %s, without %s", tagged[i], plain[i])
			}
		}
	}
}

// NORMAL switches in the VLAN the frame carries: with the tag stripped the host is not reached.
func TestNoStripBeforeNormal(t *testing.T) {
	for name, in := range goldens {
		in.VLAN = 100
		for _, f := range Render(in) {
			if strings.Contains(f.Actions, "strip") && (f.Table == 0 || strings.Contains(f.Actions, "NORMAL")) {
				t.Errorf("%s: %s", name, f)
			}
		}
	}
}

func TestNoSourceNoSteering(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"number not known yet": func(in *Input) { in.Patches[0].OFPort = 0 },
		"number -1":            func(in *Input) { in.Patches[0].OFPort = 0xffffffff },
		"no source":            func(in *Input) { in.Patches[0].Source = false },
		"no patches":           func(in *Input) { in.Patches = nil },
	} {
		for _, mode := range []func(*Input){gate, overlay} {
			s := Render(brEx(2, gate, mode, localnet, change))
			if got := pick(s, 0, PrioritySteer); len(got) != 0 {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
}

// A port without a number appears nowhere: no empty output, no port 0, no -1.
func TestNoFlowNamesAPortWithoutNumber(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		in := brEx(4, localnet)
		in.Gate, in.Mode = r.IntN(2) == 0, Mode(r.IntN(2))
		for _, p := range []*uint32{&in.Uplink.OFPort, &in.Ingress[0].OFPort, &in.Patches[0].OFPort, &in.Patches[2].OFPort, &in.Patches[4].OFPort} {
			*p = []uint32{*p, 0, 0xffffffff}[r.IntN(3)]
		}
		for _, f := range Render(in) {
			for a := range strings.SplitSeq(f.Actions, ",") {
				if a == "" || a == "output:" || a == "output:0" || strings.Contains(a, "429496729") {
					t.Fatalf("%s", f)
				}
			}
			if p := Field(f.Match, "in_port"); p == "0" || len(p) > 5 {
				t.Fatalf("%s", f)
			}
		}
	}
}

func TestOrderDoesNotDependOnInputOrder(t *testing.T) {
	in := brEx(20, gate, localnet)
	want := Render(in).String()
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		r.Shuffle(len(in.Patches), func(i, j int) { in.Patches[i], in.Patches[j] = in.Patches[j], in.Patches[i] })
		in.Ingress = append(in.Ingress, in.Uplink) // a repeated ingress port changes nothing
		if got := Render(in).String(); got != want {
			t.Fatal("the order of the patches shows")
		}
	}
}

func TestUplinkBridgeSteersFromItsUplinkAlone(t *testing.T) {
	for _, f := range pick(Render(brUp(gate)), 0, PrioritySteer) {
		if Field(f.Match, "in_port") != "1" || f.Actions != "output:9,NORMAL" {
			t.Errorf("%s", f)
		}
	}
}

// What one ARP reply costs does not grow with the networks.
func TestSteeringDoesNotGrowWithNetworks(t *testing.T) {
	few, many := pick(Render(brEx(10, gate)), 0, PrioritySteer), pick(Render(brEx(500, gate)), 0, PrioritySteer)
	if few.String() != many.String() {
		t.Errorf("10 networks\n%s500 networks\n%s", few, many)
	}
}

func TestDPUHostRendersNothing(t *testing.T) {
	for _, g := range []bool{false, true} {
		in := brEx(2, func(in *Input) { in.Gate, in.Role = g, DPUHost })
		if s := Render(in); s != nil {
			t.Errorf("%s", s)
		}
		if bits := NoFlood(in); bits != nil {
			t.Errorf("NO_FLOOD %v", bits)
		}
	}
}

func TestDPUUsesTheRepresentorAndIPv4Alone(t *testing.T) {
	for _, g := range []bool{false, true} {
		toHost := 0
		for _, f := range Render(brEx(2, dpu, func(in *Input) { in.Gate = g })) {
			if strings.Contains(f.Match+f.Actions, "LOCAL") || strings.Contains(f.Match, "6,") {
				t.Errorf("gate %v: %s", g, f)
			}
			if f.Table == 1 && strings.HasSuffix(f.Actions, "output:2") {
				toHost++
			}
		}
		if toHost != 2 { // BFD and the bridge MAC
			t.Errorf("gate %v: %d flows to the representor, want 2", g, toHost)
		}
	}
}

func TestDPUWaitsForItsRepresentor(t *testing.T) {
	for _, f := range Render(brEx(2, gate, dpu, func(in *Input) { in.Host.OFPort = 0 })) {
		if strings.Contains(f.Actions, "LOCAL") || f.Actions == "" || f.Table == 1 && f.Priority == prioToHost {
			t.Errorf("%s", f)
		}
	}
}

// In overlay mode nothing but the steering is ours, and the fan-out below it cannot match.
func TestOverlayIsSteeringAlone(t *testing.T) {
	s := Render(brEx(2, gate, overlay, localnet))
	if len(s) != 16 || len(pick(s, 0, PrioritySteer)) != 16 {
		t.Errorf("want 8 flows of each of 2 ingress ports, all of priority 52, got\n%s", s)
	}
	groups := 0
	for _, f := range s {
		if strings.HasSuffix(Field(f.Match, "dl_dst"), "/01:00:00:00:00:00") {
			groups++
			if f.Actions != "NORMAL" {
				t.Errorf("%s", f)
			}
		}
	}
	if groups != 8 {
		t.Errorf("%d flows for group addresses, want 8", groups)
	}
	if s := Render(brEx(2, overlay)); len(s) != 0 {
		t.Errorf("gate off: %s", s)
	}
}

func TestNoFlood(t *testing.T) {
	for name, tt := range map[string]struct {
		in   Input
		want map[uint32]bool
	}{
		"gate on: followers, never the source, never a localnet": {brEx(2, gate, localnet), map[uint32]bool{4: false, 9: true, 10: true}},
		"gate off: today's":                           {brEx(2), map[uint32]bool{4: false, 9: true, 10: true}},
		"uplink bridge, gate on":                      {brUp(gate), map[uint32]bool{9: false, 10: true}},
		"uplink bridge, gate off: none":               {brUp(), map[uint32]bool{9: false, 10: false}},
		"uplink bridge, re-designated":                {brUp(gate, func(in *Input) { in.Patches[0].Source, in.Patches[1].Source = false, true }), map[uint32]bool{9: true, 10: false}},
		"overlay: theirs":                             {brEx(2, gate, overlay), nil},
		"overlay on an uplink bridge: nobody's, ours": {brUp(gate, overlay), map[uint32]bool{9: false, 10: true}},
		"a port without a number waits":               {brEx(2, gate, func(in *Input) { in.Patches[1].OFPort = 0 }), map[uint32]bool{4: false, 10: true}},
	} {
		if got := NoFlood(tt.in); fmt.Sprint(got) != fmt.Sprint(tt.want) || (got == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Input)
		want   error
	}{
		"plain":                      {func(*Input) {}, nil},
		"gate":                       {gate, nil},
		"gate without segmentation":  {func(in *Input) { in.Gate, in.Segmentation = true, false }, ErrGateNeedsSegmentation},
		"no MAC":                     {func(in *Input) { in.MAC = nil }, ErrInvalid},
		"group MAC":                  {func(in *Input) { in.MAC = []byte{1, 0, 0, 0, 0, 1} }, ErrInvalid},
		"zero MAC":                   {func(in *Input) { in.MAC = make([]byte, 6) }, ErrInvalid},
		"VLAN 4095":                  {func(in *Input) { in.VLAN = 4095 }, ErrInvalid},
		"two sources":                {func(in *Input) { in.Patches[1].Source = true }, ErrInvalid},
		"two ports, one number":      {func(in *Input) { in.Patches[1].OFPort = in.Patches[0].OFPort }, ErrInvalid},
		"a router's port as ingress": {func(in *Input) { in.Ingress = []Port{in.Patches[1].Port} }, ErrInvalid},
		"a router's port as uplink":  {func(in *Input) { in.Uplink = in.Patches[1].Port }, ErrInvalid},
		"the uplink repeated":        {func(in *Input) { in.Ingress = []Port{in.Uplink} }, nil},
		"no number yet":              {func(in *Input) { in.Patches[1].OFPort, in.Patches[2].OFPort = 0, 0 }, nil},
		"DPU host":                   {func(in *Input) { in.Role, in.MAC = DPUHost, nil }, nil},
	} {
		in := brEx(2, tt.change)
		if err := in.Validate(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

func TestSteering(t *testing.T) {
	for line, want := range map[string]bool{
		"priority=52,in_port=1,dl_dst=06:38:d6:0b:4b:a7,arp actions=output:4,NORMAL":                                             true,
		"cookie=0xdeff105, priority=52,icmp6,in_port=1,dl_vlan=3,dl_dst=06:38:d6:0b:4b:a7,icmp_type=136 actions=output:4,NORMAL": true,
		"priority=52,in_port=1,dl_dst=ff:ff:ff:ff:ff:ff,arp actions=NORMAL":                                                      false,
		"priority=52,in_port=1,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,arp actions=NORMAL":                                    false,
		"priority=52,in_port=1,arp actions=NORMAL":                                                                               false,
		"priority=52,ip,dl_dst=06:38:d6:0b:4b:a7 actions=NORMAL":                                                                 false,
		"priority=52,icmp6,dl_dst=06:38:d6:0b:4b:a7,icmp_type=128 actions=NORMAL":                                                false,
		"priority=51,in_port=1,dl_dst=06:38:d6:0b:4b:a7,arp actions=output:4,NORMAL":                                             false,
		"table=1,priority=52,in_port=1,dl_dst=06:38:d6:0b:4b:a7,arp actions=output:4,NORMAL":                                     false,
	} {
		f, err := Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		if Steering(f) != want {
			t.Errorf("Steering(%s) = %v", line, !want)
		}
	}
}

func TestHost(t *testing.T) {
	for name, tt := range map[string]struct {
		in   Input
		want string
	}{
		"the bridge's own port":  {brEx(1), "br-ex 65534 0"},
		"in the gateway's VLAN":  {brEx(1, vlan), "br-ex 65534 100"},
		"a DPU's representor":    {brEx(1, dpu), "pf0hpf 2 0"},
		"not there yet":          {brEx(1, dpu, func(in *Input) { in.Host.OFPort = 0 }), "none"},
		"overlay: another's":     {brEx(1, gate, overlay), "none"},
		"the host side of a DPU": {brEx(1, func(in *Input) { in.Role = DPUHost }), "none"},
	} {
		got := "none"
		if h := Host(tt.in); h != nil {
			got = fmt.Sprint(h.Name, " ", h.OFPort, " ", h.VLAN)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

package flows

import (
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// bridge returns br-ex with the default network and n user-defined ones, gate off.
func brEx(n int, change ...func(*Input)) Input {
	in := Input{
		Bridge: "br-ex", MAC: net.HardwareAddr{0x06, 0x38, 0xd6, 0x0b, 0x4b, 0xa7},
		Segmentation: true, IPv4: true, IPv6: true,
		Uplink:  Port{"eth0", 1},
		NodeIPs: []netip.Addr{netip.MustParseAddr("172.18.0.2"), netip.MustParseAddr("fd00:18::2")},
		Patches: []Patch{{Port: Port{"patch-br-ex_node1-to-br-int", 4}, Network: "default", Default: true, Source: true, CTMark: 1}},
	}
	for i := range n {
		in.Patches = append(in.Patches, Patch{
			Port: Port{fmt.Sprintf("patch-br-ex_net%d_node1-to-br-int", i+1), uint32(9 + i)}, Network: fmt.Sprintf("net%d", i+1), CTMark: uint32(3 + i),
		})
	}
	for _, c := range change {
		c(&in)
	}
	return in
}

// brUp returns an uplink bridge with two user-defined networks, the first their source.
func brUp(change ...func(*Input)) Input {
	in := brEx(2, func(in *Input) {
		in.Bridge = "br-up1"
		in.Patches = in.Patches[1:]
		in.Patches[0].Source = true
	})
	for _, c := range change {
		c(&in)
	}
	return in
}

func gate(in *Input)    { in.Gate = true }
func vlan(in *Input)    { in.VLAN = 100 }
func v4only(in *Input)  { in.IPv6 = false }
func v6only(in *Input)  { in.IPv4 = false }
func overlay(in *Input) { in.Mode = Overlay }
func dpu(in *Input)     { in.Role, in.Host = DPU, Port{"pf0hpf", 2} }
func localnet(in *Input) {
	in.Ingress = []Port{{"patch-lnet1_ovn_localnet_port-to-br-int", 30}}
}

// goldens are the sets kept under testdata; the gate-off ones are the flows a stock
// ovn-kubernetes renders today, in sorted order.
var goldens = map[string]Input{
	"gate-off":          brEx(2),
	"gate-off-vlan":     brEx(2, vlan),
	"gate-off-v4":       brEx(2, v4only),
	"gate-off-v6":       brEx(2, v6only),
	"gate-off-no-udn":   brEx(0),
	"gate-off-uplink":   brUp(),
	"gate-off-dpu":      brEx(2, dpu),
	"gate-on":           brEx(2, gate),
	"gate-on-vlan":      brEx(2, gate, vlan),
	"gate-on-v4":        brEx(2, gate, v4only),
	"gate-on-v6":        brEx(2, gate, v6only),
	"gate-on-localnet":  brEx(2, gate, localnet),
	"gate-on-uplink":    brUp(gate),
	"gate-on-dpu":       brEx(2, gate, dpu),
	"overlay":           brEx(2, gate, overlay),
	"overlay-vlan":      brEx(2, gate, overlay, vlan, localnet),
	"overlay-uplink":    brUp(gate, overlay),
	"overlay-gate-off":  brEx(2, overlay),
	"dpu-host":          brEx(2, gate, func(in *Input) { in.Role = DPUHost }),
	"gate-on-no-source": brEx(2, gate, func(in *Input) { in.Patches[0].OFPort = 0 }),
}

func TestGolden(t *testing.T) {
	for name, in := range goldens {
		t.Run(name, func(t *testing.T) {
			if err := in.Validate(); err != nil {
				t.Fatal(err)
			}
			got := Render(in).String()
			file := filepath.Join("testdata", name+".flows")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s changed; got\n%swant\n%s", file, got, want)
			}
		})
	}
}

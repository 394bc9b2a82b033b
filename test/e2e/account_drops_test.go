package e2e

import (
	"fmt"
	"testing"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
)

// What a workload port sends that goes nowhere is on the books by its reason, to
// the frame; the books would notice one that is not.
func TestEveryFrameIsAccountedForByItsReason(t *testing.T) {
	s := newSite(t)
	s.reachAll()
	before := s.still(s.n1)
	s.base[s.n1] = before
	const times = 50
	src, host, unknown := mac(t, s.a1.MAC), s.hostMAC(s.a1.Device), mac(t, "02:00:00:00:99:99")
	frame := func(dst, from []byte, rest ...byte) []byte {
		f := append(append(append([]byte{}, dst...), from...), rest...)
		return append(f, make([]byte, max(0, 60-len(f)))...)
	}
	for _, c := range []struct {
		reason string
		frame  []byte
	}{
		{"unknown_unicast", frame(unknown, src, 0x88, 0xb5)},
		{"unknown_unicast", frame(host, src, 0x88, 0xb5)},
		{"group_other", frame(mac(t, "ff:ff:ff:ff:ff:ff"), src, 0x88, 0xb5)},
		{"group_stp", frame(mac(t, "01:80:c2:00:00:00"), src, 0, 38, 0x42, 0x42, 3)},
		{"group_lldp", frame(mac(t, "01:80:c2:00:00:0e"), src, 0x88, 0xcc)},
		{"source_mac", frame(unknown, mac(t, "03:00:00:00:00:01"), 0x88, 0xb5)},
		{"same_port", frame(src, mac(t, "02:00:00:00:77:77"), 0x88, 0xb5)},
		{"malformed", frame(unknown, src, 0x08, 0x00, 0x4f)},
		{"rarp", frame(mac(t, "ff:ff:ff:ff:ff:ff"), src, 0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3)},
	} {
		t.Run(c.reason, func(t *testing.T) {
			was, _ := port(s.status(s.n1), s.a1.Device)
			frames := make([][]byte, times)
			for i := range frames {
				frames[i] = c.frame
			}
			s.sendFromA1(frames)
			testnet.Eventually(t, patience, "the drops are counted", func() error {
				now, _ := port(s.status(s.n1), s.a1.Device)
				if n := now.Drops[c.reason] - was.Drops[c.reason]; n != times {
					return fmt.Errorf("%d of %d; all: %v", n, times, now.Drops)
				}
				return nil
			})
		})
	}
	s.books()

	// The control: each way a frame could vanish is a breach.
	good := s.still(s.n1)
	must(t, lab.Account(before, good))
	for what, tamper := range map[string]func(*status.Port, *status.Frames, *lab.Device){
		"a verdict missing":      func(p *status.Port, _ *status.Frames, _ *lab.Device) { p.Local-- },
		"a drop without reason":  func(p *status.Port, _ *status.Frames, _ *lab.Device) { p.Dropped++; p.RX++ },
		"lost before the agent":  func(p *status.Port, _ *status.Frames, _ *lab.Device) { p.XDP.Redirected++ },
		"lost before the socket": func(_ *status.Port, _ *status.Frames, d *lab.Device) { d.XDPRedirect++ },
		"lost on the way out":    func(p *status.Port, _ *status.Frames, _ *lab.Device) { p.TX++ },
		"a leaked frame":         func(_ *status.Port, f *status.Frames, _ *lab.Device) { f.Free--; f.Total-- },
		"a frame under way":      func(_ *status.Port, f *status.Frames, _ *lab.Device) { f.Batch++ },
	} {
		bad := s.still(s.n1)
		for i := range bad.Status.Ports {
			if bad.Status.Ports[i].Device == s.a1.Device {
				d := bad.Devices[s.a1.Device]
				tamper(&bad.Status.Ports[i], &bad.Status.Frames, &d)
				bad.Devices[s.a1.Device] = d
			}
		}
		if lab.Account(before, bad) == nil {
			t.Errorf("the books do not notice: %s", what)
		}
	}
}

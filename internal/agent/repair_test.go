package agent

import (
	"slices"
	"testing"
	"time"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
)

// sentFrames keeps what a repair sends, by port.
type sentFrames map[string][]string

// portsOf are the ports the frame went to, sorted.
func (s sentFrames) portsOf(frame []byte) []string {
	ports := s[string(frame)]
	slices.Sort(ports)
	return ports
}

// frameLog is a sender that keeps frames under the name of their port.
type frameLog struct {
	w    *world
	sent sentFrames
}

func (l frameLog) Send(port int, frame []byte) error {
	for _, p := range l.w.agent.tables.last.Ports {
		if p.ID.Index() == port {
			l.sent[string(frame)] = append(l.sent[string(frame)], p.Name)
		}
	}
	return nil
}

// A new MAC of an endpoint's addresses is told to every other port of this node,
// once: by gratuitous ARP and by unsolicited NA.
func TestNewMACIsToldInBothFamilies(t *testing.T) {
	for name, tt := range map[string]struct {
		endpoint int
		told     []string
	}{
		"of this node":    {1, []string{"v2", "v3"}},
		"of another node": {workloads + 1, []string{"v1", "v2", "v3"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.started()
				sent := sentFrames{}
				w.ask(func() { w.agent.repair.engine = frameLog{w, sent} })
				changed, mac := good(), packet.MAC{2, 0, 0, 0, 0xaa, byte(tt.endpoint)}
				for _, f := range families {
					n := *changed.Neighbors[desired.NeighborKey{Network: "red", IP: f.of(tt.endpoint)}]
					n.MAC = mac
					changed.Neighbors[n.NeighborKey] = &n
				}
				w.say(desired.Diff(good(), changed))
				w.pass(time.Minute)
				frames := map[string][]byte{"v4": make([]byte, arpnd.NALen), "v6": make([]byte, arpnd.NALen)}
				for _, f := range families {
					ip, b := packet.IPFromAddr(f.of(tt.endpoint)), frames[f.name]
					n := arpnd.BuildGARP(b, ip, mac)
					if f.name == "v6" {
						n = arpnd.BuildUnsolicitedNA(b, ip, mac, false)
					}
					if got := sent.portsOf(b[:n]); !slices.Equal(got, tt.told) {
						t.Errorf("%s: told to %v, want %v", f.name, got, tt.told)
					}
				}
				if len(sent) != len(families) {
					t.Errorf("%d frames, want one of each family", len(sent))
				}
			})
		})
	}
}

package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
)

// pausePattern finds how long nobody forwarded in the log of one who took over.
var pausePattern = regexp.MustCompile(`msg="took over".* pause=(\S+)`)

// TestTakeoverLosesNothing: under streams of pings, of both families on one node and
// to the other, a second agent takes the first one's place, again and again; not one
// ping is lost and the sockets' own loss counters stay 0.
func TestTakeoverLosesNothing(t *testing.T) {
	d := newDuo(t, "", nil)
	var pings []*exec.Cmd
	var outs []*bytes.Buffer
	for _, to := range []*lab.Pod{d.b, d.c} {
		for _, f := range families {
			p := d.a.Command(within(t, 2*time.Minute), "ping", "-i", "0.002", "-c", "6000", "-W", "3", "-q", f.of(to).String())
			var out bytes.Buffer
			p.Stdout, p.Stderr = &out, &out
			must(t, p.Start())
			pings, outs = append(pings, p), append(outs, &out)
		}
	}
	for i := range 5 {
		must(t, d.n1.TakeOver(within(t, 30*time.Second)))
		must(t, d.n1.WaitReady(within(t, 20*time.Second), 2))
		if i == 0 {
			must(t, d.n2.TakeOver(within(t, 30*time.Second)))
		}
	}
	for i, p := range pings {
		if err := p.Wait(); err != nil || !strings.Contains(outs[i].String(), " 0% packet loss") || strings.Contains(outs[i].String(), "duplicates") {
			t.Errorf("ping: %v\n%s", err, outs[i].String())
		}
	}
	for _, n := range []*lab.Node{d.n1, d.n2} {
		_, err := n.WaitStatus(within(t, 10*time.Second), func(s status.Status) error {
			for _, p := range s.Ports {
				if l := p.Socket; l.RXDropped+l.RingFull+l.FillEmpty+l.TXInvalid != 0 {
					return fmt.Errorf("port %s lost frames: %+v", p.Device, l)
				}
			}
			if s.Frames.Batch != 0 || s.Frames.Handoff != 0 {
				return fmt.Errorf("frames astray: %+v", s.Frames)
			}
			return nil
		})
		must(t, err)
	}
	pauses := pausePattern.FindAllStringSubmatch(d.n1.Log(), -1)
	if len(pauses) != 5 {
		t.Errorf("%d takeovers in the log of node1", len(pauses))
	}
	for _, p := range pauses {
		t.Logf("pause %s", p[1])
	}
}

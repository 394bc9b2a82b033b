package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
)

// iperf runs a short iperf3 transfer from one pod to another and returns bits
// a second as the receiver saw them.
func (d *duo) iperf(from, to *lab.Pod, args ...string) float64 {
	d.t.Helper()
	testnet.RequireTool(d.t, "iperf3")
	ctx := within(d.t, 60*time.Second)
	server := to.Command(ctx, "iperf3", "-s", "-1")
	must(d.t, server.Start())
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	eventually(d.t, 5*time.Second, "iperf3 server listens", func() error {
		out, err := to.Run(ctx, "ss", "-Hltn", "sport = :5201")
		if err == nil && out == "" {
			err = errNone
		}
		return err
	})
	out, err := from.Run(ctx, "iperf3", append([]string{"-J"}, args...)...)
	if err != nil {
		d.t.Fatalf("iperf3 %v: %v\n%s", args, err, out)
	}
	var r struct {
		End struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
			Sum struct {
				BitsPerSecond float64 `json:"bits_per_second"`
				LostPercent   float64 `json:"lost_percent"`
			} `json:"sum"`
		} `json:"end"`
	}
	must(d.t, json.Unmarshal([]byte(out), &r))
	if r.End.Received.BitsPerSecond > 0 {
		return r.End.Received.BitsPerSecond
	}
	return r.End.Sum.BitsPerSecond * (100 - r.End.Sum.LostPercent) / 100
}

func jumbo(o *lab.PodOptions) { o.MTU = 9000 }

// TestSendersSettleOnTheWaysMTU: pods have 9,000 bytes, the way between nodes
// 1,446. Locally the whole length is used; TCP and UDP to the other node settle.
func TestSendersSettleOnTheWaysMTU(t *testing.T) {
	testnet.RequireTool(t, "tracepath")
	d := newDuo(t, "", jumbo)
	for _, v6 := range []bool{false, true} {
		ip := func(p *lab.Pod) string {
			if v6 {
				return p.IP6().String()
			}
			return p.IP4().String()
		}
		headers := 28
		if v6 {
			headers = 48
		}
		// Local: 9,000 bytes in one piece.
		d.run(d.a, "ping", "-M", "do", "-c", "2", "-W", "2", "-s", fmt.Sprint(9000-headers), ip(d.b))
		// Remote: told what fits, then it works.
		out, err := d.a.Run(within(t, 20*time.Second), "ping", "-M", "do", "-c", "1", "-W", "1", "-s", fmt.Sprint(9000-headers), ip(d.c))
		if err == nil || !strings.Contains(out, "1446") {
			t.Errorf("ping of 9000 bytes to the other node: %v\n%s", err, out)
		}
		d.run(d.a, "ping", "-M", "do", "-c", "2", "-W", "2", "-s", fmt.Sprint(1446-headers), ip(d.c))
		out = d.run(d.b, "tracepath", "-n", ip(d.c))
		if !strings.Contains(out, "pmtu 1446") {
			t.Errorf("tracepath:\n%s", out)
		}
		for _, to := range []*lab.Pod{d.b, d.c} {
			rate := d.iperf(d.a, to, "-c", ip(to), "-t", "2")
			t.Logf("TCP v6=%t to %s: %.0f Mbit/s", v6, to.Name, rate/1e6)
			if rate < 1e6 {
				t.Errorf("TCP v6=%t to %s: %.0f bit/s", v6, to.Name, rate)
			}
		}
		rate := d.iperf(d.d, d.a, "-c", ip(d.a), "-u", "-b", "20M", "-l", "1300", "-t", "2")
		if rate < 15e6 {
			t.Errorf("UDP v6=%t: %.0f bit/s of 20 M", v6, rate)
		}
	}
}

// TestUnderlayLowersThePathMTU: a router with a narrow link says Packet Too Big
// to our outer source; the pods are then told the smaller size.
func TestUnderlayLowersThePathMTU(t *testing.T) {
	d := newDuo(t, "", nil)
	out, err := d.n1.Run(within(t, 10*time.Second), "nsenter", "--net="+d.UnderlayNetns(), "ip", "link", "set", d.n2.RouterIf, "mtu", "1400")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	full := fmt.Sprint(1446 - 28)
	// The first ones are lost: the router drops them and says why.
	_, _ = d.a.Run(within(t, 20*time.Second), "ping", "-M", "do", "-c", "3", "-i", "0.3", "-W", "1", "-s", full, d.c.IP4().String())
	_, err = d.n1.WaitStatus(within(t, 10*time.Second), func(s status.Status) error {
		for _, n := range s.Nodes {
			if n.Node == d.n2.Name && n.PathMTU == 1400 {
				return nil
			}
		}
		return fmt.Errorf("nodes: %+v", s.Nodes)
	})
	must(t, err)
	out, err = d.a.Run(within(t, 20*time.Second), "ping", "-M", "do", "-c", "2", "-W", "1", "-s", full, d.c.IP4().String())
	if err == nil || !strings.Contains(out, "1346") {
		t.Errorf("ping after the path MTU was lowered: %v\n%s", err, out)
	}
	d.run(d.a, "ping", "-M", "do", "-c", "2", "-W", "2", "-s", fmt.Sprint(1346-28), d.c.IP4().String())
	if rate := d.iperf(d.a, d.c, "-c", d.c.IP6().String(), "-t", "2"); rate < 1e6 {
		t.Errorf("TCP over the narrow way: %.0f bit/s", rate)
	}
	// The other direction was never narrow on its first link.
	d.run(d.c, "ping", "-M", "do", "-c", "2", "-W", "2", "-s", fmt.Sprint(1346-28), d.a.IP4().String())
}

// TestTooNarrowForIPv6IsACondition: a Packet Too Big below 1280 is never sent;
// the status says what to raise.
func TestTooNarrowForIPv6IsACondition(t *testing.T) {
	d := newDuo(t, "", nil)
	for _, device := range []string{lab.UplinkDevice} {
		out, err := d.n1.Run(within(t, 10*time.Second), "ip", "link", "set", device, "mtu", "1320")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	_, err := d.n1.WaitStatus(within(t, 40*time.Second), func(s status.Status) error {
		for _, p := range s.Problems {
			if strings.Contains(p, "underlay MTU 1320") && strings.Contains(p, "1334") {
				return nil
			}
		}
		return fmt.Errorf("problems: %q", s.Problems)
	})
	must(t, err)
	c := startCapture(t, d.a.Netns(), lab.PodDevice)
	if out, err := d.a.Run(within(t, 20*time.Second), "ping", "-6", "-M", "do", "-c", "3", "-i", "0.3", "-W", "1", "-s", fmt.Sprint(1300-48), d.c.IP6().String()); err == nil {
		t.Errorf("a packet too long for the way arrived:\n%s", out)
	}
	if n := len(c.all(func(f captured) bool { return !f.outgoing && icmp6(f.data) == 2 })); n != 0 {
		t.Errorf("%d Packet Too Big below 1280", n)
	}
	// IPv4 has no such floor.
	out, err := d.a.Run(within(t, 20*time.Second), "ping", "-M", "do", "-c", "2", "-W", "1", "-s", fmt.Sprint(1300-28), d.c.IP4().String())
	if err == nil || !strings.Contains(out, "1266") {
		t.Errorf("IPv4: %v\n%s", err, out)
	}
}

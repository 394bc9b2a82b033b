package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/testnet"
)

// A pod at the kernel's default offload settings leaves checksums to the device.
// Its TCP and UDP get through, to its own node and to another, with not one
// checksum error in either stack.
func TestChecksumsOfStacksAtDefaultOffloads(t *testing.T) {
	testnet.RequireTool(t, "iperf3", "nstat", "ethtool")
	c := fourPods(t)
	pods := c.Pods()
	from := pods[0]
	out, err := from.Run(c.ctx, "ethtool", "-k", lab.PodDevice)
	c.must(err)
	if !strings.Contains(out, "tx-checksumming: on") {
		t.Fatalf("the pod's offloads are not at their defaults:\n%s", out)
	}
	for _, to := range []*lab.Pod{pods[1], pods[2]} {
		for _, a := range to.Addresses {
			for _, udp := range []bool{false, true} {
				c.iperf(from, to, a.String(), udp)
			}
		}
	}
	for _, p := range pods[:3] {
		for name, n := range c.checksumErrors(p) {
			if n != 0 {
				t.Errorf("%s: %s is %d", p.Name, name, n)
			}
		}
	}
	c.account()
}

// iperf sends for a second and wants something to arrive.
func (c *cluster) iperf(from, to *lab.Pod, address string, udp bool) {
	c.t.Helper()
	server := to.Command(c.ctx, "iperf3", "-s", "-1", "-B", address)
	said := &lockedBuffer{}
	server.Stdout, server.Stderr = said, said
	c.must(server.Start())
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	eventually(c.t, 10*time.Second, "iperf3 server", func() error {
		out, err := to.Run(c.ctx, "ss", "-Htln", "sport = :5201")
		if err == nil && !strings.Contains(out, "5201") {
			err = fmt.Errorf("not listening: %s", said)
		}
		return err
	})
	args := []string{"-c", address, "-t", "1", "-J", "--connect-timeout", "5000"}
	if udp {
		args = append(args, "-u", "-b", "50M", "-l", "1200")
	}
	client := from.Command(c.ctx, "iperf3", args...)
	var stdout bytes.Buffer
	client.Stdout = &stdout
	err := client.Run()
	var result struct {
		Error string
		End   struct {
			Received struct {
				BPS float64 `json:"bits_per_second"`
			} `json:"sum_received"`
			Sum struct {
				Packets float64
				Lost    float64 `json:"lost_packets"`
			}
		}
	}
	if e := json.Unmarshal(stdout.Bytes(), &result); e != nil || err != nil || result.Error != "" {
		c.t.Errorf("%s -> %s udp %t: %v %v %s", from.Name, address, udp, err, e, result.Error)
		return
	}
	c.t.Logf("%s -> %s udp %t: %.0f Mbit/s", from.Name, address, udp, result.End.Received.BPS/1e6)
	if udp && result.End.Sum.Packets-result.End.Sum.Lost <= 0 || !udp && result.End.Received.BPS <= 0 {
		c.t.Errorf("%s -> %s udp %t: nothing arrived: %+v", from.Name, address, udp, result.End)
	}
}

var nstatLine = regexp.MustCompile(`(?m)^(\S*InCsumErrors)\s+(\d+)`)

// checksumErrors are a stack's counters of them, by protocol.
func (c *cluster) checksumErrors(p *lab.Pod) map[string]int {
	c.t.Helper()
	out, err := p.Run(c.ctx, "nstat", "-az")
	c.must(err)
	all := map[string]int{}
	for _, m := range nstatLine.FindAllStringSubmatch(out, -1) {
		all[m[1]] = atoi(c.t, m[2])
	}
	for _, name := range []string{"TcpInCsumErrors", "UdpInCsumErrors", "Udp6InCsumErrors", "Icmp6InCsumErrors"} {
		if _, ok := all[name]; !ok {
			c.t.Fatalf("no counter %s in:\n%s", name, out)
		}
	}
	return all
}

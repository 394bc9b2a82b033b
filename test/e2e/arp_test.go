package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
)

// duo is two nodes with pods a, b on the first and c, d on the second, all in
// network red.
type duo struct {
	*lab.Lab
	t          *testing.T
	n1, n2     *lab.Node
	a, b, c, d *lab.Pod
}

func newDuo(t *testing.T, spec string, pod func(*lab.PodOptions)) *duo {
	t.Helper()
	testnet.RequireTool(t, "arping", "ndisc6", "ping")
	d := &duo{Lab: newLab(t, lab.Routed), t: t}
	must(t, d.AddNetwork("red", 100, []string{"10.0.0.0/24", "fd00:10::/64"}, spec))
	var err error
	for i, n := range []**lab.Node{&d.n1, &d.n2} {
		*n, err = d.AddNode(lab.NodeOptions{Name: fmt.Sprintf("node%d", i+1)})
		must(t, err)
	}
	for i, p := range []**lab.Pod{&d.a, &d.b, &d.c, &d.d} {
		name := string(rune('a' + i))
		o := lab.PodOptions{
			Name: name, Node: []*lab.Node{d.n1, d.n1, d.n2, d.n2}[i], Network: "red", Segment: 1,
			MAC:       fmt.Sprintf("02:00:00:00:00:0%s", name),
			Addresses: []string{fmt.Sprintf("10.0.0.%d", 10+i), fmt.Sprintf("fd00:10::%s", name)},
		}
		if pod != nil {
			pod(&o)
		}
		*p, err = d.AddPod(o)
		must(t, err)
	}
	for _, n := range []*lab.Node{d.n1, d.n2} {
		must(t, n.Start(within(t, 20*time.Second)))
	}
	for _, n := range []*lab.Node{d.n1, d.n2} {
		must(t, n.WaitReady(within(t, 20*time.Second), 2))
	}
	return d
}

// run runs a command in a pod that must succeed.
func (d *duo) run(p *lab.Pod, args ...string) string {
	d.t.Helper()
	out, err := p.Run(within(d.t, 60*time.Second), args[0], args[1:]...)
	if err != nil {
		d.t.Fatalf("pod %s: %s: %v\n%s", p.Name, strings.Join(args, " "), err, out)
	}
	return out
}

// fails runs a command in a pod that must not succeed.
func (d *duo) fails(p *lab.Pod, args ...string) string {
	d.t.Helper()
	out, err := p.Run(within(d.t, 60*time.Second), args[0], args[1:]...)
	if err == nil {
		d.t.Fatalf("pod %s: %s succeeded:\n%s", p.Name, strings.Join(args, " "), out)
	}
	return out
}

func isARP(f []byte) bool { return len(f) >= 42 && f[12] == 8 && f[13] == 6 }

// icmp6 is the ICMPv6 type of an untagged frame, 0 if it is none.
func icmp6(f []byte) byte {
	if len(f) > 54 && f[12] == 0x86 && f[13] == 0xdd && f[20] == 58 {
		return f[54]
	}
	return 0
}

func isGroup(f []byte) bool { return len(f) > 0 && f[0]&1 != 0 }

func macBytes(t *testing.T, s string) []byte {
	t.Helper()
	m, err := net.ParseMAC(s)
	must(t, err)
	return m
}

// watchOthers captures on every pod and, at its end, fails the test if any of
// them got a frame to a group, or an ARP request or NS that was not for it.
func (d *duo) watchOthers() {
	d.t.Helper()
	for _, p := range d.Pods() {
		c := startCapture(d.t, p.Netns(), lab.PodDevice)
		mac := macBytes(d.t, p.MAC)
		d.t.Cleanup(func() {
			for _, f := range c.all(func(f captured) bool { return !f.outgoing }) {
				allNodesNA := icmp6(f.data) == 136 && bytes.Equal(f.data[:6], []byte{0x33, 0x33, 0, 0, 0, 1})
				if isGroup(f.data) && !allNodesNA {
					d.t.Errorf("pod %s got a group frame: %x", p.Name, f.data)
				}
				request := isARP(f.data) && f.data[21] == 1 || icmp6(f.data) == 135
				if request && !bytes.Equal(f.data[:6], mac) {
					d.t.Errorf("pod %s got somebody else's request: %x", p.Name, f.data)
				}
			}
		})
	}
}

func TestAddressResolutionToolsAreAnswered(t *testing.T) {
	d := newDuo(t, "", nil)
	d.watchOthers()
	for _, to := range []*lab.Pod{d.b, d.c} {
		v4, v6 := to.IP4().String(), to.IP6().String()
		d.run(d.a, "ping", "-c", "2", "-W", "2", v4)
		d.run(d.a, "ping", "-6", "-c", "2", "-W", "2", v6)
		out := d.run(d.a, "arping", "-c", "3", "-w", "5", "-I", lab.PodDevice, v4)
		if !strings.Contains(strings.ToLower(out), to.MAC) || !strings.Contains(out, "Received 3 response") {
			t.Errorf("arping %s:\n%s", v4, out)
		}
		out = d.run(d.a, "ndisc6", "-1", "-w", "2000", v6, lab.PodDevice)
		if !strings.Contains(strings.ToLower(out), to.MAC) {
			t.Errorf("ndisc6 %s:\n%s", v6, out)
		}
		// -D: somebody has it. arping says so with status 1.
		out = d.fails(d.a, "arping", "-D", "-c", "2", "-w", "3", "-I", lab.PodDevice, v4)
		if !strings.Contains(strings.ToLower(out), to.MAC) {
			t.Errorf("arping -D %s does not name the owner:\n%s", v4, out)
		}
	}
	// Announcements of one's own address, and the probe for it: silence.
	for _, mode := range []string{"-U", "-A"} {
		out, _ := d.a.Run(within(t, 20*time.Second), "arping", mode, "-c", "2", "-w", "3", "-I", lab.PodDevice, d.a.IP4().String())
		if strings.Contains(out, "reply from") {
			t.Errorf("arping %s was answered:\n%s", mode, out)
		}
	}
	d.run(d.a, "arping", "-D", "-c", "2", "-w", "3", "-I", lab.PodDevice, d.a.IP4().String())
	// Unknown: silence.
	out := d.fails(d.a, "arping", "-c", "2", "-w", "2", "-I", lab.PodDevice, "10.0.0.99")
	if !strings.Contains(out, "Received 0 response") {
		t.Errorf("arping of an unknown address:\n%s", out)
	}
	d.fails(d.a, "ndisc6", "-1", "-r", "2", "-w", "500", "fd00:10::99", lab.PodDevice)
}

// TestNeighbourFlushUnderTraffic: the caches are emptied again and again while
// pings run.
func TestNeighbourFlushUnderTraffic(t *testing.T) {
	d := newDuo(t, "", nil)
	d.watchOthers()
	for _, to := range []string{d.b.IP4().String(), d.c.IP4().String(), d.b.IP6().String(), d.c.IP6().String()} {
		done := make(chan error, 1)
		go func() {
			_, err := lab.Echoes(within(t, 60*time.Second), d.a, 150, "-i", "0.02", to)
			done <- err
		}()
		for range 10 {
			// One that is asked for in the very moment it is flushed ends the ping: the
			// kernel says unreachable of what waits for it.
			testnet.Eventually(t, patience, to+" is resolved", func() error {
				if state := d.run(d.a, "ip", "neigh", "show", "to", to, "dev", lab.PodDevice); !strings.Contains(state, "lladdr") {
					return fmt.Errorf("it is %q", state)
				}
				return nil
			})
			d.run(d.a, "ip", "neigh", "flush", "all")
			time.Sleep(200 * time.Millisecond)
		}
		if err := <-done; err != nil {
			t.Errorf("while flushing: %v", err)
		}
	}
}

// TestReachabilityIsConfirmed: with short NUD timers, neighbours stay reachable
// through a minute of idle time and traffic; the owner answers each unicast
// probe itself.
func TestReachabilityIsConfirmed(t *testing.T) {
	d := newDuo(t, "", nil)
	d.watchOthers()
	for _, family := range []string{"ipv4", "ipv6"} {
		for name, value := range map[string]string{"base_reachable_time_ms": "1500", "delay_first_probe_time": "1", "gc_stale_time": "5"} {
			d.run(d.a, "sysctl", "-qw", fmt.Sprintf("net.%s.neigh.%s.%s=%s", family, lab.PodDevice, name, value))
		}
	}
	owner := startCapture(t, d.c.Netns(), lab.PodDevice)
	ping := func() {
		d.run(d.a, "ping", "-c", "1", "-W", "2", d.c.IP4().String())
		d.run(d.a, "ping", "-6", "-c", "1", "-W", "2", d.c.IP6().String())
	}
	ping()
	time.Sleep(20 * time.Second) // idle: entries go stale
	for range 40 {               // and traffic: they are probed
		ping()
		time.Sleep(time.Second)
	}
	probes := len(owner.all(func(f captured) bool { return !f.outgoing && isARP(f.data) && f.data[21] == 1 }))
	solicitations := len(owner.all(func(f captured) bool { return !f.outgoing && icmp6(f.data) == 135 }))
	if probes == 0 || solicitations == 0 {
		t.Errorf("the owner saw %d unicast ARP requests and %d NS: nothing was confirmed", probes, solicitations)
	}
	state := d.run(d.a, "ip", "neigh", "show", "dev", lab.PodDevice)
	if strings.Contains(state, "FAILED") || strings.Contains(state, "INCOMPLETE") {
		t.Errorf("neighbours:\n%s", state)
	}
	t.Logf("%d ARP probes and %d NS reached the owner", probes, solicitations)
}

// TestDuplicateIsToldAndTheOwnerNever: case rows 1, 3, 4, 14.
func TestDuplicateIsToldAndTheOwnerNever(t *testing.T) {
	for _, optimistic := range []bool{false, true} {
		t.Run(fmt.Sprintf("optimistic=%t", optimistic), func(t *testing.T) {
			d := newDuo(t, "", func(o *lab.PodOptions) { o.DAD = true })
			if optimistic {
				for _, p := range d.Pods() {
					d.run(p, "sysctl", "-qw", "net.ipv6.conf."+lab.PodDevice+".optimistic_dad=1")
				}
			}
			// Every pod's own addresses are through DAD.
			for _, p := range d.Pods() {
				eventually(t, 10*time.Second, "DAD of pod "+p.Name, func() error {
					out := d.run(p, "ip", "-6", "addr", "show", "dev", lab.PodDevice)
					if strings.Contains(out, "tentative") || strings.Contains(out, "dadfailed") || !strings.Contains(out, p.IP6().String()) {
						return fmt.Errorf("addresses:\n%s", out)
					}
					return nil
				})
			}
			// a takes addresses of b (same node) and c (the other node).
			for _, victim := range []*lab.Pod{d.b, d.c} {
				taken := victim.IP6().String()
				d.run(d.a, "ip", "-6", "addr", "add", taken+"/64", "dev", lab.PodDevice)
				eventually(t, 10*time.Second, "dadfailed for "+taken, func() error {
					if out := d.run(d.a, "ip", "-6", "addr", "show", "dev", lab.PodDevice, "dadfailed"); !strings.Contains(out, taken) {
						return errNone
					}
					return nil
				})
				if out := d.run(victim, "ip", "-6", "addr", "show", "dev", lab.PodDevice); strings.Contains(out, "dadfailed") {
					t.Errorf("the owner lost its address:\n%s", out)
				}
				d.run(d.a, "ip", "-6", "addr", "del", taken+"/64", "dev", lab.PodDevice)
			}
			// The owner takes its own again: no one contradicts.
			own := d.a.IP6().String()
			d.run(d.a, "ip", "-6", "addr", "del", own+"/64", "dev", lab.PodDevice)
			d.run(d.a, "ip", "-6", "addr", "add", own+"/64", "dev", lab.PodDevice)
			eventually(t, 10*time.Second, "own address valid", func() error {
				out := d.run(d.a, "ip", "-6", "addr", "show", "dev", lab.PodDevice)
				if strings.Contains(out, "dadfailed") {
					t.Fatalf("the owner was told its own address is taken:\n%s", out)
				}
				if strings.Contains(out, "tentative") {
					return fmt.Errorf("still tentative")
				}
				return nil
			})
		})
	}
}

// TestDADAnswerGoesToAllNodesOnThatPortOnly holds N3 on the wire.
func TestDADAnswerGoesToAllNodesOnThatPortOnly(t *testing.T) {
	d := newDuo(t, "", nil)
	var captures []*capture
	for _, p := range d.Pods() {
		captures = append(captures, startCapture(t, p.Netns(), lab.PodDevice))
	}
	target := d.c.IP6()
	sendRaw(t, d.a.Netns(), lab.PodDevice, solicitation(t, d.a.MAC, netip.IPv6Unspecified(), target, false))
	na := func(f captured) bool { return !f.outgoing && icmp6(f.data) == 136 }
	eventually(t, 5*time.Second, "NA at the asking port", func() error {
		if len(captures[0].all(na)) == 0 {
			return errNone
		}
		return nil
	})
	f := captures[0].all(na)[0].data
	want := append(macBytes(t, "33:33:00:00:00:01"), macBytes(t, d.c.MAC)...)
	if !bytes.Equal(f[:12], want) {
		t.Errorf("Ethernet addresses %x, want %x", f[:12], want)
	}
	if dst := netip.AddrFrom16([16]byte(f[38:54])); dst != netip.MustParseAddr("ff02::1") {
		t.Errorf("to %v", dst)
	}
	if flags := f[58] & 0xe0; flags != 0x20 {
		t.Errorf("flags %#x, want only O", flags)
	}
	for i, c := range captures[1:] {
		if n := len(c.all(func(f captured) bool { return !f.outgoing && (icmp6(f.data) == 136 || icmp6(f.data) == 135) })); n != 0 {
			t.Errorf("pod %d saw %d ND messages", i+1, n)
		}
	}
	// Without an SLLAO, unicast source: solicited, with a TLLAO.
	sendRaw(t, d.a.Netns(), lab.PodDevice, solicitation(t, d.a.MAC, d.a.IP6(), target, false))
	eventually(t, 5*time.Second, "solicited NA", func() error {
		for _, c := range captures[0].all(na) {
			f := c.data
			if f[58]&0x40 != 0 {
				if len(f) < 86 || f[78] != 2 || f[79] != 1 || !bytes.Equal(f[80:86], macBytes(t, d.c.MAC)) {
					t.Fatalf("NA without the owner's TLLAO: %x", f)
				}
				return nil
			}
		}
		return errNone
	})
}

// solicitation is an NS for target to its solicited-node group.
func solicitation(t *testing.T, mac string, from, target netip.Addr, sllao bool) []byte {
	t.Helper()
	a := target.As16()
	f := append([]byte{0x33, 0x33, 0xff, a[13], a[14], a[15]}, macBytes(t, mac)...)
	f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255)
	src := from.As16()
	f = append(f, src[:]...)
	f = append(f, 0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a[13], a[14], a[15])
	f = append(f, 135, 0, 0, 0, 0, 0, 0, 0)
	f = append(f, a[:]...)
	if sllao {
		f = append(append(f, 1, 1), macBytes(t, mac)...)
		f[19] = 32
	}
	putICMP6Sum(f)
	return f
}

// putICMP6Sum writes the ICMPv6 checksum of an untagged frame without extension
// headers.
func putICMP6Sum(f []byte) {
	sum := uint32(len(f)-54) + 58
	add := func(b []byte) {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		if len(b)%2 == 1 {
			sum += uint32(b[len(b)-1]) << 8
		}
	}
	f[56], f[57] = 0, 0
	add(f[22:54])
	add(f[54:])
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(f[56:], ^uint16(sum))
}

// TestMalformedNDIsCountedAndHarmless: case row 5, on the wire.
func TestMalformedNDIsCountedAndHarmless(t *testing.T) {
	d := newDuo(t, "", nil)
	c := startCapture(t, d.a.Netns(), lab.PodDevice)
	base := solicitation(t, d.a.MAC, d.a.IP6(), d.b.IP6(), true)
	zero := append([]byte{}, base...)
	zero[79] = 0
	past := append([]byte{}, base...)
	past[79] = 4
	short := append([]byte{}, base[:82]...) // SLLAO cut to 4 bytes
	short[19] = 28
	for _, f := range [][]byte{zero, past, short} {
		putICMP6Sum(f)
	}
	sendRaw(t, d.a.Netns(), lab.PodDevice, zero, past, short)
	d.waitDrops(d.n1, d.a, "malformed_nd-option", 3)
	if n := len(c.all(func(f captured) bool { return !f.outgoing && icmp6(f.data) == 136 })); n != 0 {
		t.Errorf("%d malformed solicitations were answered", n)
	}
	// Unknown options and a nonce do not stop an answer.
	nonce := append(append([]byte{}, base...), 14, 1, 1, 2, 3, 4, 5, 6, 250, 1, 0, 0, 0, 0, 0, 0)
	nonce[19] += 16
	putICMP6Sum(nonce)
	sendRaw(t, d.a.Netns(), lab.PodDevice, nonce)
	eventually(t, 5*time.Second, "answer to an NS with nonce and unknown option", func() error {
		if len(c.all(func(f captured) bool { return !f.outgoing && icmp6(f.data) == 136 })) == 0 {
			return errNone
		}
		return nil
	})
}

// waitDrops waits until a pod's port counts n drops for a reason.
func (d *duo) waitDrops(n *lab.Node, p *lab.Pod, reason string, want uint64) {
	d.t.Helper()
	_, err := n.WaitStatus(within(d.t, 10*time.Second), func(s status.Status) error {
		for _, port := range s.Ports {
			if port.Device == p.Device {
				if got := port.Drops[reason]; got != want {
					return fmt.Errorf("%d drops for %s, want %d (all: %v)", got, reason, want, port.Drops)
				}
				return nil
			}
		}
		return fmt.Errorf("no port %s", p.Device)
	})
	must(d.t, err)
}

// TestUnicastRequestGetsExactlyTheOwnersReply: A6 and N6.
func TestUnicastRequestGetsExactlyTheOwnersReply(t *testing.T) {
	d := newDuo(t, "", nil)
	d.watchOthers()
	for _, to := range []*lab.Pod{d.b, d.c} {
		c := startCapture(t, d.a.Netns(), lab.PodDevice)
		owner := startCapture(t, to.Netns(), lab.PodDevice)
		arp := append(macBytes(t, to.MAC), macBytes(t, d.a.MAC)...)
		arp = append(arp, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
		arp = append(append(arp, macBytes(t, d.a.MAC)...), d.a.IP4().AsSlice()...)
		arp = append(append(arp, 0, 0, 0, 0, 0, 0), to.IP4().AsSlice()...)
		ns := solicitation(t, d.a.MAC, d.a.IP6(), to.IP6(), true)
		copy(ns[:6], macBytes(t, to.MAC))
		sendRaw(t, d.a.Netns(), lab.PodDevice, arp, ns)
		replies := func(f captured) bool {
			return !f.outgoing && (isARP(f.data) && f.data[21] == 2 || icmp6(f.data) == 136)
		}
		eventually(t, 5*time.Second, "both replies", func() error {
			if n := len(c.all(replies)); n < 2 {
				return fmt.Errorf("%d replies", n)
			}
			return nil
		})
		time.Sleep(300 * time.Millisecond) // a second one would come by now
		if n := len(c.all(replies)); n != 2 {
			t.Errorf("%d replies from %s, want one each", n, to.Name)
		}
		sent := owner.all(func(f captured) bool { return f.outgoing && (isARP(f.data) && f.data[21] == 2 || icmp6(f.data) == 136) })
		if len(sent) != 2 {
			t.Errorf("the owner %s sent %d replies: they are not its own", to.Name, len(sent))
		}
	}
}

// TestOwnerDownIsSilent: case row 15.
func TestOwnerDownIsSilent(t *testing.T) {
	d := newDuo(t, "", nil)
	d.run(d.a, "arping", "-c", "1", "-w", "3", "-I", lab.PodDevice, d.b.IP4().String())
	d.run(d.b, "ip", "link", "set", lab.PodDevice, "down")
	_, err := d.n1.WaitStatus(within(t, 10*time.Second), func(s status.Status) error {
		for _, p := range s.Ports {
			if p.Device == d.b.Device && p.Up {
				return fmt.Errorf("port of b still up")
			}
		}
		return nil
	})
	must(t, err)
	d.fails(d.a, "arping", "-c", "2", "-w", "2", "-I", lab.PodDevice, d.b.IP4().String())
	d.run(d.b, "ip", "link", "set", lab.PodDevice, "up")
	eventually(t, 10*time.Second, "b answers again", func() error {
		_, err := d.a.Run(within(t, 5*time.Second), "arping", "-c", "1", "-w", "1", "-I", lab.PodDevice, d.b.IP4().String())
		return err
	})
}

// TestMovedAddressIsReachedWithinASecond: case row 13. The pod goes and its
// address comes back with a new MAC on the other node; every node's pods, which
// have the old MAC in their caches, reach the new one.
func TestMovedAddressIsReachedWithinASecond(t *testing.T) {
	d := newDuo(t, "", nil)
	v4, v6 := d.b.IP4().String(), d.b.IP6().String()
	others := []*lab.Pod{d.a, d.c, d.d}
	for _, p := range others {
		// Caches that would not find out by themselves.
		for _, f := range []string{"ipv4", "ipv6"} {
			d.run(p, "sysctl", "-qw", fmt.Sprintf("net.%s.neigh.%s.base_reachable_time_ms=3600000", f, lab.PodDevice))
		}
		d.run(p, "ping", "-c", "1", "-W", "2", v4)
		d.run(p, "ping", "-6", "-c", "1", "-W", "2", v6)
	}
	must(t, d.DeletePod(within(t, 20*time.Second), d.b))
	e, err := d.AddPod(lab.PodOptions{
		Name: "e", Node: d.n2, Network: "red", Segment: 1, MAC: "02:00:00:00:00:ee", Addresses: []string{v4, v6},
	})
	must(t, err)
	must(t, d.n2.WaitReady(within(t, 10*time.Second), 3))
	up := time.Now()
	for _, p := range others {
		for _, to := range []string{v4, v6} {
			eventually(t, time.Second-min(time.Since(up), 900*time.Millisecond), fmt.Sprintf("%s reaches %s", p.Name, to), func() error {
				_, err := p.Run(within(t, 5*time.Second), "ping", "-c", "1", "-W", "1", to)
				return err
			})
		}
	}
	t.Logf("all six reached pod %s on its new node %v after it was up", e.Name, time.Since(up))
}

// TestTaggedRequestGetsTheSameTags: case row 21.
func TestTaggedRequestGetsTheSameTags(t *testing.T) {
	d := newDuo(t, "", nil)
	c := startCapture(t, d.a.Netns(), lab.PodDevice)
	for _, tags := range [][]byte{{0x81, 0, 0, 100}, {0x88, 0xa8, 0, 5, 0x81, 0, 0, 7}} {
		arp := append(macBytes(t, "ff:ff:ff:ff:ff:ff"), macBytes(t, d.a.MAC)...)
		arp = append(append(arp, tags...), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
		arp = append(append(arp, macBytes(t, d.a.MAC)...), d.a.IP4().AsSlice()...)
		arp = append(append(arp, 0, 0, 0, 0, 0, 0), d.c.IP4().AsSlice()...)
		sendRaw(t, d.a.Netns(), lab.PodDevice, arp)
		want := append(append([]byte{}, tags...), 8, 6)
		eventually(t, 5*time.Second, fmt.Sprintf("reply with tags %x", tags), func() error {
			for _, f := range c.all(func(f captured) bool { return !f.outgoing }) {
				if bytes.HasPrefix(f.data[12:], want) && f.data[12+len(tags)+9] == 2 {
					return nil
				}
			}
			return errNone
		})
	}
}

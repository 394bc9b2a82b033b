package e2ek8s

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/lab"
)

// answers has a wire answer ARP requests for a station, as one that is there and
// hears frames with exactly these tags.
func (w *wire) answers(s station, tags ...byte) {
	plain := frameOf(w.t, ethernet(everybody, s.mac, layers.EthernetTypeARP), &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: 2,
		SourceHwAddress: s.mac, SourceProtAddress: s.v4.AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: make([]byte, 4),
	})
	reply := slices.Concat(plain[:12], tags, plain[12:])
	w.onFrame(func(b []byte) {
		if len(b) < 42+len(tags) || !bytes.Equal(b[12:12+len(tags)], tags) {
			return
		}
		arp := b[12+len(tags):] // and its EtherType
		if arp[0] != 8 || arp[1] != 6 || arp[9] != 1 || !bytes.Equal(arp[26:30], s.v4.AsSlice()) {
			return
		}
		copy(reply[0:6], b[6:12])
		copy(reply[32+len(tags):], arp[10:20])
		_, _ = unix.Write(w.fd, reply)
	})
}

// staysAt checks for a while that a station does not move.
func (c *cluster) staysAt(s station, node string, span time.Duration) {
	c.t.Helper()
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if got := c.holder(s.mac); got != node {
			c.t.Fatalf("%s went to %q, was to stay on %s", s.mac, got, node)
		}
	}
}

// frozen says whether a station's MAC and address are held where they are.
func (c *cluster) frozen(s station) (mac, ip bool) {
	c.t.Helper()
	if f := c.fdbEntry(s.mac); f != nil && f.Status != nil {
		mac = f.Status.FrozenUntil != nil
	}
	if n := c.neighbor(s.v4); n != nil && n.Status != nil {
		ip = n.Status.FrozenUntil != nil
	}
	return mac, ip
}

// shuttle announces a station on both nodes in turn until it is frozen, and
// returns where.
func (l *learnLab) shuttle(s station, next int) (node int, moves int) {
	l.t.Helper()
	wires, nodes := []*wire{l.w1, l.w2}, []*lab.Node{l.n1, l.n2}
	for moves = 1; moves < 12; moves++ {
		next = 1 - next
		l.eventually(20*time.Second, fmt.Sprintf("move %d of %s", moves, s.mac), func() error {
			wires[next].send(s.garp(l.t))
			time.Sleep(150 * time.Millisecond) // more than the short slot
			f, n := l.fdbEntry(s.mac), l.neighbor(s.v4)
			if f == nil || n == nil || f.Status.ManagingNode != nodes[next].Name || n.Status.ManagingNode != nodes[next].Name {
				return fmt.Errorf("it is at %+v, %+v", f, n)
			}
			return nil
		})
		f, n := l.fdbEntry(s.mac), l.neighbor(s.v4)
		l.t.Logf("move %d to %s: MAC %d until %v, address %d until %v", moves, nodes[next].Name, f.Status.Moves, f.Status.FrozenUntil, n.Status.Moves, n.Status.FrozenUntil)
		if f.Status.FrozenUntil != nil && n.Status.FrozenUntil != nil {
			return next, moves
		}
	}
	l.t.Fatalf("%s was not frozen after %d moves", s.mac, moves)
	return 0, 0
}

// TestDamping: A, B, A within a second ends on A. A station that moves more than
// five times is frozen where it is, with an Event; its owner goes on forwarding,
// the other cannot take it, until it is released by command, or by time.
func TestDamping(t *testing.T) {
	l := newLearnLab(t, "--learn-freeze=20s", "--learn-move-window=2m")
	s := stationN(3)
	l.w1.answers(s)
	l.w1.send(s.garp(t))
	l.wantHolder(s, "node1", s.v4)
	l.w2.send(s.garp(t))
	time.Sleep(50 * time.Millisecond)
	l.w1.send(s.garp(t))
	l.eventually(20*time.Second, "A, B, A to end on A", func() error {
		if f := l.fdbEntry(s.mac); f == nil || f.Status.ManagingNode != "node1" || f.Status.Moves < 2 {
			return fmt.Errorf("FDBEntry %+v", f)
		}
		return nil
	})
	l.wantHolder(s, "node1", s.v4)
	l.staysAt(s, "node1", time.Second)
	l.w1.onFrame(func([]byte) {})

	s = stationN(4)
	l.w1.send(s.garp(t))
	l.wantHolder(s, "node1", s.v4)
	at, moves := l.shuttle(s, 0)
	if moves != 6 {
		t.Errorf("frozen by move %d, want 6", moves)
	}
	wires, nodes, pods := []*wire{l.w1, l.w2}, []*lab.Node{l.n1, l.n2}, []string{"vm1", "vm2"}
	wires[at].answers(s) // or its address would expire while the test looks at it
	l.wantEvent(pods[at], "Frozen")
	stop := wires[1-at].repeat(50*time.Millisecond, s.garp(t), s.udp(t, l.c.MAC, l.c.IP4()))
	l.staysAt(s, nodes[at].Name, 2*time.Second)
	l.reachesStation(s, wires[at])
	stop()
	if out, err := nodes[1-at].Run(within(t, 10*time.Second), picot, "fdb", "clear", "red", s.mac.String(), "--run-dir", nodes[1-at].RunDir()); err == nil {
		t.Errorf("the other node cleared it: %s", out)
	}
	for _, key := range []string{s.mac.String(), s.v4.String()} {
		_, err := nodes[at].Run(within(t, 10*time.Second), picot, "fdb", "clear", "red", key, "--run-dir", nodes[at].RunDir())
		must(t, err)
	}
	l.eventually(20*time.Second, "the release by command", func() error {
		if mac, ip := l.frozen(s); mac || ip {
			return fmt.Errorf("frozen: MAC %t, address %t", mac, ip)
		}
		return nil
	})
	l.wantEvent(pods[at], "Released")
	wires[at].onFrame(func([]byte) {})
	at, _ = l.shuttle(s, at)
	frozenAt := time.Now()
	// Its owner keeps it alive; time releases it, and only time.
	stop = wires[at].repeat(50*time.Millisecond, s.udp(t, l.c.MAC, l.c.IP4()))
	defer stop()
	l.eventually(time.Minute, "the release by time", func() error {
		if mac, ip := l.frozen(s); mac || ip {
			return fmt.Errorf("frozen: MAC %t, address %t", mac, ip)
		}
		return nil
	})
	t.Logf("released by time after %v of 20 s", time.Since(frozenAt).Round(10*time.Millisecond))
	stop()
	wires[1-at].send(s.garp(t))
	l.wantHolder(s, nodes[1-at].Name, s.v4)
}

// reachesStation waits until what c sends to a station comes out of a wire.
func (l *learnLab) reachesStation(s station, w *wire) {
	l.t.Helper()
	came := make(chan struct{}, 1)
	w.onFrame(func(b []byte) {
		if isUDP(b) && bytes.Equal(b[:6], s.mac) {
			select {
			case came <- struct{}{}:
			default:
			}
		}
	})
	defer w.onFrame(func([]byte) {})
	l.eventually(20*time.Second, "a datagram of c for "+s.mac.String(), func() error {
		err := l.c.Do(func() error {
			conn, err := net.Dial("udp", netip.AddrPortFrom(s.v4, 9).String())
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write([]byte("x"))
			return err
		})
		if err != nil {
			return err
		}
		select {
		case <-came:
			return nil
		case <-time.After(200 * time.Millisecond):
			return fmt.Errorf("nothing came")
		}
	})
}

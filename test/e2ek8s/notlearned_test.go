package e2ek8s

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/arpnd"
)

// TestWhatIsNotLearned: addresses out of the network's prefixes, probes, DAD,
// sources that are zero or a group, what picot itself sent: no Neighbor, and no
// FDBEntry where there is no station. Static bindings are not touched, and a
// migration target that only chatters moves nothing.
func TestWhatIsNotLearned(t *testing.T) {
	l := newLearnLab(t)
	written := len(l.writes())
	router, prober, dad, zero, group := stationN(10), stationN(11), stationN(12), stationN(13), stationN(14)
	l.w1.send(prober.arp(t, netip.IPv4Unspecified(), prober.v4))
	l.w1.send(dad.dad(t))
	for i := range 50 {
		r := router
		r.v4 = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
		l.w1.send(r.udp(t, l.c.MAC, l.c.IP4()))
	}
	at := func(s station, ip netip.Addr) station { s.v4 = ip; return s }
	l.w1.send(at(zero, netip.IPv4Unspecified()).udp(t, l.c.MAC, l.c.IP4()))
	l.w1.send(at(group, netip.MustParseAddr("224.0.0.7")).udp(t, l.c.MAC, l.c.IP4()))
	noStations := []station{stationN(15), stationN(16)}
	noStations[0].mac, noStations[1].mac = make(net.HardwareAddr, 6), net.HardwareAddr{3, 0, 0, 0, 0, 1}
	for _, s := range noStations {
		l.w1.send(s.udp(t, l.c.MAC, l.c.IP4()))
	}
	// c's keys, claimed from everywhere but its own port.
	mac, err := net.ParseMAC(l.c.MAC)
	must(t, err)
	thief := station{mac: mac, v4: l.c.IP4(), v6: l.c.IP6()}
	liar := station{mac: stationN(17).mac, v4: l.c.IP4(), v6: l.c.IP6()}
	for _, w := range []*wire{l.w1, l.w2} {
		for _, s := range []station{thief, liar} {
			w.send(s.garp(t))
			w.send(s.rarp(t))
			w.send(s.na(t, 0x20))
		}
	}
	// A silent station is probed; its wire gives every probe back.
	probe := arpnd.ProbeMAC()
	reflected := make(chan struct{}, 100)
	l.w1.onFrame(func(b []byte) {
		if len(b) > 14 && bytes.Equal(b[6:12], probe[:]) {
			_, _ = unix.Write(l.w1.fd, b)
			select {
			case reflected <- struct{}{}:
			default:
			}
		}
	})
	silent := stationN(18)
	l.w1.send(silent.garp(t))
	l.w1.send(silent.na(t, 0x20))
	// The source of a migration still sends; the target chatters.
	moving := stationN(19)
	stop := l.w1.repeat(20*time.Millisecond, moving.udp(t, l.c.MAC, l.c.IP4()))
	defer stop()
	l.wantHolder(moving, "node1", moving.v4)
	chatter := l.w2.repeat(30*time.Millisecond, moving.chatter(t)...)
	defer chatter()
	for range 2 {
		select {
		case <-reflected:
		case <-time.After(20 * time.Second):
			t.Fatal("no probe came")
		}
	}
	l.staysAt(moving, "node1", 2*time.Second)
	if f := l.fdbEntry(moving.mac); f.Status.Moves != 0 {
		t.Errorf("chatter moved it: %+v", f.Status)
	}
	for _, s := range []station{router, prober, dad, zero, group} {
		l.eventually(10*time.Second, s.mac.String()+" to be learned", func() error {
			if l.holder(s.mac) != "node1" && countWrites(l.writes()[written:], name("red", s.mac.String()))["create fdbentries"] == 0 {
				return fmt.Errorf("it is not")
			}
			return nil
		})
	}
	stations := map[string]bool{l.c.MAC: true, liar.mac.String(): true, moving.mac.String(): true, silent.mac.String(): true,
		l.deviceMAC(l.vm1).String(): true, l.deviceMAC(l.vm2).String(): true}
	for _, s := range []station{router, prober, dad, zero, group} {
		stations[s.mac.String()] = true
	}
	addresses := map[string]bool{l.c.IP4().String(): true, l.c.IP6().String(): true, moving.v4.String(): true, silent.v4.String(): true, silent.v6.String(): true}
	_, fdb, neighbors := l.lists()
	for _, f := range fdb {
		if !stations[string(f.Spec.MAC)] {
			t.Errorf("learned: %s on %s", f.Name, f.Status.ManagingNode)
		}
	}
	for _, n := range neighbors {
		if ip := netip.MustParseAddr(string(n.Spec.IP)); !addresses[ip.String()] && !ip.IsLinkLocalUnicast() {
			t.Errorf("learned: %s at %s", n.Name, n.Status.MAC)
		}
	}
	for _, key := range []string{l.c.MAC, l.c.IP4().String(), l.c.IP6().String()} {
		if got := countWrites(l.writes()[written:], name("red", key)); len(got) > 0 {
			t.Errorf("the static binding of %s was written: %v", key, got)
		}
	}
}

package e2ek8s

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/k8s/writer"
)

const (
	// floodFrames is the frames of one wave. Two waves have a random source each:
	// a million stations.
	floodFrames = 500_000
	floodMACs   = 256 // --learn-macs by default
)

// TestMACFlood: a pod sends from a million MACs, as fast as it can. Its limits
// hold, the API sees no more than the budget, memory stays, and the frames of
// other pods go on as they do under the same flood from one MAC.
func TestMACFlood(t *testing.T) {
	// The ordinary times: what is learned stays for the length of the test.
	l := newLearnLab(t, "--learn-report=30s", "--learn-short=1s", "--learn-refresh=60s", "--learn-probe=100s", "--learn-probe-every=50s", "--learn-expiry=300s")
	d := l.addPod(l.n1, "d")
	l.wantReady(d)
	l.reaches(l.c, d)
	rss := residentKiB(t, l.n1)
	stop := l.udpFlood(l.c, d)
	defer stop()
	began, written := time.Now(), len(l.writes())
	var single, random []float64 // of c's frames a second
	for range 2 {
		single = append(single, l.wave(floodFrames/5, false))
		random = append(random, l.wave(floodFrames, true))
	}
	span := time.Since(began)
	stop()

	grown := residentKiB(t, l.n1) - rss
	s, err := l.n1.Status(within(t, 20*time.Second))
	must(t, err)
	made, spent := 0, l.writes()[written:]
	for _, w := range spent {
		if w.Resource == "fdbentries" && w.Verb == "create" && w.Code < 300 {
			made++
		}
	}
	t.Logf("other pods: %.0f frames/s under a flood from one MAC, %.0f from random ones (%.1f %%)",
		slices.Max(single), slices.Max(random), 100*slices.Max(random)/slices.Max(single))
	t.Logf("a million stations in %v: %d reported, %d times no room, %d held back; %d API writes, %d bindings made; %d KiB more memory",
		span.Round(time.Millisecond), s.Learning.Reported, s.Learning.RingFull, s.Learning.Limited, len(spent), made, grown)
	// What is left of the share is not judged here but for a collapse: the machine
	// is shared with the flood itself.
	if slices.Max(random) < slices.Max(single)/2 {
		t.Errorf("a flood from random MACs costs other pods more than half")
	}
	if most := writer.DefaultBurst + int(float64(writer.DefaultRate)*(span.Seconds()+2)); len(spent) > most {
		t.Errorf("%d writes in %v, the budget is %d", len(spent), span, most)
	}
	if made == 0 || s.Learning.Limited == 0 || s.Learning.Refused["mac limit"] == 0 {
		t.Errorf("the flood met no limit: %d made, %+v", made, s.Learning)
	}
	if grown > 96<<10 {
		t.Errorf("the agent grew by %d KiB", grown)
	}
	_, fdb, _ := l.lists()
	there := 0
	for _, f := range fdb {
		if f.Status != nil && f.Status.Endpoint != nil && f.Status.Endpoint.Name == "vm1" {
			there++
		}
	}
	if there > floodMACs {
		t.Errorf("%d bindings behind the port, at most %d may be", there, floodMACs)
	}
	l.wantEvent("vm1", "LearningLimit")
	l.reaches(l.c, d)
}

// wave sends one wave out of vm1 and returns how many of c's frames were
// delivered a second meanwhile.
func (l *learnLab) wave(frames int, random bool) float64 {
	l.t.Helper()
	s := stationN(20)
	frame := s.udp(l.t, "02:00:00:00:00:ee", netip.MustParseAddr("10.0.0.99"))
	before, began := l.delivered(l.c), time.Now()
	seed := uint64(began.UnixNano()) | 1
	for range frames {
		if random {
			seed ^= seed << 13
			seed ^= seed >> 7
			seed ^= seed << 17
			binary.BigEndian.PutUint32(frame[8:12], uint32(seed))
			frame[29] = byte(seed >> 40) // of the source address; nobody checks its sum
		}
		_, _ = unix.Write(l.w1.fd, frame)
	}
	return float64(l.delivered(l.c)-before) / time.Since(began).Seconds()
}

// delivered is how many frames of a pod went to others of its node.
func (l *learnLab) delivered(p *lab.Pod) uint64 {
	l.t.Helper()
	s, err := p.Node.Status(within(l.t, 20*time.Second))
	must(l.t, err)
	i := slices.IndexFunc(s.Ports, func(x status.Port) bool { return x.Device == p.Device })
	if i < 0 {
		l.t.Fatalf("%s has no port", p.Name)
	}
	return s.Ports[i].Local
}

// udpFlood has from send datagrams to another pod until stop.
func (l *learnLab) udpFlood(from, to *lab.Pod) (stop func()) {
	l.t.Helper()
	var conn net.Conn
	must(l.t, from.Do(func() (err error) {
		conn, err = net.Dial("udp", netip.AddrPortFrom(to.IP4(), 9).String())
		return err
	}))
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for payload := make([]byte, 64); ; {
			select {
			case <-end:
				return
			default:
				_, _ = conn.Write(payload) // refused: nobody listens
			}
		}
	}()
	done := false
	stop = func() {
		if !done {
			done = true
			close(end)
			<-ended
			_ = conn.Close()
		}
	}
	return stop
}

// residentKiB is the memory of a node's agent.
func residentKiB(t *testing.T, n *lab.Node) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID()))
	must(t, err)
	for _, line := range strings.Split(string(text), "\n") {
		var kib int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

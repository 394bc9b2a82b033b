package fastpath

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/learning"
)

// learner is a node whose network red learns, and a walk that observes port A.
type learner struct {
	*node
	w *Walk
	s *table.Snapshot
}

var macVM, ipVM, ip6VM = packet.MAC{2, 0, 0, 0, 0, 0x77}, addr("10.0.0.77"), addr("fd00:10::77")

func newLearner(t testing.TB, o learning.SuppressorOptions) *learner {
	t.Helper()
	n := newNode(t)
	n.must(n.SetNetwork(table.Network{
		ID: red, Name: "red", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00:10::/64")},
		LinkLocal: true, Learning: true,
	}))
	s, err := learning.NewSuppressor(o)
	n.must(err)
	w := NewWalk(16, Limits{})
	w.learn, err = newObserving(16)
	n.must(err)
	w.learn.ports[n.portA.Index()] = observer{n.portA, s}
	return &learner{node: n, w: w, s: n.Snapshot()}
}

// send walks one frame of port A and returns what was reported.
func (l *learner) send(frame []byte, change func(*table.Port)) []learning.Observation {
	l.t.Helper()
	walk1(l.t, l.s, l.s.Ports[l.portA.Index()], l.w, walkCase{frame: frame, change: change})
	var out []learning.Observation
	for {
		o, ok := l.w.learn.ring.Pop()
		if !ok {
			return out
		}
		out = append(out, o)
	}
}

func ipOf(a netip.Addr) packet.IP { return packet.IPFromAddr(a) }

func vmUDP(t testing.TB, src packet.MAC, from, to netip.Addr) []byte {
	t.Helper()
	typ := layers.EthernetTypeIPv4
	var ip gopacket.SerializableLayer = ip4(from, to, layers.IPProtocolUDP)
	if from.Is6() {
		typ, ip = layers.EthernetTypeIPv6, ip6(from, to, layers.IPProtocolUDP)
	}
	return serialize(t, ether(macD, src, typ), ip, gopacket.Payload([]byte{3, 232, 0, 9, 0, 8, 0, 0}))
}

func naFrame(t testing.TB, src packet.MAC, from netip.Addr, flags byte) []byte {
	t.Helper()
	body := append([]byte{flags, 0, 0, 0}, from.AsSlice()...)
	body = append(append(body, 2, 1), src[:]...)
	return icmp6Frame(t, packet.MAC{0x33, 0x33, 0, 0, 0, 1}, src, from, addr("ff02::1"), 136, body)
}

// TestObservationsHaveTheTags: of every kind of frame, so that a probe of the host
// can carry them.
func TestObservationsHaveTheTags(t *testing.T) {
	for name, frame := range map[string][]byte{
		"UDP": vmUDP(t, macVM, addr("10.0.0.77"), addr("10.0.0.12")), "NA": naFrame(t, macVM, addr("fd00:10::77"), 0x20),
	} {
		for _, tags := range [][]byte{nil, {0x81, 0, 0, 100}, {0x88, 0xa8, 0, 200, 0x81, 0, 0, 100}} {
			l := newLearner(t, learning.SuppressorOptions{})
			got := l.send(slices.Concat(frame[:12], tags, frame[12:]), nil)
			if len(got) != 1 {
				t.Fatalf("%s, tags %x: reported %+v", name, tags, got)
			}
			b := make([]byte, got[0].Tags.Len())
			if got[0].Tags.Put(b); !bytes.Equal(b, tags) {
				t.Errorf("%s: tags %x, want %x", name, b, tags)
			}
		}
	}
}

// TestWhatFramesProve: evidence, address and flags of every kind of frame. What
// is the endpoint's own proves nothing new.
func TestWhatFramesProve(t *testing.T) {
	mc, sol := solicited(ip6VM)
	rarp := serialize(t, ether(broadcast, macVM, 0x8035), gopacket.Payload(append([]byte{0, 1, 8, 0, 6, 4, 0, 3}, make([]byte, 20)...)))
	copy(rarp[14+8:], macVM[:])
	macip := func(p *table.Port) { p.Security = table.SecurityMACIP }
	strange := addr("192.0.2.9")
	unspecified4 := addr("0.0.0.0")
	for _, c := range []struct {
		name   string
		frame  []byte
		change func(*table.Port)
		class  arpnd.Class // None: nothing is reported
		ip     netip.Addr
		flags  learning.Flags
	}{
		{name: "own", frame: udpTo(t, macD, ipD, 9)},
		{name: "own, IPv6", frame: udpTo(t, macD, ip6D, 9)},
		{name: "own ARP", frame: arpFrame(t, broadcast, macA, 1, ipA, ipD)},
		{name: "own NS", frame: nsFrame(t, mc, macA, ip6A, sol, ip6VM)},
		{name: "own link-local", frame: nsFrame(t, mc, macA, table.LinkLocal(macA).Addr(), sol, ip6VM)},
		{name: "own MAC routes for others", frame: vmUDP(t, macA, strange, ipD)},
		{name: "own MAC, second address", frame: vmUDP(t, macA, ipVM, ipD), class: arpnd.Strong, ip: ipVM},
		{name: "mac+ip", frame: udpTo(t, macD, ipD, 9), change: macip},
		{name: "another's, dropped by mac+ip", frame: vmUDP(t, macVM, ipVM, ipD), change: macip},
		{name: "IPv4", frame: vmUDP(t, macVM, ipVM, ipD), class: arpnd.Strong, ip: ipVM},
		{name: "IPv6", frame: vmUDP(t, macVM, ip6VM, ip6D), class: arpnd.Strong, ip: ip6VM},
		{name: "tagged", frame: tagged(vmUDP(t, macVM, ipVM, ipD), 5, 6), class: arpnd.Strong, ip: ipVM},
		{name: "out of prefix", frame: vmUDP(t, macVM, strange, ipD), class: arpnd.Strong, ip: strange},
		{name: "group source", frame: vmUDP(t, packet.MAC{3, 0, 0, 0, 0, 1}, ipVM, ipD)},
		{name: "zero source", frame: vmUDP(t, packet.MAC{}, ipVM, ipD)},
		{name: "our probe's MAC", frame: vmUDP(t, arpnd.ProbeMAC(), ipVM, ipD)},
		{name: "zero address", frame: vmUDP(t, macVM, unspecified4, ipD), class: arpnd.Weak},
		{name: "multicast address", frame: vmUDP(t, macVM, addr("224.0.0.9"), ipD), class: arpnd.Weak},
		{name: "ARP", frame: arpFrame(t, broadcast, macVM, 1, ipVM, ipD), class: arpnd.Strong, ip: ipVM},
		{name: "GARP", frame: arpFrame(t, broadcast, macVM, 1, ipVM, ipVM), class: arpnd.Strong, ip: ipVM, flags: learning.Announce},
		{name: "GARP, reply form", frame: arpFrame(t, broadcast, macVM, 2, ipVM, ipVM), class: arpnd.Strong, ip: ipVM, flags: learning.Announce},
		{name: "ARP probe", frame: arpFrame(t, broadcast, macVM, 1, unspecified4, ipVM), class: arpnd.Weak, flags: learning.ARPProbe},
		{name: "own ARP probe", frame: arpFrame(t, broadcast, macA, 1, unspecified4, ipVM), class: arpnd.Weak, flags: learning.ARPProbe},
		{name: "RARP", frame: rarp, class: arpnd.Strong, flags: learning.Announce},
		{name: "NS", frame: nsFrame(t, mc, macVM, ip6VM, sol, ip6VM), class: arpnd.Strong, ip: ip6VM},
		{name: "DAD NS", frame: nsFrame(t, mc, macVM, addr("::"), sol, ip6VM), class: arpnd.Weak},
		{name: "NA, O=1", frame: naFrame(t, macVM, ip6VM, 0x20), class: arpnd.Strong, ip: ip6VM, flags: learning.Announce | learning.Advert},
		{name: "NA of a router", frame: naFrame(t, macVM, ip6VM, 0xa0), class: arpnd.Strong, ip: ip6VM, flags: learning.Announce | learning.Advert | learning.AdvertRouter},
		{name: "NA, O=0", frame: naFrame(t, macVM, ip6VM, 0), class: arpnd.Weak, ip: ip6VM, flags: learning.Announce | learning.Advert},
		{name: "MLD", frame: icmp6Frame(t, packet.MAC{0x33, 0x33, 0, 0, 0, 0x16}, macVM, ip6VM, addr("ff02::16"), 143, make([]byte, 4)), class: arpnd.Weak, ip: ip6VM},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLearner(t, learning.SuppressorOptions{})
			got := l.send(c.frame, c.change)
			if c.class == arpnd.None {
				if len(got) != 0 {
					t.Fatalf("reported: %+v", got)
				}
				return
			}
			src := packet.MACFromUint64(mac48(c.frame[6:14]))
			var layout packet.Layout
			packet.Parse(c.frame, &layout)
			want := learning.Observation{IP: ipOf(c.ip), Port: l.portA, MAC: src, Class: c.class, Flags: c.flags, Tags: packet.TagsOf(c.frame, &layout)}
			if len(got) != 1 || got[0] != want {
				t.Fatalf("reported %+v, want %+v", got, want)
			}
			if again := l.send(c.frame, c.change); len(again) != 0 {
				t.Errorf("reported again at once: %+v", again)
			}
		})
	}
}

// TestNoLearning: where the network does not learn, the port is not observed or
// the frame comes from an uplink, nothing is reported.
func TestNoLearning(t *testing.T) {
	frame := vmUDP(t, macVM, ipVM, ipD)
	l := newLearner(t, learning.SuppressorOptions{})
	walk1(t, l.s, table.Port{}, l.w, walkCase{frame: outer(t, frame, nil, uint32(red), 7), uplink: true})
	if l.w.learn.ring.Len() > 0 {
		t.Error("learned from a remote frame")
	}
	walk1(t, l.s, l.s.Ports[l.portB.Index()], l.w, walkCase{frame: frame})
	walk1(t, l.s, l.s.Ports[l.portC.Index()], l.w, walkCase{frame: frame})
	if l.w.learn.ring.Len() > 0 {
		t.Error("learned at a port that is not observed")
	}
	l.w.learn.ports[l.portA.Index()].id++ // the place was another port's
	if got := l.send(frame, nil); len(got) > 0 {
		t.Errorf("learned by another port's suppressor: %+v", got)
	}
	l.w.learn.ports[l.portA.Index()].id--
	l.must(l.SetNetwork(table.Network{ID: red, Name: "red"}))
	l.s = l.Snapshot()
	if got := l.send(frame, nil); len(got) > 0 {
		t.Errorf("learned in a network that does not learn: %+v", got)
	}
}

// TestOneSlotForARoutersAddresses: addresses out of the network's prefixes share
// the slot of the MAC.
func TestOneSlotForARoutersAddresses(t *testing.T) {
	l := newLearner(t, learning.SuppressorOptions{})
	n := 0
	for i := range 200 {
		n += len(l.send(vmUDP(t, macVM, addr(fmt.Sprintf("192.0.2.%d", i)), ipD), nil))
	}
	if n != 1 {
		t.Errorf("%d reports of one MAC", n)
	}
}

// TestFullRingArmsNothing: what found the ring full is reported by the next frame.
func TestFullRingArmsNothing(t *testing.T) {
	l := newLearner(t, learning.SuppressorOptions{Rate: 1_000_000})
	for l.w.learn.ring.Push(learning.Observation{}) {
	}
	frame := vmUDP(t, macVM, ipVM, ipD)
	walk := func() { walk1(t, l.s, l.s.Ports[l.portA.Index()], l.w, walkCase{frame: frame}) }
	walk()
	if l.w.learn.full.Load() != 1 || l.w.learn.count.Load() != 0 {
		t.Errorf("full %d, reported %d", l.w.learn.full.Load(), l.w.learn.count.Load())
	}
	for range observations {
		l.w.learn.ring.Pop()
	}
	if got := l.send(frame, nil); len(got) != 1 || got[0].MAC != macVM {
		t.Errorf("after room was made: %+v", got)
	}
}

// TestSlotCountsOnlyForTheOwner: a station that the snapshot has here is quiet for
// the re-report interval; once a snapshot has it elsewhere its next frame speaks.
func TestSlotCountsOnlyForTheOwner(t *testing.T) {
	const second = 1e9
	l := newLearner(t, learning.SuppressorOptions{ReReport: 30 * second, ShortSlot: second})
	frame := vmUDP(t, macVM, ipVM, ipD)
	step := func(what string, want int) {
		t.Helper()
		l.w.Now += 2 * second
		if got := l.send(frame, nil); len(got) != want {
			t.Errorf("%s: reported %d times, want %d", what, len(got), want)
		}
	}
	own := func(e table.FDBEntry) {
		e.MAC = macVM
		l.must(l.SetFDB(red, e))
		l.s = l.Snapshot()
	}
	step("first", 1)
	step("nothing came of it", 1)
	own(table.FDBEntry{Port: l.portA})
	step("the MAC is here, its address not yet", 1)
	l.must(l.SetNeighbor(red, table.NeighborEntry{IP: ipVM, MAC: macVM}))
	l.s = l.Snapshot()
	step("both are here", 0)
	step("still", 0)
	own(table.FDBEntry{Port: l.portB})
	step("at another port", 1)
	own(table.FDBEntry{Node: "node2"})
	step("at another node", 1)
	own(table.FDBEntry{Port: l.portA})
	step("back", 0)
	l.w.Now += 30 * second
	step("re-report", 1)
}

// TestObservingDoesNotAllocate: reported, quiet and limited frames.
func TestObservingDoesNotAllocate(t *testing.T) {
	l := newLearner(t, learning.SuppressorOptions{})
	p := &l.s.Ports[l.portA.Index()]
	for _, frame := range [][]byte{vmUDP(t, macVM, ipVM, ipD), vmUDP(t, macVM, ip6VM, ip6D), arpFrame(t, broadcast, macVM, 1, ipVM, ipVM)} {
		buf := make([]byte, 4096)
		fs := make([]Frame, 1)
		if got := testing.AllocsPerRun(100, func() {
			l.w.Now += 1e8
			copy(buf[room:], frame)
			fs[0] = Frame{Buf: buf, Off: room, Len: len(frame)}
			l.w.FromPort(l.s, p, fs)
		}); got != 0 {
			t.Errorf("%v allocations", got)
		}
	}
	if l.w.learn.count.Load() == 0 {
		t.Error("nothing was reported")
	}
}

// TestEngineReportsAndRemembers: the way over a worker: a token, the observation
// by the engine's clock, and the worker's own last-seen.
func TestEngineReportsAndRemembers(t *testing.T) {
	for _, workers := range []int{1, 2} {
		r := newRig(t, Config{Workers: workers, UplinkQueues: []int{1}})
		network := r.Snapshot().Networks[r.Snapshot().Ports[r.portB.Index()].Net].Network
		network.Learning = true
		r.must(r.SetNetwork(network))
		r.Publish(r.Snapshot())
		r.must(r.Observe(r.portB, learning.SuppressorOptions{}))
		r.must(r.Observe(r.portB, learning.SuppressorOptions{}))
		from := r.Observations()
		began := from.Now()
		token := from.Wait()
		r.deliver(r.kernels[r.portB], vmUDP(t, macVM, ipVM, ipD))
		<-token
		var got []learning.Observation
		eventually(t, "an observation", func() bool {
			return from.Drain(10, func(o learning.Observation) { got = append(got, o) }) > 0
		})
		if len(got) != 1 || got[0].Port != r.portB || got[0].MAC != macVM || got[0].Time < began-int64(restTick) || got[0].Time > from.Now() {
			t.Errorf("%d workers: %+v", workers, got)
		}
		q := []Sighting{
			{Port: r.portB, MAC: macVM, IP: ipOf(ipVM)}, {Port: r.portB, MAC: macVM}, {Port: r.portA, MAC: macVM}, {Port: r.portB, MAC: macD},
		}
		r.LastSeen(q)
		if !q[0].OK || q[0].At != got[0].Time || !q[1].OK || q[2].OK || q[3].OK {
			t.Errorf("%d workers: %+v", workers, q)
		}
		if n, full := from.Counts(); n != 1 || full != 0 {
			t.Errorf("%d workers: %d reported, %d times full", workers, n, full)
		}
		r.must(r.RemovePort(r.portB.Index()))
		if r.LastSeen(q); q[0].OK {
			t.Error("a port that is gone remembers")
		}
		r.plug(r.portB)
		r.must(r.Observe(r.portB, learning.SuppressorOptions{}))
		r.deliver(r.kernels[r.portB], vmUDP(t, macVM, ipVM, ipD))
		eventually(t, "an observation of the port made anew", func() bool {
			return from.Drain(10, func(learning.Observation) {}) > 0
		})
	}
}

// BenchmarkObserve is what learning adds to the decision about a frame: of the
// endpoint's own, and of a learned station that has been reported.
func BenchmarkObserve(b *testing.B) {
	for _, c := range []struct {
		name  string
		src   packet.MAC
		learn bool
	}{{"off", macA, false}, {"own", macA, true}, {"learned", macVM, true}} {
		b.Run(c.name, func(b *testing.B) {
			l := newLearner(b, learning.SuppressorOptions{})
			l.must(l.SetFDB(red, table.FDBEntry{MAC: macVM, Port: l.portA, Segment: 7}))
			if !c.learn {
				l.must(l.SetNetwork(table.Network{ID: red, Name: "red", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}))
			}
			l.s = l.Snapshot()
			p := &l.s.Ports[l.portA.Index()]
			frame := udpFrame(macD, c.src, false, 7, 22)
			frames := make([]Frame, batch)
			for i := range frames {
				frames[i].Buf = make([]byte, 512)
				copy(frames[i].Buf[room:], frame)
			}
			b.ReportAllocs()
			for i := 0; i < b.N; i += batch {
				for j := range frames {
					frames[j].Off, frames[j].Len = room, len(frame)
				}
				l.w.FromPort(l.s, p, frames)
			}
		})
	}
}

package fastpath

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

// rig is an engine whose sockets' other side is played in memory.
type rig struct {
	*Engine
	*node
	t       *testing.T
	kernels map[table.PortID]*xsktest.Kernel
	uplinks []*xsktest.Kernel
	places  map[table.PortID]Place
	options xsk.Options
}

func newRig(t *testing.T, c Config) *rig {
	t.Helper()
	if c.ChunksPerShard == 0 {
		c.ChunksPerShard = 256
	}
	c.PortsPerShard, c.MaxPorts, c.NUMANode = 2, 16, -1
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		Engine: e, node: newNode(t), t: t, kernels: map[table.PortID]*xsktest.Kernel{}, places: map[table.PortID]Place{},
		options: xsk.Options{MultiBuffer: true, Fill: 256, RX: 256, TX: 256, Completion: 512},
	}
	for u, queues := range c.UplinkQueues {
		for q := range queues {
			xs, k := xsktest.New(t, e.Memory(), e.Memory().Whole(), r.options)
			r.must(e.AddUplink(u, q, xs))
			r.uplinks = append(r.uplinks, k)
		}
	}
	for _, id := range []table.PortID{r.portA, r.portB, r.portC} {
		r.plug(id)
	}
	e.Publish(r.Snapshot())
	r.must(e.Start())
	t.Cleanup(func() {
		total := r.Audit().Total()
		if want := len(e.places); total != want {
			t.Errorf("%d frames of %d", total, want)
		}
		r.must(e.Stop())
		c := census(e.places)
		if c.Free != len(e.places) {
			t.Errorf("frames not free after Stop: %+v", c)
		}
	})
	return r
}

// plug gives a port its socket and tells the tables the worker it is on.
func (r *rig) plug(id table.PortID) {
	r.t.Helper()
	at, err := r.Place()
	r.must(err)
	xs, k := xsktest.New(r.t, r.Memory(), r.Memory().Shard(at.Shard), r.options)
	r.must(r.AddPort(id.Index(), 0, at, xs))
	r.kernels[id], r.places[id] = k, at
	p := r.Snapshot().Ports[id.Index()]
	p.Worker = at.Worker
	r.must(r.SetPort(p))
	r.Publish(r.Snapshot())
}

// eventually polls with a deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// deliver has a device receive a frame, waiting for a free fill frame.
func (r *rig) deliver(k *xsktest.Kernel, frame []byte) {
	r.t.Helper()
	eventually(r.t, "room in the fill ring", func() bool { return k.Deliver(frame) })
}

// accounted waits until every frame port received has its verdict.
func (r *rig) accounted(id table.PortID, want uint64) Counters {
	r.t.Helper()
	var c Counters
	eventually(r.t, "all frames accounted for", func() bool {
		c = r.Counters(id.Index())
		return c.RX == want && c.Unaccounted() == 0
	})
	return c
}

func TestEngineForwardsLocallyAndRemotely(t *testing.T) {
	group, sol := solicited(ip6D)
	asks := map[string][]byte{"v4": arpFrame(t, broadcast, macA, 1, ipA, ipD), "v6": nsFrame(t, group, macA, ip6A, sol, ip6D)}
	answers := map[string]func([]byte) bool{
		"v4": func(b []byte) bool { return b[12] == 0x08 && b[13] == 0x06 && b[21] == 2 }, // an ARP reply
		"v6": func(b []byte) bool { return b[12] == 0x86 && b[20] == 58 && b[54] == 136 }, // an NA
	}
	for _, workers := range []int{1, 2} {
		for _, f := range families {
			t.Run(fmt.Sprint(f.name, " ", workers), func(t *testing.T) {
				r := newRig(t, Config{Workers: workers, UplinkQueues: []int{2}})
				a, b := r.kernels[r.portA], r.kernels[r.portB]
				toB, toD := udpTo(t, macB, f.b, 9), udpTo(t, macD, f.d, 9)
				r.deliver(a, toB)
				r.deliver(a, toD)
				r.deliver(a, asks[f.name])
				r.deliver(a, udpTo(t, macStranger, f.d, 9))
				c := r.accounted(r.portA, 4)
				if c.Verdicts != [NumVerdicts]uint64{1, 1, 1, 1} || c.Drops[ReasonUnknownUnicast] != 1 {
					t.Errorf("%+v", c.Verdicts)
				}
				if got := b.Sent(); len(got) != 1 || !bytes.Equal(got[0], toB) {
					t.Errorf("B got %x", got)
				}
				var out [][]byte
				for _, u := range r.uplinks {
					out = append(out, u.Sent()...)
				}
				if len(out) != 1 || !bytes.Equal(out[0][srv6.BaseOverhead:], toD) {
					t.Errorf("uplink sent %x", out)
				}
				if got := a.Sent(); len(got) != 1 || !answers[f.name](got[0]) {
					t.Errorf("no answer: %x", got)
				}
				// And from the uplink to A.
				back := udpFrame(macA, macD, f.a.Is6(), 5, 30)
				r.deliver(r.uplinks[1], outer(t, back, nil, uint32(red), 7))
				eventually(t, "delivery to A", func() bool { return r.UplinkCounters(0).Verdicts[Local] == 1 })
				if got := a.Sent(); len(got) != 1 || !bytes.Equal(got[0], back) {
					t.Errorf("A got %x", got)
				}
			})
		}
	}
}

// TestHandoffKeepsOrderAndFrames sends numbered flows of both families from A, on one
// worker, to B on the other, and out of both uplink queues.
func TestHandoffKeepsOrderAndFrames(t *testing.T) {
	r := newRig(t, Config{Workers: 2, UplinkQueues: []int{2}})
	if r.places[r.portA].Worker == r.places[r.portB].Worker {
		t.Fatal("A and B are on one worker: nothing is handed over")
	}
	const flows, each = 8, 2000
	a := r.kernels[r.portA]
	sent := uint64(0)
	for i := range each {
		for flow := range flows {
			family := families[flow/2%2]
			dst, ip := macB, family.b
			if flow%2 == 1 {
				dst, ip = macD, family.d
			}
			f := udpTo(t, dst, ip, 9)
			udp := udpOf(f)
			udp[0], udp[1] = 0, byte(flow) // source port
			udp[6], udp[7] = 0, 0          // no UDP checksum
			binary.BigEndian.PutUint32(udp[8:], uint32(i))
			r.deliver(a, f)
			sent++
		}
	}
	c := r.accounted(r.portA, sent)
	next := map[byte]uint32{}
	queues := map[byte]int{}
	check := func(queue int, f []byte) {
		udp := udpOf(f)
		flow, seq := udp[1], binary.BigEndian.Uint32(udp[8:])
		if queue >= 0 {
			if q, ok := queues[flow]; ok && q != queue {
				t.Fatalf("flow %d on two queues", flow)
			}
			queues[flow] = queue
		}
		if seq < next[flow] {
			t.Fatalf("flow %d: frame %d after %d", flow, seq, next[flow]-1)
		}
		next[flow] = seq + 1
	}
	got := 0
	for _, f := range r.kernels[r.portB].Sent() {
		check(-1, f)
		got++
	}
	for q, u := range r.uplinks {
		for _, f := range u.Sent() {
			check(q, f[srv6.BaseOverhead:])
			got++
		}
	}
	if want := int(c.Verdicts[Local] + c.Verdicts[Remote]); got != want {
		t.Errorf("%d frames arrived, %d counted as delivered (drops %v)", got, want, c.Drops)
	}
	if c.Verdicts[Dropped] > sent/2 {
		t.Errorf("%d of %d dropped", c.Verdicts[Dropped], sent)
	}
}

func TestFullTXRingDropsAndIsCounted(t *testing.T) {
	r := newRig(t, Config{Workers: 1, UplinkQueues: []int{1}})
	b := r.kernels[r.portB]
	b.HoldCompletions()
	errs := make([]unix.Errno, 100000)
	for i := range errs {
		errs[i] = unix.EAGAIN
	}
	b.FailKicks(errs...)
	frame := udpTo(t, macB, ipB, 9)
	const n = 600
	for range n {
		r.deliver(r.kernels[r.portA], frame)
	}
	c := r.accounted(r.portA, n)
	if c.Drops[ReasonTXFull]+c.Drops[ReasonPool] == 0 || c.Verdicts[Local] > 256 {
		t.Errorf("local %d, tx_full %d, pool %d", c.Verdicts[Local], c.Drops[ReasonTXFull], c.Drops[ReasonPool])
	}
}

// TestPortKeepsItsFloor: while B takes nothing, so that A's frames pile up, the
// third member of the shard can still receive.
func TestPortKeepsItsFloor(t *testing.T) {
	r := newRig(t, Config{Workers: 1, UplinkQueues: []int{1}})
	r.kernels[r.portB].HoldCompletions()
	r.uplinks[0].HoldCompletions()
	for i := range 2000 {
		dst := macB
		if i%2 == 0 {
			dst = macD
		}
		r.deliver(r.kernels[r.portA], udpTo(t, dst, ipD, 9))
	}
	c := r.accounted(r.portA, 2000)
	if c.Drops[ReasonPool] == 0 {
		t.Errorf("the pool never ran short: %+v", c.Drops)
	}
	eventually(t, "every fill ring at its floor", func() bool {
		all, err := r.Sockets()
		r.must(err)
		for _, s := range all {
			if s.Filled < fillFloor {
				return false
			}
		}
		return true
	})
}

func TestBogusRingEntriesAreCountedAndHarmless(t *testing.T) {
	r := newRig(t, Config{Workers: 1, UplinkQueues: []int{1}})
	a := r.kernels[r.portA]
	r.deliver(a, udpTo(t, macB, ipB, 9))
	r.accounted(r.portA, 1)
	a.ReceiveRaw(200*xsk.ChunkSize+256, 64, 0) // a frame the fill ring does not hold
	a.ReceiveRaw(1<<40, 64, 0)                 // outside
	r.kernels[r.portB].CompleteRaw(0, 0, 77*xsk.ChunkSize, 1<<50)
	r.deliver(a, udpTo(t, macB, ipB, 9))
	r.deliver(a, udpTo(t, macB, ipB, 9))
	c := r.accounted(r.portA, 3)
	if c.Verdicts[Local] != 3 || c.Bogus == 0 {
		t.Errorf("local %d bogus %d", c.Verdicts[Local], c.Bogus)
	}
	eventually(t, "bogus completions counted", func() bool { return r.Counters(r.portB.Index()).Bogus >= 3 })
}

// jumboRig has ports and a way to the other node that take frames in pieces.
func jumboRig(t *testing.T, workers int) *rig {
	t.Helper()
	r := newRig(t, Config{Workers: workers, UplinkQueues: []int{1}})
	for _, id := range []table.PortID{r.portA, r.portB} {
		p := r.Snapshot().Ports[id.Index()]
		p.MTU = 9000
		r.must(r.SetPort(p))
	}
	r.setNode2(9200)
	s := r.Snapshot()
	r.Publish(s)
	r.must(r.Quiesce(t.Context(), s.Version))
	return r
}

func TestJumboFrames(t *testing.T) {
	for _, workers := range []int{1, 2} {
		r := jumboRig(t, workers)
		local, remote := udpFrame(macB, macA, false, 7, 8900), udpFrame(macD, macA, true, 7, 8900)
		small := udpTo(t, macB, ipB, 9)
		for _, f := range [][]byte{small, local, small, remote, small} {
			r.deliver(r.kernels[r.portA], f)
		}
		c := r.accounted(r.portA, 5)
		if c.Verdicts[Local] != 4 || c.Verdicts[Remote] != 1 {
			t.Fatalf("%d workers: %+v %v", workers, c.Verdicts, c.Drops)
		}
		got := r.kernels[r.portB].Sent()
		if len(got) != 4 || !bytes.Equal(got[1], local) || !bytes.Equal(got[0], small) || !bytes.Equal(got[3], small) {
			t.Errorf("%d workers: B got %d frames", workers, len(got))
		}
		if out := r.uplinks[0].Sent(); len(out) != 1 || !bytes.Equal(out[0][srv6.BaseOverhead:], remote) {
			t.Errorf("%d workers: uplink sent %d frames", workers, len(out))
		}
	}
}

func TestTooBigIsAnsweredForJumbo(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, Config{Workers: 1, UplinkQueues: []int{1}})
			frame := udpFrame(macD, macA, f.a.Is6(), 7, 8900)
			if f.a.Is4() { // Don't Fragment, whose sender wants to be told
				frame[20] |= 0x40
				frame[24], frame[25] = 0, 0
				binary.BigEndian.PutUint16(frame[24:], ^packet.Fold(packet.Sum(frame[14:34])))
			}
			r.deliver(r.kernels[r.portA], frame)
			c := r.accounted(r.portA, 1)
			if c.Drops[ReasonTooBig] != 1 || c.Errors != 1 {
				t.Fatalf("%v errors %d", c.Drops, c.Errors)
			}
			got := r.kernels[r.portA].Sent()
			if len(got) != 1 {
				t.Fatalf("%d answers", len(got))
			}
			if b := got[0]; f.a.Is6() && (b[54] != 2 || binary.BigEndian.Uint32(b[58:]) != 1446) {
				t.Errorf("Packet Too Big: %x", b)
			} else if f.a.Is4() && (b[34] != 3 || b[35] != 4 || binary.BigEndian.Uint16(b[40:]) != 1446) {
				t.Errorf("fragmentation needed: %x", b)
			}
		})
	}
}

func TestDeviceDownAndGone(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) { deviceDownAndGone(t, udpTo(t, macB, f.b, 9)) })
	}
}

func deviceDownAndGone(t *testing.T, frame []byte) {
	r := newRig(t, Config{Workers: 1, UplinkQueues: []int{1}})
	b := r.kernels[r.portB]
	b.SetDown(true)
	r.deliver(r.kernels[r.portA], frame)
	r.accounted(r.portA, 1)
	if e := <-r.Events(); e.Port != r.portB.Index() || e.State != SocketDown {
		t.Errorf("event %+v", e)
	}
	b.SetDown(false)
	n := uint64(1)
	eventually(t, "B reachable again", func() bool {
		r.deliver(r.kernels[r.portA], frame)
		n++
		r.accounted(r.portA, n)
		return len(b.Sent()) > 0
	})
	b.Delete()
	eventually(t, "B said to be gone", func() bool {
		r.deliver(r.kernels[r.portA], frame)
		select {
		case e := <-r.Events():
			return e.State == SocketGone
		default:
			return false
		}
	})
	r.must(r.RemovePort(r.portB.Index()))
	n = r.Counters(r.portA.Index()).RX
	r.deliver(r.kernels[r.portA], frame)
	if c := r.accounted(r.portA, n+1); c.Drops[ReasonNoSocket] == 0 {
		t.Errorf("drops %v", c.Drops)
	}
}

// TestPlugAndUnplugUnderTraffic adds and removes ports while frames of both families
// flow among two workers; the cleanup counts the frames.
func TestPlugAndUnplugUnderTraffic(t *testing.T) {
	r := newRig(t, Config{Workers: 2, UplinkQueues: []int{2}})
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range 60 {
		f := families[round%2]
		frame, remote := udpTo(t, macB, f.b, 9), udpTo(t, macD, f.d, 9)
		for range 20 {
			r.kernels[r.portA].Deliver(frame)
			r.kernels[r.portA].Deliver(remote)
			r.uplinks[rng.IntN(2)].Deliver(outer(t, udpFrame(macB, macD, f.b.Is6(), uint16(rng.Uint32()), 30), nil, uint32(red), 7))
		}
		r.must(r.RemovePort(r.portB.Index()))
		r.kernels[r.portA].Deliver(frame)
		r.plug(r.portB)
	}
	eventually(t, "accounted", func() bool { return r.Counters(r.portA.Index()).Unaccounted() == 0 })
}

func TestQuiesceWaitsForEveryWorker(t *testing.T) {
	r := newRig(t, Config{Workers: 2, UplinkQueues: []int{1}})
	for range 50 {
		s := r.Snapshot()
		r.Publish(s)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		r.must(r.Quiesce(ctx, s.Version))
		cancel()
		for _, w := range r.workers {
			if seen := w.seen.Load(); seen != offline && seen != online && seen < s.Version {
				t.Fatalf("worker %d at %d, published %d", w.id, seen, s.Version)
			}
		}
	}
}

var _ = packet.EthernetLen

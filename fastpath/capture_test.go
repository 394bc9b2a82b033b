package fastpath

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/xsk"
)

// seen is a captured frame, its bytes copied.
type seen struct {
	Captured
	data []byte
}

// drained collects what a capture shows until there are as many frames as wanted.
func drained(t *testing.T, c *Capture, want int) (all []seen) {
	t.Helper()
	eventually(t, fmt.Sprint(want, " captured frames"), func() bool {
		c.Drain(func(r *Captured) { all = append(all, seen{*r, bytes.Clone(r.Data)}) })
		return len(all) >= want
	})
	return all
}

func missedOf(c *Capture) (n uint64) {
	c.Missed(func(_ bool, _ int, frames uint64) { n += frames })
	return n
}

// TestCaptureShowsFramesAsTheyCame: each frame once, as it was before the walk
// wrote over it, with its verdict, where it came from and where it went, in both
// families and whoever's worker the target is.
func TestCaptureShowsFramesAsTheyCame(t *testing.T) {
	group, sol := solicited(ip6D)
	asks := map[string][]byte{"v4": arpFrame(t, broadcast, macA, 1, ipA, ipD), "v6": nsFrame(t, group, macA, ip6A, sol, ip6D)}
	for _, workers := range []int{1, 2} {
		for _, f := range families {
			t.Run(fmt.Sprint(f.name, " ", workers), func(t *testing.T) {
				r := newRig(t, Config{Workers: workers, UplinkQueues: []int{2}})
				c, err := r.StartCapture(CaptureOptions{})
				r.must(err)
				defer r.EndCapture(c)
				a, up := PortDevice(r.portA), UplinkDevice(0)
				back := outer(t, udpFrame(macA, macD, f.a.Is6(), 5, 30), nil, uint32(red), 7)
				for _, x := range []struct {
					frame []byte
					want  Captured
				}{
					{udpTo(t, macB, f.b, 9), Captured{From: a, To: PortDevice(r.portB), Network: red, Verdict: Local}},
					{udpTo(t, macD, f.d, 9), Captured{From: a, To: up, Network: red, Verdict: Remote}},
					{asks[f.name], Captured{From: a, To: a, Network: red, Verdict: Answered}},
					{udpTo(t, macStranger, f.d, 9), Captured{From: a, Network: red, Reason: ReasonUnknownUnicast}},
					{back, Captured{From: up, To: a, Network: red, Verdict: Local, Inner: srv6.BaseOverhead}},
				} {
					k := r.kernels[r.portA]
					if x.want.From == up {
						k = r.uplinks[1]
					}
					r.deliver(k, x.frame)
					got := drained(t, c, 1)
					g := got[0]
					if len(got) != 1 || !bytes.Equal(g.data, x.frame) || g.Len != len(x.frame) {
						t.Fatalf("%v: %d frames, %x of %d bytes, want %x", x.want.Verdict, len(got), g.data, g.Len, x.frame)
					}
					if x.want.Verdict == Remote {
						if hi := g.SID.Hi; hi != otherLocator.Hi {
							t.Errorf("SID %v", g.SID)
						}
						g.SID = packet.IP{}
					}
					x.want.Time, x.want.Len = g.Time, g.Len
					g.Data, g.row, g.owner = nil, 0, 0
					if fmt.Sprintf("%+v", g.Captured) != fmt.Sprintf("%+v", x.want) {
						t.Errorf("%+v\nwant %+v", g.Captured, x.want)
					}
				}
				if n := missedOf(c); n != 0 {
					t.Errorf("%d missed", n)
				}
			})
		}
	}
}

// TestCaptureCountsAsTheCountersDo: whatever becomes of frames, lost in tx rings,
// for want of chunks or on their way to another worker, the capture has as many of
// each verdict and reason as the ports' counters, none twice.
func TestCaptureCountsAsTheCountersDo(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			r := newRig(t, Config{Workers: workers, UplinkQueues: []int{1}})
			c, err := r.StartCapture(CaptureOptions{Snaplen: 64})
			r.must(err)
			defer r.EndCapture(c)
			var reading sync.WaitGroup
			var got Counters
			stop := make(chan struct{})
			read := func() int {
				return c.Drain(func(r *Captured) {
					got.RX++
					got.Verdicts[r.Verdict]++
					if r.Verdict == Dropped {
						got.Drops[r.Reason]++
					}
				})
			}
			reading.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						read()
					}
				}
			})
			b := r.kernels[r.portB]
			b.HoldCompletions()
			errs := make([]unix.Errno, 100_000)
			for i := range errs {
				errs[i] = unix.EAGAIN
			}
			b.FailKicks(errs...)
			var n uint64
			for range 600 {
				for _, f := range families {
					r.deliver(r.kernels[r.portA], udpTo(t, macB, f.b, 9))
					r.deliver(r.kernels[r.portA], udpTo(t, macD, f.d, 9))
					r.deliver(r.kernels[r.portA], udpTo(t, macStranger, f.d, 9))
					n += 3
				}
			}
			// A target without a socket, when its worker is not the sender's.
			r.must(r.RemovePort(r.portB.Index()))
			for range 10 {
				r.deliver(r.kernels[r.portA], udpTo(t, macB, ipB, 9))
				n++
			}
			want := r.accounted(r.portA, n)
			close(stop)
			reading.Wait()
			eventually(t, "every frame shown or missed", func() bool { read(); return got.RX+missedOf(c) >= n })
			if lost := want.Drops[ReasonTXFull] + want.Drops[ReasonPool]; lost == 0 || want.Drops[ReasonNoSocket] == 0 {
				t.Errorf("nothing was lost on the way out: %v", want.Drops)
			}
			if got.RX != n || missedOf(c) != 0 {
				t.Fatalf("%d frames, %d shown, %d missed", n, got.RX, missedOf(c))
			}
			if got.Verdicts != want.Verdicts || got.Drops != want.Drops {
				t.Errorf("shown %v %v\ncounted %v %v", got.Verdicts, got.Drops, want.Verdicts, want.Drops)
			}
		})
	}
}

// TestCaptureTellsChunksApart: the chunk of a frame that is sent is used again in the
// same batch, for one without a record that finds no room: the first is not shown as
// lost for it.
func TestCaptureTellsChunksApart(t *testing.T) {
	e, err := New(Config{Workers: 2, MaxPorts: 16, UplinkQueues: []int{1}, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	t.Cleanup(func() { n.must(e.Stop()) })
	peers, places := map[table.PortID]*xsk.Peer{}, map[table.PortID]Place{}
	for _, id := range []table.PortID{n.portA, n.portB} {
		at, err := e.Place()
		n.must(err)
		xs, peer, err := xsk.NewPeer(e.Memory(), e.Memory().Shard(at.Shard), xsk.Options{TX: stageMost, Completion: 2 * stageMost}, 0)
		n.must(err)
		n.must(e.AddPort(id.Index(), 0, at, xs))
		p := n.Snapshot().Ports[id.Index()]
		p.Worker = at.Worker
		n.must(n.SetPort(p))
		peers[id], places[id] = peer, at
	}
	e.Publish(n.Snapshot())
	from, to := e.workers[places[n.portA].Worker], e.workers[places[n.portB].Worker]
	if from == to {
		t.Fatal("both ports are one worker's")
	}
	from.load()
	to.load()
	a, b := peers[n.portA], peers[n.portB]
	b.SetWakeup(false, true)
	base := uint64(e.Memory().ShardBase(places[n.portA].Shard))
	frame := udpTo(t, macB, ipB, 9)
	send := func(frames int) {
		t.Helper()
		for round := 0; frames > 0; round++ {
			if addr, ok := a.TakeFill(); ok {
				copy(e.Memory().Frame(xsk.Addr(base+addr+room), len(frame)), frame)
				a.PutRX(addr+room, uint32(len(frame)), 0)
				frames--
			} else if from.round(); round > 10_000 {
				t.Fatal("the fill ring stays empty")
			}
		}
		from.round()
		from.round()
		to.round()
	}

	// One is sent and not told of as sent yet.
	var owed uint64
	b.OnKick = func() unix.Errno {
		if addr, _, _, ok := b.TakeTX(); ok {
			owed = addr
		}
		return 0
	}
	send(1)
	c, err := e.StartCapture(CaptureOptions{})
	n.must(err)
	defer e.EndCapture(c)
	c.workers[from.id].free = c.workers[from.id].free[:1] // for the first frame
	// Of a full ring the first is sent: two chunks come back, and one place.
	b.OnKick = func() unix.Errno {
		if owed != 0 {
			addr, _, _, _ := b.TakeTX()
			b.PutCompletion(addr)
			b.PutCompletion(owed)
			owed = 0
		}
		return unix.EAGAIN
	}
	// The next is copied before the ring is flushed, those after it into the two chunks.
	send(stageMost + 3)
	if k := e.Counters(n.portA.Index()); k.Drops[ReasonTXFull] != 2 || k.Verdicts[Local] != stageMost+2 {
		t.Fatalf("%d frames sent, lost %v", k.Verdicts[Local], k.Drops)
	}
	got := drained(t, c, 1)
	if len(got) != 1 || got[0].Verdict != Local || missedOf(c) != stageMost+2 {
		t.Errorf("%d missed, shown %v %v", missedOf(c), got[0].Verdict, got[0].Reason)
	}
}

// TestCaptureMemoryIsBounded: whatever the number of workers and the snaplen, and a
// usual capture has all the records it may have.
func TestCaptureMemoryIsBounded(t *testing.T) {
	slot, record := int(reflect.TypeFor[capSlot]().Size()), int(reflect.TypeFor[Captured]().Size())
	for _, x := range []struct{ workers, snaplen, each int }{
		{1, DefaultSnaplen, mostRecords}, {8, DefaultSnaplen, mostRecords}, {1, MaxSnaplen, 128}, {16, MaxSnaplen, 64},
		{18, MaxSnaplen, 32}, {64, MaxSnaplen, 16}, {64, 64, 1024}, {33, 1, 4096},
	} {
		e := &Engine{}
		for range x.workers {
			e.workers = append(e.workers, &worker{rows: make([]row, 1)})
		}
		c := &Capture{options: CaptureOptions{Snaplen: x.snaplen}}
		if err := c.makeRecords(e); err != nil {
			t.Fatal(err)
		}
		total := (cap(c.taken) + len(c.records)) * slot
		for i := range c.records {
			total += cap(c.records[i].Data) + record
		}
		for _, w := range c.workers {
			total += (w.home.Cap() + w.seen.Cap()) * slot
		}
		if each := len(c.records) / x.workers; each != x.each || total > allMemory || total > x.workers*captureMemory {
			t.Errorf("%d workers, %d bytes: %d records each, want %d; %d bytes", x.workers, x.snaplen, each, x.each, total)
		}
	}
}

// TestCaptureFilters: what a filter leaves out is not shown, nor counted as missed.
func TestCaptureFilters(t *testing.T) {
	for name, x := range map[string]struct {
		options func(*rig) CaptureOptions
		want    int // of what is sent below
	}{
		"all":     {func(*rig) CaptureOptions { return CaptureOptions{} }, 6},
		"port":    {func(r *rig) CaptureOptions { return CaptureOptions{Device: PortDevice(r.portB)} }, 2}, // one from, one to
		"uplink":  {func(r *rig) CaptureOptions { return CaptureOptions{Device: UplinkDevice(0)} }, 2},
		"network": {func(r *rig) CaptureOptions { return CaptureOptions{Network: blue} }, 1},
		"dropped": {func(r *rig) CaptureOptions { return CaptureOptions{Dropped: true} }, 3},
		"reason": {func(r *rig) CaptureOptions {
			return CaptureOptions{Reasons: []DropReason{ReasonGroupOther, ReasonRunt}}
		}, 1},
		"port, reason": {func(r *rig) CaptureOptions { return CaptureOptions{Device: PortDevice(r.portB), Dropped: true} }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Workers: 2, UplinkQueues: []int{1}})
			c, err := r.StartCapture(x.options(r))
			r.must(err)
			defer r.EndCapture(c)
			a := r.kernels[r.portA]
			r.deliver(a, udpTo(t, macB, ipB, 9))                                                       // local, to b
			r.deliver(a, udpTo(t, macD, ipD, 9))                                                       // remote, by the uplink
			r.deliver(a, udpTo(t, packet.MAC{1, 0, 0x5e, 0, 0, 1}, ipD, 9))                            // group_other
			r.deliver(r.kernels[r.portB], udpFrame(macStranger, macB, false, 1, 9))                    // unknown_unicast, from b
			r.deliver(r.kernels[r.portC], udpFrame(macStranger, macA, false, 1, 9))                    // unknown_unicast, in blue
			r.deliver(r.uplinks[0], outer(t, udpFrame(macA, macD, false, 5, 30), nil, uint32(red), 7)) // local, to a
			all := drained(t, c, x.want)
			for _, id := range []table.PortID{r.portA, r.portB, r.portC} {
				eventually(t, "accounted", func() bool { k := r.Counters(id.Index()); return k.RX > 0 && k.Unaccounted() == 0 })
			}
			r.Audit() // every worker is between two rounds, and has told everything
			c.Drain(func(r *Captured) { all = append(all, seen{Captured: *r}) })
			if len(all) != x.want || missedOf(c) != 0 {
				t.Errorf("%d frames, %d missed, want %d: %+v", len(all), missedOf(c), x.want, all)
			}
		})
	}
}

// TestCaptureNobodyReads: forwarding waits for no reader; what finds no record is
// counted.
func TestCaptureNobodyReads(t *testing.T) {
	r := newRig(t, Config{Workers: 1, UplinkQueues: []int{1}})
	c, err := r.StartCapture(CaptureOptions{Snaplen: MaxSnaplen, Dropped: true}) // few records
	r.must(err)
	records, n := len(c.records), uint64(0)
	for range records + 50 {
		r.deliver(r.kernels[r.portA], udpTo(t, macB, ipB, 9)) // not wanted: not missed
		r.deliver(r.kernels[r.portA], udpTo(t, macStranger, ipB, 9))
		n += 2
	}
	if got := r.accounted(r.portA, n); got.Verdicts[Local] != n/2 {
		t.Errorf("verdicts %v", got.Verdicts)
	}
	r.EndCapture(c)
	// What is not wanted gives its record back at the end of its batch.
	got, missed := c.Drain(func(*Captured) {}), int(missedOf(c))
	if got+missed != records+50 || got > records || got <= records-batch {
		t.Errorf("%d shown, %d missed: want %d together, and %d records used", got, missed, records+50, records)
	}
}

// TestCaptureOneAtATime: a second one is refused, and one that has ended leaves
// nothing on.
func TestCaptureOneAtATime(t *testing.T) {
	r := newRig(t, Config{Workers: 2, UplinkQueues: []int{1}})
	r.captures = 1<<(32-tokenShift) - 10 // the tokens begin anew meanwhile
	for round := range 20 {
		c, err := r.StartCapture(CaptureOptions{Snaplen: 64})
		r.must(err)
		if _, err := r.StartCapture(CaptureOptions{}); !errors.Is(err, ErrCapturing) {
			t.Fatalf("a second one: %v", err)
		}
		r.deliver(r.kernels[r.portA], udpTo(t, macB, ipB, 9))
		if round%5 == 0 {
			drained(t, c, 1)
		}
		r.EndCapture(c)
		r.EndCapture(c) // again: nothing
		for _, w := range r.workers {
			if w.capture != nil {
				t.Fatal("it is still on")
			}
		}
	}
	if _, err := r.StartCapture(CaptureOptions{Snaplen: MaxSnaplen + 1}); err == nil {
		t.Error("a frame longer than any was to be kept")
	}
}

// TestRoundDoesNotAllocate: neither with a capture nor without.
func TestRoundDoesNotAllocate(t *testing.T) {
	for name, frame := range map[string][]byte{
		"local": udpFrame(macB, macA, false, 1, 22), "remote": udpFrame(macD, macA, true, 1, 22),
		"dropped": udpFrame(macStranger, macA, false, 1, 22), "answered": arpFrame(t, broadcast, macA, 1, ipA, ipD),
	} {
		r := newRound(t, frame)
		if n := testing.AllocsPerRun(50, func() { r.burst() }); n != 0 {
			t.Errorf("%s: %v allocations a round", name, n)
		}
		c, err := r.StartCapture(CaptureOptions{})
		r.must(err)
		if n := testing.AllocsPerRun(50, func() { r.burst() }); n != 0 {
			t.Errorf("%s, captured: %v allocations a round", name, n)
		}
		if n := missedOf(c); n != 0 {
			t.Errorf("%s: %d missed though all was drained", name, n)
		}
		r.EndCapture(c)
	}
}

// TestCaptureJumboFrames: frames that come in pieces are captured whole, and told of
// once, also when their pieces cross to another worker.
func TestCaptureJumboFrames(t *testing.T) {
	for _, workers := range []int{1, 2} {
		r := jumboRig(t, workers)
		c, err := r.StartCapture(CaptureOptions{Snaplen: 8000})
		r.must(err)
		for i, x := range []struct {
			frame []byte
			want  Verdict
		}{
			{udpFrame(macB, macA, false, 7, 8900), Local}, {udpFrame(macD, macA, true, 7, 8900), Remote},
			{udpTo(t, macB, ipB, 9), Local}, {udpFrame(macD, macA, true, 7, 9190), Dropped},
		} {
			r.deliver(r.kernels[r.portA], x.frame)
			got := drained(t, c, 1)
			if len(got) != 1 || got[0].Verdict != x.want || got[0].Len != len(x.frame) || !bytes.Equal(got[0].data, x.frame[:min(8000, len(x.frame))]) {
				t.Errorf("%d workers, frame %d: %d shown, %v %v, %d of %d bytes", workers, i, len(got), got[0].Verdict, got[0].Reason, len(got[0].data), len(x.frame))
			}
		}
		r.EndCapture(c)
	}
}

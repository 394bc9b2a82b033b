package fastpath

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xsktest"
)

// succeed makes an engine that takes r's place, as Prepare does with real
// sockets: on another mapping of the same memory.
func (r *rig) succeed(h *Handover) *Engine {
	r.t.Helper()
	fd, err := unix.FcntlInt(uintptr(r.Memory().FD()), unix.F_DUPFD_CLOEXEC, 0)
	r.must(err)
	o, err := h.Config.MemoryOptions()
	r.must(err)
	mem, err := xsk.MemoryFromFD(fd, o)
	r.must(err)
	e, err := build(h.Config, mem)
	r.must(err)
	for i := range h.Sockets {
		s := &h.Sockets[i]
		if !e.fits(s) {
			r.t.Fatalf("%+v does not fit", s)
		}
		r.must(e.reserve(s, r.slots[s.Slot].sock.xs))
	}
	e.hold()
	e.Publish(r.Snapshot())
	r.must(e.launch())
	return e
}

func yes() error { return nil }

// bareRig is newRig without the end's checks: its frames go to another engine.
func bareRig(t *testing.T, c Config) *rig {
	t.Helper()
	c.ChunksPerShard, c.PortsPerShard, c.MaxPorts, c.NUMANode = 512, 2, 16, -1
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		Engine: e, node: newNode(t), t: t, kernels: map[table.PortID]*xsktest.Kernel{}, places: map[table.PortID]Place{},
		options: xsk.Options{MultiBuffer: true, Fill: 256, RX: 256, TX: 256, Completion: 512},
	}
	xs, k := xsktest.New(t, e.Memory(), e.Memory().Whole(), r.options)
	r.must(e.AddUplink(0, 0, xs))
	r.uplinks = append(r.uplinks, k)
	for _, id := range []table.PortID{r.portA, r.portB} {
		r.plug(id)
	}
	e.Publish(r.Snapshot())
	r.must(e.Start())
	return r
}

// A handover at any moment loses no frame of either family and sends none twice:
// those that wait in an rx ring, those whose completion is still to come, and the first half of
// one that came in pieces.
func TestHandoverCarriesEveryFrameOn(t *testing.T) {
	for _, workers := range []int{1, 2} {
		r := bareRig(t, Config{Workers: workers, UplinkQueues: []int{1}})
		a, b, up := r.kernels[r.portA], r.kernels[r.portB], r.uplinks[0]
		up.HoldCompletions()
		next := uint16(1)
		send := func(n int) {
			for range n { // by turns
				f := families[next%2]
				r.deliver(a, udpTo(t, macB, f.b, next))
				r.deliver(a, udpTo(t, macD, f.d, next))
				next++
			}
		}
		send(20)
		// piece is a part of a frame longer than a chunk.
		piece := func(options uint32) {
			t.Helper()
			eventually(t, "a chunk to receive into", func() bool {
				addr, ok := a.Peer().TakeFill()
				return ok && a.ReceiveRaw(addr+room, 2000, options)
			})
		}

		h, fds := r.Offer()
		if len(fds) != 3 {
			t.Fatalf("%d sockets", len(fds))
		}
		e := r.succeed(h)
		send(10) // the old one goes on
		piece(xsk.OptionContinues)
		eventually(t, "half a frame", func() bool { return r.Audit().Batch == 1 })
		n, err := h.StateLen()
		r.must(err)
		state := make([]byte, n)
		r.Freeze(state, func() {})
		if c := census(r.Engine.places); c.Batch != 1 || c.Handoff != 0 {
			t.Errorf("%d workers: frozen with %+v", workers, c)
		}
		piece(0) // its other half
		send(30) // nobody looks
		_, err = e.Adopt(h, state, yes, yes)
		r.must(err)
		r.dismiss()
		send(20)

		var got, out []uint16
		all := int(next) - 1
		eventually(t, "all frames out", func() bool {
			for _, f := range b.Sent() {
				got = append(got, binary.BigEndian.Uint16(udpOf(f)[2:]))
			}
			for _, f := range up.Sent() {
				out = append(out, binary.BigEndian.Uint16(udpOf(f[srv6.BaseOverhead:])[2:]))
			}
			return len(got) >= all && len(out) >= all
		})
		for _, ports := range [][]uint16{got, out} {
			if len(ports) != all || !slices.IsSorted(ports) || ports[0] != 1 || ports[all-1] != uint16(all) {
				t.Errorf("%d workers: %d frames in this order: %v", workers, all, ports)
			}
		}
		// What was counted before goes on; the long frame is one more. A worker
		// counts after it has sent.
		want := uint64(2*all + 1)
		var c Counters
		eventually(t, "every frame's verdict", func() bool {
			c = e.Counters(r.portA.Index())
			return c.RX >= want && c.Unaccounted() == 0
		})
		if c.RX != want {
			t.Errorf("%d workers: %d frames received, want %d", workers, c.RX, want)
		}
		if c := e.Audit(); c.Batch != 0 {
			t.Errorf("%d workers: the half frame: %+v", workers, c)
		}
		up.Release(false)
		eventually(t, "completions", func() bool { return e.Audit().TX == 0 })
		if c := e.Audit(); c.Total() != len(e.places) || c.Batch != 0 || c.Handoff != 0 {
			t.Errorf("%d workers: %+v of %d frames", workers, c, len(e.places))
		}
		r.must(e.Stop())
	}
}

// Frames nobody holds are taken over in the order in which a new engine has them.
func TestFreeFramesComeAsInANewEngine(t *testing.T) {
	e, err := New(Config{Workers: 1, MaxPorts: 2, PortsPerShard: 2, ChunksPerShard: 256, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(e.shards[0].free)
	e.takePlaces(make([]byte, 4*len(e.places)), nil)
	if !slices.Equal(e.shards[0].free, want) {
		t.Errorf("free frames %v, want %v", e.shards[0].free, want)
	}
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
}

// The memory of a cold start is taken once a socket is with its worker, not before.
func TestMemoryIsTakenAfterTheFirstSocket(t *testing.T) {
	e, err := New(Config{Workers: 1, MaxPorts: 2, PortsPerShard: 2, ChunksPerShard: 256, UplinkQueues: []int{1}, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	if e.touched != nil {
		t.Error("taken before there is a socket")
	}
	at, err := e.Place()
	if err != nil {
		t.Fatal(err)
	}
	xs, _ := xsktest.New(t, e.Memory(), e.Memory().Shard(at.Shard), xsk.Options{})
	if err := e.AddPort(1, 0, at, xs); err != nil {
		t.Fatal(err)
	}
	if e.touched == nil {
		t.Error("not taken")
	}
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
}

// A worker whose thread had no turn before the others were let go still says when it
// began.
func TestWorkerLateForTheHold(t *testing.T) {
	e, err := New(Config{Workers: 2, MaxPorts: 2, PortsPerShard: 2, ChunksPerShard: 256, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	e.hold()
	e.release()
	if err := e.launch(); err != nil {
		t.Fatal(err)
	}
	e.started = true
	for i := range e.workers {
		select {
		case <-e.began:
		case <-time.After(10 * time.Second):
			t.Fatalf("%d of %d workers said that they began", i, len(e.workers))
		}
	}
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
}

// What does not fit is refused, and nothing in a state can lead out of a table.
func FuzzState(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 255, 255, 255, 3}, uint16(0))
	f.Add([]byte{2, 20, 1}, uint16(4*256*9))
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		c := Config{Workers: 1, MaxPorts: 2, PortsPerShard: 2, ChunksPerShard: 256, NUMANode: -1}
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Stop()
		h := &Handover{Config: e.config, Cells: numCells, Counted: counted()}
		for i := range 2 {
			s := HandoverSocket{Slot: i, Port: i + 1, Uplink: -1}
			if !e.fits(&s) {
				t.Fatal("does not fit")
			}
			xs, _ := xsktest.New(t, e.Memory(), e.Memory().Shard(0), xsk.Options{})
			if err := e.reserve(&s, xs); err != nil {
				t.Fatal(err)
			}
			h.Sockets = append(h.Sockets, s)
		}
		n, err := h.StateLen()
		if err != nil {
			t.Fatal(err)
		}
		state := make([]byte, n)
		if int(at) < n {
			copy(state[at:], data)
		}
		if _, err := e.readState(h, state); err == nil {
			if got := census(e.places).Total(); got != len(e.places) {
				t.Errorf("%d frames of %d", got, len(e.places))
			}
		} else if !errors.Is(err, ErrHandover) {
			t.Error(err)
		}
		if _, err := e.readState(h, state[:n-1]); !errors.Is(err, ErrHandover) {
			t.Errorf("a short state: %v", err)
		}
	})
}

// A prepared engine that does not get the frames leaves everything as it was.
func TestAbandonTouchesNothing(t *testing.T) {
	r := bareRig(t, Config{Workers: 2, UplinkQueues: []int{1}})
	a, b := r.kernels[r.portA], r.kernels[r.portB]
	fd, err := unix.FcntlInt(uintptr(r.Memory().FD()), unix.F_DUPFD_CLOEXEC, 0)
	r.must(err)
	o, err := r.config.MemoryOptions()
	r.must(err)
	mem, err := xsk.MemoryFromFD(fd, o)
	r.must(err)
	h, _ := r.Offer()
	h.Sockets = nil // these are no real ones
	e, err := Prepare(r.config, h, mem, nil)
	r.must(err)
	gone := errors.New("gone")
	fail := func() error { return gone }
	if _, err := e.Adopt(h, nil, fail, yes); !errors.Is(err, gone) {
		t.Errorf("the older one is gone: %v", err)
	}

	offered, _ := r.Offer()
	n, err := offered.StateLen()
	r.must(err)
	state := make([]byte, n)
	written := make(chan struct{})
	resume := r.Freeze(state, func() { close(written) })
	wait := func() error { <-written; return nil }
	if _, err := e.Adopt(h, state, wait, fail); !errors.Is(err, gone) {
		t.Errorf("the frames are the older one's: %v", err)
	}
	r.must(e.Abandon())
	for _, f := range families {
		r.deliver(a, udpTo(t, macB, f.b, 7))
	}
	time.Sleep(time.Millisecond)
	if got := b.Sent(); len(got) != 0 {
		t.Errorf("%d frames while frozen", len(got))
	}
	resume()
	waited := map[byte]int{}
	eventually(t, "the frames that waited", func() bool {
		for _, f := range b.Sent() {
			waited[f[12]]++
		}
		return waited[0x08] == 1 && waited[0x86] == 1
	})
	if c := r.Audit(); c.Total() != len(r.Engine.places) {
		t.Errorf("%+v", c)
	}
	r.must(r.Stop())

	if _, err := Prepare(r.config, offered, r.Memory(), nil); !errors.Is(err, ErrHandover) {
		t.Errorf("sockets without descriptors: %v", err)
	}
}

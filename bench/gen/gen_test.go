package gen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/testnet"
)

func TestMain(m *testing.M) { os.Exit(testnet.Main(m)) }

const patience = 20 * time.Second

// rig is a veth pair: a source at src, a sink at dst.
type rig struct {
	from, to *testnet.NS
	src, dst int
}

func newRig(t testing.TB, queues int) *rig {
	t.Helper()
	r := &rig{from: testnet.New(t, "from"), to: testnet.New(t, "to")}
	for _, ns := range []*testnet.NS{r.from, r.to} {
		ns.Sysctl(t, "net.ipv6.conf.default.disable_ipv6", "1")
	}
	testnet.Veth(t,
		testnet.End{NS: r.from, Name: "src", Queues: queues},
		testnet.End{NS: r.to, Name: "dst", Queues: queues})
	r.src = r.from.Link(t, "src").Attrs().Index
	r.dst = r.to.Link(t, "dst").Attrs().Index
	return r
}

func udp4(size, flows int) UDP {
	return UDP{
		SrcMAC: packet.MAC{2, 0, 0, 0, 0, 1}, DstMAC: packet.MAC{2, 0, 0, 0, 0, 2},
		Src: netip.MustParseAddrPort("10.0.0.1:1000"), Dst: netip.MustParseAddrPort("10.0.0.2:2000"),
		Size: size, Flows: flows,
	}
}

func udp6(size, flows int) UDP {
	u := udp4(size, flows)
	u.Src, u.Dst = netip.MustParseAddrPort("[fd00::1]:1000"), netip.MustParseAddrPort("[fd00::2]:2000")
	return u
}

func options(t testing.TB, u UDP) Options {
	t.Helper()
	o, err := u.Options()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (r *rig) sink(t testing.TB, o SinkOptions) *Sink {
	t.Helper()
	var s *Sink
	err := r.to.Do(func() (err error) { s, err = NewSink(r.dst, o); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// sources are the kinds of source.
var sources = map[string]func(int, Options) (Source, error){
	"kernel": func(i int, o Options) (Source, error) { return New(i, o) },
	"socket": func(i int, o Options) (Source, error) { return NewSocket(i, o) },
	"ring":   func(i int, o Options) (Source, error) { return NewRing(i, o) },
}

func (r *rig) source(t testing.TB, kind string, o Options) Source {
	t.Helper()
	var s Source
	err := r.from.Do(func() (err error) { s, err = sources[kind](r.src, o); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func send(t testing.TB, s Source, l Load) Result {
	t.Helper()
	r, err := s.Run(context.Background(), l)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantFrames(t testing.TB, s *Sink, n uint64) Counts {
	t.Helper()
	var c Counts
	testnet.Eventually(t, patience, "frames at the sink", func() (err error) {
		if c, err = s.Counts(); err == nil && c.Frames != n {
			err = fmt.Errorf("%d of %d", c.Frames, n)
		}
		return err
	})
	return c
}

func TestEveryFrameArrivesInOrder(t *testing.T) {
	for kind := range sources {
		t.Run(kind, func(t *testing.T) {
			const flows, count = 7, 10_000
			r := newRig(t, 1)
			o := options(t, udp4(60, flows))
			sink := r.sink(t, SinkOptions{Stamp: o.Stamp, Flows: flows})
			source := r.source(t, kind, o)
			if got := send(t, source, Load{Count: count}); got.Frames != count {
				t.Errorf("sent %d, want %d", got.Frames, count)
			}
			if c := wantFrames(t, sink, count); c.Bytes != count*60 || c.Others != 0 {
				t.Errorf("counts %+v", c)
			}
			got, err := sink.Flows()
			if err != nil {
				t.Fatal(err)
			}
			for i, f := range got {
				n := uint64(count / flows)
				if i < count%flows {
					n++
				}
				if want := (Flow{Frames: n, Next: n, Queues: 1}); f != want {
					t.Errorf("flow %d: %+v, want %+v", i, f, want)
				}
			}
			if s := Summarize(got); s.Flows != flows || s.Lost+s.Late+s.Duplicate+s.Stale != 0 || s.Queues != 1 || s.FramesByQueue[0] != count {
				t.Errorf("summary %+v", s)
			}
		})
	}
}

// What the sink tells of frames that come in this order.
func TestSinkFollowsTheSequence(t *testing.T) {
	r := newRig(t, 1)
	o := options(t, udp4(60, 1))
	sink := r.sink(t, SinkOptions{Stamp: o.Stamp, Flows: 1})
	socket := r.source(t, "socket", o).(*Socket)
	for _, seq := range []uint64{0, 1, 3, 2, 2, 5, 200, 100, 137, 137} {
		socket.sequence = seq
		send(t, socket, Load{Count: 1})
	}
	wantFrames(t, sink, 10)
	flows, err := sink.Flows()
	if err != nil {
		t.Fatal(err)
	}
	// Late: 2 and 137; twice: 2 and 137; 100 is too far behind 200 to say.
	want := Flow{Frames: 10, Next: 201, Late: 2, Duplicate: 2, Stale: 1, Queues: 1}
	if flows[0] != want {
		t.Errorf("flow %+v, want %+v", flows[0], want)
	}
	if lost := flows[0].Lost(); lost != 201-8 {
		t.Errorf("lost %d, want %d", lost, 201-8)
	}
}

func TestSinkPassesFramesWithoutAStamp(t *testing.T) {
	r := newRig(t, 1)
	o := options(t, udp4(60, 1))
	sink := r.sink(t, SinkOptions{Stamp: o.Stamp})
	o.Stamp, o.Fields = 0, nil
	send(t, r.source(t, "kernel", o), Load{Count: 10})
	testnet.Eventually(t, patience, "frames passed on", func() error {
		if c, err := sink.Counts(); err != nil || c.Others != 10 || c.Frames != 0 {
			return fmt.Errorf("%+v, %v", c, err)
		}
		return nil
	})
}

// All sources write the same frames, with valid checksums. The receiver is a
// packet socket behind an end that receives in NAPI by GRO alone.
func TestFramesAreValidAndTheSameFromAllSources(t *testing.T) {
	for name, u := range map[string]UDP{"IPv4": udp4(60, 3), "IPv6": udp6(90, 3), "IPv4 long": udp4(1514, 3)} {
		t.Run(name, func(t *testing.T) {
			o := options(t, u)
			o.Refresh = true
			// The last bytes of the destination address count too, in IPv6.
			if u.Src.Addr().Is6() {
				o.Fields = append(o.Fields, Field{Offset: 52, Base: 0xfffe, Summed: true})
			}
			o.Fields = append(o.Fields, Field{Offset: 10, Base: 0x0100}) // source MAC
			var got [3][][]byte
			for i, kind := range []string{"kernel", "socket", "ring"} {
				r := newRig(t, 1)
				r.to.Run(t, func() {
					if err := ReceiveInNAPI("dst"); err != nil {
						t.Fatal(err)
					}
				})
				capture := packetSocket(t, r)
				send(t, r.source(t, kind, o), Load{Count: 200})
				got[i] = receive(t, capture, 200)
			}
			for i := range got[0] {
				if !bytes.Equal(got[0][i], got[1][i]) || !bytes.Equal(got[0][i], got[2][i]) {
					t.Fatalf("frame %d: kernel %x\nsocket %x\nring %x", i, got[0][i], got[1][i], got[2][i])
				}
				checkUDP(t, got[0][i])
			}
			if bytes.Equal(got[0][0], got[0][1]) || bytes.Equal(got[0][0], got[0][3]) {
				t.Error("frames of other flows or sequence numbers are the same")
			}
		})
	}
}

func checkUDP(t *testing.T, f []byte) {
	t.Helper()
	var l packet.Layout
	if !packet.Parse(f, &l) || l.Proto != 17 || l.L4 == 0 {
		t.Fatalf("no UDP frame: %x", f)
	}
	udp := f[l.L4:]
	var pseudo uint64
	if l.EtherType == 0x0800 {
		ip := packet.IPv4(f[l.L3:])
		if packet.Fold(packet.Sum(ip[:20])) != 0xffff {
			t.Errorf("IPv4 header checksum: %x", f)
		}
		pseudo = packet.Add(packet.Sum(ip[12:20]), uint64(17+len(udp)))
	} else {
		pseudo = packet.Add(packet.Sum(f[l.L3+8:l.L3+40]), uint64(17+len(udp)))
	}
	if sum := packet.Fold(packet.Add(pseudo, packet.Sum(udp))); sum != 0xffff {
		t.Errorf("UDP checksum sums to %#x: %x", sum, f)
	}
}

func packetSocket(t *testing.T, r *rig) int {
	t.Helper()
	fd := -1
	r.to.Run(t, func() {
		var err error
		const all = unix.ETH_P_ALL << 8 // in network order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all); err != nil {
			t.Fatal(err)
		}
		// A live frame counts as a whole page, so the default holds about 50.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: r.dst}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func receive(t *testing.T, fd, n int) (frames [][]byte) {
	t.Helper()
	buf := make([]byte, 4096)
	testnet.Eventually(t, patience, "captured frames", func() error {
		for len(frames) < n {
			size, _, err := unix.Recvfrom(fd, buf, 0)
			if errors.Is(err, unix.EAGAIN) {
				return fmt.Errorf("%d of %d", len(frames), n)
			}
			if err != nil {
				t.Fatal(err)
			}
			frames = append(frames, bytes.Clone(buf[:size]))
		}
		return nil
	})
	return frames
}

// The trap that ReceiveInNAPI is for: frames to an end without NAPI vanish.
func TestControlWithoutNAPINothingArrives(t *testing.T) {
	r := newRig(t, 1)
	capture := packetSocket(t, r)
	source := r.source(t, "kernel", options(t, udp4(60, 1)))
	send(t, source, Load{Count: 100})
	if _, _, err := unix.Recvfrom(capture, make([]byte, 64), 0); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a frame arrived (%v); then ReceiveInNAPI is not needed any more", err)
	}
	r.to.Run(t, func() {
		if err := ReceiveInNAPI("dst"); err != nil {
			t.Fatal(err)
		}
	})
	send(t, source, Load{Count: 100})
	receive(t, capture, 100)
}

func TestLoadEnds(t *testing.T) {
	r := newRig(t, 1)
	o := options(t, udp4(60, 1))
	sink := r.sink(t, SinkOptions{Stamp: o.Stamp})
	source := r.source(t, "kernel", o)
	byTime := send(t, source, Load{Duration: 20 * time.Millisecond})
	if byTime.Frames == 0 || byTime.Elapsed < 20*time.Millisecond {
		t.Errorf("by duration: %+v", byTime)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	byContext, err := source.Run(ctx, Load{})
	if err != nil || byContext.Frames == 0 {
		t.Errorf("by context: %+v, %v", byContext, err)
	}
	byRate := send(t, source, Load{Count: 500, Rate: 10_000})
	if byRate.Frames != 500 || byRate.Elapsed < 49*time.Millisecond {
		t.Errorf("500 frames at 10,000 a second took %v", byRate.Elapsed)
	}
	wantFrames(t, sink, byTime.Frames+byContext.Frames+byRate.Frames)
}

func TestOptionsAreChecked(t *testing.T) {
	good := options(t, udp4(60, 1))
	for name, spoil := range map[string]func(*Options){
		"runt":           func(o *Options) { o.Frame = o.Frame[:13] },
		"giant":          func(o *Options) { o.Frame = make([]byte, 4000) },
		"odd stamp":      func(o *Options) { o.Stamp++ },
		"stamp past end": func(o *Options) { o.Stamp = 46 },
		"odd field":      func(o *Options) { o.Fields = []Field{{Offset: 35}} },
		"field past end": func(o *Options) { o.Fields = []Field{{Offset: 60}} },
		"five fields":    func(o *Options) { o.Fields = make([]Field, 5) },
		"batch":          func(o *Options) { o.Batch = 257 },
	} {
		o := good
		spoil(&o)
		if err := o.validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := udp4(57, 1).Options(); err == nil {
		t.Error("a UDP frame too short for the stamp: accepted")
	}
}

// BenchmarkSourceToSink: frames a second, veth to sink, one core.
func BenchmarkSourceToSink(b *testing.B) {
	for _, c := range []struct {
		name, kind string
		flows      int
		check      bool
	}{
		{"kernel/template", "kernel", 0, false},
		{"kernel/stamped/64flows", "kernel", 64, false},
		{"kernel/stamped/64flows/checked", "kernel", 64, true},
		{"socket/stamped/64flows", "socket", 64, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b, 1)
			o := options(b, udp4(60, max(c.flows, 1)))
			so := SinkOptions{Stamp: o.Stamp}
			if c.check {
				so.Flows = c.flows
			}
			if c.flows == 0 {
				o.Stamp, o.Fields, so.Stamp = 0, nil, 0
			}
			sink, source := r.sink(b, so), r.source(b, c.kind, o)
			b.ResetTimer()
			result := send(b, source, Load{Count: uint64(b.N)})
			b.StopTimer()
			counts, err := sink.Counts()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(result.PerSecond()/1e6, "Mpps-sent")
			b.ReportMetric(float64(counts.Frames)/result.Elapsed.Seconds()/1e6, "Mpps-arrived")
		})
	}
}

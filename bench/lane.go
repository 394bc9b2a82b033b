package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"picot.dev/picot/bench/gen"
)

// The CPUs of a benchmark.
const (
	sourceCPU  = 0
	forwardCPU = 1
)

// A forwarder carries frames from device A to device B of its namespace.
type forwarder interface {
	// Resume makes it ready to carry frames; Pause makes it leave the CPU to
	// others.
	Resume() error
	Pause() error
	// Sent is how many frames it gave to B's device so far, less those the
	// device refused; ok is false if it cannot tell.
	Sent() (n uint64, ok bool, err error)
	Close() error
}

// lane is a source, a forwarder and a sink on veths of their own.
type lane struct {
	name    string
	forward forwarder
	source  gen.Source
	sink    *gen.Sink
	spaces  []*space
}

// wires are the devices of a lane: source -> in | forwarder | out -> sink.
type wires struct {
	number             int
	from, host, to     *space
	source, in         string
	out, sink          string
	inIndex, outIndex  int
	sourceIfx, sinkIfx int
}

// wire makes the three namespaces and two veths of a lane.
func wire(number int) (w wires, err error) {
	w = wires{
		number: number,
		source: uniqueName(number, "s"), in: uniqueName(number, "a"), out: uniqueName(number, "b"), sink: uniqueName(number, "k"),
	}
	for _, s := range []**space{&w.from, &w.host, &w.to} {
		if *s, err = newSpace(); err != nil {
			return w, errors.Join(err, w.close())
		}
	}
	err = errors.Join(
		pair(end{in: w.from, name: w.source}, end{in: w.host, name: w.in, mac: macIn}),
		pair(end{in: w.host, name: w.out, mac: macOut}, end{in: w.to, name: w.sink, mac: macSink}))
	if err != nil {
		return w, errors.Join(err, w.close())
	}
	for _, i := range []struct {
		s    *space
		name string
		to   *int
	}{{w.from, w.source, &w.sourceIfx}, {w.host, w.in, &w.inIndex}, {w.host, w.out, &w.outIndex}, {w.to, w.sink, &w.sinkIfx}} {
		if *i.to, err = i.s.index(i.name); err != nil {
			return w, errors.Join(err, w.close())
		}
	}
	return w, nil
}

func (w *wires) close() error {
	var err error
	for _, s := range []*space{w.from, w.host, w.to} {
		if s != nil {
			err = errors.Join(err, s.close())
		}
	}
	return err
}

// newLane puts a source and a sink to a forwarder. A lane that reflects has
// its sink where the source is.
func newLane(name string, w wires, forward forwarder, frames gen.Options, stampAtSink int, reflects bool) (*lane, error) {
	l := &lane{name: name, forward: forward, spaces: []*space{w.from, w.host, w.to}}
	at, ifindex := w.to, w.sinkIfx
	if reflects {
		at, ifindex = w.from, w.sourceIfx
	}
	err := at.do(func() (err error) {
		l.sink, err = gen.NewSink(ifindex, gen.SinkOptions{Stamp: stampAtSink})
		return err
	})
	if err == nil {
		err = w.from.do(func() (err error) {
			l.source, err = gen.New(w.sourceIfx, frames)
			return err
		})
	}
	if err == nil {
		err = forward.Pause()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), l.close())
	}
	return l, nil
}

func (l *lane) close() error {
	var err error
	if l.source != nil {
		err = l.source.Close()
	}
	err = errors.Join(err, l.forward.Close())
	if l.sink != nil {
		err = errors.Join(err, l.sink.Close())
	}
	for _, s := range l.spaces {
		err = errors.Join(err, s.close())
	}
	if err != nil {
		err = fmt.Errorf("take down %s: %w", l.name, err)
	}
	return err
}

// sample is one run of a lane.
type sample struct {
	offered   uint64 // by the source
	delivered uint64 // at the sink
	elapsed   time.Duration
	cpu       time.Duration // of all cores, for this lane
	core      time.Duration // of the forwarder's threads
	lost      int64         // sent by the forwarder and not at the sink
}

func (s sample) perSecond() float64 { return float64(s.delivered) / s.elapsed.Seconds() }

// nanosecondsEach is the CPU time of all cores per delivered frame.
func (s sample) nanosecondsEach() float64 {
	if s.delivered == 0 {
		return 0
	}
	return float64(s.cpu.Nanoseconds()) / float64(s.delivered)
}

// errNothingArrived makes a benchmark fail rather than divide by nothing.
var errNothingArrived = errors.New("nothing arrived at the sink")

// run sends the load through the lane.
func (l *lane) run(ctx context.Context, load gen.Load) (s sample, err error) {
	if err := l.forward.Resume(); err != nil {
		return s, fmt.Errorf("%s: %w", l.name, err)
	}
	defer func() { err = errors.Join(err, l.forward.Pause()) }()
	before, err := l.sink.Counts()
	if err != nil {
		return s, err
	}
	sentBefore, _, err := l.forward.Sent()
	if err != nil {
		return s, fmt.Errorf("%s: %w", l.name, err)
	}
	cpu, core := processTime(), coreTime()
	result, err := onCPU(sourceCPU, func() (gen.Result, error) { return l.source.Run(ctx, load) })
	s.cpu, s.core = processTime()-cpu, coreTime()-core
	if err != nil {
		return s, fmt.Errorf("%s: %w", l.name, err)
	}
	s.elapsed, s.offered = result.Elapsed, result.Frames
	// What is under way arrives within milliseconds.
	deadline := time.Now().Add(2 * time.Second)
	for {
		after, err := l.sink.Counts()
		if err != nil {
			return s, err
		}
		sent, known, err := l.forward.Sent()
		if err != nil {
			return s, fmt.Errorf("%s: %w", l.name, err)
		}
		frames := after.Frames - before.Frames
		settled := frames == s.delivered && frames > 0
		s.delivered, s.lost = frames, 0
		if known {
			s.lost = int64(sent-sentBefore) - int64(frames)
		}
		if settled && s.lost == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if s.delivered == 0 {
		return s, fmt.Errorf("%s: %w, %d frames offered", l.name, errNothingArrived, s.offered)
	}
	return s, nil
}

// onCPU runs f on a thread of its own bound to a CPU.
func onCPU[T any](cpu int, f func() (T, error)) (T, error) {
	type out struct {
		v   T
		err error
	}
	done := make(chan out)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its affinity
		var o out
		if o.err = pin(0, cpu); o.err == nil {
			o.v, o.err = f()
		}
		done <- o
	}()
	o := <-done
	return o.v, o.err
}

// duel has two lanes take turns, A B, B A, A B, and returns their samples.
func duel(ctx context.Context, pairs int, a, b *lane, load gen.Load) (as, bs []sample, err error) {
	// One short run each first, so that neither begins with cold caches.
	for _, l := range []*lane{a, b} {
		if _, err := l.run(ctx, gen.Load{Duration: min(load.Duration, 50*time.Millisecond), Rate: load.Rate}); err != nil {
			return nil, nil, err
		}
	}
	for i := range pairs {
		order := []*lane{a, b}
		if i%2 == 1 {
			order = []*lane{b, a}
		}
		for _, l := range order {
			s, err := l.run(ctx, load)
			if err != nil {
				return nil, nil, err
			}
			if ctx.Err() != nil {
				return nil, nil, ctx.Err()
			}
			if l == a {
				as = append(as, s)
			} else {
				bs = append(bs, s)
			}
		}
	}
	return as, bs, nil
}

// perCore is the rate by the time the forwarder really had its CPU.
func (s sample) perCore() float64 {
	if s.core <= 0 {
		return 0
	}
	return float64(s.delivered) / s.core.Seconds()
}

func rates(s []sample) []float64 { return collect(s, sample.perSecond) }

func costs(s []sample) []float64 { return collect(s, sample.nanosecondsEach) }

func collect(s []sample, f func(sample) float64) []float64 {
	v := make([]float64, len(s))
	for i := range s {
		v[i] = f(s[i])
	}
	return v
}

// accounted says what did not arrive of what the forwarders say they sent.
func accounted(samples ...[]sample) string {
	var lost int64
	var delivered uint64
	for _, list := range samples {
		for _, s := range list {
			lost += s.lost
			delivered += s.delivered
		}
	}
	if lost == 0 {
		return fmt.Sprintf("all %d sent arrived", delivered)
	}
	return fmt.Sprintf("%d of %d sent did not arrive", lost, int64(delivered)+lost)
}

// byCore is the ratio by the time the forwarders really had their CPU: on a
// busy machine nearer to the truth than the rates are.
func byCore(a, b []sample) string {
	f := spreadOf(ratios(collect(a, sample.perCore), collect(b, sample.perCore)))
	return fmt.Sprintf("%.3f [%.3f..%.3f] by CPU time of the forwarder; ", f.Median, f.Min, f.Max)
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/bench/gen"
	"picot.dev/picot/internal/control"
)

// upgradePairs is how many ports send to as many others: each in a shard of its
// own.
const upgradePairs = 4

// settle is how long an agent has run that is taken over.
const settle = 3 * time.Second

// benchUpgrade has a real agent taken over again and again under load. Each
// frame has its number: what is lost or comes twice is seen.
func benchUpgrade(ctx context.Context, s *session) (err error) {
	name := fmt.Sprintf("%d upgrades at %d frames/s through %d ports", s.upgrades, s.upgradeRate, 2*upgradePairs)
	if s.Binary == "" {
		s.add(skipped("upgrade", name, "the program's own file is not known"))
		return nil
	}
	a, err := newLiveAgent(s, 2*upgradePairs, "--cpus", strconv.Itoa(forwardCPU))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	p, err := a.start(ctx)
	if err != nil {
		return err
	}
	if err := a.attached(a.ports); err != nil {
		return err
	}
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	st, err := a.stream(upgradePairs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	s.setup("upgrade: 64-byte frames from %d ports to as many others, each in its own shard, %d a second together; a new process of the same binary takes over, the older one ends, then the next", upgradePairs, s.upgradeRate)

	// First without: what the machine itself loses. Then with.
	ports, err := a.streamThrough(ctx, st, s.upgradeRate, func() error { return sleep(ctx, 2*s.Duration) })
	if err != nil {
		return err
	}
	alone := ports
	ports, err = a.streamThrough(ctx, st, s.upgradeRate, func() error {
		for range s.upgrades {
			next, err := a.start(ctx, "--takeover")
			if err != nil {
				return err
			}
			select {
			case <-p.ended:
			case <-next.ended:
				return fmt.Errorf("the newer agent ended: %w; its log: %s", next.err, a.log.tail())
			case <-time.After(30 * time.Second):
				return fmt.Errorf("no takeover within 30 s; the log: %s", a.log.tail())
			}
			if err := a.reap(p); err != nil {
				return err
			}
			p = next
			if err := sleep(ctx, s.Duration/2); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	pauses, err := a.pauses()
	if err != nil {
		return err
	}
	if len(pauses) != s.upgrades {
		return fmt.Errorf("%d takeovers in the log, want %d: %s", len(pauses), s.upgrades, a.log.tail())
	}
	spread := spreadOf(pauses)
	goal := atMost(5)
	r := single("upgrade", name+": pause", "ms", spread, goal)
	r.Outcome = goal.judge(spread.Max) // every one
	r.Note = "the goal is for the longest"
	s.add(r)
	bad := float64(ports.bad())
	r = single("upgrade", name+": frames lost, twice or late", "frames", spreadOf([]float64{bad}), atMost(0))
	if alone.bad() > 0 && bad > 0 {
		r.Outcome = NotMeaningful
	}
	r.Note = fmt.Sprintf("%s; without upgrades %s", ports, alone)
	s.add(r)
	return nil
}

var pausePattern = regexp.MustCompile(`msg="took over".* pause=(\S+)`)

// pauses are what the log says of takeovers, in ms.
func (a *liveAgent) pauses() (ms []float64, err error) {
	for _, m := range pausePattern.FindAllStringSubmatch(a.log.String(), -1) {
		d, err := time.ParseDuration(m[1])
		if err != nil {
			return nil, fmt.Errorf("the agent's log: pause %q: %w", m[1], err)
		}
		ms = append(ms, float64(d.Microseconds())/1000)
	}
	return ms, nil
}

// stream is numbered frames from some ports of a liveAgent to as many others.
type stream struct {
	sources []*gen.Ring
	sinks   []*gen.Sink
}

// stream makes sources in the first ports and sinks in the next ones.
func (a *liveAgent) stream(pairs int) (st *stream, err error) {
	st = &stream{}
	defer func() {
		if err != nil {
			st, err = nil, errors.Join(err, st.close())
		}
	}()
	for i := range pairs {
		to := pairs + i
		o, err := gen.UDP{SrcMAC: portMAC(i), DstMAC: portMAC(to), Src: portAddr(i), Dst: portAddr(to), Size: frameSize}.Options()
		if err != nil {
			return st, err
		}
		fromIndex, err := a.pods.index(portName(i))
		if err != nil {
			return st, err
		}
		toIndex, err := a.pods.index(portName(to))
		if err != nil {
			return st, err
		}
		err = a.pods.do(func() error {
			source, err := gen.NewRing(fromIndex, o)
			if err != nil {
				return err
			}
			st.sources = append(st.sources, source)
			sink, err := gen.NewSink(toIndex, gen.SinkOptions{Stamp: o.Stamp, Flows: 1})
			if err == nil {
				st.sinks = append(st.sinks, sink)
			}
			return err
		})
		if err != nil {
			return st, err
		}
	}
	return st, nil
}

func (st *stream) close() error {
	var err error
	for _, s := range st.sources {
		err = errors.Join(err, s.Close())
	}
	for _, s := range st.sinks {
		err = errors.Join(err, s.Close())
	}
	return err
}

// pour sends at a rate, all ports together, until ctx ends. Steady like a wire: a
// few frames every 100 us, asleep in between, for a source that spins at its
// priority takes a CPU whole, and whatever else belongs there, such as the end of
// an agent, waits for seconds. If the source itself was held up, what it is behind
// is not made up for by a burst or by its sleep, but missing from the rate.
func (st *stream) pour(ctx context.Context, rate int) (r gen.Result, err error) {
	const tick, rest = 100 * time.Microsecond, 25 * time.Microsecond
	each := float64(rate) * tick.Seconds() / float64(len(st.sources))
	start := time.Now()
	last := start
	due := 0.0
	for ctx.Err() == nil {
		t := unix.NsecToTimespec(int64(max(rest, tick-time.Since(last))))
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &t, nil) // too short does no harm
		now := time.Now()
		due = min(due+each*float64(now.Sub(last))/float64(tick), 4*each+1)
		last = now
		n := uint64(due)
		due -= float64(n)
		if n == 0 {
			continue
		}
		for _, s := range st.sources {
			sent, err := s.Run(ctx, gen.Load{Count: n})
			r.Frames += sent.Frames
			if err != nil {
				return r, err
			}
		}
	}
	r.Elapsed = time.Since(start)
	return r, nil
}

// passage is what became of the frames of one time.
type passage struct {
	sent, rate              uint64 // rate: that was really offered
	arrived, twice, late    uint64
	rxDropped, ringFull     uint64 // of all sockets: the device had a frame and no place for it
	fillEmpty, otherReasons uint64
}

// bad is how many frames did not arrive, or arrived twice.
func (p passage) bad() uint64 { return p.sent - min(p.sent, p.arrived) + p.twice + p.late }

func (p passage) String() string {
	return fmt.Sprintf("%d sent at %d/s, %d lost, %d twice, %d late, rx_dropped %d, ring_full %d, fill_empty %d, dropped by picot %d",
		p.sent, p.rate, p.sent-min(p.sent, p.arrived), p.twice, p.late, p.rxDropped, p.ringFull, p.fillEmpty, p.otherReasons)
}

// streamThrough sends at a rate while during runs, and waits until what was sent
// has arrived or will not.
func (a *liveAgent) streamThrough(ctx context.Context, st *stream, rate int, during func() error) (p passage, err error) {
	before, err := a.passed(ctx, st)
	if err != nil {
		return p, err
	}
	run, stop := context.WithCancel(ctx)
	type result struct {
		gen.Result
		err error
	}
	done := make(chan result)
	go func() {
		r, err := onCPU(sourceCPU, func() (gen.Result, error) { return st.pour(run, rate) })
		done <- result{r, err}
	}()
	derr := during()
	stop()
	r := <-done
	if err := errors.Join(derr, r.err); err != nil {
		return p, err
	}
	sent, perSecond := r.Frames, uint64(r.PerSecond())
	var after passage
	// What is under way arrives within milliseconds.
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if after, err = a.passed(ctx, st); err != nil {
			return p, err
		}
		if after.arrived-before.arrived >= sent || time.Now().After(deadline) {
			break
		}
	}
	return passage{
		sent: sent, rate: perSecond, arrived: after.arrived - before.arrived, twice: after.twice - before.twice, late: after.late - before.late,
		rxDropped: after.rxDropped - before.rxDropped, ringFull: after.ringFull - before.ringFull, fillEmpty: after.fillEmpty - before.fillEmpty,
		otherReasons: after.otherReasons,
	}, nil
}

// passed reads the counters of sinks and sockets. The sockets' go on from one
// process to the next, drop reasons begin anew.
func (a *liveAgent) passed(ctx context.Context, st *stream) (p passage, err error) {
	for _, sink := range st.sinks {
		flows, err := sink.Flows()
		if err != nil {
			return p, err
		}
		f := flows[0]
		p.arrived += f.Frames - f.Duplicate
		p.twice += f.Duplicate
		p.late += f.Late + f.Stale
	}
	state, err := control.Status(ctx, filepath.Join(a.dir, "run"))
	if err != nil {
		return p, fmt.Errorf("ask the agent: %w", err)
	}
	for _, port := range state.Ports {
		p.rxDropped += port.Socket.RXDropped
		p.ringFull += port.Socket.RingFull
		p.fillEmpty += port.Socket.FillEmpty
		for _, n := range port.Drops {
			p.otherReasons += n
		}
	}
	return p, nil
}

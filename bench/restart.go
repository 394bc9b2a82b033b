package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/bench/gen"
)

// benchRestart kills a real agent while frames go from port to port, starts it
// again and measures how long after that the first frame arrives, and the first
// one out of the last port.
func benchRestart(ctx context.Context, s *session) (err error) {
	ports := s.livePorts
	name := fmt.Sprintf("killed agent with %d ports, process start to the first frame", ports)
	if s.Binary == "" {
		s.add(skipped("restart", name, "the program's own file is not known"))
		return nil
	}
	a, err := newLiveAgent(s, ports)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	p, err := a.start(ctx)
	if err != nil {
		return err
	}
	if err := a.attached(ports); err != nil {
		return err
	}
	f, err := a.flood()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if _, err := f.firsts(20*time.Second, func() {}); err != nil {
		return fmt.Errorf("before the kill: %w; the agent's log: %s", err, a.log.tail())
	}
	s.setup("restart: %d ports, a frame a millisecond and more from every second one to its neighbour; SIGKILL, and a new agent at once. Its program's pins are there, nothing else", ports)
	var first, all, cpus []float64
	for range max(3, s.Pairs) {
		if err := a.end(p, unix.SIGKILL); err != nil {
			return err
		}
		// What was under way when it died has arrived.
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		began := time.Now()
		if err := f.again(); err != nil {
			return err
		}
		if p, err = a.start(ctx); err != nil {
			return err
		}
		var cpu time.Duration
		came, err := f.firsts(20*time.Second, func() { cpu, _ = cpuOf(p.cmd.Process.Pid) })
		if err != nil {
			return fmt.Errorf("after the kill: %w; the agent's log: %s", err, a.log.tail())
		}
		early, late := came[0], came[0]
		for _, t := range came {
			if t.Before(early) {
				early = t
			}
			if t.After(late) {
				late = t
			}
		}
		first = append(first, float64(early.Sub(began).Microseconds())/1000)
		cpus = append(cpus, float64(cpu.Microseconds())/1000)
		all = append(all, float64(late.Sub(began).Microseconds())/1000)
	}
	r := single("restart", name, "ms", spreadOf(first), atMost(300))
	r.Note = fmt.Sprintf("CPU time of all its threads until then: %.0f ms", spreadOf(cpus).Median)
	s.add(r)
	s.add(single("restart", fmt.Sprintf("the same to the first frame of every port, %d", ports), "ms", spreadOf(all), Goal{}))
	return nil
}

// flood is frames from every second port of a liveAgent to the next one.
type flood struct {
	sources []*gen.Socket
	sinks   []*gen.Sink
	since   []uint64 // frames at the sink before those that count
	stop    context.CancelFunc
	done    sync.WaitGroup
	err     error // of sending; after done
}

// flood starts one.
func (a *liveAgent) flood() (f *flood, err error) {
	ctx, stop := context.WithCancel(context.Background())
	f = &flood{stop: stop}
	defer func() {
		if err != nil {
			f, err = nil, errors.Join(err, f.close())
		}
	}()
	for i := 0; i+1 < a.ports; i += 2 {
		o, err := gen.UDP{SrcMAC: portMAC(i), DstMAC: portMAC(i + 1), Src: portAddr(i), Dst: portAddr(i + 1), Size: frameSize}.Options()
		if err != nil {
			return f, err
		}
		from, err := a.pods.index(portName(i))
		if err != nil {
			return f, err
		}
		to, err := a.pods.index(portName(i + 1))
		if err != nil {
			return f, err
		}
		err = a.pods.do(func() error {
			source, err := gen.NewSocket(from, o)
			if err != nil {
				return err
			}
			f.sources = append(f.sources, source)
			sink, err := gen.NewSink(to, gen.SinkOptions{Stamp: o.Stamp})
			if err == nil {
				f.sinks = append(f.sinks, sink)
			}
			return err
		})
		if err != nil {
			return f, err
		}
	}
	f.since = make([]uint64, len(f.sinks))
	f.done.Go(func() {
		for ctx.Err() == nil {
			for _, source := range f.sources {
				if _, err := source.Run(ctx, gen.Load{Count: 1}); err != nil {
					f.err = err
					return
				}
			}
			time.Sleep(time.Millisecond)
		}
	})
	return f, nil
}

// again forgets what came so far.
func (f *flood) again() error {
	for i, sink := range f.sinks {
		c, err := sink.Counts()
		if err != nil {
			return err
		}
		f.since[i] = c.Frames
	}
	return nil
}

// firsts waits until a frame has come at every sink and says when, to a
// millisecond or so. It calls first at the very first one.
func (f *flood) firsts(within time.Duration, first func()) ([]time.Time, error) {
	came := make([]time.Time, len(f.sinks))
	deadline := time.Now().Add(within)
	for left := len(f.sinks); left > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("after %v no frame has come out of %d of %d ports", within, left, len(f.sinks))
		}
		for i, sink := range f.sinks {
			if !came[i].IsZero() {
				continue
			}
			c, err := sink.Counts()
			if err != nil {
				return nil, err
			}
			if c.Frames > f.since[i] {
				if left == len(f.sinks) {
					first()
				}
				came[i] = time.Now()
				left--
			}
		}
	}
	return came, nil
}

func (f *flood) close() error {
	f.stop()
	f.done.Wait()
	err := f.err
	for _, s := range f.sources {
		err = errors.Join(err, s.Close())
	}
	for _, s := range f.sinks {
		err = errors.Join(err, s.Close())
	}
	return err
}

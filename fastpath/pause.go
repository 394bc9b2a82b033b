package fastpath

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// pause.go stops workers between two rounds, holds them before the first one, and
// keeps them from sleeping.

// Audit stops every worker between two rounds and counts all frames. The
// total is the size of the pool unless a frame was lost.
func (e *Engine) Audit() Census {
	var c Census
	e.paused(func() { c = census(e.places) })
	return c
}

// paused runs f while no worker is in a round.
func (e *Engine) paused(f func()) {
	resume := e.pause()
	f()
	resume()
}

// pause stops every worker between two rounds until resume is called. Until
// then nothing may be asked of a worker.
func (e *Engine) pause() (resume func()) { return e.pauseThen(func() {}) }

// pauseThen is pause, and the worker that stops last runs f first.
func (e *Engine) pauseThen(f func()) (resume func()) {
	if !e.started {
		f()
		return func() {}
	}
	var left atomic.Int32
	left.Store(int32(len(e.workers)))
	stopped := make(chan struct{})
	again := make(chan struct{})
	for _, w := range e.workers {
		w.post(func() {
			if left.Add(-1) == 0 {
				f()
				close(stopped)
			}
			<-again
		})
	}
	<-stopped
	return func() { close(again) }
}

// hold has the workers that are launched next wait, and do only what they are asked.
func (e *Engine) hold() {
	e.began = make(chan int64, len(e.workers))
	e.held.Store(true)
}

// release lets them go. Any goroutine.
func (e *Engine) release() {
	e.held.Store(false)
	for _, w := range e.workers {
		w.wake()
	}
}

// waitHeld waits in the kernel, which wakes the thread by itself: through the Go
// scheduler it would take two other threads.
func (w *worker) waitHeld() {
	w.sleeping.Store(true)
	wake := []unix.PollFd{{Fd: int32(w.wakefd), Events: unix.POLLIN}}
	for w.eng.held.Load() {
		if !w.pending.Load() {
			_, _ = unix.Poll(wake, -1)
			var b [8]byte
			_, _ = unix.Read(w.wakefd, b[:]) // there is no count after a signal
		}
		w.obey()
	}
	w.sleeping.Store(false)
	w.eng.began <- monotonic()
}

// monotonic is a time that is the same for all processes, CLOCK_MONOTONIC in ns.
func monotonic() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0 // it has no way to fail
	}
	return t.Nano()
}

// StayAwake has workers that carry something not sleep in its gaps for d from now
// on, or for what was asked before if that is longer. A thread that wakes waits for
// its turn, at times for longer than its rings last when much else wants to run;
// one that spins keeps its CPU. Any goroutine.
func (e *Engine) StayAwake(d time.Duration) {
	until := e.clock() + int64(d)
	for was := e.awake.Load(); was < until && !e.awake.CompareAndSwap(was, until); was = e.awake.Load() {
	}
}

package fastpath

import "time"

// pause.go stops workers between two rounds, and keeps them from sleeping.

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
func (e *Engine) pause() (resume func()) {
	if !e.started {
		return func() {}
	}
	stopped := make(chan struct{}, len(e.workers))
	again := make(chan struct{})
	for _, w := range e.workers {
		w.post(func() {
			stopped <- struct{}{}
			<-again
		})
	}
	for range e.workers {
		<-stopped
	}
	return func() { close(again) }
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
